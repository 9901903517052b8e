//! Checkers of histories.

pub mod keys;
pub mod linear;
