//! Checkers of histories.

mod calls;
pub mod keys;
pub mod linear;
pub mod places;
mod visited;
mod wants;
