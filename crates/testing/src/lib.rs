//! What the tests of every crate share. Only tests depend on it, and it depends on no
//! other crate of Remora, so that every crate's tests can use it.
//!
//! * [`Random`]: numbers, bytes and choices from a seed, so that a failure repeats.
//! * [`in_own_process`]: a test that counts what the whole process has.
#![forbid(unsafe_code)]

#[cfg(feature = "certificates")]
mod certificates;
mod own_process;
mod random;

#[cfg(feature = "certificates")]
pub use certificates::{Authority, Identity};
pub use own_process::in_own_process;
pub use random::Random;
