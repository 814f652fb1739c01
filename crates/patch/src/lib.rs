//! What to write where.
