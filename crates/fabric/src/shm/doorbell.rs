//! Doorbells: how a client tells a shard of what it put into a ring.

use super::bell::Bell;
use super::ready;
use remora_arena::{ReadView, Words};
use remora_layout::session::{parked_word, ready_word};

/// The client's side of one ring set at one shard ([`ready`]).
#[derive(Clone)]
pub struct Doorbell {
    to_server: Words,
    to_client: ReadView,
    shard: usize,
    set: u32,
    /// Wakes the shard.
    bell: Bell,
}

impl Doorbell {
    /// For this ring set of the mailboxes, at the shard that `bell` wakes.
    pub fn new(to_server: Words, to_client: ReadView, shard: usize, set: u32, bell: Bell) -> Self {
        Self { to_server, to_client, shard, set, bell }
    }

    /// To be called after every frame and every credit: sets the ready bit, and
    /// wakes the shard if it would not see that. Says whether it had to.
    #[inline]
    pub fn ring(&self) -> bool {
        let Self { to_server, to_client, shard, set, bell } = self;
        let waits = || bell.asleep() | to_client.load(parked_word(*shard));
        let must_signal = ready::tell(to_server.word(ready_word(*shard)), *set, waits);
        if must_signal {
            bell.signal();
        }
        must_signal
    }
}
