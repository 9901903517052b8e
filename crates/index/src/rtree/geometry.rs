//! Computations of the writers on rectangles. Areas beyond an f64 are infinite, and their
//! differences NaN: the choices are then still valid, only worse.

use super::scan::{AT_A_TIME, Test};
use remora_layout::node::Entry;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;

/// The smallest rectangle around entries; of none, the point 0.
pub(super) fn mbr(entries: &[Entry]) -> Rect {
    let Some((first, rest)) = entries.split_first() else { return Rect::default() };
    rest.iter().fold(first.rect, |all, entry| all.union(&entry.rect))
}

/// How much area a rectangle would gain to take another one in, and how much
/// it has.
#[inline(always)]
pub(super) fn growth_of(rect: &Rect, added: &Rect) -> [f64; 2] {
    let area = rect.area();
    [rect.union(added).area() - area, area]
}

/// The child that grows least in area, then the smallest: Guttman's choice. A
/// child that contains the rectangle comes before all others; whether it does.
pub(super) fn least_growth(entries: &[Entry], added: &Rect) -> (usize, bool) {
    let test = Test::of_object(Predicate::Contains, added);
    let mut smallest = Best::default();
    let mut from = 0;
    for part in entries.chunks(AT_A_TIME) {
        for index in test.hits(part, |entry| entry.rect) {
            smallest.offer(from + index, [part[index].rect.area(), 0.0]);
        }
        from += part.len();
    }
    if let Some(index) = smallest.index {
        return (index, true);
    }
    (least_growth_of_all(entries, added), false)
}

/// The child that grows least in area, then the smallest; the first one if areas are no numbers.
fn least_growth_of_all(entries: &[Entry], added: &Rect) -> usize {
    let (mut best, mut from) = (Best::default(), 0);
    for part in entries.chunks(AT_A_TIME) {
        // All first, and the least of them by parts: without a branch for each.
        let mut growths = [f64::INFINITY; AT_A_TIME];
        for (growth, entry) in growths.iter_mut().zip(part) {
            *growth = growth_of(&entry.rect, added)[0];
        }
        let (fours, _) = growths[..part.len().next_multiple_of(4)].as_chunks::<4>();
        let least = fours.iter().fold([f64::INFINITY; 4], |least, four| {
            std::array::from_fn(
                |lane| if four[lane] < least[lane] { four[lane] } else { least[lane] },
            )
        });
        let least = least.into_iter().fold(f64::INFINITY, f64::min);
        for index in (0..part.len()).filter(|&index| growths[index] == least) {
            best.offer(from + index, [least, part[index].rect.area()]);
        }
        from += part.len();
    }
    best.index.unwrap_or(0)
}

/// The candidate of the least cost so far; the first of equal ones.
#[derive(Default)]
struct Best {
    index: Option<usize>,
    cost: [f64; 2],
}

impl Best {
    #[inline(always)]
    fn offer(&mut self, index: usize, cost: [f64; 2]) {
        let least = self.cost;
        if self.index.is_none() || cost[0] < least[0] || cost[0] == least[0] && cost[1] < least[1] {
            *self = Self { index: Some(index), cost };
        }
    }
}

/// The candidate of the least cost; the first of equal ones.
#[inline(always)]
pub(super) fn best_by(
    candidates: impl Iterator<Item = usize>,
    cost: impl Fn(usize) -> [f64; 2],
) -> Option<usize> {
    let mut best = Best::default();
    candidates.for_each(|index| best.offer(index, cost(index)));
    best.index
}

/// A number as an integer of the same order, as [`f64::total_cmp`] has it.
#[inline(always)]
pub(super) fn rank(number: f64) -> i64 {
    let bits = number.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}
