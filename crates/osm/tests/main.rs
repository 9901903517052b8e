//! The integration tests of OpenStreetMap's files: one binary, a module for each feature.

mod hostile;
mod read;
mod write;
mod written;
