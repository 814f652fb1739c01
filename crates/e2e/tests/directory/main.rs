//! The control directory, used by the programs that it is made for.

mod clients;
mod files;
mod inside;
mod kernel_selftests;
mod stack_tracer;
