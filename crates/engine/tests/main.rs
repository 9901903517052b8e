//! limited
mod hashes;
mod sets;
