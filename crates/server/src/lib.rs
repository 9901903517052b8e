//! Placeholder.
#![forbid(unsafe_code)]

mod config;
pub use config::{Config, Wake};
