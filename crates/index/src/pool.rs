//! Places for nodes: all of one length, carved from runs of pages that hold no records, so that the
//! owner neither moves nor evicts them.
//!
//! Invariants: the generation at a place only grows, also over runs that are freed and taken again;
//! a freed place is dead.

use remora_arena::{ArenaFull, Journal, Owner, Slots};
use remora_layout::limits::{NODE_RUN_BYTES, PAGE_BYTES, SLOT_UNIT_BYTES};
use remora_layout::node::{CheckedPart, Home, NODE_CHECKED_FROM, NodeRef, word};
use remora_layout::record::{Guardian, State};

/// The context of a writer: the region, its allocator, and the position of its change in the
/// operation log.
pub struct Arena<'a, J: Journal> {
    /// The region.
    pub owner: &'a mut Owner<J>,
    /// Its allocator.
    pub slots: &'a mut Slots,
    /// Position in the operation log of the change being made.
    pub changed_at: u64,
}

struct Run {
    offset: usize,
    bytes: usize,
    /// Bytes from its start that places have been carved from.
    carved: usize,
    floor: u32,
}

/// The places of one tree.
pub(crate) struct Pool {
    place_bytes: usize,
    /// Places that the first run has room for, at least.
    first_places: usize,
    runs: Vec<Run>,
    free: Vec<u32>,
    taken_bytes: usize,
    top_generation: u32,
    used: u64,
}

pub(crate) fn word_of(at: NodeRef, word: usize) -> usize {
    at.slot as usize * (SLOT_UNIT_BYTES / 8) + word
}

impl Pool {
    /// No places yet; each will have at least so many bytes, and the first run room for so many.
    pub fn new(bytes: usize, first_places: usize) -> Self {
        Self {
            place_bytes: bytes.next_multiple_of(SLOT_UNIT_BYTES),
            first_places,
            runs: Vec::new(),
            free: Vec::new(),
            taken_bytes: 0,
            top_generation: 0,
            used: 0,
        }
    }

    /// Bytes of all runs.
    pub fn bytes(&self) -> u64 {
        self.taken_bytes as u64
    }

    /// Bytes of a run that has room for one change of a tree, and is as long as the next
    /// one would be.
    pub fn wanted_run_bytes(&self) -> usize {
        let least = 2 * (4 * self.place_bytes).next_multiple_of(PAGE_BYTES);
        self.taken_bytes.clamp(least, NODE_RUN_BYTES.max(least))
    }

    fn least_run_bytes(&self) -> usize {
        (self.first_places * self.place_bytes).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes that its lists take on the heap.
    pub fn heap_bytes(&self) -> u64 {
        (self.runs.capacity() * size_of::<Run>() + self.free.capacity() * size_of::<u32>()) as u64
    }

    /// Places in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Takes a place: its guardian is pending, under a new generation.
    pub fn take<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> Result<NodeRef, ArenaFull> {
        let (slot, before) = match self.free.pop() {
            Some(slot) => {
                let guardian = arena.owner.word(word_of(NodeRef { slot, generation: 0 }, 0));
                (slot, Guardian::from_word(guardian).expect("the pool's own").generation)
            }
            None => self.carve(arena)?,
        };
        let at = NodeRef { slot, generation: before + 1 };
        self.top_generation = self.top_generation.max(at.generation);
        self.used += 1;
        set_state(arena.owner, at, State::Pending);
        // Nothing of the new node is visible before the new generation is.
        arena.owner.release();
        Ok(at)
    }

    /// Takes memory, so that there are so many places which [`Pool::take`] gives without a failure.
    pub fn reserve<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        places: usize,
    ) -> Result<(), ArenaFull> {
        while self.free.len() < places {
            let (slot, generation) = self.carve(arena)?;
            set_state(arena.owner, NodeRef { slot, generation }, State::Dead);
            self.free.push(slot);
        }
        Ok(())
    }

    /// Frees a place whose guardian is dead or pending.
    pub fn give<J: Journal>(&mut self, arena: &mut Arena<'_, J>, at: NodeRef) {
        set_state(arena.owner, at, State::Dead);
        self.used -= 1;
        if at.generation < arena.slots.last_generation() {
            self.free.push(at.slot);
        }
    }

    /// Frees everything.
    pub fn give_all<J: Journal>(&mut self, arena: &mut Arena<'_, J>) {
        // Bounded by the number of runs.
        while !self.give_run(arena) {}
    }

    fn kill<J: Journal>(&self, owner: &mut Owner<J>, run: &Run) {
        let mut at = run.offset;
        while at < run.offset + run.carved {
            let place = NodeRef { slot: (at / SLOT_UNIT_BYTES) as u32, generation: 0 };
            let guardian = Guardian::from_word(owner.word(word_of(place, 0)));
            let generation = guardian.expect("the pool's own").generation;
            set_dead(owner, NodeRef { generation, ..place });
            at += self.place_bytes;
        }
    }

    /// Gives back one run, of at most `NODE_RUN_BYTES` where nodes are no larger.
    /// True once there is none.
    pub fn give_run<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> bool {
        let Some(run) = self.runs.pop() else { return true };
        self.kill(arena.owner, &run);
        arena.owner.release();
        arena.slots.give_places(run.offset, run.bytes, self.top_generation);
        self.taken_bytes -= run.bytes;
        self.runs.is_empty()
    }

    /// A place never used before, and the generation that it must exceed.
    fn carve<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> Result<(u32, u32), ArenaFull> {
        let room = |run: &Run, bytes| run.carved + bytes <= run.bytes;
        if !self.runs.last().is_some_and(|run| room(run, self.place_bytes)) {
            self.add_run(arena)?;
        }
        let run = self.runs.last_mut().expect("one was added");
        let offset = run.offset + run.carved;
        run.carved += self.place_bytes;
        Ok(((offset / SLOT_UNIT_BYTES) as u32, run.floor))
    }

    /// A run as long as all before it, or a shorter one where there is none.
    fn add_run<J: Journal>(&mut self, arena: &mut Arena<'_, J>) -> Result<(), ArenaFull> {
        let least = self.least_run_bytes();
        let mut bytes = self.taken_bytes.clamp(least, NODE_RUN_BYTES.max(least));
        loop {
            match arena.slots.take_run(bytes) {
                Ok(offset) => {
                    let floor = arena.slots.run_floor(offset, bytes);
                    self.runs.push(Run { offset, bytes, carved: 0, floor });
                    self.taken_bytes += bytes;
                    return Ok(());
                }
                Err(_) if bytes > least => {
                    bytes = (bytes / 2).next_multiple_of(PAGE_BYTES).max(least);
                }
                Err(full) => return Err(full),
            }
        }
    }
}

/// Stores a place's guardian, after everything stored before.
pub(crate) fn set_state<J: Journal>(owner: &mut Owner<J>, at: NodeRef, state: State) {
    let guardian = Guardian { generation: at.generation, state, class: 0 };
    owner.store_release(word_of(at, word::GUARDIAN), guardian.to_word());
}

/// Makes a node or a header dead whose memory goes back to the arena. Its
/// checksum goes too: the place may come to lie in a record whose value ends at
/// the guardian's word, and such a value would revive what still stands behind it.
pub(crate) fn set_dead<J: Journal>(owner: &mut Owner<J>, at: NodeRef) {
    set_state(owner, at, State::Dead);
    owner.release();
    owner.store(word_of(at, word::CHECKSUM), 0);
}

/// Stores the first version of a place under a new generation. It is odd and is stored before any
/// other byte changes: a reader that is still copying the former content finds another version
/// behind its copy, and never an equal one.
pub(crate) fn begin_new<J: Journal>(owner: &mut Owner<J>, at: NodeRef) -> u64 {
    let version = (at.generation as u64) << 32 | 1;
    owner.store(word_of(at, word::VERSION), version);
    owner.release();
    version
}

/// Stores the checksum of the written bytes, then their version.
pub(crate) fn finish<J: Journal>(
    owner: &mut Owner<J>,
    home: Home,
    part: CheckedPart,
    at: NodeRef,
    bytes: usize,
    version: u64,
) {
    let checked = owner.slice(at.offset() + NODE_CHECKED_FROM, bytes - NODE_CHECKED_FROM);
    let sum = home.checksum(part, at, version, checked);
    owner.store(word_of(at, word::CHECKSUM), sum);
    owner.store_release(word_of(at, word::VERSION), version);
}

/// Writes a tree's header, the first time or over an older one: what kind of header it is, with its bytes, and
/// its place, with what the checksum covers.
pub(crate) fn store_header<J: Journal>(
    owner: &mut Owner<J>,
    home: Home,
    (part, bytes): (CheckedPart, usize),
    (at, checked): (NodeRef, &[u8]),
    is_new: bool,
) {
    // Everything before is visible before the header changes.
    owner.release();
    let version = if is_new {
        begin_new(owner, at)
    } else {
        let version = owner.word(word_of(at, word::VERSION)) | 1;
        owner.store(word_of(at, word::VERSION), version);
        owner.release();
        version
    };
    owner.store_bytes(at.offset() + NODE_CHECKED_FROM, checked);
    finish(owner, home, part, at, bytes, version + 1);
}
