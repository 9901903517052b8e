//! `remora bench places` as a process: its sums against brute force, its counts
//! against what the paper's workloads lead to expect, and bad input.

use remora_tests::{Finished, Random, ServerProcess, remora, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// xmin, ymin, xmax, ymax.
type Row = [i32; 4];

fn rows(count: usize) -> Vec<Row> {
    let mut random = Random::new(5);
    let mut rows: Vec<Row> = (0..count)
        .map(|_| {
            let (x, y) = (random.below(40_000) - 20_000, random.below(1 << 30));
            [x, y, x + random.below(200), y + random.below(1 << 22)]
        })
        .collect();
    // Everything; corners of the range; one above where an f32 is exact.
    rows[3] = [i32::MIN, i32::MIN, i32::MAX, i32::MAX];
    rows[4] = [i32::MIN; 4];
    rows[5] = [i32::MAX; 4];
    rows[6] = [16_777_217, 5, 16_777_217, 5];
    rows
}

/// Windows that touch rows at their edges, miss them by one, or hit nothing.
fn windows(rows: &[Row]) -> Vec<Row> {
    let mut random = Random::new(6);
    let mut windows =
        vec![[i32::MIN, i32::MIN, i32::MAX, i32::MAX], [16_777_216, 5, 16_777_216, 5]];
    for row in rows.iter().skip(7).step_by(40) {
        let [_, _, xmax, ymax] = *row;
        let (width, height) = (random.below(3000), random.below(1 << 24));
        windows.push([xmax, ymax, xmax + width, ymax + height]);
        windows.push([xmax + 1, ymax + 1, xmax + 1 + width, ymax + 1 + height]);
        windows.push([xmax, i32::MIN, xmax, -5]);
    }
    windows
}

/// What has to be printed.
fn sums(rows: &[Row], windows: &[Row]) -> String {
    let sum = |window: &Row| {
        let hit = |row: &Row| {
            (row[0] <= window[2] && window[0] <= row[2])
                && (row[1] <= window[3] && window[1] <= row[3])
        };
        let hits = rows.iter().enumerate().filter(|(_, row)| hit(row));
        let (hits, sum, xor) = hits.fold((0u64, 0u64, 0u64), |(hits, sum, xor), (id, _)| {
            (hits + 1, sum + id as u64, xor ^ id as u64)
        });
        format!("{hits},{sum},{xor}\n")
    };
    windows.iter().map(sum).collect()
}

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write_rows(&self, name: &str, rows: &[Row]) {
        let bytes: Vec<u8> =
            rows.as_flattened().iter().flat_map(|number| number.to_le_bytes()).collect();
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn write_windows(&self, name: &str, windows: &[Row]) {
        let lines = windows.iter().map(|[a, b, c, d]| format!("{a},{b},{c},{d},more\n"));
        let text = format!("xmin,ymin,xmax,ymax,note\n{}", lines.collect::<String>());
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Runs the bench here, with a temporary directory that must be empty afterwards.
    fn bench(&self, flags: &str) -> Finished {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = remora();
        command.args(["bench", "places"]).args(flags.split_whitespace());
        command.current_dir(self.directory.path()).env("TMPDIR", temporary.path());
        let finished = run(&mut command);
        assert!(is_empty(temporary.path()), "{flags} left files");
        finished
    }

    fn report(&self, flags: &str) -> Value {
        let finished = self.bench(&format!("{flags} --json"));
        assert_eq!(finished.code, Some(0), "{flags}: {}", finished.err);
        serde_json::from_str(&finished.out).unwrap()
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn sums_are_those_of_brute_force_on_every_way() {
    let files = Files::new();
    let rows = rows(6000);
    let windows = windows(&rows);
    files.write_rows("rows", &rows);
    files.write_windows("windows.csv", &windows);
    let wanted = sums(&rows, &windows);
    assert!(wanted.lines().filter(|line| *line == "0,0,0").count() < windows.len());
    for (way, is_read) in [
        ("--path read", true),
        ("--path read --issue single --cache-bytes 0 --tree guttman --capacity 5", true),
        ("--path read --transport tcp --tree hilbert", true),
        ("--path ask --load bulk", false),
        ("--scheme tcp --tree hilbert --load bulk", false),
        ("--path resp", false),
    ] {
        let finished =
            files.bench(&format!("--data rows --windows windows.csv --print-sums {way}"));
        assert_eq!(finished.code, Some(0), "{way}: {}", finished.err);
        assert!(finished.out == wanted, "{way}: other sums");
        let last = finished.err.lines().last().unwrap();
        let counts: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{way}: {last}"));
        let count = |name: &str| counts[name].as_u64().unwrap();
        let searched = windows.len() as u64;
        assert_eq!(count("asked") + count("read"), searched, "{way}");
        // No client writes; but on a machine that is too busy for heartbeats the
        // read lease lapses, and is renewed a few times before it is asked.
        match is_read {
            true => assert!(count("asked") <= count("read_lease_lapsed"), "{way}: {counts}"),
            false => assert_eq!(count("asked"), searched, "{way}"),
        }
        assert!(count("retries") <= count("read_lease_lapsed"), "{way}");
        assert!(count("round_trips") >= searched / 2, "{way}: {counts}");
    }
}

#[test]
fn the_paper_s_searches_find_what_is_to_be_expected() {
    let files = Files::new();
    // 51.0 results are for 2 M objects; at a fortieth 1.27, less the edges.
    let report = files.report("--records 50000 --scale 0.01 --ops 20000 --path read");
    let results = report["results_per_op"].as_f64().unwrap();
    assert!((1.2..1.34).contains(&results), "{results}");
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(count("asked") + count("read"), 20_000);
    assert!(count("asked") <= count("read_lease_lapsed"), "{report}");
    assert_eq!((&report["tree_height"], &report["wrong"]), (&4.into(), &0.into()));
    let visited = report["nodes_visited_per_op"].as_f64().unwrap();
    assert!(visited >= 4.0 && visited > report["nodes_read_per_op"].as_f64().unwrap());
    // Without a cache every node that is visited crosses, one trip for each
    // level, or for each node.
    let plain = "--records 50000 --scale 0.01 --ops 5000 --path read --cache-bytes 0";
    for (issue, trips_are_nodes) in [("single", true), ("multi", false)] {
        let report = files.report(&format!("{plain} --issue {issue}"));
        if report["asked"] == 0 {
            assert_eq!(report["nodes_read_per_op"], report["nodes_visited_per_op"], "{issue}");
        }
        let trips = report["round_trips_per_op"].as_f64().unwrap();
        let nodes = report["nodes_read_per_op"].as_f64().unwrap();
        assert_eq!(trips >= nodes, trips_are_nodes, "{issue}: {trips} for {nodes}");
    }
}

/// To the server a client of the paper is a process (W5): it grants each a connection,
/// beside the loader's and the one by which the workload is made.
#[test]
fn clients_of_the_papers_schemes_have_a_connection_each() {
    let files = Files::new();
    let server = ServerProcess::start(&["--shards", "1"]);
    let granted = || server.resp().info("total_sessions_granted");
    for (way, connections) in [
        ("--scheme catfish", 2 + 5),
        ("--scheme offload", 2 + 5),
        ("--scheme fast-messaging", 2 + 5),
        ("--scheme offload --connections shared", 1),
        ("--scheme remora", 1),
    ] {
        let before = granted();
        let run = "--records 2000 --scale 0.01 --ops 500 --clients 5 --load bulk";
        let report = files.report(&format!("{run} {way} --server {}", server.socket().display()));
        assert_eq!(granted() - before, connections, "{way}");
        assert_eq!((&report["ops"], &report["wrong"]), (&500.into(), &0.into()), "{way}");
        // And it keeps no nodes.
        let keeps = way.ends_with("remora");
        assert_eq!(report["cache_bytes"], if keeps { 1 << 20 } else { 0 }, "{way}");
        if way == "--scheme offload" && report["asked"] == 0 {
            assert_eq!(report["nodes_read_per_op"], report["nodes_visited_per_op"], "{way}");
        }
    }
}

#[test]
fn searches_and_inserts_go_side_by_side() {
    let files = Files::new();
    for way in [
        "--path read",
        "--path ask",
        "--path read --transport tcp",
        "--path resp",
        "--scheme catfish",
        "--scheme remora",
    ] {
        let run = "--records 20000 --scale power --inserts 0.1 --ops 4001 --clients 3";
        let report = files.report(&format!("{run} {way}"));
        assert_eq!((&report["ops"], &report["wrong"]), (&4001.into(), &0.into()), "{way}");
        assert!(report["inserts_per_s"].as_f64().unwrap() > 0.0, "{way}");
        // A tenth are inserts, which are asked; the seed decides which. A search
        // that is asked too has found torn nodes, or its read lease has lapsed.
        let count = |name: &str| report[name].as_u64().unwrap();
        let (asked, disturbed) = (count("asked"), count("retries") + count("read_lease_lapsed"));
        match way {
            "--path ask" | "--path resp" => assert_eq!(asked, 4001, "{way}"),
            // How many searches are asked is a matter of what they cost.
            "--scheme catfish" | "--scheme remora" => {
                assert!((350..=4001).contains(&asked), "{way}: {asked}");
                assert_eq!(report["path"], "choose", "{way}");
            }
            _ => assert!((350..450 + disturbed).contains(&asked), "{way}: {report}"),
        }
    }
}

#[test]
fn windows_of_a_file_or_of_fifty_to_a_hundred_and_fifty_results() {
    let files = Files::new();
    let rows: Vec<Row> = rows(30_000).split_off(7);
    files.write_rows("rows", &rows);
    let report = files.report("--data rows --ops 3000");
    let results = report["results_per_op"].as_f64().unwrap();
    assert!((90.0..110.0).contains(&results), "{results}");
    assert_eq!((&report["scale"], &report["records"]), (&"results".into(), &29_993.into()));
    files.write_windows("windows", &[rows[0], rows[1]]);
    let wanted: u64 = sums(&rows, &rows[..2])
        .lines()
        .map(|line| line.split(',').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let report = files.report("--data rows --windows windows --ops 1000 --clients 2");
    assert_eq!(report["results_per_op"].as_f64().unwrap(), wanted as f64 / 2.0);
}

#[test]
fn bad_input_is_a_usage_error_that_says_where() {
    let files = Files::new();
    files.write_rows("good", &[[0, 0, 1, 1]]);
    files.write_windows("good.csv", &[[0, 0, 1, 1]]);
    std::fs::write(files.path("odd"), [0; 17]).unwrap();
    std::fs::write(files.path("empty"), []).unwrap();
    files.write_rows("inverted", &[[0, 0, 1, 1], [2, 0, 1, 1]]);
    std::fs::write(files.path("nohead.csv"), "1,2,3,4\n").unwrap();
    std::fs::write(files.path("text.csv"), "xmin,ymin,xmax,ymax\n0,0,1,1\n0,0,x,1\n").unwrap();
    for (flags, why) in [
        ("--data odd", "17 bytes"),
        ("--data empty", "no rows"),
        ("--data missing", "cannot read missing"),
        ("--data inverted", "row 1 (2,0,1,1)"),
        ("--data good --windows nohead.csv", "line 1"),
        ("--data good --windows text.csv --print-sums", "line 3: xmax: \"x\""),
        ("--data good --print-sums", "--windows"),
        ("--scheme catfsh", "write tcp, fast-messaging, offload, catfish or remora"),
        ("--path chose", "invalid value"),
        ("--data good --inserts 0.1", "--scale"),
    ] {
        let finished = files.bench(flags);
        assert_eq!(finished.code, Some(2), "{flags}: {}", finished.err);
        assert!(finished.err.contains(why), "{flags}: {}", finished.err);
        assert!(finished.out.is_empty(), "{flags}: {}", finished.out);
    }
}
