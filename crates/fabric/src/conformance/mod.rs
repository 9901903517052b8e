//! The conformance suite: the required behaviour of every backend, as plain functions that a
//! backend's test calls with a fixture of its own.

mod failures;
mod fixture;
mod operations;
mod waking;

pub use fixture::{DEADLINE, TestFixture};
pub use waking::{EchoFixture, wake_ups_are_not_lost};

/// Runs the whole suite, and prints the name of each check.
pub fn run<B: TestFixture>() {
    let checks = [operations::checks::<B>(), failures::checks::<B>()].concat();
    println!("conformance: {} checks", checks.len());
    for (name, check) in checks {
        check();
        println!("conformance: {name}: ok");
    }
}
