//! Warming up, finding windows, and one client's timed part.

use super::target::Places;
use super::workload::{Op, place};
use crate::meter::Meter;
use crate::run::Share;
use anyhow::{Context, ensure};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client_core::Rect;
use std::ops::AddAssign;
use std::time::Instant;

/// While warming up the space is cut into so many tiles along each axis. Each
/// client searches the middle of every tile, so that it has seen the upper
/// levels; the tiles themselves are shared out among the clients, so that every
/// node is searched by one of them.
const WARM_TILES: usize = 32;
/// Results that windows shall have that are found by their results (W6).
const FEWEST: u64 = 50;
const MOST: u64 = 150;
/// Steps of halving in the search for a window, and objects that are tried.
const STEPS: usize = 40;
const TRIES: usize = 1000;
/// Stream of the generator for those windows: beyond the clients', beside the objects'.
const WINDOWS_STREAM: u64 = u64::MAX - 1;

/// The results of the clients' operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Searches done.
    pub searches: u64,
    /// Objects inserted.
    pub inserts: u64,
    /// Objects found.
    pub results: u64,
    /// Visited nodes; none if one search did not report them.
    pub nodes_visited: Option<u64>,
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.searches += other.searches;
        self.inserts += other.inserts;
        self.results += other.results;
        let both = self.nodes_visited.zip(other.nodes_visited);
        self.nodes_visited = both.map(|(one, other)| one + other);
    }
}

/// Touches the whole tree, one client's part of it.
pub fn warm_up(
    target: &mut impl Places,
    space: &Rect,
    client: usize,
    clients: usize,
) -> anyhow::Result<()> {
    let edge = 1.0 / WARM_TILES as f64;
    for tile in 0..WARM_TILES * WARM_TILES {
        let at = ((tile % WARM_TILES) as f64 * edge, (tile / WARM_TILES) as f64 * edge);
        let middle = (at.0 + edge / 2.0, at.1 + edge / 2.0);
        target.search(&place(space, middle, (0.0, 0.0)), &mut |_, _| {})?;
        if tile % clients == client {
            target.search(&place(space, at, (edge, edge)), &mut |_, _| {})?;
        }
    }
    Ok(())
}

/// Does the operations and measures them.
pub fn drive(
    target: &mut impl Places,
    ops: impl Iterator<Item = Op>,
) -> anyhow::Result<(Share, Found)> {
    let before = target.costs();
    let mut found = Found { nodes_visited: Some(0), ..Found::default() };
    let mut meter = Meter::start(1, None)?;
    for op in ops {
        meter.measure(1, |tally| {
            match op {
                Op::Search(window) => {
                    found.searches += 1;
                    let nodes = target.search(&window, &mut |_, rect| {
                        found.results += 1;
                        let is_near = rect.is_none_or(|rect| rect.intersects(&window));
                        tally.wrong += u64::from(!is_near);
                    })?;
                    let both = found.nodes_visited.zip(nodes);
                    found.nodes_visited = both.map(|(sum, nodes)| sum + nodes);
                }
                Op::Insert(id, rect) => {
                    found.inserts += 1;
                    let is_new = target.put(id, rect)?;
                    ensure!(is_new, "object {id} was there before it was inserted");
                }
            }
            Ok(())
        })?;
    }
    let ended = Instant::now();
    Ok((Share { meter, ended, costs: target.costs() - before }, found))
}

/// Squares around objects, each of which hits 50 to 150 objects; the number is drawn uniformly, so
/// that it is 100 on average.
pub fn windows_by_results(
    target: &mut impl Places,
    objects: &[Rect],
    wanted: usize,
    seed: u64,
) -> anyhow::Result<Vec<Rect>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(WINDOWS_STREAM);
    let mut windows = Vec::with_capacity(wanted);
    for number in 0..wanted {
        let window = (0..TRIES).find_map(|_| {
            let middle = objects[rng.random_range(0..objects.len())].centre();
            let hits = rng.random_range(FEWEST..=MOST);
            window_with(target, middle, hits).transpose()
        });
        windows.push(window.with_context(|| {
            format!("no window {number} was found that hits {FEWEST} to {MOST} objects")
        })??);
    }
    Ok(windows)
}

/// A square about a point that hits as many objects, or nearly; `None` if
/// objects lie so that there is none.
fn window_with(
    target: &mut impl Places,
    (x, y): (f64, f64),
    hits: u64,
) -> anyhow::Result<Option<Rect>> {
    let mut count = |half: f64| -> anyhow::Result<(Rect, u64)> {
        let window = Rect::new(x - half, x + half, y - half, y + half)?;
        let mut found = 0;
        target.search(&window, &mut |_, _| found += 1)?;
        Ok((window, found))
    };
    // Too small a half edge, and one that may be large enough.
    let (mut small, mut half) = (0.0, f64::EPSILON * (1.0 + x.abs().max(y.abs())));
    let mut large = None;
    let mut nearest = None;
    for _ in 0..2 * STEPS {
        let (window, found) = count(half)?;
        let is_nearer =
            nearest.is_none_or(|(_, known): (_, u64)| found.abs_diff(hits) < known.abs_diff(hits));
        if (FEWEST..=MOST).contains(&found) && is_nearer {
            nearest = Some((window, found));
        }
        if found == hits {
            break;
        }
        if found < hits {
            small = half;
        } else {
            large = Some(half);
        }
        half = large.map_or(half * 4.0, |large| small + (large - small) / 2.0);
    }
    Ok(nearest.map(|(window, _)| window))
}

#[cfg(test)]
mod tests {
    use super::super::scale::Scale;
    use super::super::target::tests::List;
    use super::super::workload::{UNIT, Windows, Workload, objects};
    use super::*;

    #[test]
    fn a_run_searches_inserts_and_counts() {
        let mut list = List { objects: objects(1, 2000).collect(), ..List::default() };
        let workload = Workload {
            space: UNIT,
            scale: Scale::Uniform(0.1),
            windows: Windows::Drawn,
            inserts: 0.2,
            ops: 1000,
            clients: 1,
            records: 2000,
            seed: 2,
        };
        let (share, found) = drive(&mut list, workload.of_client(0)).unwrap();
        assert_eq!(found.searches + found.inserts, 1000);
        assert_eq!(list.objects.len() as u64, 2000 + found.inserts);
        assert_eq!(found.nodes_visited, Some(3 * found.searches));
        assert_eq!((share.costs.asked, share.meter.tally.wrong), (1000, 0));
        assert!(found.results > found.searches);
        // The same run again inserts objects that exist already.
        assert!(drive(&mut list, workload.of_client(0)).is_err());
    }

    #[test]
    fn warming_up_searches_every_object_once_over_all_clients() {
        struct Touched(std::collections::BTreeSet<u64>, List);
        impl Places for Touched {
            fn search(
                &mut self,
                window: &Rect,
                _: &mut dyn FnMut(u64, Option<&Rect>),
            ) -> anyhow::Result<Option<u64>> {
                let Self(seen, list) = self;
                list.search(window, &mut |id, _| {
                    seen.insert(id);
                })
            }
            fn put(&mut self, _: u64, _: Rect) -> anyhow::Result<bool> {
                unreachable!("warming up inserts nothing")
            }
            fn costs(&self) -> crate::costs::Costs {
                self.1.costs
            }
        }
        let list = List { objects: objects(1, 5000).collect(), ..List::default() };
        let mut seen = std::collections::BTreeSet::new();
        for client in 0..3 {
            let mut touched = Touched(std::collections::BTreeSet::new(), list.clone());
            warm_up(&mut touched, &UNIT, client, 3).unwrap();
            assert!(touched.0.len() < 2500, "each has its part");
            assert!(touched.1.costs.asked > 1024);
            seen.extend(touched.0);
        }
        assert_eq!(seen.len(), 5000);
    }

    #[test]
    fn windows_hit_fifty_to_a_hundred_and_fifty() {
        let mut list = List { objects: objects(7, 3000).collect(), ..List::default() };
        let rects: Vec<Rect> = list.objects.iter().map(|(_, rect)| *rect).collect();
        let windows = windows_by_results(&mut list, &rects, 60, 1).unwrap();
        let hits: Vec<usize> = windows
            .iter()
            .map(|window| rects.iter().filter(|rect| rect.intersects(window)).count())
            .collect();
        assert!(hits.iter().all(|hits| (50..=150).contains(hits)), "{hits:?}");
        let mean = hits.iter().sum::<usize>() as f64 / hits.len() as f64;
        assert!((85.0..115.0).contains(&mean), "{mean}");
        assert_eq!(windows, windows_by_results(&mut list, &rects, 60, 1).unwrap());
        // Forty objects have no such window; nor have a thousand in one place.
        list.objects.truncate(40);
        assert!(windows_by_results(&mut list, &rects[..40], 1, 1).is_err());
        list.objects = vec![(0, rects[0]); 1000];
        assert!(windows_by_results(&mut list, &[rects[0]], 1, 1).is_err());
    }
}
