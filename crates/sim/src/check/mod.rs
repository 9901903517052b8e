//! Checkers of histories.

mod calls;
pub mod keys;
pub mod linear;
mod visited;
mod wants;
