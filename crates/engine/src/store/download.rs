//! Large values on their way out: pinned, and sent in pieces while other
//! commands run.
//!
//! Invariant: a pinned slot is not reused, not moved and not changed in place, so that a download
//! is the value at the time of the command. A record that is removed or replaced meanwhile is dead
//! for readers at once; only the slot's release waits for the last pin. It counts as used memory
//! until then.

use remora_arena::{Journal, Owner, Slot, class_for};
use remora_index::hash::{record_key, record_value};
use remora_layout::limits::{SLOT_UNIT_BYTES, STREAM_BYTES};
use remora_layout::record::RECORD_HEADER_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;

/// A value longer than `STREAM_BYTES` is in a slot of at least this class.
pub const STREAM_CLASS: u8 = class_for(STREAM_BYTES).expect("below the limit of values");

/// Bytes of a value that a download holds. They are free again only once the download is ended at
/// its shard.
#[derive(Debug)]
#[must_use = "its slot is pinned until the download is ended"]
pub struct Download {
    slot: u32,
    /// Bytes of the region.
    bytes: Range<usize>,
}

impl Download {
    /// How many bytes it has.
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Up to `bytes` of its bytes, from `at` on; fewer at its end, none behind it.
    pub(crate) fn piece<'o, J: Journal>(
        &self,
        owner: &'o Owner<J>,
        at: usize,
        bytes: usize,
    ) -> &'o [u8] {
        let at = at.min(self.len());
        let bytes = bytes.min(self.len() - at);
        owner.slice(self.bytes.start + at, bytes)
    }

    /// Leaves these of its bytes.
    pub(crate) fn narrow(&mut self, range: Range<usize>) {
        let from = self.bytes.start;
        self.bytes = from + range.start..from + range.end;
    }
}

struct Pin {
    count: u32,
    /// The slot must be released when the last pin goes; with the end of the lease on it.
    release: Option<(Slot, Option<u64>)>,
}

/// The pinned slots.
#[derive(Default)]
pub(crate) struct Pins {
    by_slot: BTreeMap<u32, Pin>,
}

impl Pins {
    /// Whether a slot is pinned.
    pub fn holds(&self, slot: u32) -> bool {
        self.by_slot.contains_key(&slot)
    }

    /// Slots that are pinned.
    pub fn records(&self) -> u64 {
        self.by_slot.len() as u64
    }

    /// Slots whose release waits for their pins.
    pub fn waiting(&self) -> impl Iterator<Item = Slot> {
        self.by_slot.values().filter_map(|pin| pin.release.map(|(slot, _)| slot))
    }

    /// Lets the release of a slot wait for its pins. False if there are none.
    pub fn defer(&mut self, dead: Slot, lease_end_s: Option<u64>) -> bool {
        let Some(pin) = self.by_slot.get_mut(&dead.slot) else { return false };
        pin.release = Some((dead, lease_end_s));
        true
    }

    /// Pins the record in a slot; gives its whole value.
    pub fn pin<J: Journal>(&mut self, owner: &Owner<J>, slot: u32) -> Download {
        let pin = self.by_slot.entry(slot).or_insert(Pin { count: 0, release: None });
        pin.count += 1;
        let from =
            slot as usize * SLOT_UNIT_BYTES + RECORD_HEADER_BYTES + record_key(owner, slot).len();
        let bytes = from..from + record_value(owner, slot).len();
        Download { slot, bytes }
    }

    /// Ends a download, and removes its pin. Returns the slot to release now, and the end of the
    /// lease on it.
    pub fn unpin(&mut self, download: Download) -> Option<(Slot, Option<u64>)> {
        let slot = download.slot;
        let pin = self.by_slot.get_mut(&slot).expect("a download has its pin");
        pin.count -= 1;
        if pin.count > 0 {
            return None;
        }
        self.by_slot.remove(&slot).and_then(|pin| pin.release)
    }
}
