//! Checks of the project's files, and of calltap's counts against callgrind's.

mod counts;
mod dist;
mod documents;
mod language;
mod layers;
mod lengths;
mod limits;
mod regressions;
mod runner;
mod sources;
