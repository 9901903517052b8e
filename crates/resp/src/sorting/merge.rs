//! Sorting in turns, each of bounded work: a merge sort from below. It is stable.
//!
//! Invariant: `order` holds each number once; up to `sorted` it is made of ascending runs.

use remora_layout::limits::SORT_TURN_ELEMENTS;
use std::cmp::Ordering;

/// How the numbered things compare, and what a comparison with each costs, in elements.
pub(crate) trait Compare {
    fn compare(&self, a: u32, b: u32) -> Ordering;
    fn cost(&self, number: u32) -> usize;
}

/// The numbers 0 to some count, in the order of what they number.
#[derive(Debug)]
pub(crate) struct MergeSort {
    order: Vec<u32>,
    /// The ends of the runs.
    ends: Vec<usize>,
    /// Two neighbouring runs at a time become one of these.
    merged: Vec<u32>,
    merged_ends: Vec<usize>,
    /// The first of the two runs that are being merged, and the rest of both.
    pair: usize,
    left: usize,
    right: usize,
}

impl MergeSort {
    /// Nothing is sorted yet.
    pub fn new(count: u32) -> Self {
        Self {
            order: (0..count).collect(),
            ends: Vec::new(),
            merged: Vec::new(),
            merged_ends: Vec::new(),
            pair: 0,
            left: 0,
            right: 0,
        }
    }

    /// Sorts for one turn; true once all is sorted.
    pub fn turn(&mut self, by: &impl Compare) -> bool {
        let sorted = self.ends.last().copied().unwrap_or(0);
        if sorted < self.order.len() {
            self.sort_run(sorted, by);
        } else if self.ends.len() > 1 {
            self.merge_some(by);
        }
        self.ends.len() <= 1 && self.ends.last().copied().unwrap_or(0) == self.order.len()
    }

    /// All numbers in order, once they are sorted.
    pub fn into_order(self) -> Vec<u32> {
        self.order
    }

    fn sort_run(&mut self, from: usize, by: &impl Compare) {
        let (mut to, mut cost) = (from, 0);
        while to < self.order.len() && cost < SORT_TURN_ELEMENTS {
            cost += by.cost(self.order[to]);
            to += 1;
        }
        self.order[from..to].sort_by(|a, b| by.compare(*a, *b));
        self.ends.push(to);
        self.begin_pair(0);
    }

    fn begin_pair(&mut self, pair: usize) {
        self.pair = pair;
        self.left = pair.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.right = self.ends[pair];
    }

    fn merge_some(&mut self, by: &impl Compare) {
        let mut cost = 0;
        while cost < SORT_TURN_ELEMENTS {
            let left_end = self.ends[self.pair];
            let right_end = self.ends.get(self.pair + 1).copied().unwrap_or(left_end);
            let (has_left, has_right) = (self.left < left_end, self.right < right_end);
            let takes_left = match (has_left, has_right) {
                (true, true) => by.compare(self.order[self.left], self.order[self.right]).is_le(),
                (true, false) => true,
                (false, true) => false,
                (false, false) => {
                    self.merged_ends.push(self.merged.len());
                    if self.pair + 2 < self.ends.len() {
                        self.begin_pair(self.pair + 2);
                        continue;
                    }
                    std::mem::swap(&mut self.order, &mut self.merged);
                    std::mem::swap(&mut self.ends, &mut self.merged_ends);
                    self.merged.clear();
                    self.merged_ends.clear();
                    return self.begin_pair(0);
                }
            };
            let from = if takes_left { &mut self.left } else { &mut self.right };
            let number = self.order[*from];
            *from += 1;
            cost += by.cost(number);
            self.merged.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(Vec<u32>);

    impl Compare for Numbers {
        fn compare(&self, a: u32, b: u32) -> Ordering {
            self.0[a as usize].cmp(&self.0[b as usize])
        }

        fn cost(&self, number: u32) -> usize {
            1 + number as usize % 3
        }
    }

    #[test]
    fn any_number_of_elements_is_sorted_stably_in_bounded_turns() {
        let runs = SORT_TURN_ELEMENTS as u32;
        for count in [0, 1, 2, runs / 2, runs, 2 * runs, 5 * runs + 3, 40 * runs] {
            let numbers =
                Numbers((0..count).map(|at| at.wrapping_mul(2_654_435_761) >> 20).collect());
            let (mut sort, mut turns) = (MergeSort::new(count), 0);
            while !sort.turn(&numbers) {
                turns += 1;
            }
            let mut expected: Vec<u32> = (0..count).collect();
            expected.sort_by_key(|at| numbers.0[*at as usize]);
            assert_eq!(sort.into_order(), expected, "{count}");
            // Each turn does about its share: runs are formed once, then merged some times.
            let cost = 2 * u64::from(count) / u64::from(runs) + 1;
            assert!(turns <= 10 * cost, "{turns} turns for {count}");
            assert!(turns + 1 >= cost / 2, "{turns} turns for {count}");
        }
    }
}
