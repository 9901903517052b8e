//! Whole sessions with a peer that follows a script of arbitrary bytes: the
//! bodies of the fuzz targets, which the suite runs too.
//!
//! Each takes the script, plays the peer by it against production code, and
//! panics where a promise is broken. It gives counts of what came about, so
//! that a test can see that the script did something. What follows from a
//! script is always the same, but for the sockets of [`fabric`] and [`resp`],
//! whose timing no promise depends on.

pub mod client;
mod direct;
pub mod fabric;
pub mod resp;
pub mod ring;
mod script;

pub use script::Script;

use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;

/// A hang, and not a slow machine.
const HANG: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Sleeps until one of these is ready.
fn await_any(descriptors: &mut [PollFd<'_>], otherwise: &str) {
    // Only signals repeat it: a fuzzer has a timer.
    let ready = loop {
        match poll(descriptors, Some(&HANG)) {
            Err(Errno::INTR) => {}
            ready => break ready.expect("good descriptors"),
        }
    };
    assert!(ready > 0, "{otherwise}");
}
