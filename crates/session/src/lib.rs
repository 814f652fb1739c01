//! The model of one traced program.
