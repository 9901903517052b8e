//! The server's interface for the RESP connections of one shard's thread: the shard itself, the
//! thread's knowledge of the others, and the mail that a turn gathers for each of them.

use super::host::{Host, Prefetch, Save};
use super::{info, replication};
use crate::acknowledging::Acknowledging;
use crate::cluster_facts::ClusterFactsView;
use crate::disk::{LogShipper, SnapshotPort, SnapshotSource};
use crate::following::{Applier, Batch, RoleChange};
use crate::inbox::{Mail, Message, Outbox};
use crate::joint_gate::JointGate;
use crate::large_jobs::LargeJobs;
use crate::link_targets::find_elsewhere;
use crate::plans::{PLANS, Plans};
use crate::shared::{ShardHandle, Shared};
use crate::thread_counts::ThreadCounts;
use crate::users::UserTable;
use crate::waits::Waits;
use remora_arena::{NoJournal, Owner, ReadView};
use remora_engine::{Now, Shard};
use remora_frontend::{ConnectionCounts, Here, Job, OwnedReply, ShardPort, Token};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CONNECTION_REQUESTS_AHEAD, JOBS_PER_TURN};
use remora_layout::pointer::RemotePointer;
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_resp::CommandError;
use remora_resp::cluster::ClusterFacts;
use remora_resp::commands::replication::RoleFacts;
use remora_resp::request::{RoleRequest, Sections};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module's text.
pub struct ShardHost {
    /// The state that all threads share.
    pub shared: Arc<Shared>,
    /// The number of the shard.
    pub number: usize,
    /// The shard.
    pub shard: Shard<NoJournal>,
    /// Its jobs that are under way.
    pub large_jobs: LargeJobs,
    /// The plans that run at its thread.
    pub plans: Plans,
    /// How far its changes may be acknowledged.
    pub acknowledging: Acknowledging,
    /// How far the disk has the changes of two shards, and this shard's log by itself.
    synced: JointGate,
    /// See above.
    reached_disk: u64,
    /// The time of the present turn.
    pub now: Now,
    /// Waiting jobs, of this thread's connections and others'.
    jobs: VecDeque<Job>,
    /// Mail for the other shards' threads.
    outbox: Outbox,
    /// Hands the shard's entries to the thread of the log.
    shipper: Option<LogShipper>,
    /// The shard's part in a snapshot, if one is under way.
    snapshot: Option<SnapshotSource>,
    /// Applies the log of the primary, at a replica.
    applier: Applier,
    /// In a cluster, what is known of it.
    cluster: Option<ClusterFactsView>,
}

impl ShardHost {
    /// A fresh shard, with this number.
    pub fn new(shared: Arc<Shared>, number: usize, mut shard: Shard<NoJournal>) -> Self {
        let shipper = shared.disk.as_ref().map(|disk| {
            shard.set_synced(disk.synced[number].load(Ordering::Acquire));
            disk.shipper(number, &mut shard)
        });
        if shared.shards.len() > 1 {
            shard.set_find_elsewhere(find_elsewhere(&shared, number));
        }
        let cluster = shared.cluster_facts.clone().map(ClusterFactsView::new);
        let outbox = Outbox::new(number, shared.shards.len());
        let of = (shared.config.min_replicas, shared.config.is_clustered());
        let mut acknowledging = Acknowledging::new(&mut shard, of, shared.awaits_disk);
        let mut synced = JointGate::new(number, shared.joint_synced.clone());
        if shared.shards.len() > 1 {
            acknowledging.passes(JointGate::new(number, shared.joint_durable.clone()));
            acknowledging.look_at_parts(&mut shard);
        }
        let disk = shared.disk.as_ref();
        let reached_disk = disk.map_or(0, |of| of.synced[number].load(Ordering::Acquire));
        synced.pass(reached_disk);
        Self {
            acknowledging,
            synced,
            reached_disk,
            now: shared.clock.now(),
            plans: Plans::new(number, shared.hash_seed),
            shared,
            number,
            shard,
            large_jobs: LargeJobs::default(),
            jobs: VecDeque::new(),
            outbox,
            shipper,
            snapshot: None,
            applier: Applier::default(),
            cluster,
        }
    }

    /// Takes a part of the log of the primary in.
    pub fn take_batch(&mut self, batch: Arc<Batch>) {
        self.applier.take(batch);
    }

    /// Applies some of the log of the primary, if this server is a replica.
    #[inline]
    pub fn apply_some(&mut self) {
        if self.applier.has_work() {
            self.applier.turn((self.number, &mut self.shard), &self.shared.slots, self.now);
        }
    }

    /// The server becomes a replica, or that of another primary.
    pub fn begin_following(&mut self) {
        self.applier.clear();
        if let Some(gate) = self.acknowledging.gate() {
            gate.clear();
        }
        self.synced.clear();
        let of = (self.number, self.shared.shards.len());
        self.shard.begin_following_anew(of, self.shared.disk.is_some());
        // It has no replicas.
        self.shard.keep_log(0);
    }

    /// Notes the parts of changes of two shards that were made, and rings for the shards that wait for
    /// what has become durable here.
    #[inline]
    pub fn tell_parts(&mut self) {
        let Some(gate) = self.acknowledging.gate() else { return };
        for part in self.large_jobs.joint.take_made() {
            if self.shard.is_applying() {
                continue;
            }
            gate.note(part);
            if self.shared.disk.is_some() {
                self.synced.note(part);
            }
        }
        let told = gate.take_told() | self.synced.take_told();
        for to in (0..self.shared.shards.len()).filter(|to| told >> to & 1 == 1) {
            self.shared.shards[to].inbox.push(Message::Parts);
        }
    }

    /// Parts may have become durable at other shards. Whether more has become durable here.
    pub fn look_at_parts(&mut self) -> bool {
        self.pass_synced(self.reached_disk);
        let has_more = self.acknowledging.look_at_parts(&mut self.shard);
        self.tell_parts();
        has_more
    }

    /// Whether the log of the primary is applied further with the next tick.
    pub fn awaits_tick(&self) -> bool {
        self.applier.waits()
    }

    /// The shard's clock ticks.
    pub fn tick_applier(&mut self) {
        self.applier.tick(self.now);
    }

    /// The shard's entries up to this one are on the disk.
    pub fn set_synced(&mut self, synced: u64) {
        self.reached_disk = self.reached_disk.max(synced);
        self.pass_synced(synced);
        self.tell_parts();
    }

    fn pass_synced(&mut self, reached: u64) {
        let synced = match self.synced.waits() || self.acknowledging.gate().is_some() {
            true => self.synced.pass(reached),
            false => reached,
        };
        self.large_jobs.set_synced(&self.shard, synced);
        self.shard.set_synced(synced);
        self.applier.note_synced(self.number, synced);
    }

    /// Hands the shard's new entries to the log's thread, as far as that has room; once it has all
    /// of them, also a client's wish for a sync.
    #[inline]
    pub fn ship_log(&mut self) {
        if let Some(shipper) = &mut self.shipper {
            shipper.ship(&mut self.shard);
        }
        if self.shard.wants_sync() && self.has_shipped() {
            if let Some(disk) = &self.shared.disk {
                disk.want_sync();
            }
            self.shard.begin_sync();
        }
    }

    /// Begins the shard's part in a snapshot.
    pub fn begin_snapshot(&mut self, port: Arc<SnapshotPort>) {
        let before = self.snapshot.take();
        self.snapshot = Some(SnapshotSource::begin(port, self.number, (&mut self.shard, before)));
    }

    /// Continues a snapshot for one turn, if one is under way.
    #[inline]
    pub fn snapshot_some(&mut self) {
        if let Some(source) = &mut self.snapshot
            && source.has_work()
            && !source.turn(&mut self.shard, self.now)
        {
            self.snapshot = None;
        }
    }

    /// Whether a snapshot is under way that waits for something else than this thread.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Whether entries are to be handed over that there was no room for.
    pub fn may_ship(&self) -> bool {
        self.shipper.as_ref().is_some_and(|shipper| shipper.may_ship(&self.shard))
    }

    /// Whether the log's thread has all entries, or never takes them.
    pub fn has_shipped(&self) -> bool {
        self.shipper.as_ref().is_none_or(|shipper| shipper.has_shipped(&self.shard))
    }

    /// The shard's public state.
    pub fn handle(&self) -> &ShardHandle {
        &self.shared.shards[self.number]
    }

    /// Whether there is something to do for jobs.
    pub fn has_jobs(&self) -> bool {
        let may_go_on = self.snapshot.as_ref().is_some_and(SnapshotSource::has_work);
        let may_send = self.may_send() || self.may_ship() || may_go_on;
        let has_some = !self.jobs.is_empty() || self.large_jobs.has_work();
        let has_waiters = self.shard.has_waiters_due() && !self.is_held();
        has_some || has_waiters || may_send || self.applier.has_work() || self.plans.has_work()
    }

    /// Whether there is room for mail that had to wait.
    pub fn may_send(&self) -> bool {
        self.outbox.may_send(|to| &self.shared.shards[to].inbox)
    }

    /// Takes in a job of another thread's connection.
    pub fn take(&mut self, job: Job) {
        self.jobs.push_back(job);
    }

    /// Executes some jobs, whose keys are fetched side by side, and moves a piece of a large one.
    /// Returns the number of jobs.
    pub fn execute_jobs(&mut self) -> u64 {
        let mut jobs = 0;
        while jobs < JOBS_PER_TURN
            && let some @ 1.. = self.jobs.len().min(CONNECTION_REQUESTS_AHEAD)
        {
            let hashes = || self.jobs.iter().take(some).filter_map(|job| job.hash);
            hashes().for_each(|hash| self.shard.prefetch(hash));
            hashes().for_each(|hash| self.shard.prefetch_record(hash));
            for job in self.jobs.drain(..some) {
                self.large_jobs.execute(&mut self.shard, job, self.now);
            }
            jobs += some;
        }
        self.large_jobs.turn(&mut self.shard, self.now);
        self.hand_waits();
        self.tell_parts();
        jobs as u64
    }

    /// A turn begins at this time, which was read after what it shows was looked at; `since_ms` is that of
    /// the monotonic clock.
    pub fn begin_turn(&mut self, now: Now, since_ms: u64) -> Now {
        self.now = Now { unix_ms: self.shared.view.judging_ms(now.unix_ms), ..now };
        self.plans.look_at_clock(since_ms);
        self.now
    }

    /// A turn of the plans: their looks go to the shards; the own one begins with its looks at once.
    pub fn plan_turn(&mut self) {
        if !self.plans.has_work() {
            return;
        }
        if let Some(status) = self.shared.view.refusal() {
            self.plans.end_all(status);
        }
        let (shared, cluster) = (&self.shared, &self.shared.cluster.published);
        let route = |database, key: &[u8]| {
            let hash = KeyHash::within(database, key, shared.hash_seed);
            (!cluster.is_elsewhere(key)).then(|| (hash, shared.slots.shard_of(key)))
        };
        self.plans.turn(route);
        while let Some((shard, job)) = self.plans.pop_job() {
            match shard == self.number {
                true => self.large_jobs.execute(&mut self.shard, job, self.now),
                false => self.outbox.add_job(shard, job),
            }
        }
    }

    /// Whether a reply is for a plan of this thread, which takes it.
    #[inline]
    pub fn take_for_plan(&mut self, token: &Token, reply: OwnedReply) -> Option<OwnedReply> {
        if token.connection == PLANS {
            self.plans.take(*token, reply);
            return None;
        }
        Some(reply)
    }

    /// Serves requests that wait for keys that this turn has changed.
    #[inline]
    pub fn serve_waiters(&mut self) {
        self.large_jobs.serve_waiters(&mut self.shard, self.now);
    }

    /// Hands the orders of waiting requests to their shards.
    #[inline]
    pub(crate) fn hand_waits(&mut self) {
        while let Some((shard, job)) = self.large_jobs.waits.pop_job() {
            self.hand(shard, job);
        }
        while let Some((shard, job)) = self.large_jobs.joint.pop_job() {
            self.hand(shard, job);
        }
    }

    /// Whether the shard executes no commands now: a change of it and another shard is made.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.large_jobs.joint.is_held()
    }

    /// The next reply for a connection of this thread; those for others go into
    /// their mail.
    pub fn pop_own_reply(&mut self) -> Option<(Token, OwnedReply)> {
        // Bounded by the jobs of a turn and the replies that it releases.
        while let Some((token, reply)) = self.large_jobs.pop_reply() {
            if token.home == self.number {
                return Some((token, reply));
            }
            self.outbox.add_reply(token, reply);
        }
        None
    }

    /// Keeps emptied mail for the next messages.
    pub fn keep(&mut self, mail: Mail) {
        self.outbox.keep(mail);
    }

    /// Sends the turn's mail.
    pub fn send_mail(&mut self) {
        let Self { outbox, shared, number, .. } = self;
        outbox.send(|to| &shared.shards[to].inbox, &shared.shards[*number].thread);
    }
}

impl ShardPort for ShardHost {
    fn home(&self) -> usize {
        self.number
    }

    fn now_ms(&self) -> u64 {
        self.now.unix_ms
    }

    fn slots(&self) -> &SlotTable {
        &self.shared.slots
    }

    fn hash_seed(&self) -> u64 {
        self.shared.hash_seed
    }

    fn hand(&mut self, shard: usize, job: Job) {
        if shard == self.number {
            return self.jobs.push_back(job);
        }
        self.outbox.add_job(shard, job);
    }

    #[inline]
    fn is_free(&mut self, token: &Token) -> bool {
        self.large_jobs.is_free(token)
    }

    #[inline]
    fn execute<R>(
        &mut self,
        command: (&Command<'_>, KeyHash),
        at: (Token, bool),
        take: impl FnOnce(Here<'_>) -> R,
    ) -> Option<R> {
        Some(take(self.large_jobs.execute_here(&mut self.shard, command, at, self.now)))
    }

    fn durable_sequence(&self) -> u64 {
        self.shard.durable_sequence()
    }

    fn counts(&self) -> &ConnectionCounts {
        &self.handle().thread.frontend
    }

    fn note_end(&self) {
        self.handle().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Host for ShardHost {
    type Memory = ReadView;
    type Journal = NoJournal;

    fn keys_in(&self, shard: usize, database: Database) -> u64 {
        self.shared.shards[shard].stats().databases[database.number() as usize].keys
    }

    fn memory(&self, shard: usize) -> &ReadView {
        &self.shared.shards[shard].view
    }

    fn own_memory(&self, shard: usize) -> Option<&Owner<NoJournal>> {
        (shard == self.number).then(|| self.shard.owner())
    }

    #[inline]
    fn prefetch(&mut self, what: Prefetch, keys: impl Iterator<Item = KeyHash>) {
        match what {
            Prefetch::Buckets => keys.for_each(|hash| self.shard.prefetch(hash)),
            Prefetch::Records => keys.for_each(|hash| self.shard.prefetch_record(hash)),
        }
    }

    fn touched(&self, shard: usize, pointer: RemotePointer) {
        self.shared.shards[shard].touched.push(pointer);
    }

    #[inline]
    fn with_waits<R>(&mut self, act: impl FnOnce(&mut Waits) -> R) -> Option<R> {
        let done = act(&mut self.large_jobs.waits);
        self.hand_waits();
        Some(done)
    }

    fn plans(&mut self) -> Option<&mut Plans> {
        Some(&mut self.plans)
    }

    fn thread_counts(&self) -> &ThreadCounts {
        &self.handle().thread
    }

    #[inline]
    fn is_replica(&self) -> bool {
        self.shared.view.is_replica()
    }

    #[inline]
    fn is_guarded(&self) -> bool {
        self.cluster.is_some() || self.is_replica()
    }

    #[inline]
    fn cluster(&mut self) -> Option<&Arc<ClusterFacts>> {
        self.cluster.as_mut().map(ClusterFactsView::facts)
    }

    fn read_refusal(&self) -> Option<CommandError> {
        let refusal = self.shared.view.refusal()?;
        let following = self.shared.roles.following();
        let primary = following.map(|of| of.primary.to_string()).unwrap_or_default();
        Some(match refusal {
            Status::NoReads => CommandError::NoReads { primary },
            Status::Fenced => CommandError::Fenced,
            _ => CommandError::Copying { primary },
        })
    }

    fn change_refusal(&self) -> Option<CommandError> {
        self.shared.view.refuses_changes().then_some(CommandError::Fenced)
    }

    #[inline]
    fn users(&self) -> Option<&Arc<UserTable>> {
        Some(&self.shared.users)
    }

    fn users_changed(&self) {
        self.shared.users_changed();
    }

    fn info(&self, sections: &Sections<'_>) -> String {
        info::server(&self.shared, sections)
    }

    fn deliver(&self, message: &[u8]) -> Result<(), &'static str> {
        match self.shared.config.is_clustered() {
            true => self.shared.cluster.deliver(message),
            false => Err("ERR This server is in no cluster"),
        }
    }

    fn begin_save(&self) -> Save {
        match &self.shared.disk {
            None => Save::NothingKept,
            Some(disk) if disk.snapshots.want() => Save::Begun,
            Some(_) => Save::UnderWay,
        }
    }

    fn change_role(&self, change: RoleRequest<'_>, token: Token) -> Result<(), String> {
        if self.shared.config.is_clustered() {
            return Err("ERR This server is in a cluster, which says what it does: `remora cluster promote` and `drain` change that".into());
        }
        let change = match change {
            RoleRequest::Lead => RoleChange::Lead,
            RoleRequest::Resync => RoleChange::Resync,
            RoleRequest::Follow(primary) => {
                RoleChange::Follow(primary.parse().map_err(|error| format!("ERR {error}"))?)
            }
        };
        self.shared.roles.ask(change, token).map_err(str::to_owned)
    }

    fn role(&self) -> RoleFacts {
        replication::role(&self.shared)
    }

    fn keeps_data(&self) -> bool {
        self.shared.disk.is_some()
    }

    fn last_save_s(&self) -> u64 {
        let disk = self.shared.disk.as_ref();
        disk.map_or(0, |disk| disk.snapshots.saved_at_s.load(Ordering::Relaxed))
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        info::parameters(&self.shared)
    }
}
