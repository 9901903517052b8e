//! Doorbells: a client tells a shard about frames in a ring, and about credit if the shard waits
//! for some.

use super::bell::Bell;
use super::{asleep, ready};
use remora_arena::{ReadView, Words};
use remora_layout::session::{parked_word, ready_word, set_offset, stuck_word};

/// The client's side of one ring set at one shard ([`ready`]).
#[derive(Clone)]
pub struct Doorbell {
    to_server: Words,
    to_client: ReadView,
    shards: usize,
    shard: usize,
    set: u32,
    /// Wakes the shard.
    bell: Bell,
}

impl Doorbell {
    /// For this ring set of the mailboxes, at that one of the shards that `bell`
    /// wakes.
    pub fn new(
        (to_server, to_client): (Words, ReadView),
        shards: usize,
        shard: usize,
        set: usize,
        bell: Bell,
    ) -> Self {
        Self { to_server, to_client, shards, shard, set: set as u32, bell }
    }

    /// Call it after every credit: tells the shard if it has replies that wait for credit
    /// ([`super::asleep`]: the shard announces that, and then checks once more).
    #[inline]
    pub fn ring_for_credit(&self) {
        let stuck = set_offset(self.shards, self.set as usize) / 8 + stuck_word(self.shard);
        if asleep::must_signal(|| self.to_client.load(stuck)) {
            self.ring();
        }
    }

    /// Call it after every frame: sets the ready bit, and wakes the shard if the shard would not
    /// see the bit. Returns whether it had to.
    #[inline]
    pub fn ring(&self) -> bool {
        let Self { to_server, to_client, shard, set, bell, .. } = self;
        let waits = || bell.asleep() | to_client.load(parked_word(*shard));
        let must_signal = ready::tell(to_server.word(ready_word(*shard)), *set, waits);
        if must_signal {
            bell.signal();
        }
        must_signal
    }
}
