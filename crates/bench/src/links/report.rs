//! The output of `remora bench links`.

use super::args::LinksArgs;
use super::fetch::Hopped;
use super::graph::Levels;
use crate::costs::Costs;
use crate::run::{Figures, Outcome};
use serde::Serialize;
use std::io::Write;

/// The result of one run of an application.
#[derive(Debug)]
pub struct Measured {
    /// Times and costs. An operation is a hop of a search, a page or a position.
    pub outcome: Outcome,
    /// Hops of all operations.
    pub hopped: Hopped,
    /// Of a search.
    pub levels: Option<Levels>,
    /// Of a search: each round's time, in s, and stale hints.
    pub rounds: Vec<Round>,
    /// What the server's memory grew by when the data were stored, if it can be seen.
    pub loaded_bytes: Option<u64>,
    /// Name of the transport.
    pub transport: &'static str,
    /// The kernel plays the RDMA device.
    pub is_software_rdma: bool,
}

/// One search of several.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Its time, s.
    pub elapsed_s: f64,
    /// Hints that did not lead to the target's record.
    pub stale: u64,
    /// Hops that the server answered.
    pub asked: u64,
    /// Dependent trips.
    pub round_trips: u64,
}

impl Round {
    /// Of a search's outcome.
    pub fn of(outcome: &Outcome) -> Self {
        let Costs { stale, asked, round_trips, .. } = outcome.costs;
        Self { elapsed_s: outcome.elapsed.as_secs_f64(), stale, asked, round_trips }
    }
}

/// The part of a report that a run with keys has too, to be compared with.
#[derive(Clone, Debug, Serialize)]
struct Part {
    #[serde(flatten)]
    figures: Figures,
    asked: u64,
    read: u64,
    hits: u64,
    stale: u64,
    retries: u64,
    read_lease_lapsed: u64,
    undecided: u64,
    lookups: u64,
    chases: u64,
    hops_per_op: f64,
    elapsed_s: f64,
    loaded_bytes: Option<u64>,
}

/// By links to by keys that are asked for: above 1 links are better.
#[derive(Clone, Debug, Serialize)]
struct Ratios {
    speed: f64,
    p50: f64,
    round_trips: f64,
    bytes: f64,
    server_cpu: Option<f64>,
}

/// One run, with all that is needed to repeat it. The fields' names are a contract.
#[derive(Clone, Debug, Serialize)]
pub struct LinksReport {
    #[serde(flatten)]
    part: Part,
    reached: Option<u64>,
    levels: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rounds: Vec<Round>,
    transport: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<&'static str>,
    path: String,
    form: &'static str,
    policy: String,
    seed: u64,
    ops: u64,
    command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_over_links: Option<Ratios>,
}

impl Part {
    fn of(measured: &Measured) -> Self {
        let Measured { outcome, hopped, loaded_bytes, .. } = measured;
        let Costs { asked, read, hits, stale, retries, .. } = outcome.costs;
        let Costs { read_lease_lapsed, undecided, .. } = outcome.costs;
        let Hopped { lookups, chases } = *hopped;
        Self {
            figures: outcome.figures(),
            asked,
            read,
            hits,
            stale,
            retries,
            read_lease_lapsed,
            undecided,
            lookups,
            chases,
            hops_per_op: (lookups + chases) as f64 / outcome.tally.ops.max(1) as f64,
            elapsed_s: outcome.elapsed.as_secs_f64(),
            loaded_bytes: *loaded_bytes,
        }
    }

    /// This part's costs to another's.
    fn over(&self, other: &Self) -> Ratios {
        let (mine, others) = (&self.figures, &other.figures);
        let cpu = mine.server_cpu_us_per_op.zip(others.server_cpu_us_per_op);
        Ratios {
            speed: self.elapsed_s / other.elapsed_s,
            p50: mine.p50_us / others.p50_us,
            round_trips: mine.round_trips_per_op / others.round_trips_per_op,
            bytes: mine.bytes_per_op / others.bytes_per_op,
            server_cpu: cpu.map(|(mine, other)| mine / other),
        }
    }
}

impl LinksReport {
    /// The report of a run, and of one with keys that are asked for.
    pub fn new(args: &LinksArgs, measured: &Measured, baseline: Option<&Measured>) -> Self {
        let part = Part::of(measured);
        let baseline = baseline.map(Part::of);
        let levels = measured.levels.as_ref();
        Self {
            baseline_over_links: baseline.as_ref().map(|baseline| baseline.over(&part)),
            part,
            reached: levels.map(Levels::reached),
            levels: levels.map(|levels| {
                let text = levels.to_string();
                text.split_once(',').map_or_else(String::new, |(_, levels)| levels.to_owned())
            }),
            rounds: measured.rounds.clone(),
            transport: measured.transport,
            times: measured.is_software_rdma.then_some("meaningless: software RDMA"),
            path: args.path.to_string(),
            form: if args.keys { "keys" } else { "links" },
            policy: args.policy.to_string(),
            seed: args.seed,
            ops: measured.outcome.tally.ops,
            command: args.command(),
            baseline,
        }
    }

    /// Prints it, as one JSON object; or, of a search, the line `reached,levels`, and of another
    /// application lines for people.
    pub fn print(&self, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
        if as_json {
            serde_json::to_writer(&mut *out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        if let (Some(reached), Some(levels)) = (self.reached, &self.levels) {
            writeln!(out, "{reached},{levels}")?;
            return Ok(());
        }
        let Part { figures, hops_per_op, .. } = &self.part;
        let Figures { ops_per_s, p50_us, p99_us, round_trips_per_op, bytes_per_op, .. } = figures;
        writeln!(out, "path         {} by {} over {}", self.path, self.form, self.transport)?;
        writeln!(
            out,
            "throughput   {ops_per_s:.0} a second, p50 {p50_us:.2} us, p99 {p99_us:.2} us"
        )?;
        writeln!(
            out,
            "each         {hops_per_op:.1} hops, {round_trips_per_op:.2} round trips, {bytes_per_op:.0} bytes"
        )?;
        if let Some(cpu) = figures.server_cpu_us_per_op {
            writeln!(out, "server CPU   {cpu:.2} us each")?;
        }
        if let Some(ratios) = &self.baseline_over_links {
            let Ratios { speed, round_trips, bytes, .. } = ratios;
            writeln!(
                out,
                "keys asked   {speed:.2} times the time, {round_trips:.2} the round trips, {bytes:.2} the bytes"
            )?;
        }
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
        links: LinksArgs,
    }

    fn measured() -> Measured {
        Measured {
            outcome: outcome(),
            hopped: Hopped { lookups: 1, chases: 9 },
            levels: Some(Levels(vec![1, 4, 2])),
            rounds: Vec::new(),
            loaded_bytes: Some(1 << 20),
            transport: "shm",
            is_software_rdma: false,
        }
    }

    #[test]
    fn the_json_object_has_every_field_of_the_contract_and_the_line_has_its_form() {
        let args = Flags::parse_from(["links", "--graph", "g", "--bfs", "1"]).links;
        let report = LinksReport::new(&args, &measured(), Some(&measured()));
        let mut out = Vec::new();
        report.print(true, &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        check_bench(&json, &["stale", "lookups", "chases", "ops", "reached"], &["form", "levels"]);
        assert_eq!((&json["reached"], &json["levels"]), (&7.into(), &"1|4|2".into()));
        assert_eq!(json["baseline_over_links"]["speed"], 1.0);
        out.clear();
        report.print(false, &mut out).unwrap();
        assert_eq!(out, b"7,1|4|2\n");
    }
}
