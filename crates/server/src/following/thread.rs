//! The thread that changes the role of a server, and follows the primary of a replica.
//!
//! It is in one of three states: it waits for a change (a primary), it follows (a replica), or it is
//! held (a server of a cluster that has no link). It looks for changes meanwhile. A change is carried
//! out from its beginning to its end before anything else, and then answered.

use super::replica::Replica;
use super::resume::Resume;
use super::role::{Asked, Order, OrderAnswer, Role, RoleChange, RoleStep};
use super::state::Following;
use super::step_barrier::{ProgressWait, StepBarrier};
use super::worker::Ended;
use crate::inbox::Message;
use crate::random::random_u64;
use crate::shared::Shared;
use remora_engine::FollowedLog;
use remora_fabric::{Address, vital_thread};
use remora_frontend::{OwnedReply, Token};
use remora_layout::limits::{
    COPY_FOR_ROOM_MAX_MS, COPY_FOR_ROOM_MS, FOLLOW_AGAIN_MAX_MS, FOLLOW_AGAIN_MS, HEARTBEAT_MS,
    ROLE_TIMEOUT_MS,
};
use remora_protocol::message::Status;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread, as its owner has it.
pub struct RoleThread {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl RoleThread {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let changes = shared.roles.take_changes().expect("there is one such thread");
        let replica = shared.roles.following().map(|of| Replica::new(Arc::clone(&shared), of));
        let worker = RoleWorker {
            shared: Arc::clone(&shared),
            changes,
            replica,
            is_whole: true,
            epoch: 0,
            asked: None,
            copy_for_room_ms: COPY_FOR_ROOM_MS,
            is_held: shared.config.is_clustered(),
        };
        Ok(Self { thread: vital_thread::spawn("role", move || worker.run())?, shared })
    }

    /// Waits for its end: the server is stopping.
    pub fn stop(self) {
        self.shared.roles.stop();
        vital_thread::join(self.thread);
    }
}

struct RoleWorker {
    shared: Arc<Shared>,
    changes: Receiver<Asked>,
    /// The link to the primary, at a replica.
    replica: Option<Replica>,
    /// Whether the data were all of one state when the present primary was named.
    is_whole: bool,
    /// The latest epoch that it has heard of.
    epoch: u64,
    /// What it was asked while it followed.
    asked: Option<Asked>,
    /// For how long a shard may have no memory, until the primary is copied anew, ms.
    copy_for_room_ms: u64,
    /// It makes no link, until it is ordered to.
    is_held: bool,
}

impl RoleWorker {
    fn run(mut self) {
        // Bounded by the life of the server.
        loop {
            match self.next_asked() {
                Some(Asked::Change(change, token)) => self.change(change, token),
                Some(Asked::Order(order, answer)) => {
                    // Its other end is gone only if the server is stopping.
                    let _ = answer.send(self.carry_out(order));
                }
                Some(Asked::Stop) | None => return,
            }
        }
    }

    /// What it is asked next; until then it follows, at a replica. `None`: the server is gone.
    fn next_asked(&mut self) -> Option<Asked> {
        let Some(mut replica) = self.replica.take() else { return self.changes.recv().ok() };
        let mut pause_ms = FOLLOW_AGAIN_MS;
        while self.is_held && !self.is_called() {
            self.pause(&mut replica, Duration::from_millis(HEARTBEAT_MS));
        }
        // Bounded by the life of the server.
        while self.asked.is_none() {
            let began = Instant::now();
            let following = Arc::clone(&replica.following);
            let ended = replica.follow(|| self.is_called() || self.has_no_room(&following));
            // Only while the primary is there: without it, what was received is all there is.
            let is_there = matches!(ended, Ended::Called) && self.asked.is_none();
            if is_there && self.has_no_room(&following) {
                match self.shared.may_clear() {
                    true => replica = self.copy_for_room(replica),
                    false => self.leave_set(&mut replica),
                }
                continue;
            }
            let Ended::Failed(why) = ended else { break };
            if replica.following.set_trouble(&why) {
                let primary = &replica.following.primary;
                tracing::warn!("the primary at {primary} is not followed: {why}");
            }
            let lasted = began.elapsed() > Duration::from_millis(FOLLOW_AGAIN_MAX_MS);
            pause_ms = if lasted { FOLLOW_AGAIN_MS } else { pause_ms };
            self.pause(&mut replica, Duration::from_millis(pause_ms));
            pause_ms = (2 * pause_ms).min(FOLLOW_AGAIN_MAX_MS);
        }
        self.replica = Some(replica);
        self.asked.take()
    }

    /// Whether there is something else to do than to follow.
    fn is_called(&mut self) -> bool {
        if self.asked.is_none() {
            self.asked = match self.changes.try_recv() {
                Ok(asked) => Some(asked),
                Err(TryRecvError::Empty) if !self.shared.is_stopping() => None,
                Err(_) => Some(Asked::Stop),
            };
        }
        self.asked.is_some()
    }

    /// Whether a shard has had no memory for an entry for too long.
    fn has_no_room(&self, following: &Following) -> bool {
        following.full_ms() >= self.copy_for_room_ms
    }

    /// The primary would have to be copied anew, and the record of a cluster counts on what is here. So it
    /// follows no more for a while: the primary has a set recorded without this server.
    fn leave_set(&mut self, replica: &mut Replica) {
        let why = "this server is to copy the primary, and keeps what it has until the recorded in-sync set is another one";
        if replica.following.set_trouble(why) {
            tracing::warn!("{why}");
        }
        replica.end_link();
        self.pause(replica, Duration::from_millis(FOLLOW_AGAIN_MAX_MS));
    }

    /// Copies the primary anew: the copy lies together, and leaves no places between records. The
    /// next such copy comes later.
    fn copy_for_room(&mut self, before: Replica) -> Replica {
        let Following { primary, copies_for_room, .. } = &*before.following;
        let (why, waited_ms) = (before.following.trouble(), self.copy_for_room_ms);
        let copies = copies_for_room.load(Ordering::Relaxed) + 1;
        tracing::warn!(
            "{primary} is copied anew, time {copies} for this reason, as {waited_ms} ms did not help: {why}"
        );
        self.copy_for_room_ms = (2 * waited_ms).min(COPY_FOR_ROOM_MAX_MS);
        let next = Following::new(primary.clone(), self.shared.shards.len());
        next.copies_for_room.store(copies, Ordering::Relaxed);
        next.set_trouble(&format!("the primary is copied anew: {why}"));
        // What was received and is not applied goes away.
        self.is_whole = false;
        self.epoch = self.epoch.max(before.epoch());
        let next = before.anew(Arc::new(next));
        drop(before);
        if let Err(why) = self.begin(next) {
            tracing::warn!("{why}");
        }
        self.replica.take().expect("it was just begun")
    }

    /// Waits, unless there is something to do.
    fn pause(&mut self, replica: &mut Replica, most: Duration) {
        let until = Instant::now() + most;
        while Instant::now() < until && !self.is_called() {
            replica.idle();
            std::thread::sleep(Duration::from_millis(HEARTBEAT_MS).min(most));
        }
    }

    fn change(&mut self, change: RoleChange, token: Token) {
        let changed = match change {
            RoleChange::Follow(primary) => self.follow(primary),
            RoleChange::Lead => self.lead(),
            RoleChange::Resync => self.resync(),
        };
        let (number, text) = match changed {
            Ok(()) => (1, "OK".to_owned()),
            Err(why) => {
                tracing::warn!("the role of this server is not changed: {why}");
                (0, why)
            }
        };
        let reply =
            OwnedReply { number, value: Some(text.into_bytes()), ..OwnedReply::status(Status::Ok) };
        self.shared.shards[token.home].inbox.push(Message::RoleAnswer(token, reply));
    }

    fn carry_out(&mut self, order: Order) -> OrderAnswer {
        match order {
            Order::Hold => self.hold(),
            Order::Follow(address, incarnation) => self.follow_ordered((address, incarnation)),
            Order::Lead => self.lead().map(|()| self.is_held = false),
            Order::Record(led) => match &self.shared.disk {
                Some(disk) => disk.led.say(led),
                None => Err("there is no data directory".into()),
            },
        }?;
        Ok(self.replica.as_mut().and_then(Replica::ends))
    }

    /// Neither leads nor follows. What lies in the rings is taken out, and nothing comes any more: the
    /// old primary sees that, and counts no entry as stored here.
    fn hold(&mut self) -> Result<(), String> {
        match &mut self.replica {
            Some(replica) => replica.end_link(),
            None => self.leave_epoch()?,
        }
        self.is_held = true;
        Ok(())
    }

    /// Leads no more, without another primary yet. What this server has is the log that it wrote, whole:
    /// if the next primary had all of that, and no more, there is nothing to copy.
    fn leave_epoch(&mut self) -> Result<(), String> {
        tracing::info!("this server leads no more, as the coordinator says");
        let shards = self.shared.shards.len();
        self.shared.roles.set(Role::Replica(Arc::new(Following::unled(shards))));
        self.shared.view.hide();
        self.step(RoleStep::Follow)?;
        let mut following = Following::unled(shards);
        let logs = self.shared.shards.iter().enumerate().map(|(log, shard)| {
            let written = shard.cluster.lock().unwrap_or_else(PoisonError::into_inner);
            let position = Some((written.last, written.epoch));
            vec![FollowedLog { log: log as u16, logs: shards as u16, key: written.key, position }]
        });
        following.resume(Resume::of(logs.collect()));
        let following = Arc::new(following);
        self.shared.roles.set(Role::Replica(Arc::clone(&following)));
        self.replica = Some(Replica::new(Arc::clone(&self.shared), following));
        Ok(())
    }

    /// Follows this server, from where it is with the log of the primary before.
    fn follow_ordered(&mut self, (primary, incarnation): (Address, u64)) -> Result<(), String> {
        let is_same =
            |of: &Replica| of.following.primary == primary && of.following.is_of(incarnation);
        if !self.is_held && self.replica.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        self.hold()?;
        let mut before = self.replica.take().expect("it is held");
        if let Err(why) = before.settle() {
            self.replica = Some(before);
            return Err(why);
        }
        tracing::info!("this server follows {primary}, as the coordinator says");
        self.epoch = self.epoch.max(before.epoch());
        let next = before.moved((primary, incarnation));
        self.shared.roles.set(Role::Replica(Arc::clone(&next.following)));
        (self.replica, self.is_held) = (Some(next), false);
        Ok(())
    }

    /// Becomes the replica of another server.
    fn follow(&mut self, primary: Address) -> Result<(), String> {
        if self.replica.as_ref().is_some_and(|of| of.following.primary == primary) {
            return Ok(());
        }
        self.check_new_primary(&primary)?;
        if let Some(before) = self.replica.take() {
            self.leave(before);
        }
        tracing::info!("this server becomes a replica of {primary}, as it was told");
        self.begin_anew(primary)
    }

    /// Leaves a primary. What it has sent counts, if the next one is never reached.
    fn leave(&mut self, mut before: Replica) {
        before.end_link();
        self.is_whole = before.is_whole(self.is_whole);
        self.epoch = self.epoch.max(before.epoch());
        // Some of it may be acknowledged nowhere: no reader sees it.
        std::thread::sleep(self.shared.view.hide());
        if let Err(why) = before.end() {
            let primary = &before.following.primary;
            tracing::warn!("not all that came from {primary} is applied: {why}");
            self.is_whole = false;
        }
    }

    /// Follows a primary, from nothing, as it was told.
    fn begin_anew(&mut self, primary: Address) -> Result<(), String> {
        self.copy_for_room_ms = COPY_FOR_ROOM_MS;
        let following = Arc::new(Following::new(primary, self.shared.shards.len()));
        self.begin(Replica::new(Arc::clone(&self.shared), following))
    }

    /// Follows a primary, by this replica, which has no link.
    fn begin(&mut self, replica: Replica) -> Result<(), String> {
        self.shared.roles.set(Role::Replica(Arc::clone(&replica.following)));
        // Its clients' leases lapse before anything goes that they have seen.
        self.shared.view.hide();
        self.replica = Some(replica);
        self.step(RoleStep::Follow).map(|_| ())
    }

    fn check_new_primary(&self, primary: &Address) -> Result<(), String> {
        let is_own = match primary {
            Address::Unix(path) => *path == self.shared.config.socket_path,
            Address::Tcp(address) => Some(*address) == self.shared.fabric_address,
            // A link to this server itself is refused by its incarnation.
            Address::Host(..) => false,
        };
        if is_own {
            return Err("ERR That is the address of this server itself".into());
        }
        let config = &self.shared.config;
        if config.tls.is_some() && config.peer_tls.is_none() && !primary.is_unix() {
            return Err("ERR This server speaks TLS, and knows no authority of its primary's certificate: start it with --peer-tls-ca".into());
        }
        Ok(())
    }

    /// Becomes a primary: the promotion by hand. Nothing keeps the old primary from taking changes.
    fn lead(&mut self) -> Result<(), String> {
        let Some(mut replica) = self.replica.take() else { return Ok(()) };
        // A refusal leaves a copy alone that is under way. Whether the data are whole counts once the
        // link has ended: no copy begins any more then.
        let is_whole = replica.is_whole(self.is_whole) && {
            replica.end_link();
            replica.is_whole(self.is_whole)
        };
        if !is_whole {
            self.replica = Some(replica);
            return Err("ERR This replica has a part of a copy, and no whole data: let the copy end, follow another server, or restart this one".into());
        }
        let primary = replica.following.primary.clone();
        self.epoch = self.epoch.max(replica.epoch());
        // What lies beyond the commit position may be acknowledged nowhere, and the promotion may fail: no reader
        // sees it. Behind a hand-over there is none of it, and nothing to wait for.
        let read_leases_last = self.shared.view.hide();
        if replica.has_uncommitted() {
            std::thread::sleep(read_leases_last);
        }
        let (beyond, epoch) = match replica.end() {
            Ok(ended) => ended,
            Err(why) => {
                self.replica = Some(replica);
                return Err(format!(
                    "ERR This replica has not applied all that it received: {why}"
                ));
            }
        };
        self.epoch = self.epoch.max(epoch).max(self.shared.roles.epoch()) + 1;
        let (epoch, log_secret) = (self.epoch, random_u64());
        self.shared.roles.begin_epoch(epoch);
        let tails = Arc::new(replica.take_tails());
        let stepped = self.step(|barrier| {
            let tails = Arc::clone(&tails);
            RoleStep::Lead { epoch, log_secret, tails, barrier }
        });
        self.shared.roles.set(Role::Primary);
        self.is_whole = true;
        match self.shared.config.is_clustered() {
            // It serves once it has a lease.
            true => self.shared.view.lease(0),
            false => self.shared.view.be_primary(),
        }
        tracing::info!(
            "this server leads, as it was told, under epoch {epoch}: it was a replica of {primary}, and has applied all that it received, {beyond} entries beyond the commit position"
        );
        stepped.map(|_| ())
    }

    fn resync(&mut self) -> Result<(), String> {
        let Some(before) = self.replica.take() else {
            return Err("ERR This server is a primary: there is nothing to copy".into());
        };
        let primary = before.following.primary.clone();
        self.leave(before);
        tracing::info!("{primary} is copied anew, as it was told");
        self.begin_anew(primary)
    }

    /// Each shard takes this step. The latest epoch that one of them knows.
    fn step(&self, step: impl Fn(Arc<StepBarrier>) -> RoleStep) -> Result<u64, String> {
        let barrier = StepBarrier::new(self.shared.shards.len());
        for shard in &self.shared.shards {
            shard.inbox.push(Message::Role(step(Arc::clone(&barrier))));
        }
        let mut wait = ProgressWait::new(Duration::from_millis(ROLE_TIMEOUT_MS));
        let passed = barrier.wait(|| !self.shared.is_stopping() && wait.goes_on(0));
        passed.ok_or_else(|| "ERR A shard has not answered in time: the change goes on".into())
    }
}
