//! Sites of every kind: how they are found, what becomes of them, and that the program computes the same.

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
