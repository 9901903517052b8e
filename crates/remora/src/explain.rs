//! `remora explain`: executes an operation some times and reports for each path: the reason for the
//! choice, the expected costs of both paths, and the time.

use anyhow::Context;
use clap::{Args, Subcommand};
use remora_client_core::{
    Counts, Explanation, OpenTree, Options, Path, Predicate, Query, Rect, Route, ServedBy, Session,
};
use remora_command_line::{Address, DEFAULT_SERVER, Policy, Transport, connect, usage};
use remora_plan::{Explain, Limit, Plan, text};
use serde::Serialize;
use std::io::Write;

/// Flags of `remora explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The operation.
    #[command(subcommand)]
    pub operation: Operation,
    /// How it is chosen.
    #[arg(long, value_enum, default_value_t = Policy::Cost, global = true)]
    pub policy: Policy,
    /// How often it is done. The first times a session knows nothing yet.
    #[arg(long, value_name = "N", default_value_t = 1000, global = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub times: u32,
    /// What carries it.
    #[arg(long, value_enum, default_value_t = Transport::Auto, global = true)]
    pub transport: Transport,
    /// The server: path of its Unix socket, or HOST:PORT of its RESP port.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER, global = true)]
    pub server: Address,
    /// Prints one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
}

/// An operation that can be asked for or read.
#[derive(Debug, Subcommand)]
pub enum Operation {
    /// The value of a key.
    Get {
        /// The key.
        key: String,
    },
    /// The objects of a tree that intersect a window.
    #[command(allow_negative_numbers = true)]
    Search {
        /// The tree.
        tree: String,
        /// The window.
        min_x: f64,
        /// The window.
        min_y: f64,
        /// The window.
        max_x: f64,
        /// The window.
        max_y: f64,
    },
    /// The objects of a tree that are nearest to a point.
    #[command(allow_negative_numbers = true)]
    Nearest {
        /// The tree.
        tree: String,
        /// The point.
        x: f64,
        /// The point.
        y: f64,
        /// How many.
        count: usize,
    },
    /// A plan over links and keys, in the words of PLAN.RUN: docs/plans.md. Flags stand in front of it
    /// or behind it; if a word of it begins with a dash, behind -- only the plan.
    #[command(allow_negative_numbers = true)]
    Plan {
        /// FROM, a start, steps and limits.
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
    },
}

/// The results of one path's runs.
#[derive(Debug, Serialize)]
struct WayReport {
    way: &'static str,
    times: u64,
    /// Asked for after reading did not conclude.
    fell_back: u64,
    /// Means, us; null where nothing was known.
    expected_ask_us: Option<f64>,
    expected_read_us: Option<f64>,
    actual_us: f64,
    round_trips: f64,
    bytes: f64,
    nodes: f64,
    /// Only of a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanReport>,
    /// How old the oldest result may have been, ms; only from a replica, null if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_ms: Option<Option<f64>>,
    /// The explanation of the last run.
    last: String,
}

/// What the runs of a plan did, means for each run.
#[derive(Debug, Serialize)]
struct PlanReport {
    /// Links and keys followed.
    hops: f64,
    /// Items, lists, elements and objects looked at.
    visits: f64,
    /// Batches of items that were fetched together.
    batches: f64,
    /// Hints that led to no record of their link's key; 0 where the server follows them.
    stale_hints: f64,
    /// Runs that reached a limit.
    limited: u64,
    /// The limit of the last of them, by its name in LIMIT.
    limit: Option<&'static str>,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    policy: String,
    transport: &'static str,
    /// The results of the last run: objects, rows of a plan, or 1 for a key that exists.
    results: usize,
    ways: Vec<WayReport>,
}

/// The observations of one path.
#[derive(Default)]
struct Seen {
    explanations: Vec<Explanation>,
    counts: Counts,
    plan: Option<PlanSums>,
}

/// The sums over a path's runs of a plan.
#[derive(Default)]
struct PlanSums {
    explain: Explain,
    limited: u64,
    limit: Option<Limit>,
}

/// One run of the operation.
struct Done {
    results: usize,
    counts: Counts,
    /// Of a plan: what it did, and the limit that it reached.
    plan: Option<(Explain, Option<Limit>)>,
}

/// Does it.
///
/// # Errors
/// The plan is none, which is an error of usage; there is no server, no such tree, or the window is none.
pub fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let plan = args.operation.plan()?;
    let options = Options {
        transport: args.transport.wanted(),
        policy: args.policy.into(),
        ..Options::default()
    };
    let server = args.server.of_sessions(args.transport)?;
    let mut session = connect(server, &options)?.session()?;
    session.explain(true);
    let mut target = Target::open(&args.operation, plan, &mut session)?;
    let (mut seen, mut results) = ([Seen::default(), Seen::default()], 0);
    for _ in 0..args.times {
        let done = target.operate(&mut session)?;
        results = done.results;
        let explanation = session.explanation().context("the operation was not explained")?;
        let one = &mut seen[(explanation.route == Route::Read) as usize];
        one.explanations.push(explanation);
        one.add(&done);
    }
    let ways = seen.iter().filter_map(Seen::report).collect();
    let transport = session.transport().name();
    let report = Report { policy: args.policy.to_string(), transport, results, ways };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "{} times by policy {} over {transport}, {results} results",
        args.times, report.policy
    )?;
    report.ways.iter().try_for_each(|way| way.print(&mut out))
}

impl Operation {
    /// The plan, if the operation is one: a bad one is refused before a server is needed.
    fn plan(&self) -> anyhow::Result<Option<Plan>> {
        let Self::Plan { words } = self else { return Ok(None) };
        let query = text::parse(words).map_err(|error| usage(error.to_string()))?;
        Ok(Some(query.plan))
    }
}

/// The target of the operation.
enum Target<'a> {
    Key(&'a str),
    Tree(Box<OpenTree>, Query),
    Plan(Plan),
}

impl<'a> Target<'a> {
    fn open(
        operation: &'a Operation,
        plan: Option<Plan>,
        session: &mut Session,
    ) -> anyhow::Result<Self> {
        if let Some(plan) = plan {
            // What is read before the server has answered once is of an unknown age, as if it came from a
            // replica. So the session asks first, as it does to open a tree.
            session.exists(plan.start().first_key().map_or(b"", |key| key))?;
            return Ok(Self::Plan(plan));
        }
        let mut open = |name: &str| {
            let tree = session.open_tree(name.as_bytes())?.map(Box::new);
            tree.with_context(|| format!("there is no tree {name}; remora import makes one"))
        };
        Ok(match operation {
            Operation::Get { key } => Self::Key(key),
            Operation::Search { tree, min_x, min_y, max_x, max_y } => {
                let window = Rect::new(*min_x, *max_x, *min_y, *max_y)?;
                Self::Tree(open(tree)?, Query::Window { window, predicate: Predicate::Intersects })
            }
            Operation::Nearest { tree, x, y, count } => {
                Self::Tree(open(tree)?, Query::Nearest { x: *x, y: *y, wanted: *count })
            }
            Operation::Plan { .. } => unreachable!("the plan was given"),
        })
    }

    fn operate(&mut self, session: &mut Session) -> anyhow::Result<Done> {
        Ok(match self {
            Self::Key(key) => {
                let got = session.get(key.as_bytes(), Path::Choose)?;
                Done { results: got.value.is_some() as usize, counts: got.counts, plan: None }
            }
            Self::Tree(tree, query) => {
                let found = session.search_tree(tree, query, Path::Choose)?;
                Done { results: found.objects.len(), counts: found.counts, plan: None }
            }
            Self::Plan(plan) => {
                let run = session.run_plan(plan, Path::Choose)?;
                let of_plan = Some((run.outcome.explain, run.outcome.limit));
                Done { results: run.outcome.rows.len(), counts: run.counts, plan: of_plan }
            }
        })
    }
}

impl Seen {
    fn add(&mut self, done: &Done) {
        self.counts.add(&done.counts);
        if let Some((explain, limit)) = &done.plan {
            let sums = self.plan.get_or_insert_default();
            sums.explain += explain;
            sums.limited += u64::from(limit.is_some());
            sums.limit = limit.or(sums.limit);
        }
    }

    fn report(&self) -> Option<WayReport> {
        let last = self.explanations.last()?;
        let times = self.explanations.len() as f64;
        let mean = |of: &dyn Fn(&Explanation) -> Option<f64>| {
            let known: Vec<f64> = self.explanations.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64 / 1000.0)
        };
        let fell_back = |one: &&Explanation| one.served_by == ServedBy::AskedAfterRead;
        Some(WayReport {
            way: if last.route == Route::Ask { "ask" } else { "read" },
            times: self.explanations.len() as u64,
            fell_back: self.explanations.iter().filter(fell_back).count() as u64,
            expected_ask_us: mean(&|one| one.ask_ns),
            expected_read_us: mean(&|one| one.read_ns),
            actual_us: mean(&|one| Some(one.actual_ns as f64)).unwrap_or_default(),
            round_trips: self.counts.round_trips as f64 / times,
            bytes: self.counts.bytes as f64 / times,
            nodes: self.counts.nodes as f64 / times,
            plan: self.plan.as_ref().map(|sums| sums.report(times, &self.counts)),
            lag_ms: lag_ms(self.counts.lag_ns),
            last: last.to_string(),
        })
    }
}

impl PlanSums {
    fn report(&self, times: f64, counts: &Counts) -> PlanReport {
        PlanReport {
            hops: self.explain.hops as f64 / times,
            visits: self.explain.visits() as f64 / times,
            batches: self.explain.batches as f64 / times,
            stale_hints: counts.stale_hints as f64 / times,
            limited: self.limited,
            limit: self.limit.map(Limit::name),
        }
    }
}

/// How old results of a replica may be, ms.
fn lag_ms(lag_ns: u64) -> Option<Option<f64>> {
    (lag_ns != 0).then(|| (lag_ns != u64::MAX).then_some(lag_ns as f64 / 1e6))
}

impl WayReport {
    fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { way, times, fell_back, round_trips, bytes, nodes, .. } = self;
        let us = |us: Option<f64>| us.map_or("unknown".into(), |us| format!("{us:.2} us"));
        let (ask, read) = (us(self.expected_ask_us), us(self.expected_read_us));
        writeln!(out, "{way:<5} {times} times, {fell_back} of them asked after all")?;
        writeln!(out, "      expected ask {ask}, read {read}; took {:.2} us", self.actual_us)?;
        writeln!(
            out,
            "      {round_trips:.2} round trips, {bytes:.0} bytes, {nodes:.2} nodes or records read"
        )?;
        if let Some(plan) = &self.plan {
            plan.print(out)?;
        }
        match self.lag_ms {
            Some(Some(ms)) => writeln!(out, "      from a replica, at most {ms:.1} ms old")?,
            Some(None) => writeln!(out, "      from a replica, of an unknown age")?,
            None => {}
        }
        writeln!(out, "      last: {}", self.last)?;
        Ok(())
    }
}

impl PlanReport {
    fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { hops, visits, batches, stale_hints, limited, limit } = self;
        writeln!(
            out,
            "      {hops:.2} hops, {visits:.2} visits in {batches:.2} batches, {stale_hints:.2} stale hints"
        )?;
        if let Some(limit) = limit {
            writeln!(out, "      limit {limit} reached {limited} times: rows are missing")?;
        }
        Ok(())
    }
}
