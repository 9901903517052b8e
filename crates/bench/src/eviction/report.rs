//! The output of `remora bench eviction`.

use serde::Serialize;
use std::io::Write;

/// Hits of one policy under one capacity and knowledge.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// The policy.
    pub policy: String,
    /// Capacity as a share of the distinct keys.
    pub share: f64,
    /// Capacity in records.
    pub capacity: usize,
    /// Shortest lease term, in requests; 0: every read is seen.
    pub lease_ops: u64,
    /// Requests with a key that was there.
    pub hits: u64,
    /// Those of them that the policy did not see.
    pub unseen: u64,
    /// Hits of all requests.
    pub hit_ratio: f64,
}

/// All of them, for one trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    trace: String,
    requests: usize,
    keys: usize,
    ratios: Vec<Ratio>,
}

impl Report {
    /// A report.
    pub fn new(trace: String, requests: usize, keys: usize, ratios: Vec<Ratio>) -> Self {
        Self { trace, requests, keys, ratios }
    }

    /// Prints it, as one JSON object or as a table in Markdown: a row for
    /// each policy and knowledge, a column for each capacity.
    pub fn print(&self, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
        if as_json {
            serde_json::to_writer(&mut *out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(out, "{}: {} requests for {} keys", self.trace, self.requests, self.keys)?;
        let mut shares: Vec<f64> = self.ratios.iter().map(|ratio| ratio.share).collect();
        shares.dedup();
        let columns: Vec<String> =
            shares.iter().map(|share| format!("{}%", share * 100.0)).collect();
        writeln!(out, "| Policy | Shortest lease | {} |", columns.join(" | "))?;
        writeln!(out, "| --- | --- |{}", " ---: |".repeat(columns.len()))?;
        for row in self.ratios.iter().filter(|ratio| ratio.share == shares[0]) {
            let cells: Vec<String> = self
                .ratios
                .iter()
                .filter(|cell| cell.policy == row.policy && cell.lease_ops == row.lease_ops)
                .map(|cell| format!("{:.4}", cell.hit_ratio))
                .collect();
            writeln!(out, "| {} | {} | {} |", row.policy, row.lease_ops, cells.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_column_for_each_capacity() {
        let ratio = |policy: &str, share, hit_ratio| Ratio {
            policy: policy.into(),
            share,
            capacity: 2,
            lease_ops: 0,
            hits: 1,
            unseen: 0,
            hit_ratio,
        };
        let ratios = vec![
            ratio("lru", 0.01, 0.25),
            ratio("best", 0.01, 0.5),
            ratio("lru", 0.1, 0.3),
            ratio("best", 0.1, 0.6),
        ];
        let report = Report::new("t".into(), 4, 3, ratios);
        let mut out = Vec::new();
        report.print(false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("| Policy | Shortest lease | 1% | 10% |"), "{text}");
        assert!(text.contains("| lru | 0 | 0.2500 | 0.3000 |"), "{text}");
        let mut out = Vec::new();
        report.print(true, &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["ratios"][3]["hit_ratio"], 0.6);
    }
}
