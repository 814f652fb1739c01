//! What holds for the files of the project, and for what calltap counts beside callgrind.

mod counts;
mod dist;
mod documents;
mod language;
mod layers;
mod lengths;
mod regressions;
mod runner;
mod sources;
