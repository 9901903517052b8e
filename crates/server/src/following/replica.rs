//! A replica's links to its primary, one after another.

use super::host::ReplicaHost;
use super::state::Following;
use super::step_barrier::{ProgressWait, StepBarrier};
use super::worker::{Ended, Worker};
use crate::shared::Shared;
use remora_client_core::{Options, Subscriber};
use remora_cluster::message::Position;
use remora_engine::TailPiece;
use remora_fabric::{Address, HELLO_TIMEOUT, Wake};
use remora_layout::limits::{HEARTBEAT_MS, ROLE_TIMEOUT_MS};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Turns without a result after which the thread leaves the core to the shards.
const HELD_UP_TURNS: u32 = 64;
/// For how long.
const HELD_UP_PAUSE: Duration = Duration::from_millis(1);
/// How long a primary has at first to take a connection, and for each answer when a link is made. A try that fails doubles it, up to
/// [`HELLO_TIMEOUT`]: the thread hears no order meanwhile, and a primary that stands still never answers.
const FIRST_HELLO_TIMEOUT: Duration = Duration::from_millis(250);

/// See the module's text.
pub(super) struct Replica {
    shared: Arc<Shared>,
    pub following: Arc<Following>,
    worker: Worker<ReplicaHost>,
    link: Option<Subscriber>,
    /// See [`FIRST_HELLO_TIMEOUT`]; of the next try.
    hello_timeout: Duration,
}

impl Replica {
    /// Of this primary, from nothing.
    pub fn new(shared: Arc<Shared>, following: Arc<Following>) -> Self {
        let host = ReplicaHost { shared: Arc::clone(&shared), following: Arc::clone(&following) };
        let worker = Worker::new(host, shared.shards.len());
        Self { shared, following, worker, link: None, hello_timeout: FIRST_HELLO_TIMEOUT }
    }

    /// The one that copies the same primary anew: see [`Worker::anew`].
    pub fn anew(&self, following: Arc<Following>) -> Self {
        let shared = Arc::clone(&self.shared);
        let host = ReplicaHost { shared: Arc::clone(&shared), following: Arc::clone(&following) };
        let worker = self.worker.anew(host);
        Self { shared, following, worker, link: None, hello_timeout: FIRST_HELLO_TIMEOUT }
    }

    /// The one that follows another primary from here: see [`Worker::moved`]. It is settled.
    pub fn moved(self, primary: (Address, u64)) -> Self {
        let following = Arc::new(self.following.moved(primary));
        let (shared, host) = (&self.shared, &following);
        let host = ReplicaHost { shared: Arc::clone(shared), following: Arc::clone(host) };
        let worker = self.worker.moved(host);
        Self { following, worker, link: None, hello_timeout: FIRST_HELLO_TIMEOUT, ..self }
    }

    /// See [`Worker::ends`].
    pub fn ends(&mut self) -> Option<Vec<Position>> {
        self.worker.ends()
    }

    /// See [`Worker::take_tails`].
    pub fn take_tails(&mut self) -> Vec<Vec<TailPiece>> {
        self.worker.take_tails()
    }

    /// Waits until the shards have carried out what they were given. There is no link.
    ///
    /// # Errors
    /// They have not; why.
    pub fn settle(&mut self) -> Result<(), String> {
        let barrier = StepBarrier::new(self.shared.shards.len());
        self.worker.give_barrier(&barrier);
        self.wait_for_shards(&barrier).map(|_| ())
    }

    /// Follows over one link, until that ends or `is_called` says that there is something else to
    /// do.
    pub fn follow(&mut self, is_called: impl FnMut() -> bool) -> Ended {
        let Err(ended) = self.connect().and_then(|()| self.serve(is_called)) else {
            unreachable!("it follows until it ends")
        };
        if let Ended::Failed(_) = ended {
            self.end_link();
        }
        ended
    }

    /// See [`Worker::is_whole`].
    pub fn is_whole(&mut self, before: bool) -> bool {
        self.worker.is_whole(before)
    }

    /// See [`Worker::has_uncommitted`].
    pub fn has_uncommitted(&mut self) -> bool {
        self.worker.has_uncommitted()
    }

    /// See [`Worker::idle`].
    pub fn idle(&mut self) {
        self.worker.idle();
    }

    /// See [`Worker::epoch`].
    pub fn epoch(&self) -> u64 {
        self.worker.epoch()
    }

    fn connect(&mut self) -> Result<(), Ended> {
        if self.link.is_none() {
            let (transport, rdma_packets) =
                (self.shared.config.transport, self.shared.config.rdma_packets);
            // It sleeps between messages: a replica's cores are for its shards.
            let hello_timeout = self.hello_timeout;
            let options = Options {
                transport,
                wake: Wake::Hybrid,
                credentials: self.shared.config.peer_login.clone(),
                tls: self.shared.config.peer_tls.clone(),
                rdma_packets,
                connect_timeout: hello_timeout,
                hello_timeout,
                ..Options::default()
            };
            self.hello_timeout = HELLO_TIMEOUT.min(2 * hello_timeout);
            let link = Subscriber::connect(self.following.primary.clone(), &options)?;
            self.hello_timeout = FIRST_HELLO_TIMEOUT;
            let link = self.link.insert(link);
            if link.incarnation() == self.shared.incarnation {
                return Err(Ended::Failed(
                    "this is the address of the replica itself: name its primary's".into(),
                ));
            }
            if !self.following.is_of(link.incarnation()) {
                self.link = None;
                return Err(Ended::Failed(
                    "another process answers at its address than the coordinator names".into(),
                ));
            }
            self.worker.begin(link)?;
        }
        Ok(())
    }

    fn serve(&mut self, mut is_called: impl FnMut() -> bool) -> Result<(), Ended> {
        let link = self.link.as_mut().expect("it was just made");
        let (mut told, mut idle_turns) = (Instant::now(), 0u32);
        // Bounded by the life of the link.
        loop {
            if is_called() {
                return Err(Ended::Called);
            }
            let worked = self.worker.turn(link)?;
            if told.elapsed() >= Duration::from_millis(HEARTBEAT_MS) {
                told = Instant::now();
                self.worker.tell(link)?;
            }
            if worked {
                idle_turns = 0;
                continue;
            }
            idle_turns += 1;
            self.following.sleeps.fetch_add(1, Ordering::Relaxed);
            let waited = Instant::now();
            link.wait(Duration::from_millis(HEARTBEAT_MS))?;
            // Messages lie there that the shards have no room for yet: the link wakes at once.
            if idle_turns > HELD_UP_TURNS && waited.elapsed() < HELD_UP_PAUSE {
                std::thread::sleep(HELD_UP_PAUSE);
            }
        }
    }

    /// The link is over. A primary that has gone sends nothing more: what it has sent lies in the
    /// rings. INFO says that the link is down once its positions count that too: an operator who chooses
    /// among replicas compares them then.
    pub fn end_link(&mut self) {
        if let Some(mut link) = self.link.take() {
            self.worker.take_rest(&mut link);
        }
        self.worker.publish();
        self.following.is_up.store(false, Ordering::Release);
    }

    /// Applies all that was received, and ends the link. Gives the entries beyond the commit
    /// position that are among them, and the latest epoch that a shard knows.
    ///
    /// # Errors
    /// The shards have not applied it; why.
    pub fn end(&mut self) -> Result<(u64, u64), String> {
        self.end_link();
        let barrier = StepBarrier::new(self.shared.shards.len());
        let beyond = self.worker.give_rest(&barrier);
        self.wait_for_shards(&barrier).map(|epoch| (beyond, epoch))
    }

    /// Waits until all shards have come to this barrier. The latest epoch that one of them knows.
    fn wait_for_shards(&self, barrier: &StepBarrier) -> Result<u64, String> {
        let mut wait = ProgressWait::new(Duration::from_millis(ROLE_TIMEOUT_MS));
        let (shared, following) = (&self.shared, &self.following);
        match barrier.wait(|| !shared.is_stopping() && wait.goes_on(following.progress())) {
            Some(epoch) => Ok(epoch),
            None => Err(match following.trouble() {
                none if none.is_empty() => "its shards have not applied what it received".into(),
                trouble => trouble,
            }),
        }
    }
}
