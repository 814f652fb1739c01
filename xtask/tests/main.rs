//! What holds for the files of the project.

mod documents;
mod language;
mod layers;
mod regressions;
mod runner;
