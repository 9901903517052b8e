//! The client: one [`Session`] per thread, which reads the server's memory
//! itself or asks by message, and tells with every result which it did.

#![forbid(unsafe_code)]

mod api;
pub use api::*;
