//! The content of the demo's map: windows around large places, the places that each path found in
//! them, and the costs.

use super::places::{Place, Places};
use super::search::TREE;
use anyhow::{Context, ensure};
use remora_bench::{RespPlaces, SessionPlaces, TreePlaces};
use remora_client_core::{Client, Path, Predicate, Query, Rect, ServedBy, Session, TreeRead};
use std::time::Instant;

/// Windows, around the most populous places that are far enough apart.
const WINDOWS: usize = 6;
/// Degrees between two windows' centres, at least, along one of the axes.
const APART: f64 = 25.0;
/// Half of a window's edge, in degrees.
const REACH: f64 = 2.0;
/// Searches of each window by each way; the time is that of the middle one.
const REPEATS: usize = 51;
/// The ways, in the order of the table.
const WAYS: [&str; 4] = ["resp", "ask", "read", "choose"];

/// One window.
#[derive(Clone, PartialEq, Debug)]
pub struct Window<'p> {
    /// The place in its middle.
    pub middle: Place<'p>,
    /// Its edges.
    pub rect: Rect,
    /// The places in it, the most populous first.
    pub found: Vec<Place<'p>>,
    /// One for each way.
    pub costs: Vec<Cost>,
}

/// The cost of one search of a window.
#[derive(Clone, PartialEq, Debug)]
pub struct Cost {
    /// `resp`, `ask`, `read` or `choose`.
    pub way: &'static str,
    /// How the answer was obtained, in words.
    pub via: &'static str,
    /// Time of the middle one of all repetitions, in microseconds.
    pub p50_us: f64,
    /// Round trips, on average.
    pub round_trips: f64,
    /// Bytes both ways, on average.
    pub bytes: f64,
    /// Visited nodes of the tree, if the server reports them.
    pub nodes: Option<u64>,
}

/// Searches all windows by all paths. Each path must find the same as a scan of every place.
pub fn search<'p>(
    places: &'p Places,
    client: &Client,
    resp: &str,
) -> anyhow::Result<Vec<Window<'p>>> {
    let mut windows = windows(places)?;
    for window in &mut windows {
        for way in WAYS {
            let (cost, mut ids) = measure(way, &window.rect, client, resp)
                .with_context(|| format!("the map, by the way \"{way}\""))?;
            ids.sort_unstable();
            let mut wanted: Vec<u64> = window.found.iter().map(|place| place.id).collect();
            wanted.sort_unstable();
            ensure!(ids == wanted, "the way \"{way}\" found other places than there are");
            window.costs.push(cost);
        }
    }
    Ok(windows)
}

/// The windows, with all places that lie in them.
fn windows(places: &Places) -> anyhow::Result<Vec<Window<'_>>> {
    let all: Vec<Place<'_>> = places.all().collect::<anyhow::Result<_>>()?;
    let mut windows = Vec::<Window<'_>>::new();
    for middle in &all {
        let far = |known: &Window<'_>| {
            (known.middle.x - middle.x).abs().max((known.middle.y - middle.y).abs()) > APART
        };
        if windows.len() < WINDOWS && windows.iter().all(far) {
            let Place { x, y, .. } = *middle;
            let rect = Rect::new(x - REACH, x + REACH, y - REACH, y + REACH)?;
            let inside = |place: &&Place<'_>| {
                Rect::point(place.x, place.y).is_ok_and(|at| at.intersects(&rect))
            };
            let found = all.iter().filter(inside).cloned().collect();
            windows.push(Window { middle: middle.clone(), rect, found, costs: Vec::new() });
        }
    }
    Ok(windows)
}

/// One window by one way: its cost, and the ids that were found.
fn measure(
    way: &'static str,
    window: &Rect,
    client: &Client,
    resp: &str,
) -> anyhow::Result<(Cost, Vec<u64>)> {
    let path = match way {
        "resp" => {
            let mut target = RespPlaces::open(resp, TREE)?;
            return repeat(way, window, &mut target, |_| Ok("asked over TCP"));
        }
        "ask" => Path::Ask,
        "read" => Path::Read,
        _ => Path::Choose,
    };
    let mut target = SessionPlaces::open(client, TREE, path, TreeRead::default())?;
    // One more search shows its path.
    let mut session = client.session()?;
    repeat(way, window, &mut target, |window| via(&mut session, window, path))
}

fn via(session: &mut Session, window: &Rect, path: Path) -> anyhow::Result<&'static str> {
    let mut tree = session.open_tree(TREE)?.context("the tree is gone")?;
    let query = Query::Window { window: *window, predicate: Predicate::Intersects };
    Ok(match session.search_tree(&mut tree, &query, path)?.served_by {
        ServedBy::Asked => "asked by message",
        ServedBy::Read => "read from memory",
        ServedBy::ReadAfter(_) => "read from memory, after retries",
        ServedBy::AskedAfterRead => "asked, as reading did not conclude",
        _ => "served in another way",
    })
}

fn repeat(
    way: &'static str,
    window: &Rect,
    target: &mut impl TreePlaces,
    via: impl FnOnce(&Rect) -> anyhow::Result<&'static str>,
) -> anyhow::Result<(Cost, Vec<u64>)> {
    let mut ids = Vec::new();
    let mut nodes = None;
    let mut times = Vec::with_capacity(REPEATS);
    // The first search learns the place of the tree.
    target.search(window, &mut |_, _| {})?;
    let before = target.costs();
    for _ in 0..REPEATS {
        ids.clear();
        let began = Instant::now();
        nodes = target.search(window, &mut |id, _| ids.push(id))?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let spent = target.costs() - before;
    times.sort_by(f64::total_cmp);
    let cost = Cost {
        way,
        via: via(window)?,
        p50_us: times[REPEATS / 2],
        round_trips: spent.round_trips as f64 / REPEATS as f64,
        bytes: spent.bytes as f64 / REPEATS as f64,
        nodes,
    };
    Ok((cost, ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_apart_and_have_their_places() {
        let places = Places::load().unwrap();
        let windows = windows(&places).unwrap();
        assert_eq!(windows.len(), WINDOWS);
        for (index, window) in windows.iter().enumerate() {
            assert!(window.found.contains(&window.middle));
            assert!(window.found.len() > 10, "{}", window.middle.name);
            assert!(window.found.is_sorted_by_key(|place| std::cmp::Reverse(place.population)));
            assert!(windows[..index].iter().all(|other| !other.rect.intersects(&window.rect)));
        }
    }
}
