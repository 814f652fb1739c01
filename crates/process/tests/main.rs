//! Tests of the code that is put into processes, and of switching code in running processes.

mod agent_image;
mod programs;
mod torture;
mod unwind_table;
