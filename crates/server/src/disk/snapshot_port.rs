//! Between the shards' threads and the thread that writes snapshots.
//!
//! Invariant: a shard never waits. Each has a bounded queue; while it is full the shard's sweep
//! stands still, and the thread rings for it when it has taken something.

use super::port::ThreadBell;
use crate::sync::ArrayQueue;
use crate::turn_times::TurnTimes;
use remora_arena::Journal;
use remora_engine::{Now, Shard, SnapshotTurn};
use remora_protocol::message::Status;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pieces of one shard on their way.
const PIECES: usize = 4;
/// Bytes that a shard gathers before it hands them over.
const PIECE_BYTES: usize = 256 << 10;
/// How long a shard leaves a snapshot that waits for something else.
const WAIT: Duration = Duration::from_millis(5);

/// What a shard hands over.
pub enum Piece {
    /// Bytes of its stream.
    Bytes(Vec<u8>),
    /// The end of its stream: the sequence at which it is exact, and the bytes that its data take.
    End { sequence: u64, used_bytes: u64 },
    /// There is no end, for this reason.
    GivenUp(&'static str),
}

/// A reason of [`Piece::GivenUp`].
const TOO_SLOW: &str = "changes came faster than they could be written, or operations that began \
    before it did not end";
/// See [`TOO_SLOW`].
const UNDER_WAY: &str = "a shard has another snapshot under way";
/// See [`TOO_SLOW`].
const READ_ONLY: &str = "a shard carries out a log, or is being copied from its primary";

/// See the module's text.
pub struct SnapshotPort {
    queues: Vec<ArrayQueue<Piece>>,
    /// The turns so far.
    pub turns: TurnTimes,
    bell: Arc<ThreadBell>,
    /// The thread has given it up.
    is_over: AtomicBool,
}

impl SnapshotPort {
    /// For so many shards; `bell` wakes the thread.
    pub fn new(shards: usize, bell: Arc<ThreadBell>) -> Self {
        let queues = (0..shards).map(|_| ArrayQueue::new(PIECES)).collect();
        Self { queues, turns: TurnTimes::default(), bell, is_over: AtomicBool::new(false) }
    }

    /// The next piece of a shard.
    pub fn pop(&self, shard: usize) -> Option<Piece> {
        self.queues[shard].pop()
    }

    /// Whether no shard has handed anything over.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(ArrayQueue::is_empty)
    }

    /// No shard is to go on.
    pub fn give_up(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// A shard's part in a snapshot.
pub struct SnapshotSource {
    port: Arc<SnapshotPort>,
    shard: usize,
    gathered: Vec<u8>,
    /// What is to be handed over behind that.
    last: Option<Piece>,
    waits_until: Option<Instant>,
}

impl SnapshotSource {
    /// Begins a snapshot of the shard. `before` is the shard's part in the one before, if it has
    /// not ended. The thread has given that one up, or it would not begin another; the shard has
    /// not looked since.
    pub fn begin<J: Journal>(
        port: Arc<SnapshotPort>,
        number: usize,
        (shard, before): (&mut Shard<J>, Option<Self>),
    ) -> Self {
        if let Some(before) = before {
            before.abandon(shard);
        }
        let last = shard.begin_snapshot().err().map(|why| match why {
            Status::TryAgain => Piece::GivenUp(UNDER_WAY),
            _ => Piece::GivenUp(READ_ONLY),
        });
        Self { port, shard: number, gathered: Vec::new(), last, waits_until: None }
    }

    /// Whether there is something to do now.
    pub fn has_work(&self) -> bool {
        let is_over = self.port.is_over.load(Ordering::Acquire);
        let may_go_on = self.waits_until.is_none_or(|until| Instant::now() >= until);
        is_over || (may_go_on && !self.port.queues[self.shard].is_full())
    }

    /// One turn. False once the shard has nothing more to do for it.
    pub fn turn<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) -> bool {
        if self.port.is_over.load(Ordering::Acquire) {
            self.abandon(shard);
            return false;
        }
        if self.last.is_none() && self.gathered.len() < PIECE_BYTES {
            let turn = self.port.turns.time(|| {
                let turn = shard.snapshot_turn(now);
                shard.take_snapshot(&mut self.gathered);
                turn
            });
            self.waits_until = (turn == SnapshotTurn::Waits).then(|| Instant::now() + WAIT);
            self.last = match turn {
                SnapshotTurn::Ended { sequence } => {
                    Some(Piece::End { sequence, used_bytes: shard.used_bytes() })
                }
                SnapshotTurn::GivenUp => Some(Piece::GivenUp(TOO_SLOW)),
                SnapshotTurn::More | SnapshotTurn::Waits | SnapshotTurn::Full => None,
            };
        }
        self.hand_over()
    }

    /// Abandons the shard's snapshot if it is of this source: it may be the copy of a replica.
    fn abandon<J: Journal>(&self, shard: &mut Shard<J>) {
        if self.last.is_none() {
            shard.abandon_snapshot();
        }
    }

    /// Hands over what is gathered, as far as there is room. False once that is all.
    fn hand_over(&mut self) -> bool {
        let queue = &self.port.queues[self.shard];
        let is_due = self.gathered.len() >= PIECE_BYTES || self.last.is_some();
        if is_due && !self.gathered.is_empty() && !queue.is_full() {
            let bytes = std::mem::take(&mut self.gathered);
            push(queue, Piece::Bytes(bytes));
            self.port.bell.ring();
        }
        if self.gathered.is_empty()
            && !queue.is_full()
            && let Some(last) = self.last.take()
        {
            push(queue, last);
            self.port.bell.ring();
            return false;
        }
        true
    }
}

fn push(queue: &ArrayQueue<Piece>, piece: Piece) {
    let pushed = queue.push(piece);
    pushed.unwrap_or_else(|_| unreachable!("the shard's thread alone fills it"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::{NoJournal, Owner};
    use remora_engine::ShardOptions;

    fn shard() -> Shard<NoJournal> {
        Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default())
    }

    fn port() -> Arc<SnapshotPort> {
        Arc::new(SnapshotPort::new(1, Arc::default()))
    }

    /// The thread gives a snapshot up and begins the next before the shard has looked.
    #[test]
    fn a_snapshot_begins_although_the_shard_still_has_the_one_that_was_given_up() {
        let mut shard = shard();
        let (first, second) = (port(), port());
        let before = SnapshotSource::begin(Arc::clone(&first), 0, (&mut shard, None));
        first.give_up();
        let mut source = SnapshotSource::begin(Arc::clone(&second), 0, (&mut shard, Some(before)));
        let mut ended = false;
        while source.turn(&mut shard, Now::default()) {}
        while let Some(piece) = second.pop(0) {
            assert!(!matches!(piece, Piece::GivenUp(_)));
            ended |= matches!(piece, Piece::End { .. });
        }
        assert!(ended && first.is_empty());
    }

    #[test]
    fn a_copy_that_is_under_way_goes_on_when_a_snapshot_is_given_up() {
        let mut shard = shard();
        shard.begin_snapshot().unwrap();
        let (first, second) = (port(), port());
        let refused = SnapshotSource::begin(Arc::clone(&first), 0, (&mut shard, None));
        first.give_up();
        let mut source = SnapshotSource::begin(Arc::clone(&second), 0, (&mut shard, Some(refused)));
        second.give_up();
        assert!(!source.turn(&mut shard, Now::default()));
        assert_eq!(shard.begin_snapshot(), Err(Status::TryAgain), "it is still under way");
    }

    #[test]
    fn a_snapshot_that_has_not_ended_has_a_reason_of_its_own() {
        let mut shard = shard();
        shard.begin_snapshot().unwrap();
        let port = port();
        let mut source = SnapshotSource::begin(Arc::clone(&port), 0, (&mut shard, None));
        assert!(!source.turn(&mut shard, Now::default()));
        assert!(matches!(port.pop(0), Some(Piece::GivenUp(UNDER_WAY))));
    }
}
