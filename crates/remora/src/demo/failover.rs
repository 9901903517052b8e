//! `remora demo --cluster`: a coordinator and three servers, of which the primary is killed under load.
//!
//! ```text
//!   writers ---- SET ----> the primary ---> two replicas        each counts what was acknowledged
//!   readers ---- GET ----> whichever server leads               no value is older than that
//! ```

use super::places::Places;
use anyhow::{Context, ensure};
use remora_bench::Records;
use remora_command_line::{Connection, note};
use remora_crash::{ClusterPlan, Members};
use remora_resp::Value;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SERVERS: usize = 3;
const SESSION_MS: u64 = 1000;
const WRITERS: usize = 4;
const READERS: usize = 2;
/// Keys of each writer.
const KEYS: usize = 250;
/// Requests of a writer that are sent together.
const PIPELINE: usize = 8;
/// Between two lines of the picture.
const LINE: Duration = Duration::from_millis(500);
/// Lines before the kill, and behind the first change that is acknowledged again.
const LINES_BEFORE: usize = 4;
const LINES_BEHIND: usize = 4;
/// Longest wait for the cluster to form, and to go on.
const LIMIT: Duration = Duration::from_secs(60);
/// After a refusal a client looks for the primary again.
const REST: Duration = Duration::from_millis(2);
/// Places that are sent together.
const LOAD_PIPELINE: usize = 1000;

/// What came of it.
#[derive(Debug, Serialize)]
pub struct FailoverReport {
    servers: usize,
    records: usize,
    session_ms: u64,
    pause_ms: u64,
    epochs: [u64; 2],
    acknowledged: u64,
    reads: u64,
    lost: u64,
    stale: u64,
}

/// What writers and readers share.
struct Load<'a> {
    addresses: &'a [String],
    /// By key, the greatest number that was acknowledged.
    acknowledged: Vec<AtomicU64>,
    changes: AtomicU64,
    reads: AtomicU64,
    stale: AtomicU64,
    /// Acknowledged numbers that a later change of the key has not found there.
    missed: AtomicU64,
    /// When the last change was acknowledged, us since `began`.
    last_us: AtomicU64,
    began: Instant,
    is_over: AtomicBool,
}

/// Runs it, and prints it.
pub fn run(json: bool) -> anyhow::Result<()> {
    let places = Places::load()?;
    let directory = tempfile::tempdir()?;
    let plan = ClusterPlan::in_memory(1, SESSION_MS);
    let mut members = Members::start(SERVERS, plan, (None, directory.path()))?;
    let status = members.wait_until_whole(LIMIT)?;
    let primary = status.primary.context("a cluster without a primary")?;
    let addresses: Vec<_> = members.places()?.iter().map(|of| of.resp.to_string()).collect();
    let mut picture = Picture::new(json);
    picture.say(&format!(
        "ZooKeeper and {SERVERS} servers, 2 shards each: server {} leads, the others are in sync",
        primary + 1
    ));
    load_places(&places, &addresses[primary])?;
    picture.say(&format!("loaded {} places", places.count()));
    let load = Load {
        addresses: &addresses,
        acknowledged: (0..WRITERS * KEYS).map(|_| AtomicU64::new(0)).collect(),
        changes: 0.into(),
        reads: 0.into(),
        stale: 0.into(),
        missed: 0.into(),
        last_us: 0.into(),
        began: Instant::now(),
        is_over: false.into(),
    };
    let (pause_ms, after) = std::thread::scope(|scope| {
        let load = &load;
        (0..WRITERS).for_each(|writer| _ = scope.spawn(move || write(load, writer)));
        (0..READERS).for_each(|reader| _ = scope.spawn(move || read(load, reader)));
        let shown = show(&mut members, (load, primary), &mut picture);
        load.is_over.store(true, Ordering::Relaxed);
        shown
    })
    .inspect_err(|_| members.note_state())?;
    let report = FailoverReport {
        servers: SERVERS,
        records: places.count(),
        session_ms: SESSION_MS,
        pause_ms,
        epochs: [status.epoch, after],
        acknowledged: load.changes.load(Ordering::Relaxed),
        reads: load.reads.load(Ordering::Relaxed),
        lost: load.missed.load(Ordering::Relaxed) + count_lost(&load, places.count())?,
        stale: load.stale.load(Ordering::Relaxed),
    };
    members.terminate()?;
    picture.end(&report)?;
    ensure!(report.lost == 0 && report.stale == 0, "a promise is broken");
    Ok(())
}

/// Kills the primary, and shows what happens. The pause, ms, and the epoch behind it.
fn show(
    members: &mut Members,
    (load, primary): (&Load<'_>, usize),
    picture: &mut Picture,
) -> anyhow::Result<(u64, u64)> {
    picture.begin();
    for _ in 0..LINES_BEFORE {
        picture.line(members, load)?;
    }
    members.kill(primary)?;
    let killed_us = load.began.elapsed().as_micros() as u64;
    picture.say(&format!("         server {} is killed (SIGKILL)", primary + 1));
    let until = Instant::now() + LIMIT;
    let first_us = loop {
        // A reply that was on its way counts for the time before.
        let last_us = load.last_us.load(Ordering::Relaxed);
        if last_us > killed_us + 50_000 {
            break last_us;
        }
        ensure!(Instant::now() < until, "no change is acknowledged within {LIMIT:?}");
        if picture.is_due() {
            picture.line(members, load)?;
        }
        std::thread::sleep(REST);
    };
    for _ in 0..LINES_BEHIND {
        picture.line(members, load)?;
    }
    Ok(((first_us - killed_us) / 1000, members.status()?.epoch))
}

fn load_places(places: &Places, address: &str) -> anyhow::Result<()> {
    let mut link = Connection::connect(address)?;
    let (mut waiting, mut buffer) = (0, Vec::new());
    for at in 0..places.count() {
        let index = at as u32;
        link.push(&[b"SET", places.key(index), places.value(index, &mut buffer)]);
        waiting += 1;
        if waiting == LOAD_PIPELINE || at + 1 == places.count() {
            link.flush()?;
            for _ in 0..std::mem::take(&mut waiting) {
                ensure!(!matches!(link.reply()?, Value::Error(_)), "a place is refused");
            }
        }
    }
    Ok(())
}

/// The server that leads, as far as a client can tell: it tries them in turn.
struct Guess<'a> {
    addresses: &'a [String],
    at: usize,
    link: Option<Connection>,
}

impl<'a> Guess<'a> {
    fn new(addresses: &'a [String], at: usize) -> Self {
        Self { addresses, at, link: None }
    }

    fn link(&mut self) -> Option<&mut Connection> {
        if self.link.is_none() {
            self.link = Connection::connect(&self.addresses[self.at]).ok();
        }
        self.link.as_mut()
    }

    fn next(&mut self) {
        (self.at, self.link) = ((self.at + 1) % self.addresses.len(), None);
        std::thread::sleep(REST);
    }
}

/// Counts up its own keys. A reply that is lost leaves a number unknown, and the next one is greater. Each
/// change brings what it has replaced: a number that was acknowledged and is lost would be covered otherwise
/// by the next one, or by one that is unknown.
fn write(load: &Load<'_>, writer: usize) {
    let mut primary = Guess::new(load.addresses, writer % load.addresses.len());
    let mut number = 0;
    while !load.is_over.load(Ordering::Relaxed) {
        let batch: Vec<_> = (0..PIPELINE)
            .map(|at| (writer * KEYS + (number as usize + at) % KEYS, number + at as u64 + 1))
            .collect();
        number += PIPELINE as u64;
        if send(load, primary.link(), &batch).is_none() {
            primary.next();
        }
    }
}

/// Sends a batch; `None` if not all of it was acknowledged.
fn send(load: &Load<'_>, link: Option<&mut Connection>, batch: &[(usize, u64)]) -> Option<()> {
    let link = link?;
    for (key, number) in batch {
        link.push(&[b"GETSET", key_of(*key).as_bytes(), number.to_string().as_bytes()]);
    }
    link.flush().ok()?;
    let mut all = Some(());
    for (key, number) in batch {
        match link.reply().ok()? {
            Value::Error(_) => all = None,
            replaced => {
                let replaced = number_of(&replaced)?;
                let before = load.acknowledged[*key].fetch_max(*number, Ordering::SeqCst);
                load.missed.fetch_add(u64::from(replaced < before), Ordering::Relaxed);
                load.changes.fetch_add(1, Ordering::Relaxed);
                let now_us = load.began.elapsed().as_micros() as u64;
                load.last_us.fetch_max(now_us, Ordering::Relaxed);
            }
        }
    }
    all
}

fn key_of(key: usize) -> String {
    format!("demo:counter:{key}")
}

/// Reads keys at whichever server answers, and compares with what was acknowledged before.
fn read(load: &Load<'_>, reader: usize) {
    let mut server = Guess::new(load.addresses, reader % load.addresses.len());
    let mut key = reader * 7;
    while !load.is_over.load(Ordering::Relaxed) {
        key = (key + 13) % load.acknowledged.len();
        let before = load.acknowledged[key].load(Ordering::SeqCst);
        match server.link().and_then(|link| get(link, key)) {
            Some(number) => {
                load.reads.fetch_add(1, Ordering::Relaxed);
                load.stale.fetch_add(u64::from(number < before), Ordering::Relaxed);
            }
            None => server.next(),
        }
    }
}

/// The number at a key, 0 if there is none; `None` if the server does not answer.
fn get(link: &mut Connection, key: usize) -> Option<u64> {
    link.push(&[b"GET", key_of(key).as_bytes()]);
    link.flush().ok()?;
    number_of(&link.reply().ok()?)
}

fn number_of(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Value::Null => Some(0),
        _ => None,
    }
}

/// Acknowledged changes, and places, that the primary does not have now.
fn count_lost(load: &Load<'_>, places: usize) -> anyhow::Result<u64> {
    let mut server = Guess::new(load.addresses, 0);
    let until = Instant::now() + LIMIT;
    let mut lost = 0;
    for (key, acknowledged) in load.acknowledged.iter().enumerate() {
        let number = loop {
            ensure!(Instant::now() < until, "no server answers");
            match server.link().and_then(|link| get(link, key)) {
                Some(number) => break number,
                None => server.next(),
            }
        };
        lost += u64::from(number < acknowledged.load(Ordering::SeqCst));
    }
    let link = server.link().context("no server answers")?;
    link.push(&[b"DBSIZE"]);
    link.flush()?;
    let written = load.acknowledged.iter().filter(|of| of.load(Ordering::SeqCst) > 0).count();
    match link.reply()? {
        Value::Integer(keys) => Ok(lost + ((places + written) as u64).saturating_sub(keys as u64)),
        other => anyhow::bail!("unexpected reply to DBSIZE: {other:?}"),
    }
}

/// What a person sees: a line for each half second.
struct Picture {
    json: bool,
    began: Instant,
    lines: usize,
    counted: (u64, Instant),
}

impl Picture {
    fn new(json: bool) -> Self {
        let now = Instant::now();
        Self { json, began: now, lines: 0, counted: (0, now) }
    }

    fn say(&self, line: &str) {
        match self.json {
            true => note(line),
            // Without a reader the demo goes on.
            false => _ = writeln!(std::io::stdout(), "{line}"),
        }
    }

    fn begin(&mut self) {
        self.say("    time   server 1   server 2   server 3   changes/s");
        (self.began, self.lines) = (Instant::now(), 0);
        self.counted.1 = self.began;
    }

    fn is_due(&self) -> bool {
        self.began.elapsed() >= LINE * (self.lines as u32 + 1)
    }

    fn line(&mut self, members: &Members, load: &Load<'_>) -> anyhow::Result<()> {
        while !self.is_due() {
            std::thread::sleep(REST);
        }
        let changes = load.changes.load(Ordering::Relaxed);
        let (before, since) = std::mem::replace(&mut self.counted, (changes, Instant::now()));
        let rate = (changes - before) as f64 / since.elapsed().as_secs_f64();
        let status = members.status()?;
        let word = |server: usize| match () {
            () if !members.is_alive(server) && status.primary == Some(server) => "dead, leads",
            () if !members.is_alive(server) => "dead",
            () if status.primary == Some(server) => "PRIMARY",
            () if status.in_sync.contains(&server) => "in sync",
            () => "-",
        };
        let seconds = self.began.elapsed().as_secs_f64();
        self.lines = (seconds / LINE.as_secs_f64()) as usize;
        let [one, two, three] = [0, 1, 2].map(word);
        self.say(&format!("{seconds:6.1} s   {one:8}   {two:8}   {three:8}   {rate:9.0}"));
        Ok(())
    }

    fn end(&self, report: &FailoverReport) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, report)?;
            return Ok(writeln!(out)?);
        }
        let FailoverReport { pause_ms, session_ms, acknowledged, lost, stale, .. } = report;
        writeln!(
            out,
            "pause {pause_ms} ms, of which ZooKeeper takes about {session_ms} to notice; acknowledged {acknowledged}, lost {lost}, stale {stale}"
        )?;
        Ok(())
    }
}
