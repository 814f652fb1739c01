//! Programs of every kind, built in every way: they give the same results traced, and every call is counted.

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
