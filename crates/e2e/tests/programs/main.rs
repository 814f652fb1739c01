//! Programs of every kind in every build: traced, they have the same results, and every call is
//! counted.

mod calling;
mod follow;
mod go;
mod input;
mod library;
mod limits;
mod loss;
mod processes;
mod python;
mod recorder;
mod registers;
mod sites;
mod surroundings;
mod switched;
mod tail_calls;
mod threads;
mod timeline;
mod tracers;
mod unwinding;
