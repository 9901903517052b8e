//! The conformance body: what [`crate::coordinator`] demands of each backend, as plain functions. A
//! backend's test calls [`run`] with a fixture of its own, and one test for each name of [`checks`] if
//! it wants them apart.
//!
//! Each event that any member hears is held against the contract ([`Journal`]), whatever the check is
//! about. No check depends on how long something takes.

mod fixture;
mod journal;
mod presence;
mod recording;
mod sessions;
mod watching;

pub use fixture::{Check, LONG_SESSION_MS, SHORT_SESSION_MS, TestEnsemble};
pub use journal::Journal;

/// All checks of the body.
pub fn checks<E: TestEnsemble>() -> Vec<Check> {
    [
        recording::checks::<E>(),
        presence::checks::<E>(),
        watching::checks::<E>(),
        sessions::checks::<E>(),
    ]
    .concat()
}

/// Runs the whole body, and prints the name of each check.
pub fn run<E: TestEnsemble>() {
    let checks = checks::<E>();
    println!("conformance: {} checks", checks.len());
    for (name, check) in checks {
        check();
        println!("conformance: {name}: ok");
    }
}
