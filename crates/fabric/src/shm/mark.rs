//! Ready marks: the thread that receives for a client tells a shard that something has arrived for
//! it, and for which parked clients something has arrived. The protocol is that of
//! [`super::ready`], in plain memory of the server: a client over a network writes neither word.
//!
//! ```text
//!   receiving thread                   shard
//!   store the frame                    take the mark
//!   set the mark, by ready::tell       take frames out of the client's ring
//!   load parked, which is not 0        store parked = the client's place + 1
//!   while the client is parked:        full fence
//!     set the bit of that place,       look at the mark once more
//!     then the bit of its word         before it sleeps: announce that, and
//!   ring the shard's bell              look at the bits of the words once more
//! ```
//! No frame stays in a ring unseen. If a thread sets the mark and a shard parks the client, one of
//! them sees the other, as in [`super::ready`]. A shard that takes the bit of a word takes the bits
//! of its places afterwards, and so finds the place; the thread set the mark before the bit of its
//! place, so the shard finds the mark. The thread sets the bits before it rings the bell; so if a
//! thread rings and a shard sleeps, one of them sees the other, as in [`super::asleep`].
//!
//! All of it is bounded: a spurious bit, from a reused place or from two places that share a bit,
//! costs the shard a look at one mark.

use super::ready;
use crate::sync::{AtomicU64, Ordering};
use remora_layout::limits::MAX_SESSIONS;

const WORD_BITS: usize = u64::BITS as usize;
/// Words with a bit for each session that a server can have.
const WORDS: usize = MAX_SESSIONS.div_ceil(WORD_BITS);
/// Places have bits of their own up to this number.
const PLACES: usize = WORDS * WORD_BITS;

const _: () = assert!(WORDS <= WORD_BITS, "a word has a bit for each of them");

/// Whether frames have arrived for one client at one shard. Each mark has its own cache line:
/// shards take the marks of one client independently of each other.
#[derive(Default)]
#[repr(align(64))]
pub struct ReadyMark {
    ready: AtomicU64,
    /// 0, or the client's place and 1 while the shard does not look at the mark.
    parked: AtomicU64,
}

impl ReadyMark {
    /// The receiving thread calls it after it has stored the frame: sets the mark, and the client's
    /// bit in `rung` if the client is parked. The caller rings the shard's bell afterwards, unless
    /// this is the shard's own thread.
    #[inline]
    pub fn tell(&self, rung: &RungClients) {
        let mut parked = 0;
        let waits = || {
            parked = self.parked.load(Ordering::Relaxed);
            parked
        };
        if ready::tell(&self.ready, 0, waits) {
            rung.add(parked as usize - 1);
        }
    }

    /// Whether it is set.
    #[inline(always)]
    pub fn is_set(&self) -> bool {
        self.ready.load(Ordering::Relaxed) != 0
    }

    /// The shard takes it, before it looks at the client's ring. Returns whether it was set.
    #[inline(always)]
    pub fn take(&self) -> bool {
        ready::take(&self.ready) != 0
    }

    /// The shard, which has the client at this place, no longer looks at the mark, unless `scan`,
    /// the last check, finds that it has to. Returns whether the client is parked now.
    pub fn park(&self, place: usize, scan: impl FnOnce() -> bool) -> bool {
        ready::park(&self.parked, place as u64 + 1, scan)
    }

    /// The shard looks at the mark again.
    pub fn unpark(&self) {
        ready::unpark(&self.parked);
    }
}

/// The parked clients of one shard for which something has arrived, by place.
#[derive(Default)]
pub struct RungClients {
    /// A bit for each word of `places` that may not be 0.
    words: AtomicU64,
    places: [AtomicU64; WORDS],
}

impl RungClients {
    fn add(&self, place: usize) {
        let (word, bit) = (place % PLACES / WORD_BITS, place % WORD_BITS);
        // The shard that takes the word's bit has to find the place's.
        self.places[word].fetch_or(1 << bit, Ordering::Release);
        self.words.fetch_or(1 << word, Ordering::Release);
    }

    /// Whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.words.load(Ordering::Relaxed) == 0
    }

    /// The shard takes them, and passes on each one's place, modulo [`RungClients::PLACES`].
    pub fn take(&self, mut hand_over: impl FnMut(usize)) {
        for word in bits(self.words.swap(0, Ordering::Acquire)) {
            let places = self.places[word].swap(0, Ordering::Acquire);
            bits(places).for_each(|bit| hand_over(word * WORD_BITS + bit));
        }
    }

    /// Two places share a bit if they differ by a multiple of this.
    pub const PLACES: usize = PLACES;
}

/// The numbers of the bits that are set.
fn bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(bit)
    })
}
