//! The output of `remora bench keys`.

use super::args::KeysArgs;
use crate::costs::Costs;
use crate::run::{Figures, Outcome};
use crate::transport_report::TransportReport;
use serde::Serialize;
use std::io::Write;

/// One run, with everything that is needed to repeat it. The fields' names
/// are a contract: others read them.
#[derive(Clone, Debug, Serialize)]
pub struct KeysReport {
    #[serde(flatten)]
    figures: Figures,
    asked: u64,
    read: u64,
    hits: u64,
    stale: u64,
    retries: u64,
    lease_expired: u64,
    read_lease_lapsed: u64,
    renewals: u64,
    behind_writes: u64,
    undecided: u64,
    transport: &'static str,
    /// Set where they say nothing about real devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<&'static str>,
    /// Over RDMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_pairs: Option<usize>,
    /// If each client had one to each shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_pairs_unshared: Option<usize>,
    path: String,
    policy: String,
    seed: u64,
    command: String,
    records: usize,
    ops: u64,
    reads: f64,
    clients: usize,
    pipeline: usize,
    batch: usize,
    key_bytes: usize,
    value_bytes: usize,
    dist: String,
    shards: Option<usize>,
    wake: String,
    pointer_cache: String,
    messages: String,
    shard_model: String,
    like_for_like: bool,
    missing: u64,
    wrong: u64,
    elapsed_s: f64,
}

impl KeysReport {
    /// The report of a run of `ops` operations on a server of `shards` shards,
    /// where that is known.
    pub fn new(
        args: &KeysArgs,
        transport: TransportReport,
        ops: usize,
        shards: Option<usize>,
        outcome: &Outcome,
    ) -> Self {
        let Costs { asked, read, hits, stale, retries, lease_expired, .. } = outcome.costs;
        let Costs { read_lease_lapsed, renewals, behind_writes, undecided, .. } = outcome.costs;
        Self {
            figures: outcome.figures(),
            asked,
            read,
            hits,
            stale,
            retries,
            lease_expired,
            read_lease_lapsed,
            renewals,
            behind_writes,
            undecided,
            transport: transport.name,
            times: transport.is_software_rdma.then_some("meaningless: software RDMA"),
            queue_pairs: transport.queue_pairs.map(|pairs| pairs.now),
            queue_pairs_unshared: transport.queue_pairs.map(|pairs| pairs.unshared),
            path: args.path.to_string(),
            policy: args.policy.to_string(),
            seed: args.seed,
            command: args.command(ops, shards.unwrap_or(1)),
            records: args.records,
            ops: outcome.tally.ops,
            reads: args.reads,
            clients: args.clients,
            pipeline: args.pipeline,
            batch: args.batch,
            key_bytes: args.key_bytes,
            value_bytes: args.value_bytes,
            dist: args.dist.to_string(),
            shards,
            wake: args.wake.to_string(),
            pointer_cache: args.pointer_cache.to_string(),
            messages: args.messages.to_string(),
            shard_model: args.shard_model.to_string(),
            like_for_like: args.like_for_like,
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
        let figures = &self.figures;
        let cpu = figures
            .server_cpu_us_per_op
            .map_or("unknown".into(), |cpu_us| format!("{cpu_us:.3} us per operation"));
        let choice =
            if self.path == "choose" { format!(" by {}", self.policy) } else { String::new() };
        writeln!(out, "path         {}{choice} over {}", self.path, self.transport)?;
        writeln!(out, "messages     {}, shard {}", self.messages, self.shard_model)?;
        writeln!(out, "operations   {} on {} records, {}", self.ops, self.records, self.dist)?;
        writeln!(out, "throughput   {:.0} a second", figures.ops_per_s)?;
        writeln!(
            out,
            "latency      p50 {:.2} us, p99 {:.2} us, p99.9 {:.2} us",
            figures.p50_us, figures.p99_us, figures.p999_us
        )?;
        if let Some(times) = self.times {
            writeln!(out, "times        {times}")?;
        }
        if let (Some(now), Some(unshared)) = (self.queue_pairs, self.queue_pairs_unshared) {
            writeln!(out, "queue pairs  {now}; {unshared} if each client had one to each shard")?;
        }
        writeln!(out, "round trips  {:.3} per operation", figures.round_trips_per_op)?;
        writeln!(out, "bytes        {:.1} per operation", figures.bytes_per_op)?;
        writeln!(out, "server CPU   {cpu}")?;
        writeln!(
            out,
            "counts       asked {}, read {}, hits {}, stale {}, retries {}, lease expired {}",
            self.asked, self.read, self.hits, self.stale, self.retries, self.lease_expired
        )?;
        writeln!(
            out,
            "asked as     read lease lapsed {}, renewals {}, behind writes {}, undecided {}",
            self.read_lease_lapsed, self.renewals, self.behind_writes, self.undecided
        )?;
        writeln!(out, "again        {}", self.command)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::check_bench;
    use crate::run::tests::outcome;
    use crate::transport_report::QueuePairs;
    use clap::Parser;

    #[test]
    fn the_json_object_has_every_field_of_the_contract() {
        #[derive(Parser)]
        struct Flags {
            #[command(flatten)]
            keys: KeysArgs,
        }
        let args = Flags::parse_from(["keys", "--path", "read", "--json"]).keys;
        let mut out = Vec::new();
        let report = |transport| KeysReport::new(&args, transport, 10, Some(1), &outcome());
        report(TransportReport::by("shm")).print(true, &mut out).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let numbers = [
            "hits",
            "stale",
            "lease_expired",
            "read_lease_lapsed",
            "renewals",
            "behind_writes",
            "undecided",
            "records",
            "ops",
            "clients",
            "pipeline",
            "batch",
            "value_bytes",
        ];
        check_bench(&json, &numbers, &["dist", "messages", "shard_model"]);
        assert_eq!(json["round_trips_per_op"], 1.0);
        assert_eq!(json["server_cpu_us_per_op"], 0.5);
        assert_eq!(json["ops_per_s"], 10_000.0);
        assert_eq!(json["transport"], "shm");
        assert!(json["times"].is_null() && json["queue_pairs"].is_null());
        // A run over a device in software is labelled.
        let queue_pairs = Some(QueuePairs { now: 1, unshared: 12 });
        let transport = TransportReport { name: "verbs", is_software_rdma: true, queue_pairs };
        for as_json in [true, false] {
            out.clear();
            report(transport).print(as_json, &mut out).unwrap();
            let out = String::from_utf8_lossy(&out);
            assert!(out.contains("meaningless: software RDMA"));
            let pairs = ["queue pairs  1; 12 if", "\"queue_pairs\":1,\"queue_pairs_unshared\":12,"];
            assert!(out.contains(pairs[as_json as usize]), "{out}");
        }
    }
}
