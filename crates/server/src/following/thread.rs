//! The thread of a replica that follows its primary.
//!
//! Invariants:
//! * it gives each shard a bounded number of batches; while they are under way it takes nothing more
//!   out of the rings, and the primary has to wait;
//! * after a link is lost it goes on where it was, or with a new copy, never with a mixture.

use super::batch::{Batch, Body};
use super::state::Following;
use crate::inbox::Message;
use crate::shared::Shared;
use remora_client_core::{Options, Subscriber};
use remora_fabric::vital_thread;
use remora_layout::limits::{
    APPLY_BATCHES, FEED_MESSAGES_PER_TURN, FOLLOW_AGAIN_MAX_MS, FOLLOW_AGAIN_MS, HEARTBEAT_MS,
};
use remora_protocol::message::{ACKNOWLEDGE, FOLLOW, RequestHeader};
use remora_replica::{Follower, Heard, LogReceiver};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// The thread, as its owner has it.
pub struct FollowThread {
    thread: JoinHandle<()>,
}

impl FollowThread {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let shards = shared.shards.len();
        let worker = Worker { shared, logs: Vec::new(), given: vec![0; shards], begins: Vec::new(), copied: Vec::new() };
        Ok(Self { thread: vital_thread::spawn("follow", move || worker.run())? })
    }

    /// Waits for its end: the server is stopping.
    pub fn stop(self) {
        vital_thread::join(self.thread);
    }
}

/// Why a link is given up.
enum Ended {
    /// The server is stopping.
    Stopping,
    /// It is made again after a pause.
    Failed(String),
}

impl<E: std::error::Error> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

struct Worker {
    shared: Arc<Shared>,
    /// By shard of the primary.
    logs: Vec<Follower>,
    /// By shard of this server, the batches that it was given.
    given: Vec<u64>,
    /// Copies of these logs begin once all read leases have lapsed.
    begins: Vec<Option<Instant>>,
    /// By log, what each shard has carried out once it has the whole copy. Positions that shards
    /// have told before that are of what was there before the copy.
    copied: Vec<Vec<(usize, u64)>>,
}

impl Worker {
    fn run(mut self) {
        let mut pause_ms = FOLLOW_AGAIN_MS;
        // Bounded by the life of the server.
        loop {
            let began = Instant::now();
            let Err(ended) = self.follow() else { return };
            let following = self.following();
            following.is_up.store(false, Ordering::Relaxed);
            let Ended::Failed(why) = ended else { return };
            if following.trouble() != why {
                tracing::warn!("the primary at {} is not followed: {why}", following.primary);
                following.set_trouble(why);
            }
            let lasted = began.elapsed() > Duration::from_millis(FOLLOW_AGAIN_MAX_MS);
            pause_ms = if lasted { FOLLOW_AGAIN_MS } else { pause_ms };
            if !self.pause(Duration::from_millis(pause_ms)) {
                return;
            }
            pause_ms = (2 * pause_ms).min(FOLLOW_AGAIN_MAX_MS);
        }
    }

    fn following(&self) -> &Following {
        self.shared.following.as_ref().expect("a replica follows")
    }

    /// Waits; false if the server is stopping.
    fn pause(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        while Instant::now() < until && !self.shared.is_stopping() {
            std::thread::sleep(Duration::from_millis(HEARTBEAT_MS).min(most));
        }
        !self.shared.is_stopping()
    }

    /// Follows over one link, until that ends.
    fn follow(&mut self) -> Result<(), Ended> {
        if self.shared.is_stopping() {
            return Err(Ended::Stopping);
        }
        let options = Options { transport: self.shared.config.transport, ..Options::default() };
        let mut link = Subscriber::connect(self.following().primary.clone(), &options)?;
        if self.logs.len() != link.shards() {
            self.logs = (0..link.shards()).map(|_| Follower::default()).collect();
            self.copied = vec![Vec::new(); link.shards()];
        }
        self.begins = vec![None; self.logs.len()];
        for log in 0..link.shards() {
            let follow = self.logs[log].ask();
            send(&mut link, log, FOLLOW, follow.as_bytes())?;
        }
        let following = self.following();
        following.links.fetch_add(1, Ordering::Relaxed);
        following.is_up.store(true, Ordering::Relaxed);
        tracing::info!("following the primary at {} by {:?}", following.primary, link.transport());
        self.serve(&mut link)
    }

    fn serve(&mut self, link: &mut Subscriber) -> Result<(), Ended> {
        let mut told = Instant::now();
        // Bounded by the life of the link.
        loop {
            if self.shared.is_stopping() {
                return Err(Ended::Stopping);
            }
            let mut worked = false;
            for log in 0..self.logs.len() {
                worked |= self.take_some(link, log)?;
                worked |= self.give_entries(log);
            }
            self.show();
            if told.elapsed() >= Duration::from_millis(HEARTBEAT_MS) {
                told = Instant::now();
                (0..self.logs.len()).try_for_each(|log| self.acknowledge(link, log))?;
                self.publish();
            }
            if !worked {
                link.wait(Duration::from_millis(HEARTBEAT_MS))?;
            }
        }
    }

    /// The shards of this server that have keys of a log.
    fn targets(&self, log: usize) -> std::ops::Range<usize> {
        match self.logs.len() == self.given.len() {
            true => log..log + 1,
            false => 0..self.given.len(),
        }
    }

    /// Whether the shards that have keys of a log take another batch.
    fn has_room(&self, log: usize) -> bool {
        let following = self.following();
        let under_way =
            |shard: usize| self.given[shard] - following.done[shard].load(Ordering::Acquire);
        self.targets(log).all(|shard| under_way(shard) < APPLY_BATCHES)
    }

    /// Begins the copy of a log for which readers were waited for. Whether none waits.
    fn begin_copy(&mut self, log: usize) -> bool {
        match self.begins[log] {
            Some(begins) if Instant::now() < begins => return false,
            Some(_) => self.give(log, Body::Begin),
            None => {}
        }
        self.begins[log] = None;
        true
    }

    /// Shows readers how fresh the replica is: as fresh as the oldest of the logs.
    fn show(&mut self) {
        let unix_ms = self.shared.clock.now().unix_ms;
        let mut fresh = (!self.logs.is_empty()).then_some(u64::MAX);
        for log in 0..self.logs.len() {
            let is_copied = |&(shard, given): &(usize, u64)| {
                self.following().done[shard].load(Ordering::Acquire) >= given
            };
            if !self.copied[log].iter().all(is_copied) {
                fresh = None;
                continue;
            }
            let applied = self.following().applied_of(log, self.targets(log));
            let of_log = self.logs[log].log().and_then(|log| log.fresh_at(applied, unix_ms));
            fresh = fresh.zip(of_log).map(|(all, one)| all.min(one));
        }
        self.shared.view.show(fresh);
    }

    /// Takes some messages of one shard of the primary. Whether there were any.
    fn take_some(&mut self, link: &mut Subscriber, log: usize) -> Result<bool, Ended> {
        for taken in 0..FEED_MESSAGES_PER_TURN {
            let may_take = self.begin_copy(log)
                && self.has_room(log)
                && self.logs[log].log().is_none_or(|receiver| receiver.has_room());
            let heard = match may_take {
                false => None,
                true => link.take(log)?.map(|message| self.logs[log].hear(message)).transpose()?,
            };
            if let Some(time_ms) = self.logs[log].log().and_then(LogReceiver::take_time) {
                self.shared.view.learn_time(time_ms);
            }
            let Some(heard) = heard else { return Ok(taken > 0) };
            self.hear(link, log, heard)?;
        }
        Ok(true)
    }

    fn hear(&mut self, link: &mut Subscriber, log: usize, heard: Heard) -> Result<(), Ended> {
        match heard {
            Heard::Begins { copies: false } => self.following().set_trouble(String::new()),
            Heard::Begins { copies: true } => {
                let following = self.following();
                following.set_trouble(String::new());
                following.copies.fetch_add(1, Ordering::Relaxed);
                following.is_copying.store(true, Ordering::Relaxed);
                tracing::info!("a copy of shard {log} of the primary begins");
                self.begins[log] = Some(Instant::now() + self.shared.view.hide());
            }
            Heard::Operations(stream) => self.give(log, Body::Operations(stream)),
            Heard::Copied { sequence, epoch } => {
                tracing::info!("the copy of shard {log} is complete, at sequence {sequence}");
                self.give(log, Body::Copied { sequence, epoch });
                let given = self.targets(log).map(|shard| (shard, self.given[shard]));
                self.copied[log] = given.collect();
            }
            Heard::Entries { asks: false } => {}
            Heard::Entries { asks: true } => self.acknowledge(link, log)?,
            Heard::Lost { is_same_log: true } => {
                tracing::info!("the primary keeps too little of its log for shard {log}");
                self.logs[log].forget();
                let follow = self.logs[log].ask();
                send(link, log, FOLLOW, follow.as_bytes())?;
            }
            Heard::Lost { is_same_log: false } => {
                return Err(Ended::Failed(
                    "it has begun anew, with other data: restart this replica to copy it".into(),
                ));
            }
        }
        Ok(())
    }

    /// Gives the shards the entries of a log that are committed. Whether there were any.
    fn give_entries(&mut self, log: usize) -> bool {
        if !self.has_room(log) {
            return false;
        }
        let Some(receiver) = self.logs[log].log() else { return false };
        let entries: Vec<_> = std::iter::from_fn(|| receiver.next_entry()).collect();
        if entries.is_empty() {
            return false;
        }
        self.give(log, Body::Entries(entries));
        true
    }

    fn give(&mut self, log: usize, body: Body) {
        let batch = Arc::new(Batch { log, logs: self.logs.len(), body });
        for shard in self.targets(log) {
            self.given[shard] += 1;
            self.shared.shards[shard].inbox.push(Message::Apply(Arc::clone(&batch)));
        }
    }

    /// Says how far the replica has come with a log.
    fn acknowledge(&mut self, link: &mut Subscriber, log: usize) -> Result<(), Ended> {
        let targets = self.targets(log);
        let applied = self.following().applied_of(log, targets);
        let clock_ns = self.shared.view.now_ns();
        let Some(receiver) = self.logs[log].log() else { return Ok(()) };
        let told = receiver.acknowledge(applied.min(receiver.received()), 0, clock_ns);
        // Without room a later one says more.
        send_if_room(link, log, (ACKNOWLEDGE, told.as_bytes())).map(|_| ())
    }

    /// Shows how far it has come.
    fn publish(&mut self) {
        let (mut received, mut commit, mut applied) = (0, 0, 0);
        let mut is_copying = false;
        for log in 0..self.logs.len() {
            applied += self.following().applied_of(log, self.targets(log));
            match self.logs[log].log() {
                Some(receiver) => {
                    received += receiver.received();
                    commit += receiver.commit();
                }
                None => is_copying = true,
            }
        }
        let following = self.following();
        following.received_total.store(received, Ordering::Relaxed);
        following.commit_total.store(commit, Ordering::Relaxed);
        following.applied_total.store(applied, Ordering::Relaxed);
        following.is_copying.store(is_copying, Ordering::Relaxed);
    }
}

/// Sends a shard a request without a key.
fn send_if_room(
    link: &mut Subscriber,
    log: usize,
    (op, body): (u8, &[u8]),
) -> Result<bool, Ended> {
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

fn send(link: &mut Subscriber, log: usize, op: u8, body: &[u8]) -> Result<(), Ended> {
    match send_if_room(link, log, (op, body))? {
        true => Ok(()),
        false => Err(Ended::Failed("its ring is full".into())),
    }
}
