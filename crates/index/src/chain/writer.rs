//! The owner of a chain: it changes the chunks in place, and replaces those in the middle.
//!
//! Invariants: the version in the state block is odd while any chunk changes, and a chunk's checksum
//! is right when it is even again. Chunks that leave the chain stay as they are until they are
//! released: a reader who still reads one finds that the state has another version.

use super::directory::{At, Directory, Place};
use remora_arena::{
    Journal, Owner, Slot, Slots, class_bytes, class_for, flip_dead, kind_of, lengths_of,
    mutable_of, publish_live, set_mutable, set_state_guardian, slot_of,
};
use remora_layout::chain::{
    CHAIN_STATE_BYTES, CHUNK_HEADER_BYTES, ChunkHome, ChunkRef, ChunkShape, begins_with_link,
    chunk_lengths, chunk_word, encoded, entries_sum, entry_sum, head_sum, state_word, verify_chunk,
    verify_state,
};
use remora_layout::kind::Kind;
use remora_layout::limits::{CHUNK_BYTES, CHUNK_READ_BYTES, SLOT_UNIT_BYTES, WORD_BYTES};
use remora_layout::node::{CheckedPart, Home, NODE_CHECKED_FROM, NodeRef, Proof, word};
use remora_layout::record::{CHECKED_FROM, Mutable, State};

/// One end of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Before the first entry.
    Front,
    /// Behind the last one.
    Back,
}

/// Entries, encoded, in the order of the chain.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Their bytes.
    pub bytes: &'a [u8],
    /// Bytes of each.
    pub lengths: &'a [u32],
}

/// Where entries that are pushed will lie: so many in the chunk that is there, and so many in each
/// new one, which needs a slot of so many bytes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct PushPlan {
    /// Entries for the chunk at this end.
    pub here: usize,
    /// Entries of each new chunk, in the order in which they are added, and bytes of its slot.
    pub new: Vec<(usize, usize)>,
}

/// A chain of chunks, as its owner knows it.
pub struct Chain {
    root: Slot,
    at: NodeRef,
    arena: Home,
    home: ChunkHome,
    most_entries: usize,
    directory: Directory,
    /// Bytes of the chunks' slots.
    bytes: u64,
    tail: Tail,
}

/// Where the last entries of the last chunk begin: entries can be read forwards only. It is made when
/// an entry is taken off the end, and kept up to date from then on.
///
/// Invariant: while `of` is the last chunk, `begins` are the places of its last entries, ascending,
/// behind those of entries that have left the chunk's front.
#[derive(Default)]
struct Tail {
    /// Slot and generation of the chunk.
    of: Option<(u32, u32)>,
    /// Bytes of the chunk, [`TAIL_ENTRIES`] at most.
    begins: Vec<u32>,
}

/// Entries in a [`Tail`].
const TAIL_ENTRIES: usize = 32;

impl Tail {
    fn forget(&mut self) {
        self.of = None;
    }

    /// Takes in the places of all entries of a chunk, the last ones of which it keeps.
    fn read(&mut self, of: (u32, u32), head: Head, all: &[u8]) {
        self.of = Some(of);
        self.begins.clear();
        self.begins.reserve_exact(TAIL_ENTRIES);
        let mut at = head.begin;
        for (number, entry) in encoded(all).enumerate() {
            if number + TAIL_ENTRIES >= head.entries {
                self.begins.push(at as u32);
            }
            at += entry.len();
        }
    }

    /// Entries of these lengths were added behind a chunk's last one, from this byte on.
    fn add(&mut self, of: (u32, u32), from: usize, lengths: &[u32]) {
        if self.of != Some(of) {
            return;
        }
        let mut at = from as u32;
        for &length in lengths {
            if self.begins.len() == TAIL_ENTRIES {
                self.begins.remove(0);
            }
            self.begins.push(at);
            at += length;
        }
    }

    /// A chunk ends at this byte now.
    fn cut(&mut self, of: (u32, u32), end: usize) {
        while self.of == Some(of) && self.begins.last().is_some_and(|&at| at as usize >= end) {
            self.begins.pop();
        }
    }

    /// Entries are about to be added before those of a chunk, which begin at this byte.
    fn add_before(&mut self, of: (u32, u32), begin: usize) {
        if self.of == Some(of) && self.begins.first().is_some_and(|&at| (at as usize) < begin) {
            self.begins.retain(|&at| at as usize >= begin);
        }
    }
}

fn first_word(slot: u32) -> usize {
    slot as usize * (SLOT_UNIT_BYTES / 8)
}

fn offset(slot: u32) -> usize {
    slot as usize * SLOT_UNIT_BYTES
}

/// A chunk's head.
#[derive(Clone, Copy)]
struct Head {
    slot: u32,
    entries: usize,
    begin: usize,
    end: usize,
}

impl Head {
    fn read<J: Journal>(owner: &Owner<J>, slot: u32) -> Self {
        let shape = ChunkShape::from_word(owner.word(first_word(slot) + chunk_word::SHAPE));
        let end = lengths_of(owner, slot).record_bytes();
        Self { slot, entries: shape.entries.into(), begin: shape.begin as usize, end }
    }

    fn bytes(self) -> usize {
        self.end - self.begin
    }
}

/// The slot of a chunk and its generation.
fn named<J: Journal>(owner: &Owner<J>, slot: u32) -> (u32, u32) {
    (slot, slot_of(owner, slot).generation)
}

/// The bytes of a chunk's head that its checksum covers.
fn checked_head<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    owner.slice(offset(slot) + CHECKED_FROM, CHUNK_HEADER_BYTES - CHECKED_FROM)
}

/// The entries of the chunk in this slot, encoded.
pub fn chunk_entries<J: Journal>(owner: &Owner<J>, slot: u32) -> &[u8] {
    let head = Head::read(owner, slot);
    owner.slice(offset(slot) + head.begin, head.bytes())
}

/// The slot of the root record of the chain that the chunk in this slot belongs to.
pub fn root_of_chunk<J: Journal>(owner: &Owner<J>, slot: u32) -> u32 {
    mutable_of(owner, slot).expires_at_ms as u32
}

/// Bytes of a slot for a new chunk: for this many bytes of entries, or somewhat fewer, so that the
/// slot is filled, but at least for `least`.
fn slot_bytes(least: usize, wanted: usize) -> usize {
    let (least, wanted) = (CHUNK_HEADER_BYTES + least, CHUNK_HEADER_BYTES + wanted.max(least));
    let class = class_for(wanted).expect("a chunk has a class");
    match class_bytes(class) {
        bytes if bytes == wanted => bytes,
        _ if class > 0 && class_bytes(class - 1) >= least => class_bytes(class - 1),
        _ => wanted,
    }
}

impl Chain {
    /// An empty chain in a root record that is made for it, with its state block at `at`. A chunk
    /// has `most_entries` at most.
    pub fn create<J: Journal>(
        owner: &mut Owner<J>,
        arena: Home,
        (root, at): (Slot, NodeRef),
        most_entries: usize,
    ) -> Self {
        let home = ChunkHome::new(arena.secret, arena.region, root.slot, root.generation);
        let (directory, bytes) = (Directory::default(), 0);
        let tail = Tail::default();
        let chain = Self { root, at, arena, home, most_entries, directory, bytes, tail };
        let version = u64::from(root.generation) << 32 | 1;
        owner.store(chain.state(word::VERSION), version);
        chain.end(owner, 0);
        set_state_guardian(owner, root, State::Live);
        chain
    }

    /// The root record's slot.
    pub fn root(&self) -> Slot {
        self.root
    }

    /// Number of entries.
    pub fn length(&self) -> u64 {
        self.directory.entries()
    }

    /// Bytes of the arena that its chunks take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where its chunks lie.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    fn state(&self, word: usize) -> usize {
        first_word(self.at.slot) + word
    }

    /// A change begins: readers know it by the odd version.
    pub fn begin<J: Journal>(&self, owner: &mut Owner<J>) {
        let at = self.state(word::VERSION);
        let version = owner.word(at);
        debug_assert!(version.is_multiple_of(2), "one change at a time");
        owner.store(at, version + 1);
        owner.release();
    }

    /// The change has ended; it has this sequence.
    pub fn end<J: Journal>(&self, owner: &mut Owner<J>, changed_at: u64) {
        let end_of = |at: Option<At>| at.map_or(0, |at| self.reference(owner, at).to_word());
        let (first, last) = (end_of(self.directory.first()), end_of(self.directory.last()));
        owner.store(self.state(state_word::LENGTH), self.length());
        owner.store(self.state(state_word::FIRST), first);
        owner.store(self.state(state_word::LAST), last);
        owner.store(self.state(state_word::CHANGED_AT), changed_at);
        let version = owner.word(self.state(word::VERSION)) + 1;
        let checked = owner
            .slice(offset(self.at.slot) + NODE_CHECKED_FROM, CHAIN_STATE_BYTES - NODE_CHECKED_FROM);
        let sum = self.arena.checksum(CheckedPart::Chain, self.at, version, checked);
        owner.store(self.state(word::CHECKSUM), sum);
        owner.store_release(self.state(word::VERSION), version);
    }

    fn reference<J: Journal>(&self, owner: &Owner<J>, at: At) -> ChunkRef {
        let Place { slot, class, .. } = self.directory.get(at);
        ChunkRef::new(slot, slot_of(owner, slot).generation, class)
    }

    fn seed<J: Journal>(&self, owner: &Owner<J>, slot: u32) -> u64 {
        self.home.seed(slot, slot_of(owner, slot).generation)
    }

    /// The entries of a chunk, encoded.
    pub fn entries<'a, J: Journal>(&self, owner: &'a Owner<J>, at: At) -> &'a [u8] {
        chunk_entries(owner, self.directory.get(at).slot)
    }

    /// The encoded entry of this index.
    pub fn entry<'a, J: Journal>(&self, owner: &'a Owner<J>, index: u64) -> Option<&'a [u8]> {
        let (at, number) = self.directory.find(index)?;
        encoded(self.entries(owner, at)).nth(number)
    }

    /// The encoded entry at one end.
    pub fn entry_at<'a, J: Journal>(&mut self, owner: &'a Owner<J>, end: End) -> Option<&'a [u8]> {
        let slot = self.directory.get(self.chunk_at(end)?).slot;
        match end {
            End::Front => encoded(chunk_entries(owner, slot)).next(),
            End::Back => {
                let from = self.last_begins(owner, slot);
                let head = Head::read(owner, slot);
                Some(owner.slice(offset(slot) + from, head.end - from))
            }
        }
    }

    /// The byte of the last chunk, in this slot, at which its last entry begins.
    fn last_begins<J: Journal>(&mut self, owner: &Owner<J>, slot: u32) -> usize {
        let of = named(owner, slot);
        if self.tail.of != Some(of) || self.tail.begins.is_empty() {
            self.tail.read(of, Head::read(owner, slot), chunk_entries(owner, slot));
        }
        *self.tail.begins.last().expect("a chunk has entries") as usize
    }

    /// The chunk at one end.
    pub fn chunk_at(&self, end: End) -> Option<At> {
        match end {
            End::Front => self.directory.first(),
            End::Back => self.directory.last(),
        }
    }

    // Pushing.

    /// Where these entries will lie if they are pushed at this end.
    pub fn plan_push<J: Journal>(
        &self,
        (owner, slots): (&Owner<J>, &Slots),
        end: End,
        lengths: &[u32],
    ) -> PushPlan {
        let total: usize = lengths.iter().map(|&length| length as usize).sum();
        // They are met in the order in which they are pushed.
        let length_of = |pushed: usize| match end {
            End::Back => lengths[pushed] as usize,
            End::Front => lengths[lengths.len() - 1 - pushed] as usize,
        };
        let mut plan = PushPlan::default();
        let mut average = total.div_ceil(lengths.len().max(1));
        if let Some(at) = self.chunk_at(end) {
            let place = self.directory.get(at);
            let head = Head::read(owner, place.slot);
            let mut room = match end {
                End::Front => head.begin - CHUNK_HEADER_BYTES,
                End::Back => slots.room(slot_of(owner, place.slot)) - head.end,
            };
            while plan.here < lengths.len()
                && head.entries + plan.here < self.most_entries
                && length_of(plan.here) <= room
            {
                room -= length_of(plan.here);
                plan.here += 1;
            }
            average = head.bytes().div_ceil(head.entries);
        }
        let (mut pushed, mut grown) = (plan.here, self.bytes as usize);
        while pushed < lengths.len() {
            let first = length_of(pushed);
            let next = (pushed..lengths.len()).take(self.most_entries).map(length_of).sum();
            // Little idle room while the chain is short.
            let wanted = (average * self.most_entries).min(grown / 2).max(next).min(CHUNK_BYTES);
            let bytes = slot_bytes(first, wanted);
            let (mut room, mut count) = (bytes - CHUNK_HEADER_BYTES, 0);
            while pushed < lengths.len() && count < self.most_entries && length_of(pushed) <= room {
                room -= length_of(pushed);
                (pushed, count) = (pushed + 1, count + 1);
            }
            grown += bytes;
            plan.new.push((count, bytes));
        }
        plan
    }

    /// Pushes entries as planned, with a slot for each new chunk.
    pub fn push<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        end: End,
        run: Run<'_>,
        (plan, new): (&PushPlan, &[Slot]),
    ) {
        let mut rest = run;
        let mut take = |count: usize| {
            let bytes = |lengths: &[u32]| lengths.iter().map(|&of| of as usize).sum::<usize>();
            let taken;
            (taken, rest) = match end {
                End::Back => {
                    let (lengths, others) = rest.lengths.split_at(count);
                    let (head, tail) = rest.bytes.split_at(bytes(lengths));
                    (Run { bytes: head, lengths }, Run { bytes: tail, lengths: others })
                }
                End::Front => {
                    let (others, lengths) = rest.lengths.split_at(rest.lengths.len() - count);
                    let (head, tail) = rest.bytes.split_at(bytes(others));
                    (Run { bytes: tail, lengths }, Run { bytes: head, lengths: others })
                }
            };
            taken
        };
        if plan.here > 0 {
            let run = take(plan.here);
            self.extend(owner, end, run);
        }
        for (&(count, _), &slot) in plan.new.iter().zip(new) {
            self.add_chunk((owner, slots), end, take(count), slot);
        }
    }

    /// Adds entries to the chunk at one end, which has room for them.
    fn extend<J: Journal>(&mut self, owner: &mut Owner<J>, end: End, run: Run<'_>) {
        let at = self.chunk_at(end).expect("planned");
        let place = self.directory.get(at);
        let (seed, mut head) = (self.seed(owner, place.slot), Head::read(owner, place.slot));
        let from = match end {
            End::Back => head.end,
            End::Front => head.begin - run.bytes.len(),
        };
        owner.store_within(offset(place.slot) + from, run.bytes);
        let of = named(owner, place.slot);
        match end {
            End::Back => {
                self.tail.add(of, from, run.lengths);
                head.end += run.bytes.len();
            }
            End::Front => {
                self.tail.add_before(of, head.begin);
                head.begin = from;
            }
        }
        head.entries += run.lengths.len();
        self.reshape(owner, head, seed, |sum| sum.wrapping_add(sum_of(run, from, seed)));
        self.directory.set(at, Place { entries: head.entries as u16, ..place });
    }

    /// Stores a chunk's changed head, and its checksum, given what its entries contribute.
    fn reshape<J: Journal>(
        &self,
        owner: &mut Owner<J>,
        head: Head,
        seed: u64,
        change: impl FnOnce(u64) -> u64,
    ) {
        let first = first_word(head.slot);
        let before = owner.word(first + chunk_word::CHECKSUM);
        let entries = before.wrapping_sub(head_sum(checked_head(owner, head.slot), seed));
        let shape = ChunkShape { entries: head.entries as u16, begin: head.begin as u32 };
        owner.store(first + chunk_word::LENGTHS, chunk_lengths(head.end).to_word());
        owner.store(first + chunk_word::SHAPE, shape.to_word());
        let sum = change(entries).wrapping_add(head_sum(checked_head(owner, head.slot), seed));
        owner.store(first + chunk_word::CHECKSUM, sum);
    }

    /// Adds a chunk of these entries at one end, with room for more there.
    fn add_chunk<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        end: End,
        run: Run<'_>,
        slot: Slot,
    ) {
        let neighbour = self.chunk_at(end);
        let begin = match end {
            End::Back => CHUNK_HEADER_BYTES,
            End::Front => slots.room(slot) - run.bytes.len(),
        };
        let far = neighbour.map_or(ChunkRef::default(), |at| self.reference(owner, at));
        let (next, previous) = match end {
            End::Back => (ChunkRef::default(), far),
            End::Front => (far, ChunkRef::default()),
        };
        let entries = run.lengths.len();
        self.write(owner, (slot, begin), (run.bytes, entries), (next, previous));
        let place = Place { slot: slot.slot, entries: entries as u16, class: slot.class };
        let own = ChunkRef::new(slot.slot, slot.generation, slot.class);
        if let Some(at) = neighbour {
            let link = if end == End::Back { chunk_word::NEXT } else { chunk_word::PREVIOUS };
            self.tell(owner, self.directory.get(at).slot, link, own);
        }
        match end {
            End::Back => self.directory.push_back(place),
            End::Front => self.directory.push_front(place),
        }
        self.bytes += slots.bytes_of(slot);
    }

    /// Writes a whole chunk, and makes it live: nothing leads to it yet.
    fn write<J: Journal>(
        &self,
        owner: &mut Owner<J>,
        (slot, begin): (Slot, usize),
        (entries, count): (&[u8], usize),
        (next, previous): (ChunkRef, ChunkRef),
    ) {
        let (first, at) = (first_word(slot.slot), offset(slot.slot));
        let root = Mutable { expires_at_ms: self.root.slot.into(), ..Mutable::default() };
        set_mutable(owner, slot.slot, root);
        let shape = ChunkShape { entries: count as u16, begin: begin as u32 };
        owner.store(first + chunk_word::LENGTHS, chunk_lengths(begin + entries.len()).to_word());
        owner.store(first + chunk_word::SHAPE, shape.to_word());
        owner.store(first + chunk_word::NEXT, next.to_word());
        owner.store(first + chunk_word::PREVIOUS, previous.to_word());
        owner.store_within(at + begin, entries);
        let seed = self.home.seed(slot.slot, slot.generation);
        let sum = head_sum(checked_head(owner, slot.slot), seed)
            .wrapping_add(entries_sum(entries, begin, seed));
        owner.store(first + chunk_word::CHECKSUM, sum);
        publish_live(owner, slot);
    }

    /// Tells a chunk of its neighbour.
    fn tell<J: Journal>(&self, owner: &mut Owner<J>, slot: u32, link: usize, to: ChunkRef) {
        let (first, seed) = (first_word(slot), self.seed(owner, slot));
        let before = head_sum(checked_head(owner, slot), seed);
        owner.store(first + link, to.to_word());
        let after = head_sum(checked_head(owner, slot), seed);
        let sum = owner.word(first + chunk_word::CHECKSUM);
        owner.store(first + chunk_word::CHECKSUM, sum.wrapping_sub(before).wrapping_add(after));
    }

    // Cutting.

    /// Takes entries off both ends, or all if there are no more. Chunks that have none left go to
    /// `dropped`.
    pub fn cut<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        (front, back): (u64, u64),
        dropped: &mut Directory,
    ) {
        if front + back >= self.length() {
            return self.take_all(dropped);
        }
        let mut gone = Directory::default();
        let front = front - self.directory.take_front(front, &mut gone);
        let back = back - self.directory.take_back(back, &mut gone);
        if gone.chunks() > 0 {
            self.bytes -= bytes_of(slots, &gone);
            dropped.append(gone);
            self.tell_ends(owner);
        }
        if front > 0 {
            self.shorten(owner, End::Front, front as usize);
        }
        if back > 0 {
            self.shorten(owner, End::Back, back as usize);
        }
    }

    /// Tells the chunks at both ends that they have no neighbours there.
    fn tell_ends<J: Journal>(&self, owner: &mut Owner<J>) {
        for (end, link) in [(End::Front, chunk_word::PREVIOUS), (End::Back, chunk_word::NEXT)] {
            let Some(at) = self.chunk_at(end) else { return };
            let slot = self.directory.get(at).slot;
            if owner.word(first_word(slot) + link) != 0 {
                self.tell(owner, slot, link, ChunkRef::default());
            }
        }
    }

    /// Takes some, not all, entries off the chunk at one end.
    fn shorten<J: Journal>(&mut self, owner: &mut Owner<J>, end: End, count: usize) {
        let at = self.chunk_at(end).expect("it has more entries");
        let place = self.directory.get(at);
        let (seed, mut head) = (self.seed(owner, place.slot), Head::read(owner, place.slot));
        let bytes: usize = match (end, count) {
            (End::Back, 1) => self.last_begins(owner, place.slot) - head.begin,
            _ => {
                let before = if end == End::Front { count } else { head.entries - count };
                let all = encoded(chunk_entries(owner, place.slot));
                all.take(before).map(<[u8]>::len).sum()
            }
        };
        let (first, last) = chunk_entries(owner, place.slot).split_at(bytes);
        let gone = match end {
            End::Front => entries_sum(first, head.begin, seed),
            End::Back => entries_sum(last, head.begin + bytes, seed),
        };
        match end {
            End::Front => head.begin += bytes,
            End::Back => {
                head.end = head.begin + bytes;
                self.tail.cut(named(owner, place.slot), head.end);
            }
        }
        head.entries -= count;
        self.reshape(owner, head, seed, |sum| sum.wrapping_sub(gone));
        self.directory.set(at, Place { entries: head.entries as u16, ..place });
    }

    // The middle.

    /// Replaces an entry by one that is as long: the entry of this number in a chunk.
    pub fn overwrite<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        (at, number): (At, usize),
        entry: &[u8],
    ) {
        let slot = self.directory.get(at).slot;
        let (seed, head) = (self.seed(owner, slot), Head::read(owner, slot));
        let all = chunk_entries(owner, slot);
        let from: usize = encoded(all).take(number).map(<[u8]>::len).sum();
        let place = head.begin + from;
        let gone = entry_sum(&all[from..from + entry.len()], place, seed);
        owner.store_within(offset(slot) + place, entry);
        let new = entry_sum(entry, place, seed);
        self.reshape(owner, head, seed, |sum| sum.wrapping_sub(gone).wrapping_add(new));
    }

    /// Writes the hint of the link of this index, in its place: it is no part of the chain's content, and
    /// readers of the chunk go on.
    pub fn set_hint<J: Journal>(&self, owner: &mut Owner<J>, index: u64, hint: u64) {
        let Some((at, number)) = self.directory.find(index) else { return };
        let slot = self.directory.get(at).slot;
        let (head, all) = (Head::read(owner, slot), chunk_entries(owner, slot));
        let to: usize = encoded(all).take(number + 1).map(<[u8]>::len).sum();
        debug_assert!(
            encoded(all).nth(number).is_some_and(begins_with_link),
            "the caller knows the link"
        );
        owner.store_within(offset(slot) + head.begin + to - WORD_BYTES, &hint.to_le_bytes());
    }

    /// Whether a chunk has room for these entries in the place of its own.
    pub fn fits<J: Journal>(
        &self,
        (owner, slots): (&Owner<J>, &Slots),
        at: At,
        made: &[u8],
    ) -> bool {
        let slot = slot_of(owner, self.directory.get(at).slot);
        CHUNK_HEADER_BYTES + made.len() <= slots.room(slot)
            && encoded(made).count() <= self.most_entries
    }

    /// Whether so many bytes of entries, in the place of a chunk's own, would leave more than half of
    /// its slot idle. The chunks at the ends may be idle, for what will be pushed, unless they are
    /// longer than they are made for that.
    pub fn would_be_idle<J: Journal>(
        &self,
        (owner, slots): (&Owner<J>, &Slots),
        at: At,
        bytes: usize,
    ) -> bool {
        let slot = slot_of(owner, self.directory.get(at).slot);
        let is_end = [End::Front, End::Back].map(|end| self.chunk_at(end)).contains(&Some(at));
        let room = slots.room(slot);
        2 * (CHUNK_HEADER_BYTES + bytes) < room && (!is_end || room > CHUNK_READ_BYTES)
    }

    /// Writes a chunk anew in its place: it has room for these entries ([`Chain::fits`]).
    pub fn rewrite<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        at: At,
        entries: &[u8],
    ) {
        self.tail.forget();
        let place = self.directory.get(at);
        let slot = slot_of(owner, place.slot);
        let is_first = self.directory.first() == Some(at) && self.directory.chunks() > 1;
        let begin = match is_first {
            true => slots.room(slot) - entries.len(),
            false => CHUNK_HEADER_BYTES,
        };
        let first = first_word(place.slot);
        let link = |word| ChunkRef::from_word(owner.word(first + word));
        let links = (link(chunk_word::NEXT), link(chunk_word::PREVIOUS));
        let count = encoded(entries).count();
        self.write(owner, (slot, begin), (entries, count), links);
        self.directory.set(at, Place { entries: count as u16, ..place });
    }

    /// How entries that take the place of one chunk are spread over new ones: entries and bytes of
    /// the slot of each.
    pub fn plan_replace(&self, entries: &[u8]) -> Vec<(usize, usize)> {
        let count = encoded(entries).count();
        let chunks = count.div_ceil(self.most_entries).max(entries.len().div_ceil(CHUNK_BYTES));
        let (most, target) = (count.div_ceil(chunks.max(1)), entries.len().div_ceil(chunks.max(1)));
        let mut plan = Vec::with_capacity(chunks);
        let (mut number, mut bytes) = (0, 0);
        for entry in encoded(entries) {
            let is_full = number == most || bytes >= target;
            if number > 0 && (is_full || bytes + entry.len() > CHUNK_BYTES) {
                plan.push((number, CHUNK_HEADER_BYTES + bytes));
                (number, bytes) = (0, 0);
            }
            (number, bytes) = (number + 1, bytes + entry.len());
        }
        if number > 0 {
            plan.push((number, CHUNK_HEADER_BYTES + bytes));
        }
        plan
    }

    /// Replaces a chunk by new ones with these entries, as planned, or by none. The old chunk goes
    /// to `dropped`. Positions are void after that.
    pub fn replace<J: Journal>(
        &mut self,
        (owner, slots): (&mut Owner<J>, &Slots),
        at: At,
        entries: &[u8],
        (plan, new): (&[(usize, usize)], &[Slot]),
        dropped: &mut Directory,
    ) {
        self.tail.forget();
        let reference = |chain: &Self, at: Option<At>| {
            at.map_or(ChunkRef::default(), |at| chain.reference(owner, at))
        };
        let (before, after) = (self.directory.previous(at), self.directory.next(at));
        let (previous, next) = (reference(self, before), reference(self, after));
        let own = |slot: &Slot| ChunkRef::new(slot.slot, slot.generation, slot.class);
        let mut rest = entries;
        for (number, (slot, &(count, _))) in new.iter().zip(plan).enumerate() {
            let bytes = encoded(rest).take(count).map(<[u8]>::len).sum();
            let (some, others) = rest.split_at(bytes);
            rest = others;
            let before = number.checked_sub(1).map_or(previous, |at| own(&new[at]));
            let behind = new.get(number + 1).map_or(next, own);
            self.write(owner, (*slot, CHUNK_HEADER_BYTES), (some, count), (behind, before));
            self.bytes += slots.bytes_of(*slot);
        }
        if let Some(at) = before {
            let to = new.first().map_or(next, own);
            self.tell(owner, self.directory.get(at).slot, chunk_word::NEXT, to);
        }
        if let Some(at) = after {
            let to = new.last().map_or(previous, own);
            self.tell(owner, self.directory.get(at).slot, chunk_word::PREVIOUS, to);
        }
        let old = self.directory.get(at);
        self.bytes -= slots.bytes_of(slot_of(owner, old.slot));
        let place = |slot: &Slot, count: usize| Place {
            slot: slot.slot,
            entries: count as u16,
            class: slot.class,
        };
        let places = new.iter().zip(plan).map(|(slot, &(count, _))| place(slot, count));
        let places: Vec<Place> = places.collect();
        match places.split_last() {
            None => {
                self.directory.remove(at);
            }
            Some((last, others)) => {
                // The last one takes the old place; the others come before it, one by one.
                let mut index = self.directory.entries_before(at);
                self.directory.set(at, *last);
                for place in others {
                    let (at, _) = self.directory.find(index).expect("the last one is there");
                    self.directory.insert(at, *place);
                    index += u64::from(place.entries);
                }
            }
        }
        dropped.push_back(old);
    }

    /// Takes all chunks out: the chain has gone, or its entries lie elsewhere.
    pub fn take_all(&mut self, into: &mut Directory) {
        self.bytes = 0;
        self.directory.take_front(u64::MAX, into);
    }

    /// Compares all chunks with the directory and the state block. Bytes of their slots.
    ///
    /// # Errors
    /// A description of the first mismatch.
    pub fn audit<J: Journal>(&self, owner: &Owner<J>, slots: &Slots) -> Result<u64, String> {
        let told = |what: &str| Err(format!("{what}: root {:?}", self.root));
        let bytes = owner.slice(offset(self.at.slot), CHAIN_STATE_BYTES);
        let Ok(state) = verify_state(bytes, self.arena, self.at, Proof::Checksum) else {
            return told("a chain's state does not pass its checks");
        };
        let end_of =
            |at: Option<At>| at.map_or(ChunkRef::default(), |at| self.reference(owner, at));
        let ends = (end_of(self.directory.first()), end_of(self.directory.last()));
        if (state.length, state.first, state.last) != (self.length(), ends.0, ends.1) {
            return told("a chain's state is not that of its directory");
        }
        let (mut total, mut previous, mut next) = (0, ChunkRef::default(), state.first);
        let mut at = self.directory.first();
        while let Some(here) = at {
            let place = self.directory.get(here);
            let slot = slot_of(owner, place.slot);
            let own = self.reference(owner, here);
            let bytes = owner.slice(offset(place.slot), Head::read(owner, place.slot).end);
            let Ok(chunk) = verify_chunk(bytes, self.home, own) else {
                return told("a chunk does not pass its checks");
            };
            let is_one = kind_of(owner, place.slot) == Kind::LIST_CHUNK
                && slot.class == place.class
                && root_of_chunk(owner, place.slot) == self.root.slot
                && bytes.len() <= slots.room(slot);
            if !is_one || own != next || chunk.previous != previous || chunk.count == 0 {
                return told("a chunk is not linked as the directory says");
            }
            if chunk.count != place.entries || usize::from(chunk.count) > self.most_entries {
                return told("a chunk has other entries than the directory says");
            }
            total += slots.bytes_of(slot);
            (previous, next, at) = (own, chunk.next, self.directory.next(here));
        }
        if !next.is_none() || total != self.bytes {
            return told("a chain does not end, or has other bytes than the books say");
        }
        Ok(total)
    }
}

/// The part of a checksum that entries give which begin at this byte of their chunk.
fn sum_of(run: Run<'_>, from: usize, seed: u64) -> u64 {
    let (mut sum, mut at) = (0u64, 0);
    for &length in run.lengths {
        let entry = &run.bytes[at..at + length as usize];
        sum = sum.wrapping_add(entry_sum(entry, from + at, seed));
        at += length as usize;
    }
    sum
}

/// Bytes of the slots of these chunks. It does not look at them.
fn bytes_of(slots: &Slots, chunks: &Directory) -> u64 {
    let slot = |place: Place| Slot { slot: place.slot, generation: 0, class: place.class };
    chunks.iter().map(|place| slots.bytes_of(slot(place))).sum()
}

/// The bytes of each of some encoded entries, as far as they are whole ([`encoded`]).
pub fn lengths_of_entries(entries: &[u8], lengths: &mut Vec<u32>) {
    lengths.extend(encoded(entries).map(|entry| entry.len() as u32));
}

/// Releases up to `most` chunks that have left their chain. Returns true once there are none.
pub fn release_dropped<J: Journal>(
    (owner, slots): (&mut Owner<J>, &mut Slots),
    dropped: &mut Directory,
    (most, now_s): (usize, u64),
) -> bool {
    for _ in 0..most {
        let Some(at) = dropped.last() else { return true };
        let place = dropped.remove(at);
        let dead = flip_dead(owner, place.slot);
        slots.release(owner, dead, None, now_s);
    }
    dropped.chunks() == 0
}
