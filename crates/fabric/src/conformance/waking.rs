//! Waking: a WRITE of the peer into local memory ends a `wait`.

use super::fixture::{DEADLINE, TestFixture};
use crate::{Link, RemoteAddress, Waited, Work};

/// A fixture whose target answers, in a thread of its own.
pub trait EchoFixture: TestFixture {
    /// From now on, and for this many rounds: whenever the target receives immediate 1, it writes
    /// the first word of the mailbox into the first word of the initiator's local memory, and
    /// sleeps between rounds.
    fn start_echo(&mut self, rounds: u64);
    /// The first word of the local memory.
    fn echoed(&self) -> u64;
    /// Ends the target's thread; gives the wake-ups that it lost.
    fn stop_echo(&mut self) -> u64;
}

/// A game of ping-pong in which both sides sleep whenever they can. Gives the
/// wake-ups that were lost: the time was up although the answer was there.
pub fn wake_ups_are_not_lost<B: EchoFixture>(rounds: u64) -> u64 {
    let mut fixture = B::new(4096);
    let region = fixture.mailbox();
    fixture.start_echo(rounds);
    let mut lost = 0;
    for round in 1..=rounds {
        let to = RemoteAddress { region, offset: 0 };
        let bytes = round.to_le_bytes();
        fixture.link().post(&[Work::Write { id: round, to, bytes: &bytes, imm: Some(1) }]);
        while fixture.echoed() < round {
            while let Some(completion) = fixture.link().poll() {
                assert_eq!(completion.result, Ok(()));
            }
            if fixture.echoed() >= round {
                break;
            }
            // So long that no busy machine lets the answer come just after it.
            if fixture.link().wait(Some(DEADLINE)) == Waited::TimedOut {
                assert!(fixture.echoed() >= round, "no answer in round {round}");
                lost += 1;
            }
        }
        assert_eq!(fixture.echoed(), round);
    }
    lost + fixture.stop_echo()
}
