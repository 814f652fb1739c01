//! Sites of every kind: their discovery, their states, and the program's unchanged results.

mod by_hand;
mod first_calls;
mod int3;
mod landing;
mod libcalls;
mod patch_modes;
mod profiling_calls;
mod recordmcount;
mod resolvers;
mod static_programs;
mod stepping;
mod unmodified;
mod xray;
