//! The places as points of a tree, searched around real ones in three ways.

use super::places::{EXAMPLE_KEY, Places};
use super::table::{Row, WAYS};
use anyhow::{Context, ensure};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_bench::{
    Figures, Outcome, RespPlaces, SearchOp, SessionPlaces, TreePlaces, drive_searches,
};
use remora_client_core::{Client, Issue, Path, Query, Rect, TreeRead, TreeSettings};
use remora_command_line::ProcessCpu;

/// The tree's name.
pub const TREE: &[u8] = b"places";
/// Half of a window's edge, in degrees.
const REACH: f64 = 0.25;
const SEARCHES: usize = 20_000;
const SEED: u64 = 1;
/// How many of the nearest are shown.
const NEAREST: usize = 5;

/// The results of the searches.
pub struct Searched {
    /// One row for each way.
    pub rows: Vec<Row>,
    /// Places found by a search, on average.
    pub results_per_op: f64,
    /// Names of the places nearest to the example, itself first.
    pub nearest: Vec<String>,
}

/// Loads the points, and searches by every way; the same is found by each.
pub fn search(
    places: &Places,
    client: &Client,
    resp: &str,
    server_cpu: Option<ProcessCpu>,
    mut say: impl FnMut(&Row) -> anyhow::Result<()>,
) -> anyhow::Result<Searched> {
    let points: Vec<(u64, Rect)> = places.points().collect::<anyhow::Result<_>>()?;
    load_points(&points, client)?;
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut window = || {
        let (_, Rect { min_x: x, min_y: y, .. }) = points[rng.random_range(0..points.len())];
        Rect::new(x - REACH, x + REACH, y - REACH, y + REACH)
    };
    let windows: Vec<Rect> = (0..SEARCHES).map(|_| window()).collect::<Result<_, _>>()?;
    // The expected results of the first hundred, by a scan of every point.
    let hits = |window: &Rect| points.iter().filter(|(_, at)| at.intersects(window)).count();
    let expected: usize = windows[..100].iter().map(hits).sum();
    let mut rows = Vec::new();
    let mut all = Vec::new();
    for way in WAYS {
        let read = TreeRead { issue: Issue::Multi, ..TreeRead::default() };
        let (figures, results) = match way {
            "resp" => measure(RespPlaces::open(resp, TREE)?, &windows, expected, server_cpu),
            "ask" => {
                let target = SessionPlaces::open(client, TREE, Path::Ask, read)?;
                measure(target, &windows, expected, server_cpu)
            }
            _ => {
                let target = SessionPlaces::open(client, TREE, Path::Read, read)?;
                measure(target, &windows, expected, server_cpu)
            }
        }
        .with_context(|| format!("searching by the way \"{way}\""))?;
        let row = Row { path: way, figures };
        say(&row)?;
        rows.push(row);
        all.push(results);
    }
    ensure!(all.iter().all(|&results| results == all[0]), "the ways found differently: {all:?}");
    let nearest = nearest_to_paris(places, client)?;
    Ok(Searched { rows, results_per_op: all[0] as f64 / SEARCHES as f64, nearest })
}

/// Adds the places as a tree.
pub fn add_tree(places: &Places, client: &Client) -> anyhow::Result<()> {
    load_points(&places.points().collect::<anyhow::Result<Vec<_>>>()?, client)
}

fn load_points(points: &[(u64, Rect)], client: &Client) -> anyhow::Result<()> {
    let mut session = client.session()?;
    let bounds = Rect::new(-180.0, 180.0, -90.0, 90.0)?;
    session.create_tree(TREE, &TreeSettings { bounds, ..TreeSettings::default() })?;
    session.load_tree(TREE, &mut points.iter().copied(), &mut |_| {})?;
    Ok(())
}

/// Searches all windows; the figures, and the number of places found.
fn measure(
    mut target: impl TreePlaces,
    windows: &[Rect],
    expected: usize,
    server_cpu: Option<ProcessCpu>,
) -> anyhow::Result<(Figures, u64)> {
    let of = |windows: &[Rect]| windows.iter().copied().map(SearchOp::Search).collect::<Vec<_>>();
    let (_, first) = drive_searches(&mut target, of(&windows[..100]).into_iter())?;
    ensure!(first.results == expected as u64, "{} places found, not {expected}", first.results);
    let before = server_cpu.and_then(ProcessCpu::spent);
    let (share, found) = drive_searches(&mut target, of(windows).into_iter())?;
    let after = server_cpu.and_then(ProcessCpu::spent);
    let spent = before.zip(after).map(|(before, after)| after - before);
    let outcome = Outcome::of([share], spent)?;
    outcome.verify()?;
    Ok((outcome.figures(), found.results))
}

fn nearest_to_paris(places: &Places, client: &Client) -> anyhow::Result<Vec<String>> {
    let mut session = client.session()?;
    let id: u64 = EXAMPLE_KEY.strip_prefix("place:").context("a place's key")?.parse()?;
    let paris = session.place(TREE, id)?.context("Paris is not in the tree")?.rect;
    let mut tree = session.open_tree(TREE)?.context("the tree is gone")?;
    let query = Query::Nearest { x: paris.min_x, y: paris.min_y, wanted: NEAREST };
    let found = session.search_tree(&mut tree, &query, Path::Read)?;
    ensure!(found.objects.first().is_some_and(|first| first.word == id), "that is not Paris");
    found.objects.iter().map(|object| places.name_of(object.word)).collect()
}
