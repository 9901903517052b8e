//! What a replica makes of the logs of all shards of its primary: out of their rings, and on to the
//! shards of this server.
//!
//! Invariants:
//! * it gives each shard a bounded number of batches; while they are under way it takes nothing more
//!   out of the rings, and the primary has to wait;
//! * after a link is lost it goes on where it was, or with a new copy, never with a mixture;
//! * what lies in the rings when a link ends is not lost: it is taken before the next link.

use super::batch::{Batch, Body, LogPart};
use super::fit::check;
use super::gate::Gate;
use super::host::Host;
use super::state::Following;
use remora_client_core::Subscriber;
use remora_layout::limits::{APPLY_BATCHES, COPY_TOLD_EVERY_MS, FEED_MESSAGES_PER_TURN};
use remora_protocol::message::{ACKNOWLEDGE, FOLLOW, RequestHeader};
use remora_replica::{Follower, Heard, PrimaryFacts};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Why a link is given up.
pub enum Ended {
    /// There is something else to do.
    Called,
    /// It is made again after a pause.
    Failed(String),
}

impl<E: std::error::Error> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

/// See the module's text. It follows one primary, link after link, and waits for nothing itself.
pub struct Worker<H> {
    host: H,
    /// By shard of the primary.
    logs: Vec<Follower>,
    /// By shard of the primary, the end of a copy that may not be shown yet, as the primary has not
    /// acknowledged all that is in it: its sequence and epoch.
    copied: Vec<Option<(u64, u64)>>,
    /// By shard of the primary, the batches after which the shards of this server have its copy.
    loading: Vec<Vec<u64>>,
    /// By shard of this server, the batches that it was given.
    given: Vec<u64>,
    /// What the shards have is of this primary, or nothing.
    is_cleared: bool,
    /// When a copy that is under way was last told of in the log.
    copy_told: Instant,
}

impl<H: Host> Worker<H> {
    /// Of a server with so many shards, from nothing.
    pub fn new(host: H, shards: usize) -> Self {
        let (given, copy_told) = (vec![0; shards], Instant::now());
        let (logs, copied, loading) = (Vec::new(), Vec::new(), Vec::new());
        Self { host, logs, copied, loading, given, is_cleared: false, copy_told }
    }

    /// How far the server has come.
    pub fn following(&self) -> &Arc<Following> {
        self.host.following()
    }

    /// Forgets what it has of the primary: the next link begins with a copy, of whatever server is
    /// there.
    pub fn forget(&mut self) {
        (self.logs, self.is_cleared) = (Vec::new(), false);
    }

    /// Whether what the shards have is all of one state: no copy is under way.
    pub fn is_whole(&mut self) -> bool {
        !self.is_cleared || self.logs.iter_mut().all(|log| log.log().is_some())
    }

    /// The latest epoch of the primary that it has heard of.
    pub fn epoch(&self) -> u64 {
        self.logs.iter().map(Follower::epoch).max().unwrap_or(0)
    }

    /// For each log, its epoch and the last entry that was received; `None` if a copy has not come
    /// whole.
    pub fn positions(&mut self) -> Option<Vec<(u64, u64)>> {
        self.logs.iter_mut().map(|log| Some((log.epoch(), log.log()?.received()))).collect()
    }

    /// Asks each shard of the primary for its log: a link was made.
    ///
    /// # Errors
    /// The link is over, or leads to another server than before.
    pub fn begin(&mut self, link: &mut Subscriber) -> Result<(), Ended> {
        let shards = link.shards();
        if self.logs.len() != shards {
            if self.logs.iter().any(Follower::has_begun) {
                return Err(Ended::Failed(another_server()));
            }
            self.logs = (0..shards).map(|_| Follower::default()).collect();
            (self.copied, self.loading) = (vec![None; shards], vec![Vec::new(); shards]);
        }
        (0..shards).try_for_each(|log| self.ask(link, log))?;
        let following = self.following();
        following.incarnation.store(link.incarnation(), Ordering::Relaxed);
        following.links.fetch_add(1, Ordering::Relaxed);
        following.hear();
        following.is_up.store(true, Ordering::Relaxed);
        let (primary, transport) = (&following.primary, link.transport());
        tracing::info!("connected to the primary at {primary} by {transport:?}");
        Ok(())
    }

    /// Asks a shard of the primary for its log.
    fn ask(&mut self, link: &mut Subscriber, log: usize) -> Result<(), Ended> {
        let follow = self.logs[log].ask(self.host.resp_port());
        match send_if_room(link, log, (FOLLOW, follow.as_bytes()))? {
            true => Ok(()),
            false => Err(Ended::Failed("its ring is full".into())),
        }
    }

    /// Takes what has come, and hands over what may be applied. Whether there was anything.
    ///
    /// # Errors
    /// The link is over.
    pub fn turn(&mut self, link: &mut Subscriber) -> Result<bool, Ended> {
        let mut worked = false;
        for log in 0..self.logs.len() {
            worked |= self.take_some(link, log)?;
            worked |= self.give_entries(log);
        }
        Ok(worked)
    }

    /// Tells the primary how far the replica has come: each heartbeat.
    ///
    /// # Errors
    /// The link is over.
    pub fn tell(&mut self, link: &mut Subscriber) -> Result<(), Ended> {
        (0..self.logs.len()).try_for_each(|log| self.acknowledge(link, log))?;
        self.publish();
        Ok(())
    }

    /// The link is over: takes what lies in its rings, also of a copy. The primary may have
    /// acknowledged it, as the WRITEs have completed.
    pub fn take_rest(&mut self, link: &mut Subscriber) {
        link.leave();
        for log in 0..self.logs.len() {
            // Bounded by the ring. What is of no honest primary is asked for anew.
            while let Ok(Some(message)) = link.take_rest(log)
                && let Ok(heard) = self.logs[log].hear(message)
                && self.take_last(log, heard).is_ok()
            {}
        }
    }

    /// As [`Worker::hear`], where nothing can be answered.
    fn take_last(&mut self, log: usize, heard: Heard) -> Result<(), Ended> {
        match heard {
            Heard::Begins { copies, primary } => self.begun(log, copies, primary),
            Heard::Operations(stream) => {
                self.give(log, LogPart::Operations(stream));
                Ok(())
            }
            Heard::Copied { sequence, epoch } => {
                self.copied[log] = Some((sequence, epoch));
                Ok(())
            }
            Heard::Entries { .. } => Ok(()),
            Heard::Lost { .. } | Heard::Refused(_) => Err(Ended::Called),
        }
    }

    /// Gives the shards all that was received, also beyond the commit position (design: "A promoted
    /// replica applies the rest"), and then this gate. The entries beyond the commit position that
    /// are among it.
    pub fn give_rest(&mut self, gate: &Arc<Gate>) -> u64 {
        let mut beyond = 0;
        for log in 0..self.logs.len() {
            let Some(receiver) = self.logs[log].log() else { continue };
            let (rest, of_log) = receiver.take_rest();
            beyond += of_log;
            self.end_copy(log);
            if !rest.is_empty() {
                self.give(log, LogPart::Entries(rest));
            }
        }
        self.give_all(|| Body::Gate(Arc::clone(gate)));
        beyond
    }

    /// The shards of this server that have keys of a log.
    fn targets(&self, log: usize) -> Range<usize> {
        match self.logs.len() == self.given.len() {
            true => log..log + 1,
            false => 0..self.given.len(),
        }
    }

    /// Whether these shards take another batch.
    fn has_room(&self, mut shards: Range<usize>) -> bool {
        let done = |shard: usize| self.following().done[shard].load(Ordering::Acquire);
        shards.all(|shard| self.given[shard] - done(shard) < APPLY_BATCHES)
    }

    /// Takes some messages of one shard of the primary. Whether there were any.
    fn take_some(&mut self, link: &mut Subscriber, log: usize) -> Result<bool, Ended> {
        for taken in 0..FEED_MESSAGES_PER_TURN {
            let may_take = self.has_room(self.targets(log))
                && self.logs[log].log().is_none_or(|receiver| receiver.has_room());
            if !may_take {
                return Ok(taken > 0);
            }
            let Some(message) = link.take(log)? else { return Ok(taken > 0) };
            let bytes = message.len();
            let heard = self.logs[log].hear(message)?;
            self.following().hear();
            self.hear(link, log, (heard, bytes))?;
        }
        Ok(true)
    }

    fn hear(
        &mut self,
        link: &mut Subscriber,
        log: usize,
        (heard, bytes): (Heard, usize),
    ) -> Result<(), Ended> {
        match heard {
            Heard::Begins { copies, primary } => return self.begun(log, copies, primary),
            Heard::Operations(stream) => {
                let came = &self.following().copy.came_bytes;
                came.fetch_add(bytes as u64, Ordering::Relaxed);
                self.give(log, LogPart::Operations(stream));
            }
            Heard::Copied { sequence, epoch } => {
                tracing::info!("the copy of shard {log} has come, at sequence {sequence}");
                self.copied[log] = Some((sequence, epoch));
            }
            Heard::Entries { asks: false } => {}
            Heard::Entries { asks: true } => self.acknowledge(link, log)?,
            Heard::Lost { is_same_log: true } => {
                tracing::info!("the primary keeps too little of its log for shard {log}");
                self.logs[log].lose_place();
                self.ask(link, log)?;
            }
            Heard::Lost { is_same_log: false } => return Err(Ended::Failed(another_server())),
            Heard::Refused(why) => return Err(Ended::Failed(format!("it refuses: {why}"))),
        }
        Ok(())
    }

    /// A shard of the primary answers.
    fn begun(&mut self, log: usize, copies: bool, primary: PrimaryFacts) -> Result<(), Ended> {
        let facts = (primary.shards, primary.arena_bytes);
        if let Err(why) = check(self.host.memory(), facts) {
            // What follows of the copy is not taken either.
            self.logs[log].lose_place();
            return Err(Ended::Failed(why));
        }
        let following = Arc::clone(self.following());
        following.set_trouble("");
        following.epoch.store(self.epoch(), Ordering::Relaxed);
        if !copies {
            return Ok(());
        }
        if !self.is_cleared {
            // Never a mixture of two servers' data: all goes before the first part comes.
            self.is_cleared = true;
            self.give_all(|| Body::Clear);
        }
        let copy = &following.copy;
        if !following.is_copying.swap(true, Ordering::Relaxed) {
            let zeros = [&copy.came_bytes, &copy.loaded, &copy.keys, &copy.bytes];
            zeros.into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
            copy.began_ms.store(following.ms(), Ordering::Relaxed);
            self.copy_told = Instant::now();
        }
        copy.keys.fetch_add(primary.keys, Ordering::Relaxed);
        copy.bytes.fetch_add(primary.used_bytes, Ordering::Relaxed);
        following.copies.fetch_add(1, Ordering::Relaxed);
        tracing::info!("a copy of shard {log} of the primary begins: {} keys", primary.keys);
        self.copied[log] = None;
        self.loading[log] = vec![u64::MAX; self.given.len()];
        self.give(log, LogPart::Begin);
        Ok(())
    }

    /// Gives the shards the entries of a log that are committed. Whether there were any.
    fn give_entries(&mut self, log: usize) -> bool {
        if !self.has_room(self.targets(log)) {
            return false;
        }
        let Some(receiver) = self.logs[log].log() else { return false };
        let entries: Vec<_> = std::iter::from_fn(|| receiver.next_entry()).collect();
        let commit = receiver.commit();
        if self.copied[log].is_some_and(|(sequence, _)| sequence <= commit) {
            self.end_copy(log);
        }
        if entries.is_empty() {
            return false;
        }
        self.give(log, LogPart::Entries(entries));
        true
    }

    /// A copy counts from now on: all that is in it is committed, or nobody else has it.
    fn end_copy(&mut self, log: usize) {
        if let Some((sequence, epoch)) = self.copied[log].take() {
            self.give(log, LogPart::Copied { sequence, epoch });
            self.loading[log].clone_from(&self.given);
        }
    }

    /// The last entry of a log that all its shards have applied; 0 while they load a copy, whatever
    /// they had before.
    fn applied(&self, log: usize) -> u64 {
        let following = self.following();
        let done = following.done.iter().map(|done| done.load(Ordering::Acquire));
        let has_loaded = self.loading[log].iter().zip(done).all(|(&given, done)| done >= given);
        if has_loaded { following.applied_of(log, self.targets(log)) } else { 0 }
    }

    fn give(&mut self, log: usize, part: LogPart) {
        let (logs, following) = (self.logs.len(), Arc::clone(self.following()));
        let batch = Arc::new(Batch { following, body: Body::Log { log, logs, part } });
        for shard in self.targets(log) {
            self.give_shard(shard, Arc::clone(&batch));
        }
    }

    fn give_all(&mut self, body: impl Fn() -> Body) {
        for shard in 0..self.given.len() {
            let batch = Batch { following: Arc::clone(self.following()), body: body() };
            self.give_shard(shard, Arc::new(batch));
        }
    }

    fn give_shard(&mut self, shard: usize, batch: Arc<Batch>) {
        self.given[shard] += 1;
        self.host.give(shard, batch);
    }

    /// Says how far the replica has come with a log.
    fn acknowledge(&mut self, link: &mut Subscriber, log: usize) -> Result<(), Ended> {
        let applied = self.applied(log);
        let Some(receiver) = self.logs[log].log() else { return Ok(()) };
        let told = receiver.acknowledge(applied.min(receiver.received()), 0);
        // Without room a later one says more.
        send_if_room(link, log, (ACKNOWLEDGE, told.as_bytes())).map(|_| ())
    }

    /// Shows how far it has come.
    fn publish(&mut self) {
        let (mut received, mut commit, mut applied) = (0, 0, 0);
        let mut is_copying = false;
        for log in 0..self.logs.len() {
            applied += self.applied(log);
            match self.logs[log].log() {
                Some(receiver) => {
                    received += receiver.received();
                    commit += receiver.commit();
                }
                None => is_copying = true,
            }
            is_copying |= self.copied[log].is_some();
        }
        let following = Arc::clone(self.following());
        // The end of a copy counts once the shards have loaded it.
        is_copying |= following.is_copying.load(Ordering::Relaxed) && !self.has_given_all();
        following.received_total.store(received, Ordering::Relaxed);
        following.commit_total.store(commit, Ordering::Relaxed);
        following.applied_total.store(applied, Ordering::Relaxed);
        let was_copying = following.is_copying.swap(is_copying, Ordering::Relaxed);
        let is_due = self.copy_told.elapsed() >= Duration::from_millis(COPY_TOLD_EVERY_MS);
        if was_copying && (is_due || !is_copying) {
            self.copy_told = Instant::now();
            tell_of_copy(&following, is_copying);
        }
    }

    /// Whether the shards have carried out all that they were given.
    fn has_given_all(&self) -> bool {
        let done = self.following().done.iter().map(|done| done.load(Ordering::Acquire));
        self.given.iter().copied().eq(done)
    }
}

/// Why another server's data, or those of a server that has lost its own, are not copied.
fn another_server() -> String {
    "it has begun anew, with other data, or is another server: what is here is kept. RESYNC copies it"
        .into()
}

fn tell_of_copy(following: &Following, is_under_way: bool) {
    let copy = &following.copy;
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (loaded, keys) = (load(&copy.loaded), load(&copy.keys));
    let mib = load(&copy.came_bytes) >> 20;
    let ms = following.ms().saturating_sub(load(&copy.began_ms)).max(1);
    let per_s = loaded * 1000 / ms;
    match is_under_way {
        true => tracing::info!(
            "copying the primary: {loaded} of {keys} records, {mib} MiB, {per_s} records a second"
        ),
        false => tracing::info!(
            "the copy of the primary is complete: {loaded} records, {mib} MiB in {ms} ms, {per_s} records a second"
        ),
    }
}

/// Sends a shard a request without a key. Whether there was room.
fn send_if_room(link: &mut Subscriber, log: usize, (op, body): (u8, &[u8])) -> Result<bool, Ended> {
    let header = RequestHeader {
        op,
        flags: 0,
        form: 0,
        of: 0,
        key_bytes: 0.into(),
        value_bytes: (body.len() as u32).into(),
        id: 0.into(),
        argument: 0.into(),
    };
    Ok(link.send(log, &[header.as_bytes(), body])?)
}
