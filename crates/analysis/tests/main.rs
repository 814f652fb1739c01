//! Tests of the analyses of traces.

mod answers;
mod common;
mod compare;
mod diff;
mod disabled;
mod goroutines;
mod graph;
mod info;
mod intervals;
mod part;
mod recursion;
mod replay;
mod report;
mod timeline;
mod why;
