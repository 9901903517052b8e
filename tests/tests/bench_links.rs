//! `remora bench links` as a process: the search against one of the test's own, which knows nothing of
//! the bench's, and the counts that the data model leads to expect.

use remora_tests::{Random, json, remora, run, run_clean};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Users that are all reached, in three parts that follow one another, and one without followers.
const USERS: u64 = 600;
const SOURCE: u64 = 7;
/// Follows 201 users: three chunks of at most 100, and one less if a chunk had more.
const HUB: u64 = 40;

struct Graph {
    _directory: tempfile::TempDir,
    path: PathBuf,
    follows: BTreeMap<u64, BTreeSet<u64>>,
}

fn graph() -> Graph {
    let mut random = Random::new(11);
    let mut edges: Vec<(u64, u64)> = (0..2_500)
        .map(|_| {
            let from = random.below(USERS);
            // Only the next part is followed: so there are many levels.
            (from, (from + random.below(40)) % USERS)
        })
        .filter(|(from, _)| *from != HUB)
        .collect();
    edges.extend((0..=200).map(|to| (HUB, to * 2)));
    edges.push((100_000, SOURCE));
    edges.push((SOURCE, HUB));
    edges.push((SOURCE, HUB));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("graph.txt");
    let lines: String = edges.iter().map(|(from, to)| format!("{from} {to}\n")).collect();
    std::fs::write(&path, lines).unwrap();
    let mut follows: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (from, to) in edges {
        follows.entry(from).or_default().insert(to);
    }
    Graph { _directory: directory, path, follows }
}

impl Graph {
    /// The line that has to be printed.
    fn search(&self, source: u64) -> String {
        let (mut seen, mut level) = (BTreeSet::from([source]), BTreeSet::from([source]));
        let mut levels = Vec::new();
        while !level.is_empty() {
            levels.push(level.len().to_string());
            let followed = level.iter().flat_map(|user| self.follows.get(user)).flatten();
            let next: BTreeSet<u64> = followed.copied().filter(|to| !seen.contains(to)).collect();
            seen.extend(&next);
            level = next;
        }
        format!("{},{}\n", seen.len(), levels.join("|"))
    }

    /// The chunks of the lists of all that the source reaches, and the users.
    fn items(&self, source: u64) -> (u64, u64) {
        let reached = self.reached(source);
        let chunks = |user: &u64| self.follows.get(user).map_or(0, |to| to.len().div_ceil(100));
        (reached.iter().map(chunks).sum::<usize>() as u64, reached.len() as u64)
    }

    fn reached(&self, source: u64) -> BTreeSet<u64> {
        let (mut seen, mut rest) = (BTreeSet::new(), vec![source]);
        while let Some(user) = rest.pop() {
            if seen.insert(user) {
                rest.extend(self.follows.get(&user).into_iter().flatten());
            }
        }
        seen
    }

    fn flags(&self, source: u64, more: &str) -> String {
        format!("bench links --graph {} --bfs {source} {more}", self.path.display())
    }
}

#[test]
fn a_search_comes_to_every_user_at_its_distance() {
    let graph = graph();
    for source in [SOURCE, HUB, 100_000] {
        let expected = graph.search(source);
        for more in [
            "--path read",
            "--path ask",
            "--path choose",
            "--path read --keys",
            "--path ask --keys",
        ] {
            let finished = run_clean(&graph.flags(source, more));
            assert_eq!(
                (finished.code, finished.out),
                (Some(0), expected.clone()),
                "{more}: {}",
                finished.err
            );
        }
    }
    let expected = graph.search(SOURCE);
    for more in [
        "--path resp --batch 3",
        "--path read --transport tcp",
        "--path ask --transport tcp --keys",
        "--path read --clients 3 --batch 8 --shards 2",
        "--path read --cold --batch 1",
        "--path choose --rounds 3 --updates 0.3",
    ] {
        let finished = run_clean(&graph.flags(SOURCE, more));
        assert_eq!(
            (finished.code, finished.out),
            (Some(0), expected.clone()),
            "{more}: {}",
            finished.err
        );
    }
}

fn count(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field}: {report}"))
}

#[test]
fn a_search_looks_up_its_source_and_comes_to_all_else_along_links() {
    let graph = graph();
    let (chunks, users) = graph.items(SOURCE);
    for path in ["read", "ask"] {
        let report = json(&graph.flags(SOURCE, &format!("--path {path} --baseline")));
        assert_eq!(count(&report, "lookups"), 1, "{report}");
        assert_eq!(count(&report, "chases"), users + chunks - 1, "{report}");
        let keys = &report["baseline"];
        assert_eq!((count(keys, "lookups"), count(keys, "chases")), (users + chunks, 0), "{keys}");
        assert_eq!(count(keys, "asked"), users + chunks, "each hop is a get: {keys}");
    }
}

/// Hops that READs did not conclude, though the read lease held.
fn asked_in_time(report: &Value) -> u64 {
    count(report, "asked") - count(report, "read_lease_lapsed")
}

#[test]
fn a_hop_is_one_read_and_a_stale_hint_costs_two_more() {
    let graph = graph();
    let (chunks, users) = graph.items(SOURCE);
    let trips = |report: &Value| {
        let trips = report["round_trips_per_op"].as_f64().unwrap() * (users + chunks) as f64;
        // A lookup without a cached pointer takes a bucket and a record.
        let cold = count(report, "lookups") - count(report, "hits");
        trips.round() as u64 - cold - count(report, "read_lease_lapsed")
    };
    let report = json(&graph.flags(SOURCE, "--path read --batch 1"));
    assert_eq!((asked_in_time(&report), count(&report, "stale")), (0, 0), "{report}");
    assert_eq!(trips(&report), users + chunks, "{report}");
    let report = json(&graph.flags(SOURCE, "--path read --batch 1 --updates 0.5"));
    let stale = count(&report, "stale");
    assert!(stale > users / 4 && stale < users, "{report}");
    // Two READs more, and one message that names the link to its owner. No link leads to the source: a
    // cached pointer to it may be stale, and there is no link to report.
    let told = asked_in_time(&report);
    assert!(told <= stale && stale - told <= count(&report, "hits"), "{report}");
    assert_eq!(trips(&report), users + chunks + 2 * stale + told, "{report}");
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)
}

/// The bench compares every answer with one from memory, and fails if one differs.
#[test]
fn pages_and_positions_are_answered_as_from_memory() {
    let directory = tempfile::tempdir().unwrap();
    let reviews = directory.path().join("reviews.txt");
    let mut random = Random::new(4);
    let line = |user| {
        let products: Vec<String> = (0..30).map(|_| random.below(40u64).to_string()).collect();
        format!("{user} {}\n", products.join(" "))
    };
    std::fs::write(&reviews, (0..200).map(line).collect::<String>()).unwrap();
    let pages = format!("--pages {}", reviews.display());
    let map = format!("--map {}", shipped("crates/osm/tests/town.osm.pbf").display());
    for (data, hops) in [(&pages, 40.0), (&map, 4.0)] {
        for more in
            ["--path read", "--path ask", "--path read --keys", "--path ask --keys --clients 2"]
        {
            let report = json(&format!("bench links {data} --ops 300 {more}"));
            assert_eq!(report["ops"], 300, "{report}");
            assert!(report["hops_per_op"].as_f64().unwrap() >= hops, "{report}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let graph = graph();
    for (flags, code) in [
        ("bench links".to_owned(), 2),
        (graph.flags(5_000_000, ""), 2),
        ("bench links --graph /nowhere --bfs 1".to_owned(), 2),
        (format!("bench links --map {}", graph.path.display()), 1),
    ] {
        let finished = run(remora().args(flags.split_whitespace()));
        assert_eq!(finished.code, Some(code), "{flags}: {}", finished.err);
        assert!(finished.out.is_empty(), "{flags}");
    }
}
