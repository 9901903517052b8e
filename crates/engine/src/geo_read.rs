//! Searching a GEO key in the memory of its shard, from a thread that has RESP
//! connections: another one, or the shard's own.
//!
//! The tree gives slots and positions; the reader fetches the names from the slots. A checksum
//! cannot bind a name to its object, because scores are changed in place. The order of the shard's
//! stores does: the shard takes a member out of the tree before its slot can hold anything else,
//! and hides the tree of a key before the key ends. If the leaves are unchanged and the tree is
//! still there after all names are fetched, the names are those of the members found.

use remora_index::rtree::{AskReason, LocalWalk, Object, Query};
use remora_layout::kind::Kind;
use remora_layout::limits::SLOT_UNIT_BYTES;
use remora_layout::node::Home;
use remora_layout::record::{Lengths, RECORD_HEADER_BYTES};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::RootPlace;
use remora_protocol::geo::{Area, Position};
use remora_protocol::geo::{Centre, GeoSearch, Members};
use remora_walk::Memory;
use remora_walk::local::WalkLimits;

/// Upper bounds of one search. The shard answers a larger one itself, in turns.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Limits of the walk; its objects are the members within the search's window.
    pub walk: WalkLimits,
    /// Bytes of the results, as [`Members`].
    pub found_bytes: usize,
}

/// Bytes of a name that is read.
const NAME_BYTES: usize = 1024;
/// Word of a record that has its lengths.
const LENGTHS_AT: u64 = 24;

/// Why a search is its shard's to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// The tree at this place is gone.
    Gone,
    /// It is of another kind, it is too large, or the tree changes too fast.
    Ask,
}

impl From<AskReason> for Unread {
    fn from(reason: AskReason) -> Self {
        match reason {
            AskReason::Broken => Self::Gone,
            AskReason::TooManyRestarts
            | AskReason::TooManyRetries
            | AskReason::Pending
            | AskReason::Expired => Self::Ask,
        }
    }
}

/// Whether a search is one that can be read at all: around a position, in one
/// window, for all there are.
pub fn may_be_read(search: &GeoSearch<'_>) -> bool {
    one_window(search).is_some()
}

/// The centre and the window of a search that can be read.
fn one_window(search: &GeoSearch<'_>) -> Option<(Position, Rect)> {
    let Centre::At(centre) = search.centre else { return None };
    let (window, None) = search.shape.windows(centre) else { return None };
    (search.enough == 0).then_some((centre, window))
}

/// Searches the tree of a key at `at`, its place and the time in Unix ms, for members, which are
/// appended to `found` as
/// [`Members`]: with their distances and the scores of their positions, or with 0
/// for both if `names_only`. The search is around a position, for all there are.
/// `scratch` is grown as needed.
///
/// # Errors
/// Why the reader must ask the shard. The caller then drops the appended bytes.
pub fn read_members<M: Memory>(
    memory: &M,
    home: Home,
    at: (RootPlace, u64),
    (search, names_only): (&GeoSearch<'_>, bool),
    limits: ReadLimits,
    (scratch, found): (&mut Vec<u8>, &mut Vec<u8>),
) -> Result<(), Unread> {
    let (centre, window) = one_window(search).ok_or(Unread::Ask)?;
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let mut walk = LocalWalk::begin_at(memory, home, at, query)?;
    if !walk.run_within(&limits.walk, scratch)? {
        return Err(Unread::Ask);
    }
    for object in walk.walk().results() {
        memory.prefetch(record_of(object), RECORD_HEADER_BYTES);
    }
    // Meanwhile the records come.
    let area = Area::new(search.shape, centre);
    for object in walk.walk().results() {
        let position = Position::of_point(&object.rect);
        let told = match names_only {
            true => area.holds(position).then_some((0.0, 0.0)),
            false => {
                let distance = search.shape.distance_within(centre, position);
                distance.map(|distance| (position.score(), distance))
            }
        };
        let Some(told) = told else { continue };
        read_member(memory, object, told, found).ok_or(Unread::Ask)?;
        if found.len() > limits.found_bytes {
            return Err(Unread::Ask);
        }
    }
    if walk.stands() { Ok(()) } else { Err(Unread::Ask) }
}

fn record_of(object: &Object) -> u64 {
    u64::from(object.word as u32) * SLOT_UNIT_BYTES as u64
}

/// Appends a member whose name is in its record. A slot that holds no record appends nothing, or
/// garbage: the caller detects it.
fn read_member<M: Memory>(
    memory: &M,
    object: &Object,
    (score, distance): (f64, f64),
    found: &mut Vec<u8>,
) -> Option<()> {
    let record = record_of(object);
    let mut lengths = [0; 8];
    memory.fetch(record + LENGTHS_AT, &mut lengths).then_some(())?;
    let lengths = Lengths::from_word(u64::from_le_bytes(lengths))?;
    (lengths.kind == Kind::SORTED_PLACE).then_some(())?;
    let bytes = lengths.key_bytes as usize;
    let fetch = |name: &mut [u8]| memory.fetch(record + RECORD_HEADER_BYTES as u64, name);
    (bytes <= NAME_BYTES && Members::push_fetched(found, (score, distance, bytes), fetch))
        .then_some(())
}
