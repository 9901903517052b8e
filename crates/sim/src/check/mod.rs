//! Checkers of histories.

pub mod calls;
pub mod keys;
pub mod linear;
pub mod lists;
pub mod places;
mod visited;
mod wants;
