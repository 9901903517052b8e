//! The reader's side of chains: a walk from chunk to chunk.
//!
//! Invariants: it accepts a chunk only if guardian, generation and checksum agree and it is of this
//! chain. Its results count only if the chain's state has the same version behind the last chunk as
//! before the first one: then no chunk was split, merged, moved, changed or removed in between. The
//! caller reads the root record with each chunk ([`ChainRef::root_range`]), and begins again under
//! the state that it found.

use crate::hash::TableRef;
use remora_arena::class_bytes;
use remora_layout::chain::{
    CHAIN_STATE_BYTES, ChainState, ChunkHome, ChunkRef, encoded, verify_chunk, verify_state,
};
use remora_layout::limits::{CHUNK_READ_BYTES, SLOT_UNIT_BYTES, WALK_RESTARTS, WALK_RETRIES};
use remora_layout::node::{Home, NodeRef, NotANode, Proof};
use remora_layout::record::{
    Mutable, RECORD_HEADER_BYTES, Reject, Verified, state_offset, verify_root_words,
};
use remora_walk::{Step, Walk, Want, What};

/// A reader's view of a chain.
#[derive(Clone, Copy, Debug)]
pub struct ChainRef {
    slot: u32,
    generation: u32,
    /// Byte of the root record at which the state block begins.
    state_from: usize,
    arena: Home,
    home: ChunkHome,
    region_bytes: u64,
    /// The state as it was read last.
    pub state: ChainState,
}

impl ChainRef {
    /// The chain whose root record the reader has just found; `record` are the fetched bytes. `None`
    /// if it was fetched during a change.
    pub fn of_record(shard: &TableRef, found: &Verified<'_>, record: &[u8]) -> Option<Self> {
        let (slot, generation) = (found.pointer.slot, found.pointer.generation);
        let key_bytes = found.pointer.length as usize - RECORD_HEADER_BYTES - found.value.len();
        let state_from = state_offset(key_bytes);
        let arena = Home { secret: shard.secret, region: shard.region };
        let at = NodeRef { slot: slot + (state_from / SLOT_UNIT_BYTES) as u32, generation };
        let state = verify_state(record.get(state_from..)?, arena, at, Proof::Checksum).ok()?;
        let home = ChunkHome::new(shard.secret, shard.region, slot, generation);
        let region_bytes = shard.region_bytes;
        Some(Self { slot, generation, state_from, arena, home, region_bytes, state })
    }

    /// The range to fetch behind each chunk: the root record with its state; offset and bytes.
    pub fn root_range(&self) -> (u64, usize) {
        (u64::from(self.slot) * SLOT_UNIT_BYTES as u64, self.state_from + CHAIN_STATE_BYTES)
    }

    /// Checks the root record that was fetched behind a chunk. Returns its words, and the chain's
    /// state: the chunk counts if that has the version under which the walk began.
    ///
    /// # Errors
    /// The list has gone or is being changed, or the reader has to ask the owner.
    pub fn check_root(&self, bytes: &[u8]) -> Result<(Mutable, ChainState), Reject> {
        let mutable = verify_root_words(bytes, self.generation)?;
        let slot = self.slot + (self.state_from / SLOT_UNIT_BYTES) as u32;
        let at = NodeRef { slot, generation: self.generation };
        let state = bytes.get(self.state_from..).unwrap_or_default();
        match verify_state(state, self.arena, at, Proof::Checksum) {
            Ok(state) => Ok((mutable, state)),
            Err(NotANode::Torn) => Err(Reject::Torn),
            Err(NotANode::Dead) => Err(Reject::Dead),
        }
    }

    /// The number of chunks that a walk to this range wants, if all of them are full: the chain is
    /// walked from its nearer end.
    pub fn chunks_to(&self, from: u64, count: u64, most_entries: u64) -> u64 {
        let behind = self.state.length.saturating_sub(from);
        let far = (from + count).min(behind);
        far.div_ceil(most_entries) + 1
    }
}

/// Why reading did not conclude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskReason {
    /// The walk restarted too often: the chain changes too fast.
    TooManyRestarts,
    /// Chunks were being changed too often.
    TooManyRetries,
    /// It would meet more chunks than it may.
    TooFar,
    /// An entry is too long to be read, or the bytes are no chain.
    Broken,
}

/// A walk to the entries of a range.
pub struct Range {
    chain: ChainRef,
    from: u64,
    count: u64,
    /// It goes from the end to the front.
    is_reverse: bool,
    next: ChunkRef,
    /// The index of the first entry that the next chunk has, or of the one behind its last.
    at: u64,
    wanted: bool,
    /// Entries found, encoded, as the walk meets them: those of each chunk in order.
    found: Vec<Vec<u8>>,
    entries: u64,
    chunks: u64,
    most_chunks: u64,
    restarts: u32,
    retries: u32,
}

impl Range {
    /// A walk to `count` entries from `from` on, which there are in this state.
    pub fn begin(chain: ChainRef, from: u64, count: u64) -> Self {
        let mut walk = Self {
            chain,
            from,
            count,
            is_reverse: false,
            next: ChunkRef::default(),
            at: 0,
            wanted: false,
            found: Vec::new(),
            entries: 0,
            chunks: 0,
            most_chunks: u64::MAX,
            restarts: 0,
            retries: 0,
        };
        walk.start();
        walk
    }

    /// It is not to fetch more chunks than this from its beginning, or a restart, on: chunks of long
    /// entries have few of them.
    pub fn within(self, most_chunks: u64) -> Self {
        Self { most_chunks, ..self }
    }

    /// From now on it walks to this range, under the state that it knows. Before its first want, and
    /// after a restart.
    pub fn aim(&mut self, from: u64, count: u64) {
        (self.from, self.count) = (from, count);
        self.start();
    }

    fn start(&mut self) {
        let state = self.chain.state;
        self.count = self.count.min(state.length.saturating_sub(self.from));
        self.is_reverse = state.length.saturating_sub(self.from) < self.from + self.count;
        (self.next, self.at) = match self.is_reverse {
            false => (state.first, 0),
            true => (state.last, state.length),
        };
        self.wanted = true;
        self.found.clear();
        (self.entries, self.chunks) = (0, 0);
    }

    /// The entries found, encoded, in the order of the chain.
    pub fn found(&self) -> impl Iterator<Item = &[u8]> {
        let (ahead, behind) =
            if self.is_reverse { (0, self.found.len()) } else { (self.found.len(), 0) };
        let forward = self.found[..ahead].iter();
        forward.chain(self.found[..behind].iter().rev()).flat_map(|chunk| encoded(chunk))
    }

    /// Takes what a chunk has of the range. Whether that is all.
    fn take(&mut self, entries: &[u8], count: u64) -> bool {
        let first = if self.is_reverse { self.at.saturating_sub(count) } else { self.at };
        let (start, end) = (self.from.max(first), (self.from + self.count).min(first + count));
        if start < end {
            let skipped = encoded(entries).skip((start - first) as usize);
            let some: Vec<u8> = skipped.take((end - start) as usize).flatten().copied().collect();
            self.found.push(some);
            self.entries += end - start;
        }
        self.at = if self.is_reverse { first } else { first + count };
        self.entries == self.count
    }
}

impl Walk for Range {
    /// Its results are in [`Range::found`].
    type Found = ();
    type Reason = AskReason;
    /// The restart that wants the chunk, and the chunk.
    type Tag = (u32, ChunkRef);
    type Head = ChainState;

    const OUT_OF_REGION: AskReason = AskReason::Broken;

    fn next_want(&mut self) -> Option<Want<Self::Tag>> {
        if !std::mem::take(&mut self.wanted) || self.next.is_none() {
            return None;
        }
        let offset = u64::from(self.next.slot) * SLOT_UNIT_BYTES as u64;
        let bytes = class_bytes(self.next.class);
        let is_there = offset + bytes as u64 <= self.chain.region_bytes;
        let is_short = bytes <= CHUNK_READ_BYTES;
        let tag = (self.restarts, self.next);
        (is_there && is_short).then_some(Want { offset, bytes, what: What::Record, tag })
    }

    fn feed(&mut self, want: Want<Self::Tag>, bytes: &[u8], _proof: Proof) -> Step<(), AskReason> {
        if want.tag != (self.restarts, self.next) {
            return Step::More;
        }
        let chunk = match verify_chunk(bytes, self.chain.home, self.next) {
            Ok(chunk) => chunk,
            Err(Reject::Torn) => {
                self.retries += 1;
                self.wanted = true;
                return match self.retries > WALK_RETRIES {
                    true => Step::Ask(AskReason::TooManyRetries),
                    false => Step::More,
                };
            }
            Err(_) => return Step::Restart,
        };
        self.chunks += 1;
        if self.take(chunk.entries, chunk.count.into()) {
            return Step::Found(());
        }
        self.next = if self.is_reverse { chunk.previous } else { chunk.next };
        self.wanted = true;
        // No chunk is empty, so that a chain has no more of them than entries.
        if self.next.is_none() || self.chunks > self.chain.state.length {
            return Step::Restart;
        }
        if self.chunks >= self.most_chunks {
            return Step::Ask(AskReason::TooFar);
        }
        Step::More
    }

    fn restart(&mut self, state: &ChainState) -> Result<(), AskReason> {
        if self.restarts >= WALK_RESTARTS {
            return Err(AskReason::TooManyRestarts);
        }
        self.restarts += 1;
        self.chain.state = *state;
        self.start();
        Ok(())
    }

    fn retries(&self) -> u32 {
        self.retries + self.restarts
    }

    fn results(&self) -> usize {
        self.entries as usize
    }
}
