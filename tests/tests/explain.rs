//! `remora explain plan`: a plan's hops, READs, stale hints and limits, by each path.

use remora_tests::{Resp, ServerProcess, json_of, remora, run};
use serde_json::Value;

const PROFILES: &str = "FROM KEYS 1 courier:7 GET name FOLLOW zone GET name";

fn call(resp: &mut Resp, line: &str) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let value = resp.try_call(&words).unwrap();
    assert!(!value.is_error(), "{line}: {value:?}");
}

/// A server with a courier, its zone, and a list of four links.
fn server() -> ServerProcess {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    for line in [
        "HSET zone:mitte name Mitte",
        "HSET courier:7 name Ann",
        "LINK.SET courier:7 zone zone:mitte",
        "LINK.PUSH zones zone:mitte zone:a zone:b zone:c",
    ] {
        call(&mut resp, line);
    }
    server
}

fn explain(server: &ServerProcess, line: &str) -> Value {
    let mut command = remora();
    command.args(["explain", "plan"]).args(line.split(' '));
    json_of(command.arg("--transport=shm").arg("--server").arg(server.socket()))
}

/// The only way that all runs went.
fn only_way(report: &Value) -> &Value {
    let [way] = report["ways"].as_array().unwrap().as_slice() else { panic!("{report}") };
    way
}

#[test]
fn a_plan_tells_hops_reads_and_stale_hints_of_each_path() {
    let server = server();
    let mut resp = server.resp();
    let read_line = format!("{PROFILES} --policy read --times 100");
    let report = explain(&server, &read_line);
    assert_eq!((&report["results"], &report["policy"]), (&1.into(), &"read".into()));
    let way = only_way(&report);
    assert_eq!((&way["way"], &way["times"]), (&"read".into(), &100.into()));
    assert!(way["last"].as_str().unwrap().starts_with("read: the policy has one way"), "{way}");
    assert!(way["nodes"].as_f64() > Some(0.0), "{way}");
    assert!(way.get("lag_ms").is_none(), "it is a primary: {way}");
    let plan = &way["plan"];
    let done = [&plan["hops"], &plan["visits"], &plan["batches"]].map(Value::as_f64);
    assert_eq!(done, [Some(1.0), Some(2.0), Some(2.0)], "{plan}");
    assert_eq!((plan["stale_hints"].as_f64(), &plan["limited"]), (Some(0.0), &0.into()), "{plan}");
    assert_eq!(plan["limit"], Value::Null);

    // The record of the zone moves.
    call(&mut resp, "HSET zone:mitte surge 2");
    let report = explain(&server, &read_line);
    let stale = only_way(&report)["plan"]["stale_hints"].as_f64().unwrap();
    assert!(stale > 0.0 && stale <= 1.0, "{report}");

    let report = explain(&server, &format!("{PROFILES} --policy ask --times 20"));
    let way = only_way(&report);
    let costs = [&way["round_trips"], &way["nodes"], &way["plan"]["stale_hints"]];
    assert_eq!(costs.map(Value::as_f64), [Some(1.0), Some(0.0), Some(0.0)], "{way}");
    assert_eq!((&way["way"], way["plan"]["hops"].as_f64()), (&"ask".into(), Some(1.0)), "{way}");
}

#[test]
fn a_plan_tells_expected_costs_and_its_limit() {
    let server = server();
    let mut command = remora();
    let words = "explain --times 500 plan FROM LIST zones 0 -1 GETKEY LIMIT ROWS 3 --server";
    let finished = run(command.args(words.split(' ')).arg(server.socket()));
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    for part in [
        "500 times by policy cost over shm, 3 results",
        "ask   ",
        "read  ",
        "expected ask ",
        "round trips",
        " hops, ",
        " stale hints",
        "limit ROWS reached ",
        "last: ",
    ] {
        assert!(finished.out.contains(part), "{part} is not in {}", finished.out);
    }
    let report =
        explain(&server, "FROM LIST zones 0 -1 GETKEY LIMIT ROWS 3 --policy ask --times 7");
    let plan = &only_way(&report)["plan"];
    assert_eq!((&plan["limit"], &plan["limited"]), (&"ROWS".into(), &7.into()), "{plan}");
    let report =
        explain(&server, "FROM LIST zones 0 -1 GETKEY LIMIT ROWS 4 --policy ask --times 7");
    assert_eq!((&report["results"], &only_way(&report)["plan"]["limited"]), (&4.into(), &0.into()));
}

/// No server is needed to say so.
#[test]
fn what_is_no_plan_is_an_error_of_usage() {
    for (line, why) in [
        ("FROM KEYS 1 a FOLOW b", "word 5, 'FOLOW': expected a step ("),
        ("FROM KEYS 2 a", "the plan ends behind word 4: expected"),
        ("KEYS 1 a", "word 1, 'KEYS': expected"),
    ] {
        let mut command = remora();
        let finished = run(command.args(["explain", "plan"]).args(line.split(' ')));
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{}", finished.err);
        assert!(finished.err.contains(why), "{line}: {}", finished.err);
    }
    let finished = run(remora().args(["explain", "plan"]));
    assert_eq!(finished.code, Some(2), "{}", finished.err);
}
