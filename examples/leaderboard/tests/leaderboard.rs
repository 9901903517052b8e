//! The example as a process: right answers by both ways, and nothing left.

use remora_tests::{check_numbers, json_of, remora_path, run_command_clean};
use std::process::Command;

fn leaderboard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leaderboard"));
    command.arg("--server-binary").arg(remora_path());
    command
}

#[test]
fn both_ways_show_the_same_board() {
    let report = json_of(leaderboard().args(["--players", "500", "--matches", "2000"]));
    assert_eq!((&report["players"], &report["checked"]), (&500.into(), &50.into()));
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| (&row["way"], &row["call"])).collect();
    for (at, (way, call)) in names.into_iter().enumerate() {
        assert_eq!(way, ["resp", "client"][at / 4]);
        assert_eq!(call, ["match", "top", "rank", "count"][at % 4]);
    }
    assert_eq!(rows.len(), 8);
    for row in rows {
        check_numbers(row, &["p50_us", "p99_us", "round_trips_per_call"]);
        assert_eq!(row["calls"], 2_000);
    }
    for row in &rows[..4] {
        assert_eq!(row["round_trips_per_call"], 1.0, "{row}");
    }
}

#[test]
fn wrong_numbers_are_refused() {
    for args in [["--players", "5"], ["--matches", "0"]] {
        let finished = run_command_clean(leaderboard().args(args));
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{}", finished.err);
    }
}
