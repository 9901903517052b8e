//! The R*-tree (Catfish 3.1, C5; Beckmann et al., SIGMOD 1990): the choice of an entry's path, the
//! choice of the entries to reinsert, and the split of a full node.

use super::geometry::{growth_of, mbr, rank};
use super::scan::{AT_A_TIME, Test};
use remora_layout::limits::MAX_NODE_ENTRIES;
use remora_layout::node::Entry;
use remora_layout::rect::{Predicate, Rect};

/// Entries out of a hundred that a full node gives away at first.
const REINSERTED_PERCENT: usize = 30;

/// The way to a leaf, from a node right above: least growth of overlap with
/// the others; then least growth of area, then least area. `first` is the best
/// way by area alone.
pub(super) fn choose_leaf(entries: &[Entry], rect: &Rect, first: usize) -> usize {
    // In most cases its overlap does not grow: no other child is better.
    let Some(mut overlap) = overlap_growth(entries, first, rect, f64::INFINITY) else {
        return first;
    };
    if overlap == 0.0 {
        return first;
    }
    let growth = |index: usize| growth_of(&entries[index].rect, rect);
    let mut best = first;
    for index in (0..entries.len()).filter(|&index| index != first) {
        let is_less = growth(index) < growth(best);
        if overlap == 0.0 && !is_less {
            continue;
        }
        let Some(other) = overlap_growth(entries, index, rect, overlap) else { continue };
        if other < overlap || is_less {
            (best, overlap) = (index, other);
        }
    }
    best
}

/// By how much the area that an entry shares with the others grows; `None` if
/// by more than `most`.
fn overlap_growth(entries: &[Entry], own: usize, added: &Rect, most: f64) -> Option<f64> {
    let before = entries[own].rect;
    let after = before.union(added);
    // Others have no part in it before, nor after.
    let shares = Test::of_object(Predicate::Intersects, &after);
    let (mut sum, mut from) = (0.0, 0);
    for part in entries.chunks(AT_A_TIME) {
        for other in shares.hits(part, |entry| entry.rect).filter(|&other| from + other != own) {
            let other = &part[other].rect;
            // It never shrinks.
            sum += other.shared_area(&after) - other.shared_area(&before);
            if sum > most {
                return None;
            }
        }
        from += part.len();
    }
    Some(sum)
}

/// Takes out the entries that lie farthest from the middle of a node, the
/// farthest first: put back from the end, they come near ones first.
pub(super) fn reinsert_candidates(entries: &mut Vec<Entry>) -> Vec<Entry> {
    let (x, y) = mbr(entries).centre();
    let distance = |entry: &Entry| {
        let centre = entry.rect.centre();
        (centre.0 - x) * (centre.0 - x) + (centre.1 - y) * (centre.1 - y)
    };
    let mut order = Vec::with_capacity(entries.len());
    sort(entries, distance, &mut order);
    let taken = (entries.len() * REINSERTED_PERCENT / 100).max(1);
    let far = order[entries.len() - taken..].iter().rev();
    let mut far: Vec<usize> = far.map(|&key| index_of(key)).collect();
    take_out(entries, &mut far)
}

/// Splits off a part of at least `least` entries, and leaves as many: the axis
/// of least margins, on it the cut of least overlap, then of least area.
pub(super) fn split(entries: &mut Vec<Entry>, least: usize) -> Vec<Entry> {
    let (mut order, mut rights) = (Vec::new(), Vec::new());
    let (mut best_margins, mut part) = (f64::INFINITY, Vec::new());
    for axis in [0, 1] {
        let (mut margins, mut best, mut part_here) = (0.0, [f64::INFINITY; 2], Vec::new());
        for upper in [false, true] {
            sort(entries, |entry| edge(&entry.rect, axis, upper), &mut order);
            let mut best_at = None;
            for cut in cuts(entries, &order, least, &mut rights) {
                margins += cut.left.margin() + cut.right.margin();
                let cost = [cut.left.shared_area(&cut.right), cut.left.area() + cut.right.area()];
                if cost < best {
                    (best, best_at) = (cost, Some(cut.at));
                }
            }
            // Areas may be beyond all numbers: any cut does then.
            if best_at.is_some() || upper && part_here.is_empty() {
                let at = best_at.unwrap_or(entries.len() / 2);
                part_here = order[at..].iter().map(|&key| index_of(key)).collect();
            }
        }
        if axis == 0 || margins < best_margins {
            (best_margins, part) = (margins, part_here);
        }
    }
    take_out(entries, &mut part)
}

/// Takes out the entries at some indices; most of the others stay in place.
fn take_out(entries: &mut Vec<Entry>, indices: &mut [usize]) -> Vec<Entry> {
    let taken = indices.iter().map(|&index| entries[index]).collect();
    indices.sort_unstable();
    for &index in indices.iter().rev() {
        entries.swap_remove(index);
    }
    taken
}

/// Bits of a key in which it has the index of its entry: of a node with one entry too many.
const INDEX_BITS: u32 = (MAX_NODE_ENTRIES + 1).next_power_of_two().ilog2();

/// The index of the entry that has a key.
#[inline(always)]
fn index_of(key: u64) -> usize {
    (key & ((1 << INDEX_BITS) - 1)) as usize
}

/// Keys in the order of a number of each entry. Numbers that differ in the last bits only count as
/// equal: one word is sorted much faster than a number and an index.
#[inline(always)]
fn sort(entries: &[Entry], number: impl Fn(&Entry) -> f64, order: &mut Vec<u64>) {
    order.clear();
    order.extend(entries.iter().enumerate().map(|(index, entry)| {
        let rank = rank(number(entry)) as u64 ^ 1 << 63;
        rank >> INDEX_BITS << INDEX_BITS | index as u64
    }));
    order.sort_unstable();
}

#[inline(always)]
fn edge(rect: &Rect, axis: usize, upper: bool) -> f64 {
    match (axis, upper) {
        (0, false) => rect.min_x,
        (0, true) => rect.max_x,
        (_, false) => rect.min_y,
        (_, true) => rect.max_y,
    }
}

struct Cut {
    at: usize,
    left: Rect,
    right: Rect,
}

/// Every way to cut sorted entries in two parts of at least `least`.
fn cuts<'c>(
    entries: &'c [Entry],
    order: &'c [u64],
    least: usize,
    rights: &'c mut Vec<Rect>,
) -> impl Iterator<Item = Cut> + use<'c> {
    let rect = |at: usize| entries[index_of(order[at])].rect;
    let last = entries.len() - 1;
    rights.clear();
    rights.resize(entries.len(), rect(last));
    for at in (0..last).rev() {
        rights[at] = rights[at + 1].union(&rect(at));
    }
    let rights = &*rights;
    let mut left = (1..least).fold(rect(0), |all, at| all.union(&rect(at)));
    (least..=entries.len() - least).map(move |at| {
        left = left.union(&rect(at - 1));
        Cut { at, left, right: rights[at] }
    })
}

#[cfg(test)]
mod tests {
    use super::super::geometry::least_growth;
    use super::*;
    use remora_layout::hash::mix;

    #[test]
    fn the_way_chosen_is_the_best_of_all() {
        let mut contained = 0;
        for case in 0..2_000 {
            let number = |index: u64| mix(mix(case, index), 1) as f64 / u64::MAX as f64;
            let rect = |index: u64, edge: f64| {
                let (x, y) = (number(index * 4), number(index * 4 + 1));
                let (width, height) = (number(index * 4 + 2), number(index * 4 + 3));
                Rect::new(x, x + width * edge, y, y + height * edge).unwrap()
            };
            let entries: Vec<Entry> =
                (0..31).map(|word| Entry { rect: rect(word, 0.3), word }).collect();
            let added = rect(99, 0.01);
            let (first, contains) = least_growth(&entries, &added);
            contained += contains as u64;
            let cost = |index: usize| {
                let overlap = overlap_growth(&entries, index, &added, f64::INFINITY).unwrap();
                let [growth, area] = growth_of(&entries[index].rect, &added);
                [overlap, growth, area]
            };
            let best = (0..31).map(cost).min_by(|a, b| a.partial_cmp(b).unwrap()).unwrap();
            let chosen = choose_leaf(&entries, &added, first);
            assert_eq!(cost(chosen), best);
            assert!(!contains || chosen == first);
        }
        assert!((200..1_800).contains(&contained), "{contained}");
    }
}
