//! Object files that are given a section `__mcount_loc`.

mod hostile;
mod intact;
mod linked;
mod support;
