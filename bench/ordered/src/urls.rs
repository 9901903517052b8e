//! URLs as keys.

use crate::run::{Contestant, Map, RANGE, all_keys, compare as run};
use crate::workload::Ours;
use remora_index::btree::Options;
use remora_testing::Random;
use std::collections::BTreeMap;

const FAN_OUTS: [usize; 3] = [16, 32, 64];
/// Longest URL of these.
const LONGEST: usize = 160;
/// What an entry usually takes behind prefix and head.
const USUAL: usize = 40;

/// All keys, one behind the other.
pub struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn of(&self, number: usize) -> &[u8] {
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from..self.ends[number]]
    }

    fn select(&self, numbers: &[usize]) -> Box<Self> {
        let mut keys = Self { bytes: Vec::new(), ends: Vec::new() };
        for &number in numbers {
            keys.bytes.extend_from_slice(self.of(number));
            keys.ends.push(keys.bytes.len());
        }
        Box::new(keys)
    }
}

const SCHEMES: [&str; 4] = ["https://www.", "https://www.", "https://", "http://"];
const ENDS: [&str; 6] = [".com", ".com", ".org", ".net", ".de", ".co.uk"];
const PARTS: [&str; 12] = [
    "news",
    "blog",
    "articles",
    "product",
    "category",
    "wiki",
    "user",
    "en",
    "2024",
    "2025",
    "archive",
    "questions",
];
const WORDS: [&str; 16] = [
    "how", "best", "guide", "review", "market", "summer", "winter", "city", "open", "data",
    "index", "story", "price", "music", "travel", "school",
];

/// Keys that differ. Few hosts have most of the pages, as in crawls.
fn keys(count: usize) -> Keys {
    let mut random = Random::new(1);
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    let hosts = (count / 50).max(10) as f64;
    for number in 0..count {
        let host = hosts.powf(random.unit()) as u64;
        let mut named = Random::new(host);
        let mut text = String::from(named.pick(&SCHEMES));
        text.push_str(named.pick(&WORDS));
        text.push_str(&format!("{host}{}", named.pick(&ENDS)));
        for _ in 0..1 + random.below(3u64) {
            text.push('/');
            text.push_str(random.pick(&PARTS));
        }
        text.push('/');
        for _ in 0..1 + random.below(5u64) {
            text.push_str(random.pick(&WORDS));
            text.push('-');
        }
        text.push_str(&number.to_string());
        assert!(text.len() <= LONGEST);
        bytes.extend_from_slice(text.as_bytes());
        ends.push(bytes.len());
    }
    Keys { bytes, ends }
}

fn sum_of<'e>(entries: impl Iterator<Item = (&'e Box<[u8]>, &'e u64)>) -> u64 {
    let entries = entries.take(RANGE);
    entries.fold(0, |sum, (key, value)| sum.wrapping_add(key.len() as u64).wrapping_add(*value))
}

/// The methods that are alike for all.
macro_rules! map {
    ($type:ty, $range:expr) => {
        impl Map<Keys> for $type {
            fn insert(&mut self, keys: &Keys, from: usize, to: usize) {
                for number in from..to {
                    self.insert(keys.of(number).into(), number as u64);
                }
            }

            fn get(&self, keys: &Keys, numbers: &[usize]) -> u64 {
                let values =
                    numbers.iter().map(|&number| self.get(keys.of(number)).expect("it is there"));
                values.fold(0, |sum, value| sum.wrapping_add(*value))
            }

            fn range(&self, keys: &Keys, numbers: &[usize]) -> u64 {
                let sums = numbers.iter().map(|&number| $range(self, keys.of(number)));
                sums.fold(0, u64::wrapping_add)
            }

            fn bytes(&self) -> Option<u64> {
                None
            }

            fn shape(&self) -> String {
                String::new()
            }
        }
    };
}

map!(BTreeMap<Box<[u8]>, u64>, |map: &Self, key: &[u8]| {
    use std::ops::Bound;
    sum_of(map.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)))
});
map!(indexset::BTreeMap<Box<[u8]>, u64>, |map: &Self, key: &[u8]| {
    sum_of(map.range(Box::<[u8]>::from(key)..))
});

impl Map<Keys> for Ours {
    fn insert(&mut self, keys: &Keys, from: usize, to: usize) {
        Ours::insert(self, (from..to).map(|number| (keys.of(number), number as u64)));
    }

    fn get(&self, keys: &Keys, numbers: &[usize]) -> u64 {
        Ours::get(self, numbers.iter().map(|&number| keys.of(number)))
    }

    fn range(&self, keys: &Keys, numbers: &[usize]) -> u64 {
        let sums = numbers.iter().map(|&number| {
            Ours::range(self, keys.of(number), RANGE, |key, value| {
                value.wrapping_add(key.len() as u64)
            })
        });
        sums.fold(0, u64::wrapping_add)
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.tree.bytes())
    }

    fn shape(&self) -> String {
        Ours::shape(self)
    }
}

pub fn compare(count: usize, rounds: usize) {
    let keys = keys(all_keys(count));
    let usual = keys.bytes.len() as f64 / all_keys(count) as f64;
    println!("URLs of {usual:.1} bytes");
    let mut contestants: Vec<Contestant<Keys>> = vec![
        ("BTreeMap".into(), Box::new(BTreeMap::<Box<[u8]>, u64>::new())),
        ("indexset".into(), Box::new(indexset::BTreeMap::<Box<[u8]>, u64>::new())),
    ];
    for fan_out in FAN_OUTS {
        let options = Options::byte_strings(fan_out, LONGEST, 8, USUAL);
        let tree = Ours::new(options, count * 220 + (16 << 20));
        contestants.push((format!("ours, {fan_out}"), Box::new(tree)));
    }
    run(&keys, count, rounds, contestants, Keys::select, Random::new(2));
}
