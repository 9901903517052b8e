//! Guttman's R-tree (Catfish 2.1, C3; SIGMOD 1984): the quadratic split.

use super::geometry::{best_by, growth_of, mbr};
use remora_layout::node::Entry;
use remora_layout::rect::Rect;

/// Splits off a part of at least `least` entries, and leaves as many: from the
/// two that waste most together, each next entry by its preference.
pub(super) fn split(entries: &mut Vec<Entry>, least: usize) -> Vec<Entry> {
    let mut rest = std::mem::take(entries);
    let (first, second) = seeds(&rest);
    // `second` is the later one: taking it out leaves `first` where it is.
    let mut right = vec![rest.swap_remove(second)];
    let mut left = vec![rest.swap_remove(first)];
    let (mut left_box, mut right_box) = (mbr(&left), mbr(&right));
    while !rest.is_empty() {
        if left.len() + rest.len() <= least {
            left.append(&mut rest);
            break;
        }
        if right.len() + rest.len() <= least {
            right.append(&mut rest);
            break;
        }
        // The entry that cares most for its side.
        let growths = |entry: &Entry| {
            (growth_of(&left_box, &entry.rect)[0], growth_of(&right_box, &entry.rect)[0])
        };
        let indifference = |index: usize| {
            let (to_left, to_right) = growths(&rest[index]);
            [-(to_left - to_right).abs(), 0.0]
        };
        let entry = rest.swap_remove(best_by(0..rest.len(), indifference).unwrap_or(0));
        let (to_left, to_right) = {
            let growth = |side: &Rect| growth_of(side, &entry.rect)[0];
            (growth(&left_box), growth(&right_box))
        };
        let cost_left = [to_left, left_box.area(), left.len() as f64];
        let cost_right = [to_right, right_box.area(), right.len() as f64];
        if cost_left <= cost_right {
            left_box = left_box.union(&entry.rect);
            left.push(entry);
        } else {
            right_box = right_box.union(&entry.rect);
            right.push(entry);
        }
    }
    *entries = left;
    right
}

/// The two entries whose common rectangle wastes most; the earlier one first.
fn seeds(entries: &[Entry]) -> (usize, usize) {
    let mut worst = (f64::NEG_INFINITY, (0, 1));
    for (second, b) in entries.iter().enumerate() {
        for (first, a) in entries[..second].iter().enumerate() {
            let waste = a.rect.union(&b.rect).area() - a.rect.area() - b.rect.area();
            if waste > worst.0 {
                worst = (waste, (first, second));
            }
        }
    }
    worst.1
}
