//! `remora bench elements`: ranges of a list, members of a set, or calls of a sorted set, asked for or read
//! from memory.

use crate::bounds::within;
use crate::costs::{Costs, costs_of};
use crate::meter::Meter;
use crate::run::{Figures, Outcome, Share, side_by_side};
use crate::scores::{BATCH, Call, ELEMENT_BYTES, Scores, element, scattered};
use anyhow::ensure;
use clap::{Args, ValueEnum};
use remora_client_core::{Client, OpenList, OpenSet, Options, Path, Session, Side};
use remora_command_line::{
    Address, ProcessCpu, ServerPlan, ServerProcess, Transport, Wake, connect, show_by_name, usage,
};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

const KEY: &[u8] = b"bench:elements";
const MAX_RECORDS: usize = 10_000_000;
const MAX_OPS: usize = 1_000_000_000;
const MAX_RANGE: usize = 10_000;

/// What the key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Of {
    /// A list: LRANGE.
    #[default]
    List,
    /// A set: SISMEMBER of members.
    Set,
    /// A sorted set: see `--call`.
    Sorted,
}
show_by_name!(Of);

/// The path of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum ElementsPath {
    /// A request.
    Ask,
    /// READs, as far as they decide.
    #[default]
    Read,
}
show_by_name!(ElementsPath);

impl ElementsPath {
    fn of_client(self) -> Path {
        match self {
            Self::Ask => Path::Ask,
            Self::Read => Path::Read,
        }
    }
}

/// Flags of `remora bench elements`.
#[derive(Clone, Debug, Args)]
pub struct ElementsArgs {
    /// What the key holds.
    #[arg(long, value_enum, default_value_t = Of::List)]
    pub of: Of,
    /// What is done with a sorted set.
    #[arg(long, value_enum, default_value_t = Call::Score)]
    pub call: Call,
    /// By which path.
    #[arg(long, value_enum, default_value_t = ElementsPath::Read)]
    pub path: ElementsPath,
    /// How the client reaches the server.
    #[arg(long, value_enum, default_value_t = Transport::Shm)]
    pub transport: Transport,
    /// Elements, of 20 bytes each.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub records: usize,
    /// Operations.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub ops: usize,
    /// Elements of a range: of a list from the first one on, of a sorted set from any score on.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub range: usize,
    /// Counts the first look at each member, too: nothing is read before.
    #[arg(long)]
    pub cold: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// One run, with all parameters needed to repeat it.
#[derive(Clone, Debug, Serialize)]
struct ElementsReport {
    #[serde(flatten)]
    figures: Figures,
    asked: u64,
    read: u64,
    command: String,
}

/// The key, as a session sees it.
enum View {
    List(OpenList),
    Set(OpenSet),
    Sorted(Box<Scores>),
}

/// A session and what it looks at.
struct Elements<'a> {
    args: &'a ElementsArgs,
    session: Session,
    view: View,
}

impl<'a> Elements<'a> {
    fn open(args: &'a ElementsArgs, client: &Client) -> anyhow::Result<Self> {
        let session = client.session()?;
        let view = match args.of {
            Of::List => View::List(session.open_list(KEY)?),
            Of::Set => View::Set(session.open_set(KEY)?),
            Of::Sorted => {
                let ElementsArgs { call, records, range, .. } = *args;
                let view = session.open_sorted(KEY)?;
                let path = args.path.of_client();
                View::Sorted(Box::new(Scores { view, records, range, call, path, calls: 0 }))
            }
        };
        Ok(Self { args, session, view })
    }

    fn load(&mut self) -> anyhow::Result<()> {
        for first in (0..self.args.records).step_by(BATCH) {
            let to = self.args.records.min(first + BATCH);
            let texts: Vec<_> = (first..to).map(element).collect();
            let some: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
            match &mut self.view {
                View::List(list) => drop(self.session.list_push(list, Side::Right, &some)?),
                View::Set(set) => drop(self.session.set_add(set, &some)?),
                View::Sorted(scores) => scores.add(&mut self.session, first..to)?,
            }
        }
        match &self.view {
            View::Sorted(scores) => scores.add_other(&mut self.session),
            _ => Ok(()),
        }
    }

    /// One operation, whose result is checked. Members come in an order without a pattern.
    fn once(&mut self, number: usize) -> anyhow::Result<()> {
        let path = self.args.path.of_client();
        match &mut self.view {
            View::List(list) => {
                let range = (0, self.args.range as i64 - 1);
                let found = self.session.list_range(list, range, path)?.items;
                let wanted = self.args.range.min(self.args.records);
                let are_right = found.len() == wanted
                    && found.last().is_some_and(|last| last[..] == element(wanted - 1));
                ensure!(are_right, "a range has other elements");
            }
            View::Set(set) => {
                let member = element(scattered(number, self.args.records));
                let found = self.session.set_has(set, &member, path)?;
                ensure!(found.value.is_some(), "a member is missing");
            }
            View::Sorted(scores) => scores.once(&mut self.session, number)?,
        }
        Ok(())
    }

    fn measure(mut self) -> anyhow::Result<Share> {
        let before = costs_of(&self.session);
        let mut meter = Meter::start(1, None)?;
        for number in 0..self.args.ops {
            meter.measure(1, |_| self.once(number))?;
        }
        Ok(Share { meter, ended: Instant::now(), costs: costs_of(&self.session) - before })
    }
}

/// Refuses what a call on a sorted set cannot do.
fn check_call(args: &ElementsArgs) -> anyhow::Result<()> {
    if args.of != Of::Sorted {
        return Ok(());
    }
    if args.path == ElementsPath::Read && !args.call.is_read() {
        return Err(usage(format!("--call {} needs --path ask", args.call)));
    }
    if args.call == Call::Pop && (args.ops > args.records || !args.cold) {
        return Err(usage("--call pop needs --cold, and as many --records as --ops at least"));
    }
    Ok(())
}

/// Runs the bench, at a server of its own with one shard.
pub fn run(args: &ElementsArgs) -> anyhow::Result<()> {
    within("--records", args.records, 1, MAX_RECORDS)?;
    within("--ops", args.ops, 1, MAX_OPS)?;
    within("--range", args.range, 1, MAX_RANGE)?;
    check_call(args)?;
    let plan = ServerPlan {
        shards: 1,
        wake: Wake::Event,
        over_tcp: args.transport.is_remote(),
        ..ServerPlan::with_room(args.records, 0, ELEMENT_BYTES)
    };
    let server = ServerProcess::start(&plan)?;
    let address = match args.transport.is_remote() {
        true => Address::Resp(server.resp_address().to_string()),
        false => Address::Socket(server.socket_path().to_path_buf()),
    };
    let options = Options {
        transport: args.transport.wanted(),
        pointer_cache_entries: Options::default().pointer_cache_entries.max(2 * args.records),
        ..Options::default()
    };
    let client = connect(address.of_sessions(args.transport)?, &options)?;
    Elements::open(args, &client)?.load()?;
    let prepare = |_| {
        let mut elements = Elements::open(args, &client)?;
        for number in (0..args.ops).filter(|_| !args.cold) {
            elements.once(number)?;
        }
        anyhow::Ok(elements)
    };
    let work = |elements: Elements<'_>| elements.measure();
    let cpu = ProcessCpu::of(server.pid());
    let (shares, spent) = side_by_side(1, &[], cpu, &prepare, &work)?;
    let outcome = Outcome::of(shares, spent)?;
    server.stop()?;
    print(args, &outcome, &mut std::io::stdout().lock())
}

fn print(args: &ElementsArgs, outcome: &Outcome, out: &mut impl Write) -> anyhow::Result<()> {
    let ElementsArgs { of, call, path, transport, records, ops, range, cold, json } = args;
    let cold = if *cold { " --cold" } else { "" };
    let call = if *of == Of::Sorted { format!(" --call {call}") } else { String::new() };
    let command = format!(
        "remora bench elements --of {of}{call} --path {path} --transport {transport} --records {records} \
         --ops {ops} --range {range}{cold}"
    );
    let Costs { asked, read, .. } = outcome.costs;
    let report = ElementsReport { figures: outcome.figures(), asked, read, command };
    if *json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    let Figures { ops_per_s, p50_us, p99_us, round_trips_per_op, bytes_per_op, .. } =
        report.figures;
    writeln!(out, "{ops_per_s:.0} operations/s, p50 {p50_us:.2} us, p99 {p99_us:.2} us")?;
    writeln!(out, "{round_trips_per_op:.3} round trips, {bytes_per_op:.0} bytes an operation")?;
    writeln!(out, "{read} by READs alone, {asked} asked")?;
    if let Some(cpu) = report.figures.server_cpu_us_per_op {
        writeln!(out, "{cpu:.4} us of the server's CPU an operation")?;
    }
    writeln!(out, "{}", report.command)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_twenty_bytes() {
        assert_eq!(&element(0), b"element:000000000000");
        assert_eq!(&element(1_020_304), b"element:000001020304");
    }
}
