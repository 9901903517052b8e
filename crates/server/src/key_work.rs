//! A batch of commands that a shard executes, one for each of several keys.
//!
//! Invariant: a batch is executed in its order and in bounded pieces, of a bounded number of keys
//! and about a bounded number of bytes; the results of all batches of a request never exceed a
//! reply by more than a piece of each.

use remora_arena::Journal;
use remora_engine::{Download, Now, Outcome, Shard};
use remora_frontend::{KeyBatch, KeyReplies, OwnedReply};
use remora_layout::limits::{CONNECTION_REQUESTS_AHEAD, JOB_KEYS_PER_TURN, STREAM_PIECE_BYTES};
use remora_protocol::Reply;
use remora_protocol::message::Status;

/// A batch that is being executed.
pub struct KeyWork {
    batch: KeyBatch,
    /// Keys that were executed.
    done: usize,
    found: KeyReplies,
    /// Bytes of the values among them.
    value_bytes: usize,
    /// The sequence that the reply waits for.
    wait: u64,
    /// The value of the last key, and bytes of it that are copied.
    download: Option<(Download, usize)>,
}

impl KeyWork {
    /// Nothing is executed yet.
    pub fn new(batch: KeyBatch) -> Self {
        let found = KeyReplies::with_room(batch.keys());
        Self { batch, done: 0, found, value_bytes: 0, wait: 0, download: None }
    }

    /// Bytes of the answers so far.
    pub const fn found_bytes(&self) -> usize {
        self.found.bytes()
    }

    /// Executes a piece. The reply and the sequence that it waits for, once all keys
    /// are executed.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
    ) -> Option<(OwnedReply, u64)> {
        let until = self.batch.keys().min(self.done + JOB_KEYS_PER_TURN);
        let value_bytes = self.value_bytes;
        let until_bytes = self.found.bytes() + STREAM_PIECE_BYTES;
        self.copy_piece(shard, now);
        while self.download.is_none() && self.done < until && self.found.bytes() < until_bytes {
            self.execute_some(shard, (until, until_bytes), now);
        }
        self.batch.found().add(self.value_bytes - value_bytes);
        // Changes are executed to the end, also for a closed connection.
        let is_read = !self.batch.each().is_write();
        if is_read && self.batch.found().is_too_large() {
            if let Some((download, _)) = self.download.take() {
                shard.end_download(download, now);
            }
            return Some((OwnedReply::status(Status::TooLarge), self.wait));
        }
        if self.download.is_some() || self.done < self.batch.keys() {
            return None;
        }
        let value = Some(self.found.take());
        Some((OwnedReply { value, ..OwnedReply::status(Status::Ok) }, self.wait))
    }

    /// Executes some keys, which are fetched side by side. It stops at a key whose value goes in
    /// pieces, or at the limit of bytes.
    fn execute_some<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (until, until_bytes): (usize, usize),
        now: Now,
    ) {
        let Self { batch, found, .. } = self;
        let until = until.min(self.done + CONNECTION_REQUESTS_AHEAD);
        let hashes = || (self.done..until).map(|at| batch.hash(at));
        hashes().for_each(|hash| shard.prefetch(hash));
        hashes().for_each(|hash| shard.prefetch_record(hash));
        for at in self.done..until {
            let command = batch.command(at);
            self.done += 1;
            match shard.execute_or_stream(&command, batch.hash(at), now) {
                Outcome::Reply(Reply { status, number, value, wait, .. }) => {
                    self.wait = self.wait.max(wait);
                    self.value_bytes += found.push(status, number, value);
                }
                Outcome::Stream(Reply { status, number, wait, .. }, download) => {
                    self.wait = self.wait.max(wait);
                    self.value_bytes += download.len();
                    found.begin(status, number, Some(download.len()));
                    self.download = Some((download, 0));
                    return;
                }
            }
            if found.bytes() >= until_bytes {
                return;
            }
        }
    }

    /// Copies a piece of a value, if one is under way.
    fn copy_piece<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) {
        let Some((download, copied)) = self.download.take() else { return };
        let piece = shard.piece(&download, copied, STREAM_PIECE_BYTES);
        let copied = copied + piece.len();
        self.found.extend(piece);
        if copied < download.len() {
            self.download = Some((download, copied));
        } else {
            shard.end_download(download, now);
        }
    }
}
