//! One core of the server: a shard, its clients' rings, and the time that
//! serving them takes. Requests wait in the order in which they arrived.

use super::costs::Costs;
use super::gate::{Gate, Written, lock};
use remora_engine::{Now, Shard};
use remora_fabric::sim::SimWorld;
use remora_server::ring_session::RingSession;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A core. Cheap to clone.
#[derive(Clone)]
pub struct Core(Arc<Mutex<State>>);

/// Times in which a core does not serve although requests are there. The core does not know of
/// them, so no heartbeat reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absences {
    /// Idle time after which it sleeps, ns ...
    pub sleeps_after_ns: u64,
    /// ... and time from the next request's arrival to its wake-up, ns.
    pub wake_ns: u64,
    /// Work after which it loses its processor, ns ...
    pub works_ns: u64,
    /// ... and the length of that loss, ns.
    pub away_ns: u64,
}

impl Absences {
    /// It is always there.
    pub const NONE: Self =
        Self { sleeps_after_ns: u64::MAX, wake_ns: 0, works_ns: u64::MAX, away_ns: 0 };
}

struct State {
    world: SimWorld,
    costs: Costs,
    shard: Shard,
    gate: Gate,
    rings: Vec<RingSession>,
    /// Sessions that want something, and since when.
    queue: VecDeque<(usize, u64)>,
    /// Start of its present work, as far as it is not counted yet.
    busy_since_ns: Option<u64>,
    /// Percent of the time that its work takes when the core is its own.
    pace_percent: u64,
    absences: Absences,
    /// Since when it has had nothing to do.
    idle_since_ns: u64,
    /// Work since it lost its processor last, ns.
    worked_ns: u64,
    load: Load,
}

/// A core's work since the last call.
#[derive(Clone, Copy, Default, Debug)]
pub struct Load {
    /// Time at work, ns.
    pub busy_ns: u64,
    /// Requests served.
    pub requests: u64,
    /// How long they waited before that, all together; ns.
    pub waited_ns: u64,
    /// Nodes that their searches visited.
    pub nodes: u64,
}

impl Load {
    /// Adds another core's, or another time's.
    pub fn add(&mut self, other: &Self) {
        self.busy_ns += other.busy_ns;
        self.requests += other.requests;
        self.waited_ns += other.waited_ns;
        self.nodes += other.nodes;
    }
}

impl State {
    /// How long it is away from now on, if its time is used up; ns.
    fn lose_processor(&mut self) -> u64 {
        if self.worked_ns < self.absences.works_ns {
            return 0;
        }
        self.worked_ns = 0;
        self.absences.away_ns
    }
}

impl Core {
    /// A core that owns this shard.
    pub fn new(world: &SimWorld, costs: &Costs, shard: Shard) -> Self {
        Self(Arc::new(Mutex::new(State {
            world: world.clone(),
            costs: *costs,
            shard,
            gate: Gate::default(),
            rings: Vec::new(),
            queue: VecDeque::new(),
            busy_since_ns: None,
            pace_percent: 100,
            absences: Absences::NONE,
            idle_since_ns: 0,
            worked_ns: 0,
            load: Load::default(),
        })))
    }

    /// Does something with its shard.
    pub fn with_shard<T>(&self, with: impl FnOnce(&mut Shard) -> T) -> T {
        with(&mut lock(&self.0).shard)
    }

    /// The gate that holds back its writes until the work for them is done.
    pub fn gate(&self) -> Gate {
        lock(&self.0).gate.clone()
    }

    /// A session's rings here; sessions come in the order of their numbers.
    pub fn attach(&self, ring: RingSession) {
        lock(&self.0).rings.push(ring);
    }

    /// Other work takes so much of the core that its own work takes this percentage of its time.
    pub fn set_pace(&self, percent: u64) {
        lock(&self.0).pace_percent = percent;
    }

    /// When it will not be there.
    pub fn set_absences(&self, absences: Absences) {
        lock(&self.0).absences = absences;
    }

    /// A session's request has arrived.
    pub fn arrive(&self, session: usize) {
        let mut state = lock(&self.0);
        let now_ns = state.world.now_ns();
        state.queue.push_back((session, now_ns));
        if state.busy_since_ns.is_none() {
            let sleeps_ns = if now_ns - state.idle_since_ns > state.absences.sleeps_after_ns {
                state.absences.wake_ns
            } else {
                0
            };
            let away_ns = sleeps_ns + state.lose_processor();
            state.busy_since_ns = Some(now_ns + away_ns);
            let core = self.clone();
            state.world.schedule(away_ns, move || core.serve());
        }
    }

    /// Serves the task that waits longest.
    fn serve(&self) {
        let mut guard = lock(&self.0);
        let state = &mut *guard;
        let now_ns = state.world.now_ns();
        let Some((session, since_ns)) = state.queue.pop_front() else {
            (state.busy_since_ns, state.idle_since_ns) = (None, now_ns);
            return;
        };
        let now = Now { unix_ms: now_ns / 1_000_000, since_start_s: now_ns / 1_000_000_000 };
        let frames = state.rings[session].turn(&mut state.shard, now);
        let frames = frames.expect("clients keep to the protocol") as u64;
        let Written { bytes, nodes } = state.gate.take_written();
        let Costs { request_ns, node_ns, reply_byte_ps, .. } = state.costs;
        let takes_ns = frames * request_ns + nodes * node_ns + bytes * reply_byte_ps / 1_000;
        let takes_ns = takes_ns * state.pace_percent / 100;
        state.worked_ns += takes_ns;
        state.load.requests += frames;
        state.load.waited_ns += if frames > 0 { now_ns.saturating_sub(since_ns) } else { 0 };
        state.load.nodes += nodes;
        state.busy_since_ns = Some(now_ns);
        let core = self.clone();
        state.world.schedule(takes_ns, move || core.done(session));
    }

    fn done(&self, session: usize) {
        let mut state = lock(&self.0);
        let now_ns = state.world.now_ns();
        state.load.busy_ns += now_ns.saturating_sub(state.busy_since_ns.unwrap_or(now_ns));
        state.gate.open();
        if state.rings[session].has_work() {
            state.queue.push_back((session, now_ns));
        }
        let away_ns = state.lose_processor();
        if away_ns == 0 {
            drop(state);
            return self.serve();
        }
        state.queue.iter_mut().for_each(|(_, since_ns)| *since_ns += away_ns);
        state.busy_since_ns = Some(now_ns + away_ns);
        let core = self.clone();
        state.world.schedule(away_ns, move || core.serve());
    }

    /// Its work since the last call.
    pub fn take_load(&self) -> Load {
        let mut state = lock(&self.0);
        let now_ns = state.world.now_ns();
        if let Some(since_ns) = state.busy_since_ns.replace(now_ns) {
            state.load.busy_ns += now_ns.saturating_sub(since_ns);
        } else {
            state.busy_since_ns = None;
        }
        std::mem::take(&mut state.load)
    }
}
