//! The example as a process: right answers from both servers, one trip against three, nothing left.

use remora_tests::{check_numbers, json_of, remora_path, run_command_clean};
use std::process::Command;

fn dispatch() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatch"));
    command.arg("--server-binary").arg(remora_path());
    command
}

#[test]
fn one_plan_is_one_trip_where_redis_takes_three() {
    let report = json_of(dispatch().args(["--couriers", "2000", "--questions", "120"]));
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        check_numbers(row, &["p50_us", "p99_us", "bytes_per_question"]);
        assert_eq!(row["questions"], 120);
    }
    assert_eq!(rows[0]["server"], "remora");
    assert_eq!(
        (&rows[0]["requests_per_question"], &rows[0]["round_trips_per_question"]),
        (&1.0.into(), &1.0.into())
    );
    if let Some(redis) = rows.get(1) {
        assert_eq!(
            (&redis["requests_per_question"], &redis["round_trips_per_question"]),
            (&11.0.into(), &3.0.into())
        );
    }
    for args in [["--couriers", "5"], ["--questions", "0"]] {
        let finished = run_command_clean(dispatch().args(args));
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{}", finished.err);
    }
}
