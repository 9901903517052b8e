//! The same work by all libraries, by turns.

use crate::workload::{BATCH, Found, Ours, median, nanos, objects, rect};
use geo_index::rtree::sort::HilbertSort;
use geo_index::rtree::{RTree as GeoTree, RTreeBuilder, RTreeIndex};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_testing::Random;
use rstar::primitives::{GeomWithData, Rectangle};
use rstar::{AABB, RStarInsertionStrategy, RTree, RTreeParams};
use static_aabb2d_index::{StaticAABB2DIndex, StaticAABB2DIndexBuilder};
use std::ops::ControlFlow;

type Object = GeomWithData<Rectangle<[f64; 2]>, u64>;

/// rstar's parameters for nodes of so many entries, in its own proportions.
struct Nodes<const MOST: usize>;

impl<const MOST: usize> RTreeParams for Nodes<MOST> {
    const MIN_SIZE: usize = MOST / 2;
    const MAX_SIZE: usize = MOST;
    const REINSERTION_COUNT: usize = MOST / 3;
    type DefaultInsertionStrategy = RStarInsertionStrategy;
}

type RStar<const MOST: usize> = RTree<Object, Nodes<MOST>>;

/// Node sizes that the libraries are tried with: theirs by default, larger, and ours.
const SIZES: [usize; 3] = [6, 16, 30];

/// Windows of a round, for each scale.
const WINDOWS: usize = 50_000;

fn corners(rect: &Rect) -> AABB<[f64; 2]> {
    AABB::from_corners([rect.min_x, rect.min_y], [rect.max_x, rect.max_y])
}

fn search_rstar<const MOST: usize>(tree: &RStar<MOST>, windows: &[Rect]) -> Found {
    let mut found = (0, 0);
    for window in windows {
        let _ = tree.locate_in_envelope_intersecting_int(corners(window), |object| {
            found.0 += 1;
            found.1 += object.data;
            ControlFlow::<()>::Continue(())
        });
    }
    found
}

fn search_static(index: &StaticAABB2DIndex<f64>, windows: &[Rect]) -> Found {
    let (mut found, mut stack) = ((0, 0), Vec::new());
    for w in windows {
        let mut visit = |id: usize| {
            found.0 += 1;
            found.1 += id as u64;
        };
        index.visit_query_with_stack(w.min_x, w.min_y, w.max_x, w.max_y, &mut visit, &mut stack);
    }
    found
}

fn search_geo(tree: &GeoTree<f64>, windows: &[Rect]) -> Found {
    let mut found = (0, 0);
    for w in windows {
        for id in tree.search(w.min_x, w.min_y, w.max_x, w.max_y) {
            found.0 += 1;
            found.1 += id as u64;
        }
    }
    found
}

fn object((id, rect): &(u64, Rect)) -> Object {
    let (lower, upper) = ([rect.min_x, rect.min_y], [rect.max_x, rect.max_y]);
    GeomWithData::new(Rectangle::from_corners(lower, upper), *id)
}

/// A participant: its name, and how it searches.
type Contestant<'a> = (String, Box<dyn Fn(&[Rect]) -> Found + 'a>);

/// rstar with nodes of this size: as it was inserted, and loaded at once.
fn add_rstar<const MOST: usize>(
    inserted: RStar<MOST>,
    all: &[(u64, Rect)],
    contestants: &mut Vec<Contestant<'_>>,
) {
    let (time, loaded) =
        nanos(1, || RStar::<MOST>::bulk_load_with_params(all.iter().map(object).collect()));
    println!("load, s: rstar {MOST} {:.2}", time / 1e9);
    let named = |how: &str| format!("rstar {MOST}, {how}");
    contestants
        .push((named("inserted"), Box::new(move |windows| search_rstar(&inserted, windows))));
    contestants.push((named("loaded"), Box::new(move |windows| search_rstar(&loaded, windows))));
}

/// Parts of the objects, for each round: all insert one part, then the next.
const PARTS_A_ROUND: usize = 4;

/// A participant: its name, and how it inserts.
type Inserter<'a> = (&'a str, Box<dyn FnMut(&[(u64, Rect)]) + 'a>);

/// All insert the same objects by turns; prints the median time of each.
fn insert(all: &[(u64, Rect)], rounds: usize, inserters: &mut [Inserter<'_>]) {
    let mut times = vec![Vec::new(); inserters.len()];
    for part in all.chunks(all.len().div_ceil(rounds * PARTS_A_ROUND)) {
        for ((_, insert), times) in inserters.iter_mut().zip(&mut times) {
            times.push(nanos(part.len(), || insert(part)).0);
        }
    }
    let times: Vec<(&str, f64)> =
        inserters.iter().zip(times).map(|((name, _), times)| (*name, median(times))).collect();
    times.iter().for_each(|(name, time)| println!("insert, ns: {name} {time:.0}"));
    for ours in ["ours", "by"] {
        let ratio = best(&times, &["rstar"], "") / best(&times, &[ours], "");
        println!("insert, rstar / {ours}: {ratio:.2}");
    }
}

fn insert_rstar<const MOST: usize>(tree: &mut RStar<MOST>, part: &[(u64, Rect)]) {
    part.iter().for_each(|each| tree.insert(object(each)));
}

/// The best time of those whose names begin and end so.
fn best(times: &[(&str, f64)], begins: &[&str], ends: &str) -> f64 {
    let is_meant =
        |name: &str| begins.iter().any(|of| name.starts_with(of)) && name.ends_with(ends);
    times.iter().filter(|(name, _)| is_meant(name)).map(|(_, time)| *time).fold(f64::MAX, f64::min)
}

/// Inserts and loads, then searches. Prints a table. The libraries are tried with nodes of
/// several sizes: the best of each counts, at each scale by itself.
pub fn compare(count: usize, rounds: usize, capacity: usize) {
    let all = objects(count);
    println!("{count} objects, {rounds} rounds, capacity {capacity}");
    let mut ours = Ours::new(TreeKind::RStar, capacity, count);
    let mut loaded = Ours::new(TreeKind::RStar, capacity, count);
    let mut other = Ours::new(TreeKind::RStar, capacity, count);
    let mut small = RStar::<{ SIZES[0] }>::new_with_params();
    let mut middle = RStar::<{ SIZES[1] }>::new_with_params();
    let mut large = RStar::<{ SIZES[2] }>::new_with_params();
    let mut inserters: [Inserter<'_>; 5] = [
        ("rstar, small", Box::new(|part| insert_rstar(&mut small, part))),
        ("rstar, middle", Box::new(|part| insert_rstar(&mut middle, part))),
        ("rstar, large", Box::new(|part| insert_rstar(&mut large, part))),
        ("ours", Box::new(|part| ours.insert(part))),
        ("by batches of ours", Box::new(|part| other.insert_by(part, BATCH))),
    ];
    insert(&all, rounds, &mut inserters);
    drop(inserters);
    drop(other);
    let mut contestants: Vec<Contestant<'_>> = Vec::new();
    add_rstar(small, &all, &mut contestants);
    add_rstar(middle, &all, &mut contestants);
    add_rstar(large, &all, &mut contestants);

    let copy = all.clone();
    println!("load, s: ours {:.2}", nanos(1, || loaded.load(copy)).0 / 1e9);
    for size in SIZES {
        let build_static = || {
            let mut builder = StaticAABB2DIndexBuilder::new_with_node_size(count, size);
            for (_, r) in &all {
                builder.add(r.min_x, r.min_y, r.max_x, r.max_y);
            }
            builder.build().expect("as many as promised")
        };
        let (time, fixed) = nanos(1, build_static);
        println!("load, s: static_aabb2d_index {size} {:.2}", time / 1e9);
        let build_geo = || {
            let mut builder = RTreeBuilder::<f64>::new_with_node_size(count as u32, size as u16);
            for (_, r) in &all {
                builder.add(r.min_x, r.min_y, r.max_x, r.max_y);
            }
            builder.finish::<HilbertSort>()
        };
        let (time, geo) = nanos(1, build_geo);
        println!("load, s: geo-index {size} {:.2}", time / 1e9);
        let search = move |windows: &[Rect]| search_static(&fixed, windows);
        contestants.push((format!("static_aabb2d_index {size}, loaded"), Box::new(search)));
        let search = move |windows: &[Rect]| search_geo(&geo, windows);
        contestants.push((format!("geo-index {size}, loaded"), Box::new(search)));
    }
    let (ours, loaded) = (&ours, &loaded);
    let own: [Contestant<'_>; 4] = [
        ("ours, inserted".into(), Box::new(|windows| ours.search(windows).0)),
        ("its walk, inserted".into(), Box::new(|windows| ours.walk(windows))),
        ("ours, loaded".into(), Box::new(|windows| loaded.search(windows).0)),
        ("its walk, loaded".into(), Box::new(|windows| loaded.walk(windows))),
    ];
    contestants.extend(own);
    for scale in [1e-5, 0.01] {
        let mut random = Random::new(2);
        let mut times = vec![Vec::new(); contestants.len()];
        for _ in 0..rounds {
            let windows: Vec<Rect> = (0..WINDOWS).map(|_| rect(&mut random, scale)).collect();
            let mut first = None;
            for ((_, search), times) in contestants.iter().zip(&mut times) {
                let (time, found) = nanos(WINDOWS, || search(&windows));
                times.push(time);
                assert_eq!(*first.get_or_insert(found), found, "all find the same");
            }
        }
        println!("windows to {scale}, ns a search:");
        let times: Vec<(&str, f64)> = contestants
            .iter()
            .zip(times)
            .map(|((name, _), times)| (name.as_str(), median(times)))
            .collect();
        times.iter().for_each(|(name, time)| println!("  {name:32} {time:8.0}"));
        let libraries = ["rstar", "static", "geo"];
        for how in ["inserted", "loaded"] {
            let library = best(&times, &libraries, how);
            println!(
                "  best library, {how} / ours     {:8.2}",
                library / best(&times, &["ours"], how)
            );
            println!(
                "  best library, {how} / its walk {:8.2}",
                library / best(&times, &["its"], how)
            );
        }
    }
}
