//! The code that is put into processes, and processes whose code is changed.

mod agent_image;
mod programs;
mod torture;
