//! What the writers ask of rectangles. Areas beyond an f64 are infinite, and
//! their differences no numbers: choices stay choices then, only poorer.

use remora_layout::node::Entry;
use remora_layout::rect::Rect;

/// The smallest rectangle around entries; of none, the point 0.
pub(super) fn around(entries: &[Entry]) -> Rect {
    let Some((first, rest)) = entries.split_first() else { return Rect::default() };
    rest.iter().fold(first.rect, |all, entry| all.union(&entry.rect))
}

/// How much a rectangle would grow to take another one in.
pub(super) struct Growth {
    /// Area that it would gain.
    pub by: f64,
    /// Area that it has.
    pub from: f64,
}

impl Growth {
    #[inline(always)]
    pub fn of(rect: &Rect, added: &Rect) -> Self {
        let from = rect.area();
        Self { by: rect.union(added).area() - from, from }
    }
}

/// The candidate of the least cost; the first of equal ones.
#[inline(always)]
pub(super) fn best_by<const N: usize>(
    candidates: impl Iterator<Item = usize>,
    cost: impl Fn(usize) -> [f64; N],
) -> Option<usize> {
    let mut best = None;
    for index in candidates {
        let cost = cost(index);
        if best.is_none_or(|(_, least)| cost < least) {
            best = Some((index, cost));
        }
    }
    best.map(|(index, _)| index)
}
