//! Sorts a long list in bounded steps: quicksort whose ranges wait on a stack. It copies nothing,
//! so that a list may take half of a shard's memory.

use remora_layout::hash::mix;
use std::ops::Range;

/// Ranges of at most so many items are sorted at once.
const SHORT: usize = 1024;
/// What an item of a short range costs, counted in looks at keys.
const SHORT_WORK: usize = 8;
/// Keys of which the median parts a range.
const SAMPLES: usize = 9;

/// A list that is being sorted.
pub(super) struct Sort<K> {
    /// A secret, so that no client can choose a list that takes quadratic time.
    secret: u64,
    /// What is still to be sorted, the next range last. A longer one lies below
    /// a shorter one: there are at most as many as a length has bits.
    waiting: Vec<Range<usize>>,
    /// The range that is being parted.
    parting: Option<Parting<K>>,
}

/// A range that is being parted: keys below `from` are at most the pivot, those
/// from `to` on at least.
struct Parting<K> {
    range: Range<usize>,
    from: usize,
    to: usize,
    pivot: K,
}

impl<K: Ord + Copy> Sort<K> {
    /// To sort a range of a list.
    pub fn new(secret: u64, range: Range<usize>) -> Self {
        Self { secret, waiting: vec![range], parting: None }
    }

    /// Goes on until the list is sorted, or `work` is used up: it may be exceeded by
    /// a short range. True once the list is sorted.
    pub fn go_on<T>(&mut self, items: &mut [T], key: impl Fn(&T) -> K, work: &mut usize) -> bool {
        // Bounded by the work.
        while *work > 0 {
            if let Some(parting) = &mut self.parting {
                if parting.go_on(items, &key, work) {
                    let Parting { range, from, to, .. } = self.parting.take().expect("it is there");
                    let (left, right) = (range.start..from, to..range.end);
                    let is_left_longer = left.len() > right.len();
                    let (longer, shorter) =
                        if is_left_longer { (left, right) } else { (right, left) };
                    self.waiting.extend([longer, shorter]);
                }
                continue;
            }
            let Some(range) = self.waiting.pop() else { return true };
            if range.len() <= SHORT {
                *work = work.saturating_sub(range.len() * SHORT_WORK + 1);
                items[range].sort_by_cached_key(&key);
                continue;
            }
            let sample = |number: usize| {
                let place = mix(range.start as u64 ^ (number as u64) << 48, self.secret);
                key(&items[range.start + place as usize % range.len()])
            };
            let mut samples: [K; SAMPLES] = std::array::from_fn(sample);
            samples.sort_unstable();
            let pivot = samples[SAMPLES / 2];
            self.parting = Some(Parting { from: range.start, to: range.end, range, pivot });
        }
        self.waiting.is_empty() && self.parting.is_none()
    }
}

impl<K: Ord> Parting<K> {
    /// True once both sides meet: what lies between them, if anything, has the
    /// pivot as its key.
    fn go_on<T>(&mut self, items: &mut [T], key: impl Fn(&T) -> K, work: &mut usize) -> bool {
        while *work > 0 {
            *work -= 1;
            if self.from >= self.to {
                return true;
            }
            if key(&items[self.from]) < self.pivot {
                self.from += 1;
            } else if key(&items[self.to - 1]) > self.pivot {
                self.to -= 1;
            } else if self.from + 1 == self.to {
                return true;
            } else {
                items.swap(self.from, self.to - 1);
                self.from += 1;
                self.to -= 1;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list by its name, and its item at a place.
    type List = (&'static str, fn(u64) -> u64);

    /// Sorts in steps; gives the number of steps and how much work was done.
    fn sort(items: &mut [u64], step: usize) -> (usize, usize) {
        let mut sort = Sort::new(7, 0..items.len());
        let (mut steps, mut done) = (0, 0);
        loop {
            steps += 1;
            let looks = std::cell::Cell::new(0);
            let mut work = step;
            let key = |item: &u64| {
                looks.set(looks.get() + 1);
                *item
            };
            let ended = sort.go_on(items, key, &mut work);
            assert!(looks.get() <= 2 * step + 2 * SHORT + SAMPLES, "a step is bounded");
            assert!(sort.waiting.len() <= 64);
            done += step - work;
            if ended {
                return (steps, done);
            }
        }
    }

    #[test]
    fn any_list_is_sorted_in_bounded_steps() {
        let count = 100_000;
        let lists: [List; 7] = [
            ("random", |at| mix(at, 1)),
            ("sorted", |at| at),
            ("backwards", |at| u64::MAX - at),
            ("equal", |_| 5),
            ("few values", |at| mix(at, 2) % 3),
            ("up and down", |at| if at % 2 == 0 { at } else { 200_000 - at }),
            ("one is greater", |at| (at == 77).into()),
        ];
        for (name, item) in lists {
            for length in [0, 1, SHORT as u64, SHORT as u64 + 1, count] {
                let mut items: Vec<u64> = (0..length).map(item).collect();
                let mut expected = items.clone();
                expected.sort_unstable();
                let (steps, done) = sort(&mut items, 1000);
                assert!(items == expected, "{name}, {length}");
                // 7 levels of parting and the short ranges, and something for luck.
                assert!(done <= 30 * length as usize + 2000, "{name}, {length}: {done}");
                assert!(steps <= done / 1000 + 2, "{name}, {length}: {steps} steps for {done}");
            }
        }
    }
}
