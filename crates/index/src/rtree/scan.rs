//! Comparing a node's entries with a window: the innermost loop of all
//! searches.
//!
//! A predicate compares two edges on each axis with two bounds. With the sign of one edge flipped
//! both comparisons are "at most", whatever the predicate: one code path for all, without a branch,
//! and two comparisons at once on machines with vectors of two numbers.

use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;

/// Entries that are compared at a time: as many as a mask has bits.
pub(super) const AT_A_TIME: usize = u64::BITS as usize;

/// Bits of a mask. Taken from a table they go through vectors; a shift by the number of an entry
/// would not.
const BITS: [u64; AT_A_TIME] = {
    let (mut bits, mut index) = ([0; AT_A_TIME], 0);
    while index < AT_A_TIME {
        bits[index] = 1 << index;
        index += 1;
    }
    bits
};

/// What is asked of an entry's rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Test {
    /// Signs of (min, max): one of the two is turned.
    turn: [f64; 2],
    /// What (min, max) may be at most on the x axis, signs turned.
    x: [f64; 2],
    /// The same on the y axis.
    y: [f64; 2],
}

impl Test {
    /// Whether an object is one of those that are looked for.
    pub fn of_object(predicate: Predicate, window: &Rect) -> Self {
        let Rect { min_x, max_x, min_y, max_y } = *window;
        let (keep_min, keep_max) = ([0.0, -0.0], [-0.0, 0.0]);
        match predicate {
            Predicate::Intersects => {
                Self { turn: keep_min, x: [max_x, -min_x], y: [max_y, -min_y] }
            }
            Predicate::Contains => Self { turn: keep_min, x: [min_x, -max_x], y: [min_y, -max_y] },
            Predicate::Within => Self { turn: keep_max, x: [-min_x, max_x], y: [-min_y, max_y] },
        }
    }

    /// Whether some may lie below a child with this rectangle.
    pub fn of_way(predicate: Predicate, window: &Rect) -> Self {
        Self::of_object(
            match predicate {
                Predicate::Intersects | Predicate::Within => Predicate::Intersects,
                Predicate::Contains => Predicate::Contains,
            },
            window,
        )
    }

    /// The answers for up to [`AT_A_TIME`] entries, one bit each.
    #[inline(always)]
    pub fn hits<E>(&self, entries: &[E], rect: impl Fn(&E) -> Rect) -> Hits {
        let mut mask = 0;
        for (entry, bit) in entries.iter().zip(&BITS) {
            mask |= if self.holds(&rect(entry)) { *bit } else { 0 };
        }
        Hits(mask)
    }

    #[inline(always)]
    fn holds(&self, rect: &Rect) -> bool {
        let turn = |edge: f64, sign: f64| f64::from_bits(edge.to_bits() ^ sign.to_bits());
        (turn(rect.min_x, self.turn[0]) <= self.x[0])
            & (turn(rect.max_x, self.turn[1]) <= self.x[1])
            & (turn(rect.min_y, self.turn[0]) <= self.y[0])
            & (turn(rect.max_y, self.turn[1]) <= self.y[1])
    }
}

/// The indices of the entries that passed.
pub(super) struct Hits(u64);

impl Iterator for Hits {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let index = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_through_says_what_each_predicate_says() {
        let edges = [f64::MIN, -1.0, -0.0, 0.0, 5e-324, 1.0, f64::MAX];
        let mut rects = Vec::new();
        for a in 0..edges.len() {
            for b in a..edges.len() {
                rects.push((edges[a], edges[b]));
            }
        }
        let rects: Vec<Rect> = rects
            .iter()
            .flat_map(|&(min_x, max_x)| {
                let on_y = rects.iter();
                on_y.map(move |&(min_y, max_y)| Rect::new(min_x, max_x, min_y, max_y).unwrap())
            })
            .collect();
        for predicate in [Predicate::Intersects, Predicate::Within, Predicate::Contains] {
            for window in &rects {
                let (object, way) =
                    (Test::of_object(predicate, window), Test::of_way(predicate, window));
                for part in rects.chunks(AT_A_TIME) {
                    let expected = |holds: &dyn Fn(&Rect) -> bool| -> Vec<usize> {
                        (0..part.len()).filter(|&index| holds(&part[index])).collect()
                    };
                    let hits: Vec<usize> = object.hits(part, |rect| *rect).collect();
                    assert_eq!(hits, expected(&|rect| predicate.holds(rect, window)));
                    let ways: Vec<usize> = way.hits(part, |rect| *rect).collect();
                    assert_eq!(ways, expected(&|rect| predicate.may_hold_below(rect, window)));
                }
            }
        }
    }
}
