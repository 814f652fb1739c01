//! Pages of the kernel's ring buffer.

mod pages;
mod records;
