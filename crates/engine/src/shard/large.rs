//! Values that are too large for one turn: given out and taken in by pieces.

use super::room::{Tries, make_room};
use super::{Shard, waiting};
use crate::outcome::Outcome;
use crate::store::{Download, Now, STREAM_CLASS, SetAside};
use crate::string_edit;
use crate::types::string::{self, LargeSet, Upload};
use remora_arena::Journal;
use remora_index::hash::record_value;
use remora_layout::hash::KeyHash;
use remora_layout::limits::STREAM_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

impl<J: Journal> Shard<J> {
    /// Executes one command as [`Shard::execute`] does, but does not return a large value whole.
    /// The caller ends the download by [`Shard::end_download`].
    #[inline]
    pub fn execute_or_stream(
        &mut self,
        command: &Command<'_>,
        hash: KeyHash,
        now: Now,
    ) -> Outcome<'_> {
        self.serve_before(command, hash, now);
        if let Command::Get { key } = *command
            && !self.store.lag.is_possible()
        {
            // A function of its own, because this is the most frequent case: the key is looked up
            // once.
            return match string::find(&mut self.store, key, hash, now) {
                Ok(Some(found)) if found.slot.class >= STREAM_CLASS => {
                    self.execute_and_stream(command, hash, now)
                }
                Ok(found) => Outcome::Reply(string::answer(&mut self.store, found, now)),
                Err(reply) => Outcome::Reply(reply),
            };
        }
        if command.brings_value()
            && self.store.table.may_hold_class(&self.store.owner, hash, STREAM_CLASS)
        {
            return self.execute_and_stream(command, hash, now);
        }
        Outcome::Reply(self.execute_next(command, hash, now))
    }

    #[cold]
    fn execute_and_stream(
        &mut self,
        command: &Command<'_>,
        hash: KeyHash,
        now: Now,
    ) -> Outcome<'_> {
        let key = command.key().expect("each of them has one");
        let found = self.store.found(key, hash);
        let found = found.filter(|found| !string::holds_other_type(&self.store, Some(*found)));
        let range = found.and_then(|found| {
            let bytes = record_value(&self.store.owner, found.slot.slot).len();
            let range = match *command {
                Command::GetRange { start, end, .. } => {
                    string_edit::range(bytes, start.into(), end.into())
                }
                _ => 0..bytes,
            };
            (range.len() > STREAM_BYTES).then_some((found, range))
        });
        let Some((found, range)) = range else {
            return Outcome::Reply(self.execute_next(command, hash, now));
        };
        // Pinned before, as the command may remove or replace the record.
        let mut download = self.store.pins.pin(&self.store.owner, found.slot.slot);
        download.narrow(range.clone());
        let Reply { status, number, value, pointer, lease_ms, wait } =
            self.execute_next(command, hash, now);
        // An expired key, and a SET without room, bring no value or an empty one.
        let is_it = value.is_some_and(|value| value.len() == range.len());
        let value = value.filter(|_| !is_it).map(|_| &[][..]);
        let reply = Reply { status, number, value, pointer, lease_ms, wait };
        if is_it {
            return Outcome::Stream(reply, download);
        }
        self.store.end_download(download, now);
        Outcome::Reply(reply)
    }

    /// Allocates the memory for a SET whose value comes in pieces.
    ///
    /// # Errors
    /// The status to reply with: too large, an expiry that makes no sense, or
    /// out of memory.
    pub fn begin_upload(&mut self, set: LargeSet<'_>, now: Now) -> Result<Upload, Status> {
        if let Some(refusal) = self.store.refusal() {
            return Err(refusal);
        }
        let bytes = set.key.len() + set.value_bytes;
        make_room(&mut self.store, &mut self.types, bytes, now);
        let Self { store, types, .. } = self;
        let mut tries = Tries::begin(store);
        loop {
            match string::begin_upload(store, set, now) {
                Err(Status::OutOfMemory) if tries.make_more_room(store, types, bytes, now) => {}
                begun => {
                    store.making_room.end();
                    return begun;
                }
            }
        }
    }

    /// Reserves memory for a request that comes in pieces and is assembled on the heap.
    /// [`Shard::end_request`] gives it back.
    ///
    /// # Errors
    /// The status of the reply: there is not enough memory.
    pub fn begin_request(&mut self, bytes: usize, now: Now) -> Result<SetAside, Status> {
        if let Some(refusal) = self.store.refusal() {
            return Err(refusal);
        }
        make_room(&mut self.store, &mut self.types, bytes, now);
        let Self { store, types, .. } = self;
        let (mut aside, mut tries) = (SetAside::default(), Tries::begin(store));
        let has_room = loop {
            let has_room = store.set_aside(&mut aside, bytes as u64, now);
            if has_room || !tries.make_more_room(store, types, bytes, now) {
                break has_room;
            }
        };
        store.making_room.end();
        store.cover.requests_bytes += aside.bytes();
        if has_room {
            return Ok(aside);
        }
        self.end_request(aside);
        Err(Status::OutOfMemory)
    }

    /// Gives the memory of a request back: it is complete, or given up.
    pub fn end_request(&mut self, mut aside: SetAside) {
        self.store.cover.requests_bytes -= aside.bytes();
        self.store.give_aside(&mut aside);
    }

    /// Takes the next piece of the value, of any length.
    ///
    /// # Errors
    /// More than was announced; the upload is to be abandoned.
    pub fn upload(&mut self, upload: &mut Upload, piece: &[u8]) -> Result<(), Status> {
        string::upload(&mut self.store, upload, piece)
    }

    /// Carries the SET out. An incomplete one is malformed and abandoned. The
    /// old value, if it was asked for and is large, comes as a download.
    pub fn finish_upload(&mut self, upload: Upload, now: Now) -> Outcome<'_> {
        self.serve_waiters(now);
        self.serve_key(upload.hash(), now);
        if let Some(refusal) = self.store.refusal() {
            string::abandon_upload(&mut self.store, upload, now);
            return Outcome::Reply(Reply::status(refusal));
        }
        let depends_on = self.store.lag.begin_command();
        if self.store.moves.has_dump(upload.hash()) {
            string::abandon_upload(&mut self.store, upload, now);
            return Outcome::Reply(Reply::status(Status::TryAgain));
        }
        match string::finish_upload(&mut self.store, upload, now) {
            Outcome::Reply(reply) => Outcome::Reply(waiting(reply, depends_on)),
            Outcome::Stream(reply, download) => {
                Outcome::Stream(waiting(reply, depends_on), download)
            }
        }
    }

    /// Seconds in which the shard has ticked: the clock of idle limits.
    pub fn ticked_s(&self) -> u64 {
        self.store.ticked.get()
    }

    /// Whether an upload has stalled, given the time of its last piece by [`Shard::ticked_s`].
    pub fn has_stalled(&self, last_piece_s: u64) -> bool {
        self.ticked_s() - last_piece_s > self.store.options.upload_idle_s
    }

    /// Counts a request that is given up because its pieces have stopped coming.
    pub fn note_stalled(&mut self) {
        self.store.stats.uploads_abandoned += 1;
    }

    /// Frees an upload's memory; the key stays unchanged.
    pub fn abandon_upload(&mut self, upload: Upload, now: Now) {
        string::abandon_upload(&mut self.store, upload, now);
    }

    /// Up to `bytes` bytes of a download of this shard, from `at` on; fewer at
    /// its end, none behind it.
    pub fn piece(&self, download: &Download, at: usize, bytes: usize) -> &[u8] {
        download.piece(&self.store.owner, at, bytes)
    }

    /// Ends a download of this shard, at its end or before.
    pub fn end_download(&mut self, download: Download, now: Now) {
        self.store.end_download(download, now);
    }
}
