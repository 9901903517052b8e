//! Ranges of ordered trees for plans: one read each.

use crate::types::sought::{Met, Seek, Sought};
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use remora_protocol::{Items, Request};
use std::ops::Bound;

struct SeekRange {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    is_reverse: bool,
    count: usize,
}

/// The search for a range.
pub(super) fn seek(sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
    let Sought::Entries { range, is_reverse, count } = *sought else { return None };
    let (from, to) = (range.from.map(<[u8]>::to_vec), range.to.map(<[u8]>::to_vec));
    Some(Box::new(SeekRange { from, to, is_reverse, count }))
}

impl Seek for SeekRange {
    fn request(&mut self) -> Option<Request<'_>> {
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        let range = OrderedRange { from: from.map(Vec::as_slice), to: to.map(Vec::as_slice) };
        let (is_reverse, limit) = (self.is_reverse, self.count as u64);
        Some(OrderedCommand::Range { range, is_reverse, limit }.request())
    }

    fn take(&mut self, found: &[u8]) -> Option<Met> {
        let words = Items::parse(found).map_or(0, |items| items.fields().count());
        // A key and a value each.
        Some(Met::Entries { goes_on: words / 2 >= self.count })
    }
}
