//! `remora bench ranges` as a process: its counts of nodes against what the shape of the tree and the
//! settings of the fat root lead to expect (Fat-B+Tree V), and bad input.

use remora_tests::{Finished, json, remora, run};
use serde_json::Value;

const RUN: &str =
    "bench ranges --path read --records 60000 --load descending --ops 20000 --learn 20000";

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"))
}

/// Nodes read for each lookup; the run was by READs, but for a read lease that lapsed.
fn nodes_read(flags: &str) -> (f64, Value) {
    let report = json(&format!("{RUN} {flags}"));
    assert_eq!((&report["missing"], &report["wrong"]), (&0.into(), &0.into()), "{flags}");
    for name in ["hits", "stale", "retries", "lease_expired", "cache_bytes", "inserts_per_s"] {
        number(&report, name);
    }
    assert!(number(&report, "asked") <= number(&report, "read_lease_lapsed"), "{report}");
    (number(&report, "nodes_read_per_op"), report)
}

/// Lapsed leases apart.
fn is_near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() < 0.05
}

#[test]
fn each_layer_saves_a_read() {
    let (none, report) = nodes_read("--cache-policy none");
    let height = number(&report, "tree_height");
    assert!(is_near(none, height) && height >= 5.0, "{report}");
    assert!(is_near(number(&report, "nodes_visited_per_op"), height), "{report}");
    // Three levels in the fat root, which have room; all nodes of a level in a layer.
    for layers in 0..2 {
        let flags = format!("--layers {layers} --layer-nodes 100000");
        let (found, report) = nodes_read(&flags);
        let wanted = height - 3.0 - f64::from(layers);
        // The nodes that were learnt last come with the first lookups.
        assert!((wanted..wanted + 0.2).contains(&found), "{flags}: {report}");
        assert!(is_near(number(&report, "nodes_visited_per_op"), height), "{report}");
        assert_eq!(number(&report, "network_nodes_per_op"), 0.0);
    }
    // All inner nodes: one READ.
    let (found, report) = nodes_read("--cache-policy levels");
    assert!(found < 1.3 && number(&report, "kept_nodes") > 500.0, "{report}");
}

#[test]
fn the_most_visited_nodes_are_kept_and_follow_what_is_looked_up() {
    let few = "--layers 2 --layer-nodes 200 --root-depth 2";
    let (usual, report) = nodes_read(few);
    let shares: f64 =
        report["round_trips_share"].as_array().unwrap().iter().flat_map(Value::as_f64).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{report}");
    assert!(number(&report, "kept_nodes") <= 450.0, "{report}");
    // Other records become popular: what was learnt is of less use, and learning on helps.
    let (changed, report) = nodes_read(&format!("{few} --query-dist zipf:0.99"));
    assert_eq!(report["adapts"], false);
    let (adapted, report) = nodes_read(&format!("{few} --query-dist zipf:0.99 --adapt"));
    assert_eq!(report["adapts"], true);
    assert!(usual + 0.05 < changed && adapted < changed, "{usual} {changed} {adapted}");
    // Half of the lookups changed: in between.
    let (half, _) = nodes_read(&format!("{few} --query-dist zipf:0.99 --changed 0.5"));
    assert!((usual..changed).contains(&half), "{usual} {half} {changed}");
    // More skew, fewer READs.
    let (flat, _) = nodes_read(&format!("{few} --dist uniform"));
    assert!(usual + 0.1 < flat, "{usual} {flat}");
}

#[test]
fn ranges_are_whole_on_every_path() {
    for path in ["ask", "read", "choose"] {
        for keys in ["", "--key-bytes 30 --value-bytes 64", "--transport tcp"] {
            let report = json(&format!(
                "bench ranges --path {path} {keys} --records 5000 --load random --ops 500 --learn 200 \
                 --range-len 40 --reads 0.9 --clients 2 --dist uniform"
            ));
            assert_eq!((&report["missing"], &report["wrong"]), (&0.into(), &0.into()), "{report}");
            assert!((39.0..=40.0).contains(&number(&report, "results_per_op")), "{report}");
        }
    }
    // More leaves at a time are fewer round trips.
    let trips = |parallel: usize| {
        let flags = format!("--range-len 100 --parallel {parallel} --cache-policy levels");
        number(&json(&format!("{RUN} {flags}")), "round_trips_per_op")
    };
    let (one, ten) = (trips(1), trips(10));
    assert!(one > 9.0 && ten < one / 3.0, "{one} {ten}");
}

#[test]
fn bad_flags_are_refused_with_what_to_do() {
    for (flags, said) in [
        ("--path network", "no index in the network"),
        ("--fanout 2", "--fanout: 2 is not in 4..=256"),
        ("--value-bytes 5000", "--value-bytes: 5000"),
        ("--key-bytes 7", "neither 8 nor in 9..=1024"),
        ("--changed 0.5", "--query-dist"),
        ("--key-bytes 9 --records 2000000000", "no room for the digits"),
        ("--server /nowhere/socket", "/nowhere/socket"),
    ] {
        let mut command = remora();
        command.args(["bench", "ranges"]).args(flags.split_whitespace());
        let Finished { code, err, .. } = run(&mut command);
        assert!(code != Some(0) && err.contains(said), "{flags}: {err}");
    }
}
