//! The output of `remora bench documents`.

use super::args::DocumentsArgs;
use super::work::Errors;
use crate::run::{Figures, Outcome};
use crate::transport_report::TransportReport;
use serde::Serialize;
use std::io::Write;

/// One run, with all parameters needed to repeat it. The fields' names are a contract: other programs read
/// them.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentsReport {
    #[serde(flatten)]
    figures: Figures,
    asked: u64,
    read: u64,
    hits: u64,
    stale: u64,
    retries: u64,
    lease_expired: u64,
    read_lease_lapsed: u64,
    behind_writes: u64,
    undecided: u64,
    transport: &'static str,
    /// Set where they say nothing about real devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<&'static str>,
    op: String,
    path: String,
    policy: String,
    wake: String,
    seed: u64,
    command: String,
    records: usize,
    value_bytes: usize,
    ops: u64,
    connections: usize,
    errors: u64,
    missing: u64,
    wrong: u64,
    elapsed_s: f64,
}

impl DocumentsReport {
    /// The report of a run.
    pub fn new(
        args: &DocumentsArgs,
        transport: TransportReport,
        outcome: &Outcome,
        errors: &Errors,
    ) -> Self {
        let costs = outcome.costs;
        Self {
            figures: outcome.figures(),
            asked: costs.asked,
            read: costs.read,
            hits: costs.hits,
            stale: costs.stale,
            retries: costs.retries,
            lease_expired: costs.lease_expired,
            read_lease_lapsed: costs.read_lease_lapsed,
            behind_writes: costs.behind_writes,
            undecided: costs.undecided,
            transport: transport.name,
            times: transport.is_software_rdma.then_some("meaningless: software RDMA"),
            op: args.op.to_string(),
            path: args.path.to_string(),
            policy: args.policy.to_string(),
            wake: args.wake.to_string(),
            seed: args.seed,
            command: args.command(),
            records: args.records,
            value_bytes: args.value_bytes,
            ops: outcome.tally.ops,
            connections: args.connections,
            errors: errors.count,
            missing: outcome.tally.missing,
            wrong: outcome.tally.wrong,
            elapsed_s: outcome.elapsed.as_secs_f64(),
        }
    }

    /// Prints it, as one JSON object or as lines for people.
    pub fn print(&self, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
        if as_json {
            serde_json::to_writer(&mut *out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        let Self { figures, op, path, transport, .. } = self;
        writeln!(out, "operation    {op}, {path} over {transport}")?;
        writeln!(
            out,
            "operations   {} by {} connections, {} documents",
            self.ops, self.connections, self.records
        )?;
        writeln!(out, "throughput   {:.0} a second", figures.ops_per_s)?;
        writeln!(
            out,
            "latency      p50 {:.2} us, p99 {:.2} us, p99.9 {:.2} us",
            figures.p50_us, figures.p99_us, figures.p999_us
        )?;
        if let Some(times) = self.times {
            writeln!(out, "times        {times}")?;
        }
        writeln!(out, "round trips  {:.3} for each operation", figures.round_trips_per_op)?;
        writeln!(out, "bytes        {:.0} for each operation", figures.bytes_per_op)?;
        writeln!(out, "answered     {} by READs, {} asked", self.read, self.asked)?;
        writeln!(
            out,
            "wrong        {} errors, {} missing, {} wrong",
            self.errors, self.missing, self.wrong
        )?;
        let cpu = figures.server_cpu_us_per_op;
        let cpu = cpu.map_or("unknown".into(), |us| format!("{us:.3} us for each operation"));
        writeln!(out, "server CPU   {cpu}")?;
        writeln!(out, "again        {}", self.command)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::tests::parse;
    use super::*;
    use crate::fields::check_bench;
    use crate::run::tests::outcome;

    #[test]
    fn the_json_object_has_every_field_of_the_contract() {
        let args = parse("--op update --path ask --connections 3 --json");
        let errors = Errors { count: 2, first: Some("full".into()) };
        let report = DocumentsReport::new(&args, TransportReport::by("shm"), &outcome(), &errors);
        let mut out = Vec::new();
        report.print(true, &mut out).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let numbers = [
            "hits",
            "stale",
            "lease_expired",
            "records",
            "value_bytes",
            "ops",
            "connections",
            "errors",
            "missing",
            "wrong",
        ];
        check_bench(&json, &numbers, &["op"]);
        assert_eq!((&json["op"], &json["errors"]), (&"update".into(), &2.into()));
        assert!(json["times"].is_null());
        out.clear();
        report.print(false, &mut out).unwrap();
        assert!(String::from_utf8_lossy(&out).contains("2 errors"));
    }
}
