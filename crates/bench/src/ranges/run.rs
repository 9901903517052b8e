//! Loading the tree, learning what to keep, and one client's timed part.

use super::args::{LoadOrder, NUMBER_BYTES, RangesArgs};
use crate::costs::costs_of;
use crate::meter::{Meter, SAMPLE_EVERY};
use crate::run::Share;
use crate::workload::{Dist, Op, Scatter, Source, Workload};
use anyhow::{Context, ensure};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client_core::{Client, Error, KeyForm, OpenOrdered, OrderedInfo, Path, Session};
use remora_command_line::note;
use remora_layout::packed::Field;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use std::ops::{AddAssign, Bound};
use std::time::{Duration, Instant};

/// Name of the bench's tree. One that is left of a run that was killed is replaced.
const TREE: &[u8] = b"remora-bench-ranges";
/// Writes that are under way while loading.
const OUTSTANDING: usize = 64;
/// Round trips that are told apart; the last number counts all beyond.
pub const TOLD_APART: usize = 9;
/// Stream of the generator for what clients learn by.
const LEARNING: u64 = 1 << 40;

/// The keys and values of records.
#[derive(Clone, Copy, Debug)]
pub struct Texts {
    keys: KeyForm,
    key_bytes: usize,
    value_bytes: usize,
}

impl Texts {
    /// Those of a run.
    pub fn of(args: &RangesArgs) -> Self {
        let settings = args.settings();
        Self { keys: settings.keys, key_bytes: args.key_bytes, value_bytes: args.value_bytes }
    }

    /// Writes a record's key; records are ordered as their keys.
    fn key(&self, index: u32, into: &mut String) {
        use std::fmt::Write;
        into.clear();
        let written = match self.keys {
            KeyForm::Integers => write!(into, "{index}"),
            KeyForm::Bytes => write!(into, "{index:0>width$}", width = self.key_bytes),
        };
        written.expect("a String takes all");
    }

    /// Writes a record's value.
    fn value(&self, index: u32, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&u64::from(index).to_le_bytes());
        into.resize(self.value_bytes, index as u8);
    }

    fn is_right(&self, index: u32, value: &[u8]) -> bool {
        value.len() == self.value_bytes
            && value.first_chunk::<NUMBER_BYTES>() == Some(&u64::from(index).to_le_bytes())
    }
}

/// Makes the tree anew and loads it. Gives how long that took.
pub fn load(client: &Client, args: &RangesArgs) -> anyhow::Result<Duration> {
    let mut session = client.session()?;
    session.del(TREE)?;
    let open = session.open_ordered(TREE)?;
    ensure!(
        session.ordered_create(&open, args.settings())?,
        "another run has just made the bench's tree"
    );
    let (began, count, texts) = (Instant::now(), args.records as u32, Texts::of(args));
    let (mut key, mut value, mut noted) = (String::new(), Vec::new(), began);
    let scatter = Scatter::over(count);
    for number in 0..count {
        let index = match args.load {
            LoadOrder::Ascending => number,
            LoadOrder::Descending => count - 1 - number,
            LoadOrder::Random => scatter.place(number),
        };
        texts.key(index, &mut key);
        texts.value(index, &mut value);
        let value = Field { value: &value, is_link: false };
        let request = OrderedCommand::Set { key: key.as_bytes(), value }.request();
        session.submit(&Command::Of { key: TREE, request })?;
        if session.in_flight() >= OUTSTANDING {
            take_replies(&mut session, OUTSTANDING / 2)?;
        }
        if noted.elapsed() > Duration::from_secs(1) {
            noted = Instant::now();
            note(&format!("loading: {number} of {count} records"));
        }
    }
    take_replies(&mut session, 0)?;
    let took = began.elapsed();
    note(&format!("loaded {count} records in {:.2} s", took.as_secs_f64()));
    Ok(took)
}

fn take_replies(session: &mut Session, left: usize) -> anyhow::Result<()> {
    let mut refused = None;
    while session.in_flight() > left {
        session.next_reply(&mut |_, reply| {
            if reply.status != Status::Ok {
                refused = Some(reply.status);
            }
        })?;
    }
    match refused {
        Some(status) => Err(Error::Refused(status)).context("loading records"),
        None => Ok(()),
    }
}

/// Removes the tree.
pub fn unload(client: &Client) -> anyhow::Result<()> {
    client.session()?.del(TREE)?;
    Ok(())
}

/// What the tree is now.
pub fn info(client: &Client) -> anyhow::Result<OrderedInfo> {
    let mut session = client.session()?;
    let open = session.open_ordered(TREE)?;
    session.ordered_info(&open)?.context("the bench's tree is gone")
}

/// What a client looks up.
#[derive(Clone, Debug)]
pub struct Lookups {
    /// In the timed part, and while it learns.
    usual: Workload,
    /// Of the other distribution, with the share that it has.
    other: Option<(Workload, f64)>,
    learn: usize,
}

impl Lookups {
    /// Those of a run.
    pub fn of(args: &RangesArgs) -> Self {
        let records = args.records as u32;
        let workload = |dist: &Dist| Workload {
            source: match dist {
                Dist::Zipf(exponent) => Source::Zipf(*exponent, Some(Scatter::over(records))),
                Dist::Uniform | Dist::File(_) => Source::Uniform,
            },
            records,
            ops: args.ops,
            clients: args.clients,
            reads: args.reads,
            seed: args.seed,
        };
        let other = args.query_dist.as_ref().map(|dist| (workload(dist), args.changed));
        Self { usual: workload(&args.dist), other, learn: args.learn }
    }

    /// The records by whose lookups a client learns.
    fn learning(&self, client: usize) -> anyhow::Result<Vec<Op>> {
        let seed = self.usual.seed ^ LEARNING;
        let ops = self.learn * self.usual.clients;
        Workload { ops, reads: 1.0, seed, ..self.usual.clone() }.of_client(client)
    }

    /// A client's operations in the timed part.
    fn timed(&self, client: usize) -> anyhow::Result<Vec<Op>> {
        let usual = self.usual.of_client(client)?;
        let Some((other, changed)) = &self.other else { return Ok(usual) };
        let mut rng = ChaCha8Rng::seed_from_u64(self.usual.seed ^ LEARNING);
        rng.set_stream(client as u64);
        let records = self.usual.records;
        let others = other.of_client(client)?.into_iter().map(|op| {
            // Other records are popular.
            let index = (op.index() + records / 2) % records;
            if op.is_write() { Op::set(index) } else { Op::get(index) }
        });
        let choose = |(usual, other)| if rng.random::<f64>() < *changed { other } else { usual };
        Ok(usual.into_iter().zip(others).map(choose).collect())
    }
}

/// What the operations of clients came to, beside their costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Lookups of keys or ranges.
    pub lookups: u64,
    /// Of them by READs alone.
    pub by_reads: u64,
    /// Entries found.
    pub entries: u64,
    /// Records set.
    pub writes: u64,
    /// Nodes that READs led through, the kept ones among them.
    pub nodes_visited: u64,
    /// Lookups by their round trips, from none on; the last one counts all beyond.
    pub by_round_trips: [u64; TOLD_APART],
    /// Bytes of kept nodes, and how many, at the end, of all clients.
    pub kept: (usize, usize),
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.by_reads += other.by_reads;
        self.entries += other.entries;
        self.writes += other.writes;
        self.nodes_visited += other.nodes_visited;
        for (sum, more) in self.by_round_trips.iter_mut().zip(other.by_round_trips) {
            *sum += more;
        }
        self.kept = (self.kept.0 + other.kept.0, self.kept.1 + other.kept.1);
    }
}

/// One client: its session, its view of the tree, and what it is going to do.
pub struct Reader {
    session: Session,
    tree: OpenOrdered,
    texts: Texts,
    path: Path,
    range_len: usize,
    records: u32,
    ops: Vec<Op>,
}

impl Reader {
    /// A client that has learnt which nodes are worth keeping.
    pub fn prepare(
        client: &Client,
        args: &RangesArgs,
        lookups: &Lookups,
        number: usize,
    ) -> anyhow::Result<Self> {
        let session = client.session()?;
        let mut tree = session.open_ordered(TREE)?;
        tree.set_cache(args.cache());
        tree.set_parallel((args.parallel > 0).then_some(args.parallel));
        let mut reader = Self {
            session,
            tree,
            texts: Texts::of(args),
            path: args.session_path(),
            range_len: args.range_len,
            records: args.records as u32,
            ops: lookups.timed(number)?,
        };
        let mut key = String::new();
        // A client that always asks has nothing to learn.
        let learning =
            if reader.path == Path::Ask { Vec::new() } else { lookups.learning(number)? };
        for op in learning {
            reader.texts.key(op.index(), &mut key);
            reader.look_up(op.index(), &key, &mut Found::default())?;
        }
        if !args.adapts() {
            reader.tree.settle_cache();
        }
        Ok(reader)
    }

    /// Does its operations and measures them.
    pub fn drive(mut self) -> anyhow::Result<(Share, Found)> {
        let before = costs_of(&self.session);
        let mut found = Found::default();
        let mut meter = Meter::start(SAMPLE_EVERY, None)?;
        let (mut key, mut value) = (String::new(), Vec::new());
        for op in std::mem::take(&mut self.ops) {
            self.texts.key(op.index(), &mut key);
            meter.measure(1, |tally| {
                if op.is_write() {
                    self.texts.value(op.index(), &mut value);
                    let is_new =
                        self.session.ordered_set(&self.tree, key.as_bytes(), (&value, false))?;
                    tally.missing += u64::from(is_new);
                    found.writes += 1;
                    return Ok(());
                }
                let (missing, wrong) = self.look_up(op.index(), &key, &mut found)?;
                tally.missing += missing;
                tally.wrong += wrong;
                Ok(())
            })?;
        }
        let ended = Instant::now();
        found.kept = self.tree.cached();
        Ok((Share { meter, ended, costs: costs_of(&self.session) - before }, found))
    }

    /// Looks a key up, or those from it on. How many are missing, and how many wrong.
    fn look_up(&mut self, index: u32, key: &str, found: &mut Found) -> anyhow::Result<(u64, u64)> {
        match self.range_len {
            0 => self.get(index, key, found),
            _ => self.range(index, key, found),
        }
    }

    /// Looks one key up. How many are missing, and how many wrong.
    fn get(&mut self, index: u32, key: &str, found: &mut Found) -> anyhow::Result<(u64, u64)> {
        let got = self.session.ordered_get(&mut self.tree, key.as_bytes(), self.path)?;
        note_lookup(found, got.counts.round_trips, got.nodes_visited);
        Ok(match got.value {
            Some(value) => {
                found.entries += 1;
                (0, u64::from(!self.texts.is_right(index, &value.value)))
            }
            None => (1, 0),
        })
    }

    /// Looks up the keys from this one on. The same.
    fn range(&mut self, index: u32, key: &str, found: &mut Found) -> anyhow::Result<(u64, u64)> {
        let range = OrderedRange { from: Bound::Included(key.as_bytes()), to: Bound::Unbounded };
        let limit = self.range_len as u64;
        let got = self.session.ordered_range(&mut self.tree, range, (false, limit), self.path)?;
        note_lookup(found, got.counts.round_trips, got.nodes_visited);
        let expected = u64::from(self.records - index).min(limit);
        let entries = got.entries.len() as u64;
        found.entries += entries;
        let mut wanted = String::new();
        let wrong = got.entries.iter().zip(index..).filter(|((key, value), index)| {
            self.texts.key(*index, &mut wanted);
            key != wanted.as_bytes() || !self.texts.is_right(*index, &value.value)
        });
        Ok((expected.abs_diff(entries), wrong.count() as u64))
    }
}

fn note_lookup(found: &mut Found, round_trips: u64, nodes_visited: u64) {
    found.lookups += 1;
    found.by_reads += u64::from(nodes_visited > 0);
    found.nodes_visited += nodes_visited;
    found.by_round_trips[(round_trips as usize).min(TOLD_APART - 1)] += 1;
}
