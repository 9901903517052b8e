//! Runs: what one group commit appends for one shard.
//!
//! ```text
//!  0          8       12      14     16      24     32       40        48     56
//! +----------+-------+-------+------+-------+------+--------+---------+------+--------+
//! | checksum | bytes | shard | kind | first | last | synced | time_ms | used | frames |
//! +----------+-------+-------+------+-------+------+--------+---------+------+--------+
//! ```
//! `first` is the sequence of the first frame's entry, `last` the last entry of which the run has
//! the last frame. `synced`: so many bytes of the segment were on the disk before the run was
//! written. `time_ms`: the server's clock, Unix ms. `used`: bytes that the shard's data take.
//!
//! A run without frames is a *mark*: it says what is synced, and the time, when no run follows that
//! could.
//!
//! Invariant: the checksum covers header and frames, under a seed made of the secret, the
//! segment's number and the run's offset. So a run from another place, or inside a value, does not
//! pass for one.

use remora_layout::hash::{PieceChecksum, mix};
use remora_layout::limits::MAX_SHARDS;
use std::mem::offset_of;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a run before its frames.
pub const RUN_HEADER_BYTES: usize = 56;
/// Runs begin at multiples of this, as frames do.
pub(crate) const RUN_ALIGN_BYTES: u64 = 8;

/// Some frames of one shard, as its log has them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// The shard.
    pub shard: u16,
    /// Sequence of the entry that the first frame belongs to.
    pub first: u64,
    /// The last entry of which the last frame is in the run; `first - 1` if there is none.
    pub last: u64,
    /// Whether the last frame is the last one of its entry.
    pub ends_entry: bool,
    /// Whether an entry in it is of several shards.
    pub has_parts: bool,
    /// Bytes that the shard's data take.
    pub used_bytes: u64,
    /// The frames.
    pub frames: Vec<u8>,
}

const ENDS_ENTRY: u16 = 1;
const HAS_PARTS: u16 = 2;
const IS_MARK: u16 = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RunHeader {
    checksum: U64,
    bytes: U32,
    shard: U16,
    kind: U16,
    first: U64,
    last: U64,
    synced: U64,
    time_ms: U64,
    used: U64,
}

const _: () = assert!(size_of::<RunHeader>() == RUN_HEADER_BYTES);
const _: () = assert!(offset_of!(RunHeader, first) == 16);
const _: () = assert!(offset_of!(RunHeader, synced) == 32);

/// Where a run lies: the secret of its directory, its segment's number, its offset there.
pub(crate) type Place = (u64, u64, u64);

fn checksum_of(header: &RunHeader, frames: &[u8], (secret, number, offset): Place) -> u64 {
    let mut sum = PieceChecksum::new(mix(mix(secret, number), offset));
    sum.update(&header.as_bytes()[size_of::<U64>()..]);
    sum.update(frames);
    sum.digest()
}

impl RunHeader {
    /// The header of a run.
    pub fn of(run: &Run, place: Place, (synced, time_ms): (u64, u64)) -> Self {
        let kind = u16::from(run.ends_entry) * ENDS_ENTRY + u16::from(run.has_parts) * HAS_PARTS;
        let mut header = Self {
            checksum: U64::ZERO,
            bytes: u32::try_from(run.frames.len()).expect("runs are bounded").into(),
            shard: run.shard.into(),
            kind: kind.into(),
            first: run.first.into(),
            last: run.last.into(),
            synced: synced.into(),
            time_ms: time_ms.into(),
            used: run.used_bytes.into(),
        };
        header.checksum = checksum_of(&header, &run.frames, place).into();
        header
    }

    /// A mark.
    pub fn mark(place: Place, (synced, time_ms): (u64, u64)) -> Self {
        let none = Run { ends_entry: true, ..Run::default() };
        let mut header = Self::of(&none, place, (synced, time_ms));
        header.kind = IS_MARK.into();
        header.checksum = checksum_of(&header, &[], place).into();
        header
    }

    /// The header at the start of `bytes`, which may be anything: not checked.
    pub fn at(bytes: &[u8]) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(bytes).ok()?;
        let bytes = u64::from(header.bytes.get());
        let is_known = match header.kind.get() {
            IS_MARK => bytes == 0,
            kind => kind & !(ENDS_ENTRY | HAS_PARTS) == 0 && bytes > 0,
        };
        let is_plausible = usize::from(header.shard.get()) < MAX_SHARDS
            && is_known
            && bytes.is_multiple_of(RUN_ALIGN_BYTES)
            && header.first.get() <= header.last.get().saturating_add(1);
        is_plausible.then_some(header)
    }

    /// Whether these are the frames that were written.
    pub fn covers(&self, frames: &[u8], place: Place) -> bool {
        checksum_of(self, frames, place) == self.checksum.get()
    }

    pub fn is_mark(&self) -> bool {
        self.kind.get() == IS_MARK
    }

    pub fn frame_bytes(&self) -> usize {
        self.bytes.get() as usize
    }

    pub fn shard(&self) -> usize {
        self.shard.get().into()
    }

    pub fn first(&self) -> u64 {
        self.first.get()
    }

    pub fn last(&self) -> u64 {
        self.last.get()
    }

    pub fn ends_entry(&self) -> bool {
        self.kind.get() & ENDS_ENTRY != 0
    }

    pub fn has_parts(&self) -> bool {
        self.kind.get() & HAS_PARTS != 0
    }

    pub fn synced(&self) -> u64 {
        self.synced.get()
    }

    pub fn time_ms(&self) -> u64 {
        self.time_ms.get()
    }

    pub fn used_bytes(&self) -> u64 {
        self.used.get()
    }
}
