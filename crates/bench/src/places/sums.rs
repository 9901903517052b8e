//! `--print-sums`: the hits of each window, for comparison with another engine.

use super::target::Places;
use crate::costs::Costs;
use remora_client_core::Rect;
use serde::Serialize;
use std::io::Write;

/// The last line of standard error; the fields' names are a contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SumCounts {
    asked: u64,
    read: u64,
    retries: u64,
    round_trips: u64,
    /// Among those asked: because the read lease had lapsed, on a machine that is too busy for
    /// heartbeats.
    read_lease_lapsed: u64,
}

/// Searches every window once, and writes a line `hits,sum_ids,xor_ids` for each.
pub fn print_sums(
    target: &mut impl Places,
    windows: &[Rect],
    out: &mut impl Write,
) -> anyhow::Result<SumCounts> {
    let before = target.costs();
    for window in windows {
        let (mut hits, mut sum, mut xor) = (0u64, 0u64, 0u64);
        target.search(window, &mut |id, _| {
            hits += 1;
            sum = sum.wrapping_add(id);
            xor ^= id;
        })?;
        writeln!(out, "{hits},{sum},{xor}")?;
    }
    out.flush()?;
    let Costs { asked, read, retries, round_trips, read_lease_lapsed, .. } =
        target.costs() - before;
    Ok(SumCounts { asked, read, retries, round_trips, read_lease_lapsed })
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::List;
    use super::*;

    #[test]
    fn touching_counts_and_nothing_is_three_zeros() {
        let square = |x: f64| Rect::new(x, x + 1.0, 0.0, 1.0).unwrap();
        let objects = vec![(0, square(0.0)), (5, square(1.0)), (3, square(7.0))];
        let mut list = List { objects, ..List::default() };
        list.costs.asked = 100;
        let windows = [square(2.0), square(1.0), square(-5.0), square(3.0), square(0.5)];
        let mut out = Vec::new();
        let counts = print_sums(&mut list, &windows, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "1,5,5\n2,5,5\n0,0,0\n0,0,0\n2,5,5\n");
        let line = serde_json::to_string(&counts).unwrap();
        assert_eq!(
            line,
            r#"{"asked":5,"read":0,"retries":0,"round_trips":0,"read_lease_lapsed":0}"#
        );
    }
}
