//! The example as a process: right answers by every path, and nothing left
//! behind.

use remora_tests::{check_numbers, json_of, remora_path, run_command_clean};
use std::process::Command;

fn couriers() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_couriers"));
    command.arg("--server-binary").arg(remora_path());
    command
}

#[test]
fn couriers_are_found_by_every_path_and_leave_nothing() {
    let report = json_of(couriers().args(["--couriers", "500", "--seconds", "1.5"]));
    assert_eq!((&report["couriers"], &report["checked"]), (&500.into(), &200.into()));
    let rows = report["rows"].as_array().unwrap();
    let paths: Vec<_> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["resp", "ask", "read", "choose"]);
    for row in rows {
        let fields = ["searches_per_s", "p50_us", "p99_us", "round_trips_per_op", "moves_per_s"];
        check_numbers(row, &fields);
        check_numbers(row, &["server_cpu_us_per_op"]);
        let count = |field: &str| row[field].as_u64().unwrap();
        assert!(count("searches") > 0 && count("asked") + count("read") == count("searches"));
    }
    assert_eq!((&rows[0]["read"], &rows[1]["read"]), (&0.into(), &0.into()));
    assert!(rows[2]["read"].as_u64() > Some(0), "{report}");
    for args in [["--couriers", "5"], ["--seconds", "0"], ["--seconds", "NaN"]] {
        let finished = run_command_clean(couriers().args(args));
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{}", finished.err);
    }
}
