//! What calltap says of the calls, in the terminal, in files and to other programs: it is what the program did.

mod callers;
mod debuginfo;
mod delays;
mod diff;
mod displays;
mod exchange;
mod flight;
mod futures;
mod installing;
mod left;
mod names;
mod questions;
mod several;
mod slow;
mod spans;
mod stacks;
mod tasks;
mod tutorial;
mod values;
mod wrong;
