//! The conformance body: what every backend must do, as plain functions that
//! a backend's test calls with a bed of its own.

mod bed;
mod failures;
mod operations;
mod waking;

pub use bed::{DEADLINE, TestBed};
pub use waking::{EchoBed, wake_ups_are_not_lost};

/// Runs the whole body, and says what it runs.
pub fn run<B: TestBed>() {
    let checks = [operations::checks::<B>(), failures::checks::<B>()].concat();
    println!("conformance: {} checks", checks.len());
    for (name, check) in checks {
        check();
        println!("conformance: {name}: ok");
    }
}
