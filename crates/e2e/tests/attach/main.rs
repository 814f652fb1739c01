//! Attaching to programs that run: they go on as if nothing had been, and are left as they were.

mod builds;
mod hardened;
mod hazards;
mod killed;
mod namespaces;
mod placed;
mod privileges;
mod refused;
mod running;
mod sandbox;
mod snapshots;
mod waits;
