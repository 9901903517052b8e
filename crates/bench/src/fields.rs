//! The fields that reports have by the contract, for the tests of all of them.

use serde_json::Value;

/// Numbers of all that runs operations.
const OF_ALL: &[&str] = &[
    "ops_per_s",
    "p50_us",
    "p99_us",
    "round_trips_per_op",
    "bytes_per_op",
    "server_cpu_us_per_op",
];
/// Numbers of a bench besides.
const OF_A_BENCH: &[&str] = &["p999_us", "asked", "read", "retries", "seed"];
/// Texts of a bench.
const TEXTS_OF_A_BENCH: &[&str] = &["transport", "path", "policy", "command"];

/// A bench's report has its fields, and those that are its own.
pub fn check_bench(report: &Value, numbers: &[&str], texts: &[&str]) {
    has_numbers(report, OF_ALL);
    has_numbers(report, OF_A_BENCH);
    has_numbers(report, numbers);
    for field in TEXTS_OF_A_BENCH.iter().chain(texts) {
        assert!(report[*field].is_string(), "{field}: {}", report[*field]);
    }
}

/// These fields are numbers.
pub fn has_numbers(report: &Value, fields: &[&str]) {
    for field in fields {
        assert!(report[*field].is_number(), "{field}: {}", report[*field]);
    }
}
