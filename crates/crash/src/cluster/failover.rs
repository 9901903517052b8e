//! How long a failover takes, and what it is made of: from the log lines of the servers, by their
//! times.
//!
//! ```text
//!   kill -9    a watcher   the chosen   all is    replicas    it         first
//!      |       begins      one takes    applied   have it     serves     acknowledged change
//!      |          |           |            |          |          |          |
//!      '-detection'--election-'---replay---'--copies--'-fencing--'--notice--'
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Words of the log lines that end the parts, but for the last part.
const BEGINS: &str = "is to get another primary";
const TAKES: &str = "this server is promoted to lead epoch";
const APPLIED: &str = "all that was received is applied";
const COPIED: &str = "each replica that could be promoted has all of it";
const SERVES: &str = ", and serves";

/// Names of the parts, in their order; behind them the sum without the first one, and the whole sum.
pub const PARTS: [&str; 8] = [
    "detection_ms",
    "election_ms",
    "replay_ms",
    "copies_ms",
    "fencing_ms",
    "notice_ms",
    "without_detection_ms",
    "total_ms",
];

/// The parts of one failover, ms: see [`PARTS`].
pub type Parts = [f64; PARTS.len()];

/// The parts of a failover between the kill and the first acknowledged change, from the logs of all
/// servers; `None` if a line is missing.
pub fn parts(killed: SystemTime, acknowledged: SystemTime, logs: &[String]) -> Option<Parts> {
    let began = time_of_day(killed);
    // Lines of an earlier failover lie most of a day ahead.
    let since = |line: &str| Some((line_time(line)? + DAY_US - began) % DAY_US);
    let total = (time_of_day(acknowledged) + DAY_US - began) % DAY_US;
    let first = |words: &str, from: u64| {
        let lines = logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains(words));
        lines.filter_map(since).filter(|at| (from..=total).contains(at)).min()
    };
    let begins = first(BEGINS, 0)?;
    let takes = first(TAKES, begins)?;
    let serves = first(SERVES, takes)?;
    let applied = first(APPLIED, takes)?.min(serves);
    let copied = first(COPIED, applied)?.min(serves);
    let ends = [begins, takes, applied, copied, serves, total];
    let mut parts = [0.0; PARTS.len()];
    let mut before = 0;
    for (part, end) in parts.iter_mut().zip(ends) {
        *part = (end - before) as f64 / 1000.0;
        before = end;
    }
    parts[PARTS.len() - 2] = (total - begins) as f64 / 1000.0;
    parts[PARTS.len() - 1] = total as f64 / 1000.0;
    Some(parts)
}

fn time_of_day(of: SystemTime) -> u64 {
    let since = of.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_micros() as u64 % DAY_US
}

/// The time of day of a log line, us: it begins with `2026-01-31T23:59:59.123456Z`.
fn line_time(line: &str) -> Option<u64> {
    let time = line.get(..27)?.strip_suffix('Z')?.split_once('T')?.1;
    let (whole, fraction) = time.split_once('.')?;
    let mut seconds = 0;
    for part in whole.split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok()?;
    }
    Some(seconds * 1_000_000 + fraction.parse::<u64>().ok()?)
}

/// The median and the worst of each part.
pub fn summary(all: &[Parts]) -> Vec<(&'static str, f64, f64)> {
    let of = |part: usize| {
        let mut values: Vec<f64> = all.iter().map(|parts| parts[part]).collect();
        values.sort_by(f64::total_cmp);
        // Of an even number the greater one of the middle.
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        (PARTS[part], at(values.len() / 2), at(values.len().saturating_sub(1)))
    };
    (0..PARTS.len()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> SystemTime {
        // One second before midnight.
        UNIX_EPOCH + Duration::from_secs(86_399) + Duration::from_millis(ms)
    }

    const WATCHER: &str = "1970-01-01T23:59:50.000000Z  INFO a: group 1 is to get another primary: old\n\
        1970-01-02T00:00:01.000000Z  INFO a: group 1 is to get another primary: its primary is gone\n";
    const CHOSEN: &str = "1970-01-02T00:00:01.020000Z  INFO a: this server is promoted to lead epoch 2, and waits\n\
        1970-01-02T00:00:01.025000Z  INFO a: epoch 2: all that was received is applied\n\
        1970-01-02T00:00:01.060000Z  INFO a: epoch 2: each replica that could be promoted has all of it\n\
        1970-01-02T00:00:01.200000Z  INFO a: this server leads epoch 2, and serves\n";

    #[test]
    fn parts_are_told_apart_over_midnight() {
        let logs = [WATCHER.to_owned(), CHOSEN.to_owned()];
        let parts = parts(at(0), at(2210), &logs).unwrap();
        assert_eq!(parts, [2000.0, 20.0, 5.0, 35.0, 140.0, 10.0, 210.0, 2210.0]);
    }

    #[test]
    fn a_missing_line_is_no_part_of_length_zero() {
        assert_eq!(parts(at(0), at(2210), &[WATCHER.to_owned()]), None);
        let earlier = parts(at(3000), at(5000), &[WATCHER.to_owned(), CHOSEN.to_owned()]);
        assert_eq!(earlier, None, "lines before the kill do not count");
    }

    #[test]
    fn the_median_and_the_worst() {
        let all = [[3.0; PARTS.len()], [1.0; PARTS.len()], [9.0; PARTS.len()]];
        assert_eq!(summary(&all)[0], ("detection_ms", 3.0, 9.0));
        assert_eq!(summary(&[])[PARTS.len() - 1], ("total_ms", 0.0, 0.0));
    }
}
