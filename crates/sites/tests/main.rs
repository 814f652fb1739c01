//! Tests of the sites found in files.

mod go;
mod handed;
mod hostile;
mod landing;
mod listing;
mod matrix;
mod selected;
mod support;
mod unmodified;
