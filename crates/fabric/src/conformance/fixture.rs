//! The fixture of the checks: a link with its target, and the helpers that the checks use.

use crate::{Completion, Link, LinkError, RemoteAddress, Waited, Work};
use std::time::Duration;

/// A link with its target, for tests.
pub trait TestFixture: Sized {
    /// The link under test.
    type Link: Link;

    /// A fresh pair with one readable region and one mailbox, each of
    /// `region_bytes`, and as much landing memory.
    fn new(region_bytes: usize) -> Self;
    /// The initiator's end.
    fn link(&mut self) -> &mut Self::Link;
    /// Region id of the target's readable region.
    fn readable(&self) -> u32;
    /// Region id of the initiator's mailbox at the target.
    fn mailbox(&self) -> u32;
    /// The target changes its readable region.
    fn target_store(&mut self, offset: usize, bytes: &[u8]);
    /// The target reads the mailbox.
    fn target_load(&mut self, offset: usize, bytes: usize) -> Vec<u8>;
    /// The target withdraws the session.
    fn withdraw(&mut self);
    /// The peer goes away without a word; returns the reason with which the in-flight operations
    /// must fail.
    fn lose(&mut self) -> LinkError;
    /// The immediates below 100 that the target received since the last call, each with the word of
    /// that number in the mailbox as the target then saw it.
    fn immediates(&mut self) -> Vec<(u32, u64)>;
}

/// A check, and its name.
pub(super) type Check = (&'static str, fn());

/// Functions of a fixture `B`, by their names.
macro_rules! checks {
    ($($check:ident),* $(,)?) => { vec![$((stringify!($check), $check::<B> as fn())),*] };
}
pub(super) use checks;

/// How long a link may be silent before a test fails. Long, because tests run on
/// busy machines; no test passes by it.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub(super) const REGION: usize = 256 << 10;

pub(super) fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}

pub(super) fn wait<L: Link>(link: &mut L) -> Completion {
    // Bounded: wake-ups for nothing are few.
    for _ in 0..1_000_000 {
        if let Some(completion) = link.poll() {
            return completion;
        }
        assert_ne!(link.wait(Some(DEADLINE)), Waited::TimedOut, "no completion");
    }
    panic!("woken for nothing without end");
}

pub(super) fn ok(id: u64) -> Completion {
    Completion { id, result: Ok(()) }
}

pub(super) fn read(id: u64, region: u32, offset: u64, into: usize, bytes: usize) -> Work<'static> {
    Work::Read { id, from: RemoteAddress { region, offset }, into, bytes }
}

pub(super) fn write(id: u64, region: u32, offset: u64, bytes: &[u8]) -> Work<'_> {
    Work::Write { id, to: RemoteAddress { region, offset }, bytes, imm: None }
}
