//! The R*-tree (Catfish 3.1, C5; Beckmann et al., SIGMOD 1990): which way an
//! entry goes, which entries are reinserted, how a full node is split.

use super::geometry::{Growth, around, best_by};
use remora_layout::node::Entry;
use remora_layout::rect::Rect;

/// Entries out of a hundred that a full node gives away at first.
const REINSERTED_PERCENT: usize = 30;

/// The way to a leaf, from a node right above: least growth of overlap with
/// the others; then least growth of area, then least area.
pub(super) fn choose_leaf(entries: &[Entry], rect: &Rect) -> usize {
    let growth = |index: usize| {
        let growth = Growth::of(&entries[index].rect, rect);
        [growth.by, growth.from]
    };
    // Mostly the one that grows least overlaps with nobody more than before:
    // the others need not be looked at.
    let Some(mut best) = best_by(0..entries.len(), growth) else { return 0 };
    let Some(mut overlap) = overlap_growth(entries, best, rect, f64::INFINITY) else { return best };
    let first = best;
    for index in (0..entries.len()).filter(|&index| index != first) {
        if overlap == 0.0 {
            break;
        }
        let Some(other) = overlap_growth(entries, index, rect, overlap) else { continue };
        if other < overlap || growth(index) < growth(best) {
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
    let mut sum = 0.0;
    let mut add = |others: &[Entry]| {
        // It never shrinks. A few at a time: looking costs as much as adding.
        others.chunks(4).all(|few| {
            let grown =
                |other: &Entry| other.rect.shared_area(&after) - other.rect.shared_area(&before);
            sum += few.iter().map(grown).sum::<f64>();
            sum <= most
        })
    };
    (add(&entries[..own]) && add(&entries[own + 1..])).then_some(sum)
}

/// Takes out the entries that lie farthest from the middle of a node, the
/// farthest first: put back from the end, they come near ones first.
pub(super) fn take_far(entries: &mut Vec<Entry>) -> impl Iterator<Item = Entry> + use<> {
    let (x, y) = around(entries).centre();
    let distance = |entry: &Entry| {
        let centre = entry.rect.centre();
        (centre.0 - x) * (centre.0 - x) + (centre.1 - y) * (centre.1 - y)
    };
    entries.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let taken = (entries.len() * REINSERTED_PERCENT / 100).max(1);
    let far = entries.split_off(entries.len() - taken);
    far.into_iter().rev()
}

/// Splits off a part of at least `least` entries, and leaves as many: the axis
/// of least margins, on it the cut of least overlap, then of least area.
pub(super) fn split(entries: &mut Vec<Entry>, least: usize) -> Vec<Entry> {
    let mut best_axis = (f64::INFINITY, 0);
    for axis in [0, 1] {
        let mut margins = 0.0;
        for upper in [false, true] {
            sort(entries, axis, upper);
            margins +=
                cuts(entries, least).map(|cut| cut.left.margin() + cut.right.margin()).sum::<f64>();
        }
        if margins < best_axis.0 {
            best_axis = (margins, axis);
        }
    }
    let axis = best_axis.1;
    let mut best = ([f64::INFINITY; 2], true, entries.len() / 2);
    for upper in [false, true] {
        sort(entries, axis, upper);
        for cut in cuts(entries, least) {
            let cost = [cut.left.shared_area(&cut.right), cut.left.area() + cut.right.area()];
            if cost < best.0 {
                best = (cost, upper, cut.at);
            }
        }
    }
    let (_, upper, at) = best;
    if !upper {
        sort(entries, axis, upper);
    }
    entries.split_off(at)
}

/// By an edge on one axis, then by the other edge.
fn sort(entries: &mut [Entry], axis: usize, upper: bool) {
    let edges = |rect: &Rect| match axis {
        0 => (rect.min_x, rect.max_x),
        _ => (rect.min_y, rect.max_y),
    };
    entries.sort_by(|a, b| {
        let (a, b) = (edges(&a.rect), edges(&b.rect));
        let (low, high) = (a.0.total_cmp(&b.0), a.1.total_cmp(&b.1));
        if upper { high.then(low) } else { low.then(high) }
    });
}

struct Cut {
    at: usize,
    left: Rect,
    right: Rect,
}

/// Every way to cut sorted entries in two parts of at least `least`.
fn cuts(entries: &[Entry], least: usize) -> impl Iterator<Item = Cut> + use<'_> {
    let mut rights = vec![Rect::default(); entries.len()];
    let mut right = entries[entries.len() - 1].rect;
    for (index, entry) in entries.iter().enumerate().rev() {
        right = right.union(&entry.rect);
        rights[index] = right;
    }
    let mut left = around(&entries[..least]);
    (least..=entries.len() - least).map(move |at| {
        left = left.union(&entries[at - 1].rect);
        Cut { at, left, right: rights[at] }
    })
}
