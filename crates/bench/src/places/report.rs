//! The output of `remora bench places`.

use super::args::PlacesArgs;
use super::run::Found;
use crate::run::{Figures, Outcome};
use crate::transport_report::TransportReport;
use anyhow::ensure;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;

/// The tree that was searched.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// Objects before the run.
    pub objects: u64,
    /// Levels, after the run.
    pub height: u8,
    /// Bytes of its nodes, before the run.
    pub bytes: u64,
    /// Bytes beside, for finding objects by their ids.
    pub index_bytes: u64,
    /// How long loading took.
    pub took: Duration,
}

/// One run, with all parameters needed to repeat it. The fields' names are a contract: other
/// programs read them. Counts for each operation are divided by all operations, nodes and results
/// by the searches among them.
#[derive(Clone, Debug, Serialize)]
pub struct PlacesReport {
    #[serde(flatten)]
    figures: Figures,
    asked: u64,
    read: u64,
    retries: u64,
    read_lease_lapsed: u64,
    /// None over RESP, if the server does not report it.
    nodes_visited_per_op: Option<f64>,
    nodes_read_per_op: f64,
    cache_bytes: usize,
    results_per_op: f64,
    tree_height: u8,
    /// In the timed part.
    inserts_per_s: f64,
    transport: &'static str,
    /// Set where they say nothing about real devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<&'static str>,
    path: String,
    policy: String,
    issue: String,
    coordination: String,
    connections: String,
    wake: String,
    seed: u64,
    command: String,
    tree: String,
    capacity: usize,
    records: u64,
    tree_bytes: u64,
    bytes_per_record: f64,
    /// To find objects by their ids.
    index_bytes_per_record: f64,
    load: String,
    loaded_per_s: f64,
    scale: String,
    inserts: f64,
    ops: u64,
    clients: usize,
    wrong: u64,
    elapsed_s: f64,
}

impl PlacesReport {
    /// The report of a run.
    pub fn new(
        args: &PlacesArgs,
        transport: TransportReport,
        loaded: Loaded,
        outcome: &Outcome,
        found: Found,
    ) -> Self {
        let search = args.search_options();
        let per_search = |count: u64| count as f64 / found.searches.max(1) as f64;
        let elapsed_s = outcome.elapsed.as_secs_f64();
        Self {
            figures: outcome.figures(),
            asked: outcome.costs.asked,
            read: outcome.costs.read,
            retries: outcome.costs.retries,
            read_lease_lapsed: outcome.costs.read_lease_lapsed,
            nodes_visited_per_op: found.nodes_visited.map(per_search),
            nodes_read_per_op: per_search(outcome.costs.nodes),
            cache_bytes: search.cache_bytes,
            results_per_op: per_search(found.results),
            tree_height: loaded.height,
            inserts_per_s: found.inserts as f64 / elapsed_s.max(1e-9),
            transport: transport.name,
            times: transport.is_software_rdma.then_some("meaningless: software RDMA"),
            path: search.path.to_string(),
            policy: search.policy.to_string(),
            coordination: search.coordination.to_string(),
            connections: search.connections.to_string(),
            issue: search.issue.to_string(),
            wake: search.wake.to_string(),
            seed: args.seed,
            command: args.command(),
            tree: args.tree.to_string(),
            capacity: args.capacity,
            records: loaded.objects,
            tree_bytes: loaded.bytes,
            index_bytes_per_record: loaded.index_bytes as f64 / loaded.objects.max(1) as f64,
            bytes_per_record: loaded.bytes as f64 / loaded.objects.max(1) as f64,
            load: args.load.to_string(),
            loaded_per_s: loaded.objects as f64 / loaded.took.as_secs_f64().max(1e-9),
            scale: args.windows.as_ref().map_or(args.scale().to_string(), |_| "windows".into()),
            inserts: args.inserts,
            ops: outcome.tally.ops,
            clients: args.clients,
            wrong: outcome.tally.wrong,
            elapsed_s,
        }
    }

    /// An error if a search gave objects that do not touch its window.
    pub fn verify(&self) -> anyhow::Result<()> {
        ensure!(self.wrong == 0, "{} objects that were found lie elsewhere", self.wrong);
        Ok(())
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
        let visited =
            self.nodes_visited_per_op.map_or("unknown".into(), |nodes| format!("{nodes:.2}"));
        let choice =
            if self.path == "choose" { format!(" by {}", self.policy) } else { String::new() };
        let Self { path, transport, issue, .. } = self;
        writeln!(out, "path         {path}{choice} over {transport}, {issue}")?;
        writeln!(
            out,
            "tree         {} of {} objects, height {}, {:.1} bytes an object",
            self.tree, self.records, self.tree_height, self.bytes_per_record
        )?;
        writeln!(out, "operations   {} by {} clients, {}", self.ops, self.clients, self.scale)?;
        writeln!(out, "throughput   {:.0} a second", figures.ops_per_s)?;
        if self.inserts > 0.0 {
            writeln!(out, "inserts      {:.0} a second", self.inserts_per_s)?;
        }
        writeln!(
            out,
            "latency      p50 {:.2} us, p99 {:.2} us, p99.9 {:.2} us",
            figures.p50_us, figures.p99_us, figures.p999_us
        )?;
        if let Some(times) = self.times {
            writeln!(out, "times        {times}")?;
        }
        writeln!(out, "results      {:.4} per search", self.results_per_op)?;
        writeln!(
            out,
            "nodes        {visited} visited and {:.2} read per search",
            self.nodes_read_per_op
        )?;
        writeln!(out, "round trips  {:.3} per operation", figures.round_trips_per_op)?;
        writeln!(out, "bytes        {:.1} per operation", figures.bytes_per_op)?;
        writeln!(out, "server CPU   {cpu}")?;
        writeln!(
            out,
            "counts       asked {}, read {}, retries {}, read lease lapsed {}",
            self.asked, self.read, self.retries, self.read_lease_lapsed
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
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        places: PlacesArgs,
    }

    fn report(flags: &str, found: Found) -> PlacesReport {
        let words = std::iter::once("places").chain(flags.split_whitespace());
        let args = Flags::parse_from(words).places;
        let took = Duration::from_secs(2);
        let loaded = Loaded { objects: 1000, height: 3, bytes: 61_000, index_bytes: 9_000, took };
        let mut outcome = outcome();
        outcome.costs.nodes = 32;
        PlacesReport::new(&args, TransportReport::by("shm"), loaded, &outcome, found)
    }

    #[test]
    fn the_json_object_has_every_field_of_the_contract() {
        let found = Found { searches: 8, inserts: 2, results: 400, nodes_visited: Some(56) };
        let mut out = Vec::new();
        report("--inserts 0.2 --scale power", found).print(true, &mut out).unwrap();
        assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let numbers = [
            "nodes_visited_per_op",
            "nodes_read_per_op",
            "cache_bytes",
            "results_per_op",
            "tree_height",
            "inserts_per_s",
        ];
        check_bench(&json, &numbers, &["tree", "scale", "issue", "coordination", "connections"]);
        // Ten operations in a millisecond, eight of them searches.
        assert_eq!(json["nodes_visited_per_op"], 7.0);
        assert_eq!(json["nodes_read_per_op"], 4.0);
        assert_eq!(json["results_per_op"], 50.0);
        assert_eq!(json["inserts_per_s"], 2000.0);
        assert_eq!(json["round_trips_per_op"], 1.0);
        assert_eq!(
            (&json["bytes_per_record"], &json["loaded_per_s"]),
            (&61.0.into(), &500.0.into())
        );
    }

    #[test]
    fn nodes_that_nobody_tells_of_are_not_made_up() {
        let found = Found { searches: 10, ..Found::default() };
        let report = report("--path resp", found);
        let mut out = Vec::new();
        report.print(true, &mut out).unwrap();
        assert!(String::from_utf8_lossy(&out).contains("\"nodes_visited_per_op\":null"));
        out.clear();
        report.print(false, &mut out).unwrap();
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains("unknown visited") && !text.contains("inserts  "), "{text}");
    }
}
