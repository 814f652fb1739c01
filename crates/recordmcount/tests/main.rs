//! Tests of adding a section `__mcount_loc` to object files.

mod hostile;
mod intact;
mod linked;
mod support;
