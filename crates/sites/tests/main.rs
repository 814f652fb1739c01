//! Places in files that can be traced.

mod go;
mod handed;
mod hostile;
mod landing;
mod listing;
mod matrix;
mod selected;
mod support;
mod unmodified;
