//! The output of `remora bench ranges`.

use super::args::RangesArgs;
use super::run::Found;
use crate::run::{Figures, Outcome};
use crate::transport_report::TransportReport;
use remora_client_core::OrderedInfo;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// One run, with all parameters needed to repeat it. The fields' names are a contract: other programs
/// read them. Counts of nodes are of each lookup, all others of each operation.
#[derive(Clone, Debug, Serialize)]
pub struct RangesReport {
    #[serde(flatten)]
    figures: Figures,
    asked: u64,
    read: u64,
    hits: u64,
    stale: u64,
    retries: u64,
    lease_expired: u64,
    read_lease_lapsed: u64,
    /// Of the lookups by READs: nodes between the root and the entries, the kept ones among them. None
    /// if there was no such lookup.
    nodes_visited_per_op: Option<f64>,
    /// Nodes that crossed.
    nodes_read_per_op: f64,
    /// Nodes that an index in the network passed.
    network_nodes_per_op: f64,
    /// Share of the lookups by their round trips: none, one, two and so on, the last one all beyond.
    round_trips_share: Vec<f64>,
    results_per_op: f64,
    /// Records that were set, new or not.
    inserts_per_s: f64,
    tree_height: u64,
    tree_nodes: u64,
    bytes_per_key: f64,
    /// Of inner nodes that one client may keep.
    cache_bytes: usize,
    /// That one client kept at the end, and how many nodes.
    kept_bytes: f64,
    kept_nodes: f64,
    adapts: bool,
    transport: &'static str,
    /// Set where they say nothing about real devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<&'static str>,
    path: String,
    policy: String,
    cache_policy: String,
    wake: String,
    seed: u64,
    command: String,
    records: usize,
    fanout: usize,
    loaded_per_s: f64,
    ops: u64,
    clients: usize,
    missing: u64,
    wrong: u64,
    elapsed_s: f64,
}

impl RangesReport {
    /// The report of a run.
    pub fn new(
        args: &RangesArgs,
        transport: TransportReport,
        (info, took): (&OrderedInfo, Duration),
        outcome: &Outcome,
        found: &Found,
    ) -> Self {
        let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
        let per_client = |count: usize| count as f64 / args.clients as f64;
        Self {
            figures: outcome.figures(),
            asked: outcome.costs.asked,
            read: outcome.costs.read,
            hits: outcome.costs.hits,
            stale: outcome.costs.stale,
            retries: outcome.costs.retries,
            lease_expired: outcome.costs.lease_expired,
            read_lease_lapsed: outcome.costs.read_lease_lapsed,
            nodes_visited_per_op: (found.by_reads > 0)
                .then(|| share(found.nodes_visited, found.by_reads)),
            nodes_read_per_op: share(outcome.costs.nodes, found.lookups),
            network_nodes_per_op: 0.0,
            round_trips_share: found.by_round_trips.map(|of| share(of, found.lookups)).to_vec(),
            results_per_op: share(found.entries, found.lookups),
            inserts_per_s: found.writes as f64 / outcome.elapsed.as_secs_f64().max(1e-9),
            tree_height: info.height,
            tree_nodes: info.nodes,
            bytes_per_key: share(info.bytes, info.keys),
            cache_bytes: args.cache().bytes,
            kept_bytes: per_client(found.kept.0),
            kept_nodes: per_client(found.kept.1),
            adapts: args.adapts(),
            transport: transport.name,
            times: transport.is_software_rdma.then_some("meaningless: software RDMA"),
            path: args.path.to_string(),
            policy: args.policy.to_string(),
            cache_policy: args.cache_policy.to_string(),
            wake: args.wake.to_string(),
            seed: args.seed,
            command: args.command(),
            records: args.records,
            fanout: args.fanout,
            loaded_per_s: args.records as f64 / took.as_secs_f64().max(1e-9),
            ops: outcome.tally.ops,
            clients: args.clients,
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
        let Self { figures, path, transport, cache_policy, .. } = self;
        let or_unknown =
            |value: Option<f64>| value.map_or("unknown".into(), |of| format!("{of:.3}"));
        writeln!(out, "path         {path} over {transport}, nodes kept by {cache_policy}")?;
        writeln!(
            out,
            "tree         {} records, fan-out {}, height {}, {} nodes, {:.1} bytes a key",
            self.records, self.fanout, self.tree_height, self.tree_nodes, self.bytes_per_key
        )?;
        writeln!(out, "operations   {} by {} clients", self.ops, self.clients)?;
        writeln!(out, "throughput   {:.0} a second", figures.ops_per_s)?;
        writeln!(
            out,
            "latency      {:.2} us median, {:.2} us 99th percentile",
            figures.p50_us, figures.p99_us
        )?;
        writeln!(
            out,
            "nodes        {} visited, {:.3} read, {:.3} in the network, for each lookup",
            or_unknown(self.nodes_visited_per_op),
            self.nodes_read_per_op,
            self.network_nodes_per_op
        )?;
        let shares = self.round_trips_share.iter().enumerate().filter(|(_, share)| **share > 0.0);
        let shares: Vec<String> =
            shares.map(|(trips, share)| format!("{trips}: {:.1} %", 100.0 * share)).collect();
        writeln!(
            out,
            "round trips  {:.3} for each operation ({})",
            figures.round_trips_per_op,
            shares.join(", ")
        )?;
        writeln!(out, "bytes        {:.0} for each operation", figures.bytes_per_op)?;
        writeln!(
            out,
            "kept         {:.0} nodes, {:.0} bytes, for each client",
            self.kept_nodes, self.kept_bytes
        )?;
        writeln!(out, "answered     {} by READs, {} asked", self.read, self.asked)?;
        writeln!(
            out,
            "server CPU   {} us for each operation",
            or_unknown(figures.server_cpu_us_per_op)
        )?;
        writeln!(out, "again        {}", self.command)?;
        Ok(())
    }
}
