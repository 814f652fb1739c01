//! Tests of calltap's answers on the terminal, in files and in other programs: they must agree with
//! the program's own counts.

mod callers;
mod debuginfo;
mod delays;
mod diff;
mod displays;
mod exchange;
mod flight;
mod futures;
mod habits;
mod howto;
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
