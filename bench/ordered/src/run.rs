//! The same work by all contestants, by turns.

use crate::workload::{median, nanos, resident_bytes};
use std::hint::black_box;

/// Entries of a range.
pub const RANGE: usize = 100;

/// One map: keys are given by their numbers, from 0 on, and a value is its key's number.
pub trait Map<K: ?Sized> {
    fn insert(&mut self, keys: &K, from: usize, to: usize);
    /// The sum of the values.
    fn get(&self, keys: &K, numbers: &[usize]) -> u64;
    /// The sum of what there is of [`RANGE`] keys and values from each of these on.
    fn range(&self, keys: &K, numbers: &[usize]) -> u64;
    /// Bytes that it takes, if it knows.
    fn bytes(&self) -> Option<u64>;
    fn shape(&self) -> String;
}

pub type Contestant<K> = (String, Box<dyn Map<K>>);

const GETS: usize = 500_000;
const RANGES: usize = 20_000;

/// Keys that the rounds insert, all together: one of so many of those there before.
const NEW: usize = 20;

/// Keys that a run needs if there are so many at first.
pub fn all_keys(count: usize) -> usize {
    count + count / NEW
}

/// Fills all, asks all, and prints a table. The first one is the measure of the others. `select`
/// gives the keys of these numbers, one behind the other: what is asked does not wait for memory
/// that is no map's.
pub fn compare<K: ?Sized>(
    keys: &K,
    count: usize,
    rounds: usize,
    mut contestants: Vec<Contestant<K>>,
    select: impl Fn(&K, &[usize]) -> Box<K>,
    mut random: remora_testing::Random,
) {
    let mut rows = Vec::new();
    for (name, map) in &mut contestants {
        let before = resident_bytes();
        let (fill, ()) = nanos(count, || map.insert(keys, 0, count));
        let grown = resident_bytes() - before;
        let bytes = map.bytes().unwrap_or(grown) as f64 / count as f64;
        println!("{name}: filled, {fill:.0} ns a key, {bytes:.1} bytes a key; {}", map.shape());
        rows.push((fill, bytes));
    }
    let mut times = vec![[const { Vec::new() }; 3]; contestants.len()];
    let step = count / NEW / rounds;
    for round in 0..rounds {
        let there = count + round * step;
        let asked: Vec<usize> = (0..GETS).map(|_| random.below(there)).collect();
        let asked = select(keys, &asked);
        let gets: Vec<usize> = (0..GETS).collect();
        let ranges = &gets[..RANGES];
        let mut first = None;
        for ((name, map), [get, insert, range]) in contestants.iter_mut().zip(&mut times) {
            let (time, sum) = nanos(GETS, || black_box(map.get(&asked, &gets)));
            get.push(time);
            let (time, of_ranges) = nanos(RANGES, || black_box(map.range(&asked, ranges)));
            range.push(time);
            insert.push(nanos(step, || map.insert(keys, there, there + step)).0);
            let found = (sum, of_ranges);
            assert_eq!(*first.get_or_insert(found), found, "{name} finds something else");
        }
    }
    println!("{count} keys, {rounds} rounds; ns, and times as fast as the first one");
    println!("| | get | insert | range of {RANGE} | fill | bytes a key |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let times: Vec<_> = times.into_iter().map(|times| times.map(median)).collect();
    let first = times[0];
    for (((name, _), [get, insert, range]), (fill, bytes)) in
        contestants.iter().zip(&times).zip(rows)
    {
        let [gets, inserts, ranges] = [first[0] / get, first[1] / insert, first[2] / range];
        println!(
            "| {name} | {get:.0} ({gets:.2}) | {insert:.0} ({inserts:.2}) | {range:.0} ({ranges:.2}) | {fill:.0} | {bytes:.1} |"
        );
    }
}
