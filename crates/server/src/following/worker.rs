//! What a replica makes of the logs of all shards of its primary: out of their rings, and on to the
//! shards of this server.
//!
//! Invariants:
//! * it gives each shard a bounded number of batches; while they are under way it takes nothing more
//!   out of the rings, and the primary has to wait;
//! * after a link is lost it goes on where it was, or with a new copy, never with a mixture;
//! * before a copy takes away what readers may have seen, no read lease lasts;
//! * in a cluster what is here, and the place in its logs, stay while the record counts on them
//!   ([`Host::may_clear`]);
//! * what lies in the rings when a link ends is not lost: it is taken before the next link.

use super::batch::{Batch, Body, LogPart};
use super::fit::check;
use super::host::Host;
use super::state::Following;
use super::step_barrier::StepBarrier;
use remora_client_core::Subscriber;
use remora_cluster::message::Position;
use remora_engine::TailPiece;
use remora_fabric::Transport;
use remora_layout::limits::{APPLY_BATCHES, COPY_TOLD_EVERY_MS, FEED_MESSAGES_PER_TURN};
use remora_log::{OwnedEntry, Part, consistent_cut};
use remora_protocol::message::{ACKNOWLEDGE, FOLLOW, RequestHeader};
use remora_protocol::replication::Follow;
use remora_replica::{FollowEvent, Follower, FreshAt, LogReceiver, PrimaryFacts};
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
    /// By shard of this server, the batches that it was given.
    given: Vec<u64>,
    /// By log, the batches that the shards have to have carried out before their positions are those of
    /// its present numbers.
    renumbered: Vec<Vec<u64>>,
    /// What the shards have is of this primary, or nothing.
    is_cleared: bool,
    /// The transport of the link.
    by: Option<Transport>,
    /// By log, the host's clock at which all read leases have lapsed and a copy may begin.
    begins: Vec<Option<u64>>,
    /// When a copy that is under way was last told of in the log.
    copy_told: Instant,
}

impl<H: Host> Worker<H> {
    /// Of a server with so many shards, from where its disk was; without one, from nothing.
    pub fn new(host: H, shards: usize) -> Self {
        let (given, copy_told) = (vec![0; shards], Instant::now());
        let logs = host.following().take_followers();
        let (copied, begins) = (vec![None; logs.len()], vec![None; logs.len()]);
        let (is_cleared, renumbered) = (!logs.is_empty(), Vec::new());
        Self { host, logs, copied, given, renumbered, is_cleared, by: None, begins, copy_told }
    }

    /// The one that copies the same primary anew: what the shards have stays until the copy begins,
    /// and logs of another server are not copied.
    pub fn anew(&self, host: H) -> Self {
        let follower = |of: &Follower| match of.key() {
            0 => Follower::default(),
            key => Follower::interrupted(key),
        };
        let logs: Vec<_> = self.logs.iter().map(follower).collect();
        let (copied, begins) = (vec![None; logs.len()], vec![None; logs.len()]);
        Self { logs, copied, begins, ..Self::new(host, self.given.len()) }
    }

    /// The one that follows another primary, which has every acknowledged entry: it goes on from
    /// where this one is. The shards have carried out all that they were given.
    pub fn moved(self, host: H) -> Self {
        let (given, begins) = (vec![0; self.given.len()], vec![None; self.logs.len()]);
        Self { host, given, begins, renumbered: Vec::new(), by: None, ..self }
    }

    /// How far the server has come.
    pub fn following(&self) -> &Arc<Following> {
        self.host.following()
    }

    /// Whether what the shards have is all of one state: no copy is under way. `before`: whether it
    /// was, when this primary was named.
    pub fn is_whole(&mut self, before: bool) -> bool {
        match self.is_cleared {
            true => self.logs.iter_mut().all(|log| log.log().is_some()),
            false => before,
        }
    }

    /// Whether something that was received lies beyond the commit position, as far as that is known.
    pub fn has_uncommitted(&mut self) -> bool {
        let is_beyond = |log: &mut Follower| {
            log.log().is_none_or(|receiver| receiver.received() > receiver.commit())
        };
        self.copied.iter().any(Option::is_some) || self.logs.iter_mut().any(is_beyond)
    }

    /// Goes on with what has come, while there is no link.
    pub fn idle(&mut self) {
        for log in 0..self.logs.len() {
            self.give_entries(log);
        }
        self.publish();
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

    /// For each log, where it ends, and what cannot be cut of it; `None` if a copy has not come whole.
    pub fn ends(&mut self) -> Option<Vec<Position>> {
        let end = |log: &mut Follower| {
            let (epoch, received) = (log.epoch(), log.log()?);
            let (sequence, applied) = (received.received(), received.given());
            Some(Position { epoch, sequence, applied })
        };
        self.logs.iter_mut().map(end).collect()
    }

    /// For each log, the last entries that came of it.
    pub fn take_tails(&mut self) -> Vec<Vec<TailPiece>> {
        let tail = |log: &mut Follower| log.log().map(LogReceiver::take_tail).unwrap_or_default();
        self.logs.iter_mut().map(tail).collect()
    }

    /// Asks each shard of the primary for its log: a link was made.
    ///
    /// # Errors
    /// The link is over, or leads to another server than before.
    pub fn begin(&mut self, link: &mut Subscriber) -> Result<(), Ended> {
        let shards = link.shards();
        if self.logs.len() != shards {
            let has_begun = self.logs.iter().any(Follower::has_begun);
            match () {
                () if has_begun && !self.host.copies_any() => {
                    return Err(Ended::Failed(another_server()));
                }
                () if has_begun => self.check_clear()?,
                () => {}
            }
            self.logs = (0..shards).map(|_| Follower::default()).collect();
            self.copied = vec![None; shards];
            self.is_cleared = false;
        }
        // What was waited for comes anew.
        self.begins = vec![None; shards];
        (0..shards).try_for_each(|log| self.ask(link, log))?;
        let following = self.following();
        following.incarnation.store(link.incarnation(), Ordering::Relaxed);
        following.hear();
        self.by = Some(link.transport());
        Ok(())
    }

    /// Asks a shard of the primary for its log.
    fn ask(&mut self, link: &mut Subscriber, log: usize) -> Result<(), Ended> {
        let asked = self.logs[log].ask(self.host.resp_port());
        let follow = Follow { replica: self.host.incarnation().into(), ..asked };
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
        self.show();
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

    /// The link is over: takes what lies in its rings, also of a copy that has begun. The primary may
    /// have acknowledged it, as the WRITEs have completed. No copy begins any more: the rest of it
    /// does not come, and what it would take away may be all that is left.
    pub fn take_rest(&mut self, link: &mut Subscriber) {
        link.leave();
        if link.shards() != self.logs.len() {
            // It led to another server, which was asked for nothing.
            return;
        }
        for log in 0..self.logs.len() {
            // Bounded by the ring. What is of no honest primary is asked for anew.
            while self.begins[log].is_none()
                && let Ok(Some(message)) = link.take_rest(log)
                && self.take_last(log, message).is_ok()
            {}
        }
    }

    /// As [`Worker::hear`], where nothing can be answered.
    fn take_last(&mut self, log: usize, message: &[u8]) -> Result<(), Ended> {
        match self.logs[log].hear(message)? {
            // What comes behind it does not count.
            FollowEvent::Begins { copies: true, .. } => Err(Ended::Called),
            FollowEvent::Begins { copies: false, primary } => self.begun(log, false, primary),
            FollowEvent::Operations(stream) => {
                self.give(log, LogPart::Operations(stream));
                Ok(())
            }
            FollowEvent::Copied { sequence, epoch } => {
                self.copied[log] = Some((sequence, epoch));
                Ok(())
            }
            FollowEvent::Entries { .. } => Ok(()),
            FollowEvent::Resumes { primary, rest, at } => self.go_on(log, primary, (rest, at)),
            FollowEvent::Lost { .. }
            | FollowEvent::HasMore { .. }
            | FollowEvent::UnknownEpoch
            | FollowEvent::Refused(_) => Err(Ended::Called),
        }
    }

    /// Gives the shards all that was received, also beyond the commit position (design: "A promoted
    /// replica applies the rest"), and then this barrier. The entries beyond the commit position that
    /// are among it.
    pub fn give_rest(&mut self, barrier: &Arc<StepBarrier>) -> u64 {
        let mut beyond = 0;
        self.cut_torn();
        for log in 0..self.logs.len() {
            let Some(receiver) = self.logs[log].log() else { continue };
            let (rest, of_log) = receiver.take_rest();
            beyond += of_log;
            self.end_copy(log);
            if !rest.is_empty() {
                self.give(log, LogPart::Entries(rest));
            }
        }
        self.give_barrier(barrier);
        beyond
    }

    /// Gives the shards this barrier, behind all that they were given.
    pub fn give_barrier(&mut self, barrier: &Arc<StepBarrier>) {
        self.give_all(|| Body::StepBarrier(Arc::clone(barrier)));
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
            let may_take = self.begin_copy(log)
                && self.has_room(self.targets(log))
                && self.logs[log].log().is_none_or(|receiver| receiver.has_room());
            if !may_take {
                return Ok(taken > 0);
            }
            let Some(message) = link.take(log)? else { return Ok(taken > 0) };
            let bytes = message.len();
            let heard = self.logs[log].hear(message)?;
            self.following().hear();
            if let Some(time_ms) = self.logs[log].log().and_then(LogReceiver::take_time) {
                self.host.learn_time(time_ms);
            }
            self.hear(link, log, (heard, bytes))?;
        }
        Ok(true)
    }

    fn hear(
        &mut self,
        link: &mut Subscriber,
        log: usize,
        (heard, bytes): (FollowEvent, usize),
    ) -> Result<(), Ended> {
        match heard {
            FollowEvent::Begins { copies, primary } => return self.begun(log, copies, primary),
            FollowEvent::Operations(stream) => {
                let came = &self.following().copy.came_bytes;
                came.fetch_add(bytes as u64, Ordering::Relaxed);
                self.give(log, LogPart::Operations(stream));
            }
            FollowEvent::Copied { sequence, epoch } => {
                tracing::info!("the copy of shard {log} has come, at sequence {sequence}");
                self.copied[log] = Some((sequence, epoch));
            }
            FollowEvent::Entries { asks: false } => {}
            FollowEvent::Entries { asks: true } => self.acknowledge(link, log)?,
            FollowEvent::Lost { .. } | FollowEvent::HasMore { .. } | FollowEvent::UnknownEpoch
                if self.host.copies_any() =>
            {
                self.leave_log(log)?;
                self.ask(link, log)?;
            }
            FollowEvent::Lost { is_same_log: true } => {
                tracing::info!("the primary keeps too little of its log for shard {log}");
                self.logs[log].lose_place();
                self.ask(link, log)?;
            }
            FollowEvent::Lost { is_same_log: false } => {
                return Err(Ended::Failed(another_server()));
            }
            FollowEvent::Resumes { primary, rest, at } => {
                return self.go_on(log, primary, (rest, at));
            }
            FollowEvent::HasMore { received, kept } => {
                return Err(Ended::Failed(format!(
                    "its disk has lost entries of shard {log}: it has them up to {kept}, and this replica up to {received}. What is here is kept. REPLICAOF NO ONE makes a primary of it, RESYNC copies what the primary has"
                )));
            }
            FollowEvent::UnknownEpoch => {
                return Err(Ended::Failed(format!(
                    "it was started again, and does not know any more whether it has all of shard {log} that this replica has. What is here is kept. RESYNC copies what the primary has"
                )));
            }
            FollowEvent::Refused(why) => return Err(Ended::Failed(format!("it refuses: {why}"))),
        }
        Ok(())
    }

    /// A log is copied, as the primary cannot go on from what is here.
    ///
    /// # Errors
    /// What is here may not go yet: the link is made again later.
    fn leave_log(&mut self, log: usize) -> Result<(), Ended> {
        self.check_clear()?;
        tracing::info!("shard {log} is copied: the primary cannot go on from what is here");
        self.logs[log] = Follower::default();
        Ok(())
    }

    fn check_clear(&self) -> Result<(), Ended> {
        match self.host.may_clear() {
            true => Ok(()),
            false => Err(Ended::Failed(
                "it cannot go on from what is here. This server is recorded as in sync, so that its data stay until the record has another set: then it copies".into(),
            )),
        }
    }

    /// A shard of the primary answers that its log goes on behind its restart.
    fn go_on(
        &mut self,
        log: usize,
        primary: PrimaryFacts,
        (rest, (sequence, epoch)): (Vec<OwnedEntry>, (u64, u64)),
    ) -> Result<(), Ended> {
        self.begun(log, false, primary)?;
        tracing::info!(
            "shard {log} of the primary goes on under epoch {epoch}, behind its restart"
        );
        // What the primary has kept of a copy and of the entries behind it is committed.
        self.end_copy(log);
        if !rest.is_empty() {
            self.give(log, LogPart::Entries(rest));
        }
        self.give(log, LogPart::Copied { sequence, epoch });
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
        if !following.is_up.swap(true, Ordering::Relaxed) {
            // The first answer over this link: the primary takes this server for a replica.
            following.links.fetch_add(1, Ordering::Relaxed);
            let (primary, by) = (&following.primary, self.by.map_or("", Transport::name));
            tracing::info!("following the primary at {primary} by {by}");
        }
        following.epoch.store(self.epoch(), Ordering::Relaxed);
        if !copies {
            following.resumes.fetch_add(1, Ordering::Relaxed);
            return Ok(());
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
        self.begins[log] = Some(self.host.clock_ns() + self.host.hide().as_nanos() as u64);
        Ok(())
    }

    /// Begins the copy of a log for which readers were waited for. Whether none waits.
    fn begin_copy(&mut self, log: usize) -> bool {
        let Some(begins_ns) = self.begins[log] else { return true };
        if self.host.clock_ns() < begins_ns {
            return false;
        }
        self.begins[log] = None;
        if !self.is_cleared {
            // Never a mixture of two servers' data: all goes before the first part comes.
            self.is_cleared = true;
            let logs = self.logs.len();
            self.give_all(|| Body::Clear { logs });
        }
        self.give(log, LogPart::Begin);
        true
    }

    /// Shows readers how fresh the replica is: as fresh as the oldest of the logs.
    fn show(&mut self) {
        let unix_ms = self.host.unix_ms();
        let newest = FreshAt { clock_ns: u64::MAX, time_ms: u64::MAX };
        let mut fresh = (!self.logs.is_empty()).then_some(newest);
        for log in 0..self.logs.len() {
            let is_copied = self.copied[log].is_none() && self.is_numbered(log);
            let applied = self.following().applied_of(log, self.targets(log));
            let of_log = self.logs[log].log().filter(|_| is_copied);
            let of_log = of_log.and_then(|log| log.fresh_at(applied, unix_ms));
            fresh = fresh.zip(of_log).map(|(all, one)| all.with(one));
        }
        self.host.show(fresh);
    }

    /// Gives the shards the entries of a log that are committed. Whether there were any.
    fn give_entries(&mut self, log: usize) -> bool {
        if !self.has_room(self.targets(log)) {
            return false;
        }
        let Some(receiver) = self.logs[log].log() else { return false };
        let commit = receiver.commit();
        let entries: Vec<_> = std::iter::from_fn(|| self.next_entry(log)).collect();
        if self.copied[log].is_some_and(|(sequence, _)| sequence <= commit) {
            self.end_copy(log);
        }
        if entries.is_empty() {
            return false;
        }
        self.give(log, LogPart::Entries(entries));
        true
    }

    /// The next entry of a log that may be applied: one that names parts only once all of them may be.
    fn next_entry(&mut self, log: usize) -> Option<OwnedEntry> {
        let parts = self.logs[log].log()?.next_parts()?;
        if !parts.is_empty() {
            let parts: Vec<Part> = parts.iter().collect();
            let is_there = |part: &Part| {
                let log = self.logs.get_mut(part.shard() as usize).and_then(Follower::log);
                log.is_some_and(|log| log.has_committed(part.sequence()))
            };
            if !parts.iter().all(is_there) {
                return None;
            }
        }
        self.logs[log].log()?.next_entry()
    }

    /// Leaves out what was received behind a change of several shards of which not all parts were. It is
    /// acknowledged to no client: the primary acknowledges no part before all members of its set have all.
    fn cut_torn(&mut self) {
        let known = |(at, log): (usize, &mut Follower)| Some((at as u32, log.log()?.known()));
        let cuts = consistent_cut(&self.logs.iter_mut().enumerate().filter_map(known).collect());
        for (log, cut) in cuts {
            if let Some(receiver) = self.logs[log as usize].log() {
                receiver.cut(cut);
            }
        }
    }

    /// A copy counts from now on: all that is in it is committed, or nobody else has it.
    fn end_copy(&mut self, log: usize) {
        if let Some((sequence, epoch)) = self.copied[log].take() {
            self.give(log, LogPart::Copied { sequence, epoch });
        }
    }

    fn give(&mut self, log: usize, part: LogPart) {
        let (logs, following) = (self.logs.len(), Arc::clone(self.following()));
        self.renumbered.resize(self.logs.len(), Vec::new());
        match part {
            LogPart::Begin => self.renumbered[log] = vec![u64::MAX; self.given.len()],
            // With this batch.
            LogPart::Copied { .. } => {
                self.renumbered[log] = self.given.iter().map(|given| given + 1).collect();
            }
            LogPart::Operations(_) | LogPart::Entries(_) => {}
        }
        let key = self.logs[log].key();
        let batch = Arc::new(Batch { following, body: Body::Log { log, logs, key, part } });
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

    /// Whether the shards' positions in a log are in its present numbers: the end of its last copy,
    /// or of the epoch before, is behind them.
    fn is_numbered(&self, log: usize) -> bool {
        let Some(since) = self.renumbered.get(log).filter(|since| !since.is_empty()) else {
            return true;
        };
        let done = |shard: usize| self.following().done[shard].load(Ordering::Acquire);
        self.targets(log).all(|shard| done(shard) >= since[shard])
    }

    /// The last entry of a log that the shards have applied, and the last on their disk. Of the former
    /// numbers nothing counts. That something was received counts all the same.
    fn applied_and_durable(&self, log: usize) -> (u64, u64) {
        if !self.is_numbered(log) {
            return (0, 0);
        }
        let (following, targets) = (self.following(), self.targets(log));
        let applied = following.applied_of(log, targets.clone());
        (applied, following.durable_of(log, targets).min(applied))
    }

    /// Says how far the replica has come with a log.
    fn acknowledge(&mut self, link: &mut Subscriber, log: usize) -> Result<(), Ended> {
        if !self.logs[log].may_acknowledge() {
            return Ok(());
        }
        let (applied, durable) = self.applied_and_durable(log);
        let clock_ns = self.host.clock_ns();
        let Some(receiver) = self.logs[log].log() else { return Ok(()) };
        let received = receiver.received();
        let told = receiver.acknowledge(applied.min(received), durable.min(received), clock_ns);
        // Without room a later one says more.
        send_if_room(link, log, (ACKNOWLEDGE, told.as_bytes())).map(|_| ())
    }

    /// Shows how far it has come.
    pub fn publish(&mut self) {
        let (mut received, mut commit, mut applied, mut durable) = (0, 0, 0, 0);
        let mut follows = !self.logs.is_empty();
        for log in 0..self.logs.len() {
            applied += self.following().applied_of(log, self.targets(log));
            durable += self.following().durable_of(log, self.targets(log));
            match self.logs[log].log() {
                Some(receiver) => {
                    received += receiver.received();
                    commit += receiver.commit();
                }
                None => follows = false,
            }
            follows &= self.copied[log].is_none();
        }
        let following = Arc::clone(self.following());
        // The end of a copy counts once the shards have loaded it.
        let is_copying =
            following.is_copying.load(Ordering::Relaxed) && !(follows && self.has_given_all());
        following.received_total.store(received, Ordering::Relaxed);
        following.commit_total.store(commit, Ordering::Relaxed);
        following.applied_total.store(applied, Ordering::Relaxed);
        following.durable_total.store(durable, Ordering::Relaxed);
        following.follows.store(follows && !is_copying, Ordering::Relaxed);
        let was_copying = following.is_copying.swap(is_copying, Ordering::Relaxed);
        let is_due = self.copy_told.elapsed() >= Duration::from_millis(COPY_TOLD_EVERY_MS);
        if was_copying && (is_due || !is_copying) {
            self.copy_told = Instant::now();
            tell_of_copy(&following, is_copying);
            if !is_copying {
                self.host.copied();
            }
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

#[cfg(test)]
mod tests;
