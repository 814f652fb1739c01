//! calltap.
fn main() {}
