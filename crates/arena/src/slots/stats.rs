//! The allocator's statistics.

/// How the bytes of an arena are used. All fields but the last two add up to the pages that the
/// allocator was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotStats {
    /// Bytes of slots in use; large ones in whole pages.
    pub used_bytes: u64,
    /// Bytes of free slots in spans.
    pub free_bytes: u64,
    /// Bytes of slots that wait for a lease to end.
    pub quarantine_bytes: u64,
    /// Bytes of slots and pages whose generation is used up.
    pub retired_bytes: u64,
    /// Bytes of free pages.
    pub uncarved_bytes: u64,
    /// Bytes of runs that hold no records: the table's.
    pub run_bytes: u64,
    /// Bytes at the ends of spans, each too few for a slot.
    pub tail_bytes: u64,
    /// Bytes of free pages that may not be taken: those of the reserve that are not lent, and as many
    /// as are, once lending has ended.
    pub reserve_bytes: u64,
    /// Bytes of the reserve that are lent.
    pub lent_bytes: u64,
    /// Slots reused before their lease had ended; a count.
    pub reused_early: u64,
}

impl SlotStats {
    /// Bytes of all the pages that the allocator was given.
    pub fn total_bytes(&self) -> u64 {
        self.used_bytes
            + self.free_bytes
            + self.quarantine_bytes
            + self.retired_bytes
            + self.uncarved_bytes
            + self.run_bytes
            + self.tail_bytes
            + self.reserve_bytes
    }
}
