//! Random keys of 64 bits.

use crate::run::{Contestant, Map, RANGE, all_keys, compare as run};
use crate::workload::{Ours, median, nanos};
use remora_index::btree::Options;
use remora_testing::Random;
use std::collections::BTreeMap;
use std::hint::black_box;
use sweep_bptree::{BPlusTree, NodeStoreVec};

const FAN_OUTS: [usize; 4] = [16, 32, 64, 128];

type Keys = [u64];

fn sum_of(entries: impl Iterator<Item = (u64, u64)>) -> u64 {
    let entries = entries.take(RANGE);
    entries.fold(0, |sum, (key, value)| sum.wrapping_add(key).wrapping_add(value))
}

/// The methods that are alike for all.
macro_rules! map {
    ($type:ty, $insert:expr, $get:expr, $range:expr) => {
        impl Map<Keys> for $type {
            fn insert(&mut self, keys: &Keys, from: usize, to: usize) {
                for (number, &key) in keys[from..to].iter().enumerate() {
                    $insert(self, key, (from + number) as u64);
                }
            }

            fn get(&self, keys: &Keys, numbers: &[usize]) -> u64 {
                let values = numbers.iter().map(|&number| $get(self, keys[number]));
                values.fold(0, u64::wrapping_add)
            }

            fn range(&self, keys: &Keys, numbers: &[usize]) -> u64 {
                let sums = numbers.iter().map(|&number| $range(self, keys[number]));
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

/// Its map offers no range; the tree inside of it has cursors.
type Sweep = BPlusTree<NodeStoreVec<u64, u64>>;
type Indexed = indexset::BTreeMap<u64, u64>;
type Brie = brie_tree::BTree<nonmax::NonMaxU64, u64>;

fn brie_key(key: u64) -> nonmax::NonMaxU64 {
    nonmax::NonMaxU64::new(key).expect("not the greatest")
}

map!(
    BTreeMap<u64, u64>,
    |map: &mut Self, key, value| map.insert(key, value),
    |map: &Self, key| map[&key],
    |map: &Self, key| sum_of(map.range(key..).map(|(key, value)| (*key, *value)))
);
map!(
    Sweep,
    |map: &mut Self, key, value| map.insert(key, value),
    |map: &Self, key| *map.get(&key).expect("it is there"),
    |map: &Self, key| {
        let mut sum = 0u64;
        let mut cursor = map.get_cursor(&key);
        for _ in 0..RANGE {
            let Some((at, value)) = cursor else { break };
            let value = value.expect("it is there");
            sum = sum.wrapping_add(*at.key()).wrapping_add(*value);
            cursor = at.next_with_value(map).map(|(at, value)| (at, Some(value)));
        }
        sum
    }
);
map!(
    Indexed,
    |map: &mut Self, key, value| map.insert(key, value),
    |map: &Self, key| *map.get(&key).expect("it is there"),
    |map: &Self, key| sum_of(map.range(key..).map(|(key, value)| (*key, *value)))
);
map!(
    Brie,
    |map: &mut Self, key, value| map.insert(brie_key(key), value),
    |map: &Self, key| *map.get(brie_key(key)).expect("it is there"),
    |map: &Self, key| sum_of(map.range(brie_key(key)..).map(|(key, value)| (key.get(), *value)))
);

impl Map<Keys> for Ours {
    fn insert(&mut self, keys: &Keys, from: usize, to: usize) {
        let keys = keys[from..to].iter().map(|key| key.to_be_bytes());
        Ours::insert(self, keys.zip(from as u64..));
    }

    fn get(&self, keys: &Keys, numbers: &[usize]) -> u64 {
        Ours::get(self, numbers.iter().map(|&number| keys[number].to_be_bytes()))
    }

    fn range(&self, keys: &Keys, numbers: &[usize]) -> u64 {
        let sums = numbers.iter().map(|&number| {
            Ours::range(self, &keys[number].to_be_bytes(), RANGE, |key, value| {
                u64::from_be_bytes(key.try_into().expect("8 bytes")).wrapping_add(value)
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

/// Keys that differ, none of them the greatest number, which one contestant cannot hold.
fn keys(count: usize) -> Vec<u64> {
    let mut random = Random::new(1);
    (0..count).map(|_| random.bits()).map(|key| key.min(u64::MAX - 1)).collect()
}

fn ours(fan_out: usize, count: usize) -> Ours {
    Ours::new(Options::integers(fan_out), count * 110 + (16 << 20))
}

pub fn compare(count: usize, rounds: usize) {
    let mut contestants: Vec<Contestant<Keys>> = vec![
        ("BTreeMap".into(), Box::new(BTreeMap::new())),
        ("sweep-bptree".into(), Box::new(Sweep::new(NodeStoreVec::new()))),
        ("indexset".into(), Box::new(Indexed::new())),
        ("brie-tree".into(), Box::new(Brie::new())),
    ];
    for fan_out in FAN_OUTS {
        contestants.push((format!("ours, {fan_out}"), Box::new(ours(fan_out, count))));
    }
    let keys = keys(all_keys(count));
    let select = |keys: &Keys, numbers: &[usize]| numbers.iter().map(|&at| keys[at]).collect();
    run(&keys[..], count, rounds, contestants, select, Random::new(2));
}

pub fn one(fan_out: usize, count: usize, rounds: usize) {
    let keys = keys(count);
    let mut tree = ours(fan_out, count);
    let (fill, ()) = nanos(count, || Map::insert(&mut tree, &keys[..], 0, count));
    let mut random = Random::new(2);
    let (mut gets, mut ranges) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let asked: Vec<u64> = (0..100_000).map(|_| keys[random.below(count)]).collect();
        let numbers: Vec<usize> = (0..asked.len()).collect();
        gets.push(nanos(numbers.len(), || black_box(Map::get(&tree, &asked[..], &numbers))).0);
        let few = &numbers[..10_000];
        ranges.push(nanos(few.len(), || black_box(Map::range(&tree, &asked[..], few))).0);
    }
    println!(
        "{count} keys: fill {fill:.0} ns, get {:.0}, range {:.0}",
        median(gets),
        median(ranges)
    );
    println!("{}", tree.shape());
}
