//! The same work by everybody, by turns.

use crate::workload::{Found, Ours, Random, median, nanos, objects};
use geo_index::rtree::sort::HilbertSort;
use geo_index::rtree::{RTree as GeoTree, RTreeBuilder, RTreeIndex};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use rstar::primitives::{GeomWithData, Rectangle};
use rstar::{AABB, RTree};
use static_aabb2d_index::{StaticAABB2DIndex, StaticAABB2DIndexBuilder};
use std::ops::ControlFlow;

type RStar = RTree<GeomWithData<Rectangle<[f64; 2]>, u64>>;

/// Windows of a round, for each scale.
const WINDOWS: usize = 50_000;

fn corners(rect: &Rect) -> AABB<[f64; 2]> {
    AABB::from_corners([rect.min_x, rect.min_y], [rect.max_x, rect.max_y])
}

fn search_rstar(tree: &RStar, windows: &[Rect]) -> Found {
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

/// Inserts, then searches. Prints a table.
pub fn compare(count: usize, rounds: usize, capacity: usize) {
    let all = objects(count);
    let mut rstar = RStar::new();
    let mut ours = Ours::new(TreeKind::RStar, capacity, count);
    let (mut by_rstar, mut by_ours) = (Vec::new(), Vec::new());
    for part in all.chunks(count.div_ceil(rounds)) {
        let insert = || {
            for (id, rect) in part {
                let corners =
                    Rectangle::from_corners([rect.min_x, rect.min_y], [rect.max_x, rect.max_y]);
                rstar.insert(GeomWithData::new(corners, *id));
            }
        };
        by_rstar.push(nanos(part.len(), insert).0);
        by_ours.push(nanos(part.len(), || ours.insert(part)).0);
    }
    let (by_rstar, by_ours) = (median(by_rstar), median(by_ours));
    println!("{count} objects, {rounds} rounds, capacity {capacity}");
    println!("insert: rstar {by_rstar:.0} ns, ours {by_ours:.0} ns: {:.2}", by_rstar / by_ours);

    let mut loaded = Ours::new(TreeKind::RStar, capacity, count);
    let copy = all.clone();
    println!("load, s: ours {:.2}", nanos(1, || loaded.load(copy)).0 / 1e9);
    let build_static = || {
        let mut builder = StaticAABB2DIndexBuilder::new(count);
        for (_, r) in &all {
            builder.add(r.min_x, r.min_y, r.max_x, r.max_y);
        }
        builder.build().expect("as many as promised")
    };
    let (time, fixed) = nanos(1, build_static);
    println!("load, s: static_aabb2d_index {:.2}", time / 1e9);
    let build_geo = || {
        let mut builder = RTreeBuilder::<f64>::new(count as u32);
        for (_, r) in &all {
            builder.add(r.min_x, r.min_y, r.max_x, r.max_y);
        }
        builder.finish::<HilbertSort>()
    };
    let (time, geo) = nanos(1, build_geo);
    println!("load, s: geo-index {:.2}", time / 1e9);

    let contestants: [(&str, &dyn Fn(&[Rect]) -> Found); 7] = [
        ("rstar", &|windows| search_rstar(&rstar, windows)),
        ("ours, inserted", &|windows| ours.search(windows).0),
        ("ours, inserted, walk", &|windows| ours.walk(windows)),
        ("static_aabb2d_index", &|windows| search_static(&fixed, windows)),
        ("geo-index", &|windows| search_geo(&geo, windows)),
        ("ours, loaded", &|windows| loaded.search(windows).0),
        ("ours, loaded, walk", &|windows| loaded.walk(windows)),
    ];
    for scale in [1e-5, 0.01] {
        let mut random = Random::new(2);
        let mut times = [const { Vec::new() }; 7];
        for _ in 0..rounds {
            let windows: Vec<Rect> = (0..WINDOWS).map(|_| random.rect(scale)).collect();
            let mut first = None;
            for ((_, search), times) in contestants.iter().zip(&mut times) {
                let (time, found) = nanos(WINDOWS, || search(&windows));
                times.push(time);
                assert_eq!(*first.get_or_insert(found), found, "all find the same");
            }
        }
        let times = times.map(median);
        println!("windows to {scale}, ns a search:");
        for ((name, _), time) in contestants.iter().zip(times) {
            println!("  {name:22} {time:8.0}");
        }
        println!("  rstar / ours inserted  {:8.2}", times[0] / times[1]);
        println!("  rstar / its walk       {:8.2}", times[0] / times[2]);
        println!("  better / ours loaded   {:8.2}", times[3].min(times[4]) / times[5]);
        println!("  better / its walk      {:8.2}", times[3].min(times[4]) / times[6]);
    }
}
