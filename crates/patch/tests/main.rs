//! Tests of changing code: copies, bytes, batches, and a model of all orders in which processors
//! may see a change.

mod aarch64;
mod audit;
mod bytes;
mod copy;
mod model;
mod prepared;
mod written;
