//! The control directory, in the hands of the programs it is made for.

mod clients;
mod files;
mod inside;
mod kernel_selftests;
mod stack_tracer;
