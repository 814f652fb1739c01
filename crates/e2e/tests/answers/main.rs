//! What calltap says of the calls, in the terminal, in files and to other programs: it is what the program did.

mod callers;
mod dataset;
mod debuginfo;
mod diff;
mod exports;
mod flight;
mod futures;
mod import;
mod installing;
mod left;
mod names;
mod perfetto;
mod questions;
mod slow;
mod spans;
mod stacks;
mod terminal;
mod top;
mod trace_cmd;
mod tui;
mod tutorial;
mod values;
mod view;
mod waits;
mod why;
mod wrong;
