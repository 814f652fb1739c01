//! Attaching to running programs, which must run on as before, and be unchanged after detaching.

mod builds;
mod confined;
mod containers;
mod counter;
mod crowded;
mod forked;
mod hardened;
mod hazards;
mod killed;
mod memory;
mod namespaces;
mod others;
mod placed;
mod privileges;
mod refused;
mod replaced;
mod running;
mod sandbox;
mod snapshots;
mod starting;
mod stopped;
mod waits;
