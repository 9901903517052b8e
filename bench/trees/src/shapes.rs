//! What the capacity of nodes (Catfish Fig. 23) and the size of a tree
//! (Fig. 24) cost.

use crate::workload::{BATCH, Ours, median, nanos, objects, power_law, rect};
use remora_layout::limits::NODE_ENTRIES;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_testing::Random;

const WINDOWS: usize = 20_000;

fn windows() -> [(&'static str, Vec<Rect>); 3] {
    let mut random = Random::new(3);
    [
        ("1e-5", (0..WINDOWS).map(|_| rect(&mut random, 1e-5)).collect()),
        ("0.01", (0..WINDOWS).map(|_| rect(&mut random, 0.01)).collect()),
        ("power law", (0..WINDOWS).map(|_| power_law(&mut random)).collect()),
    ]
}

fn heading() {
    println!("objects capacity way height nodes bytes/object build-ns/object");
    println!("  for windows 1e-5, 0.01, power law: nodes bytes ns a search, ns a walk");
}

fn row(name: &str, count: usize, capacity: usize, rounds: usize, build: f64, trees: &Ours) {
    let header = trees.tree.header();
    let bytes = trees.tree.bytes() as f64 / count as f64;
    let node = remora_layout::node::node_bytes(capacity) as f64;
    print!("{count} {capacity} {name} {} {}", header.height, trees.tree.nodes());
    print!(" {bytes:.1} {build:.0}");
    for (_, windows) in windows() {
        let (mut plain, mut walks, mut nodes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..rounds {
            let (time, (_, visited)) = nanos(WINDOWS, || trees.search(&windows));
            plain.push(time);
            nodes = visited;
            walks.push(nanos(WINDOWS, || trees.walk(&windows)).0);
        }
        let nodes = nodes as f64 / WINDOWS as f64;
        print!(" | {nodes:.2} {:.0} {:.0} {:.0}", nodes * node, median(plain), median(walks));
    }
    println!();
}

fn both(count: usize, capacity: usize, rounds: usize) {
    let all = objects(count);
    let mut tree = Ours::new(TreeKind::RStar, capacity, count);
    let (build, ()) = nanos(count, || tree.insert(&all));
    row("inserted", count, capacity, rounds, build, &tree);
    drop(tree);
    let mut tree = Ours::new(TreeKind::RStar, capacity, count);
    let (build, ()) = nanos(count, || tree.load(all));
    row("loaded", count, capacity, rounds, build, &tree);
}

/// One size, many capacities.
pub fn capacities(count: usize, rounds: usize) {
    heading();
    for capacity in [15, 30, 50, 70, 100, 130] {
        both(count, capacity, rounds);
    }
}

/// The usual capacity, from 10,000 objects to `most`.
pub fn sizes(most: usize, rounds: usize) {
    heading();
    for count in [10_000, 100_000, 1_000_000, 2_000_000, 10_000_000] {
        if count <= most {
            both(count, NODE_ENTRIES, rounds);
        }
    }
}

/// One R*-tree, inserted, and windows, small ones and large ones.
pub fn one(count: usize, rounds: usize) {
    let all = objects(count);
    let mut tree = Ours::new(TreeKind::RStar, NODE_ENTRIES, count);
    let (time, ()) = nanos(count, || tree.insert(&all));
    println!("{count} inserts, {time:.0} ns each");
    let mut other = Ours::new(TreeKind::RStar, NODE_ENTRIES, count);
    let (time, ()) = nanos(count, || other.insert_by(&all, BATCH));
    println!("{count} inserts by {BATCH}, {time:.0} ns each");
    drop(other);
    for scale in [1e-5, 0.01] {
        let mut random = Random::new(4);
        let times = (0..rounds).map(|_| {
            let windows: Vec<Rect> = (0..50_000).map(|_| rect(&mut random, scale)).collect();
            nanos(windows.len(), || tree.search(&windows)).0
        });
        println!("searches, {scale}, {:.0} ns each", median(times.collect()));
    }
}
