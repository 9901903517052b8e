//! The example as a process: right answers by both ways, never too many in a window, and nothing left.

use remora_tests::{check_numbers, json_of, remora_path, run_command_clean};
use std::process::Command;

fn rate_limiter() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rate-limiter"));
    command.arg("--server-binary").arg(remora_path());
    command
}

#[test]
fn callers_get_as_many_requests_as_they_may_make() {
    let args = ["--callers", "3", "--limit", "20", "--window-ms", "400", "--seconds", "2"];
    let report = json_of(rate_limiter().args(args));
    assert_eq!((&report["callers"], &report["checked"]), (&3.into(), &2_000.into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, way) in rows.iter().zip(["resp", "client"]) {
        check_numbers(row, &["p50_us", "p99_us"]);
        assert_eq!(row["way"], way);
        let number = |name: &str| row[name].as_u64().expect("a number");
        // The threads want far more than they get, and get all of the first window.
        assert!(number("permitted") >= 3 * 20, "{row}");
        assert!(number("requests") > 2 * number("permitted"), "{row}");
        assert!(number("most_in_a_window") <= 20, "{row}");
    }
}

#[test]
fn wrong_numbers_are_refused() {
    for args in [["--callers", "0"], ["--threads", "0"], ["--limit", "0"], ["--seconds", "0"]] {
        let finished = run_command_clean(rate_limiter().args(args));
        assert_eq!((finished.code, finished.out.as_str()), (Some(2), ""), "{}", finished.err);
    }
}
