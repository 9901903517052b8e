//! The simulated link: each operation is a few events of its world.
//!
//! ```text
//!   post .. request .. begin [ effect ] end .. answer .. completion
//! ```
//! The intervals of a link's operations do not overlap: that is the order
//! between operations. Inside an interval nothing is ordered.

use super::costs::{Act, Journey, SimCosts};
use super::flight::Flight;
use super::state::{SimBundle, State};
use super::target::SimTarget;
use super::world::{Plan, SimWorld, lock};
use crate::{Completion, Link, LinkError, Transport, Waited, Work};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One end of a simulated connection.
pub struct SimLink {
    world: SimWorld,
    target: SimTarget,
    /// This end's own memory, which the peer writes.
    local: Option<SimTarget>,
    seen_arrivals: u64,
    state: Arc<Mutex<State>>,
    landing: Vec<u8>,
    failure: Option<LinkError>,
    /// What operations cost, where that is stated and not drawn.
    costs: Option<Arc<SimCosts>>,
}

impl SimLink {
    /// A link to `target`. The world draws the costs of its operations.
    pub fn new(world: &SimWorld, target: &SimTarget) -> Self {
        Self {
            world: world.clone(),
            target: target.clone(),
            local: None,
            seen_arrivals: 0,
            state: Arc::new(Mutex::new(State::new(world))),
            landing: Vec::new(),
            failure: None,
            costs: None,
        }
    }

    /// A link to `target`. The caller states the costs of its operations.
    pub fn with_costs(world: &SimWorld, target: &SimTarget, costs: Arc<SimCosts>) -> Self {
        Self { costs: Some(costs), ..Self::new(world, target) }
    }

    /// This link is lost with the others of the bundle, and they with it.
    pub fn join(&mut self, bundle: &SimBundle) {
        lock(&bundle.0).push(Arc::downgrade(&self.state));
        lock(&self.state).bundle = bundle.clone();
    }

    /// A WRITE of the peer into this memory ends a [`Link::wait`].
    pub fn listen(&mut self, local: &SimTarget) {
        self.local = Some(local.clone());
    }

    /// The link is lost: all that is under way fails, each with this reason.
    pub fn lose(&mut self) {
        lock(&self.state).lose(LinkError::Disconnected);
    }

    /// Something that loses the link, to be scheduled.
    pub fn loser(&self) -> impl FnOnce() + 'static {
        let state = Arc::clone(&self.state);
        move || lock(&state).lose(LinkError::Disconnected)
    }

    fn check(&self, work: &Work<'_>) -> Result<(), LinkError> {
        if let Some(reason) = self.failure() {
            return Err(reason);
        }
        match *work {
            Work::Read { bytes, .. } if bytes > MAX_READ_BYTES => Err(LinkError::TooLong(bytes)),
            Work::Read { into, bytes, .. } => {
                let end = into.checked_add(bytes).filter(|end| *end <= self.landing.len());
                end.map(|_| ()).ok_or(LinkError::NoLanding)
            }
            Work::Write { bytes, .. } if bytes.len() > MAX_WRITE_BYTES => {
                Err(LinkError::TooLong(bytes.len()))
            }
            Work::Write { .. } => Ok(()),
        }
    }

    fn post_one(&mut self, work: &Work<'_>) {
        let checked = self.check(work);
        let now = self.world.now_ns();
        let mut state = lock(&self.state);
        if let Some(reason) = state.lost {
            let completion = Completion { id: work.id(), result: Err(reason) };
            return state.ready.push_back((completion, None));
        }
        state.pending.push_back(work.id());
        if let Some(costs) = &self.costs {
            drop(state);
            let journey = self.journey(Arc::clone(costs), work, checked);
            self.failure = checked.err().or(self.failure);
            return journey.there(0);
        }
        if let Err(reason) = checked {
            state.completes_ns = state.completes_ns.max(now);
            let (at, shared) = (state.completes_ns, Arc::clone(&self.state));
            drop(state);
            self.failure = Some(reason);
            self.world.schedule_at(at, move || lock(&shared).complete(Err(reason)));
            return;
        }
        let Plan { request, effect, answer, torn, lost, before } = self.world.plan();
        // After the end of the one before, whose completion is to come first.
        let begins_ns = (state.effect_ends_ns + 1).max(now + request);
        let ends_ns = begins_ns + effect;
        state.effect_ends_ns = ends_ns;
        state.completes_ns = state.completes_ns.max(ends_ns + answer);
        let flight = Flight {
            world: self.world.clone(),
            target: self.target.clone(),
            state: Arc::clone(&self.state),
            completes_ns: state.completes_ns,
            torn,
            lost_before: lost && before,
            lost_after: lost && !before,
        };
        drop(state);
        match *work {
            Work::Read { from, into, bytes, .. } => {
                let event = move || flight.read(from, into, bytes, ends_ns);
                self.world.schedule_at(begins_ns, event);
            }
            Work::Write { to, bytes, imm, .. } => {
                let bytes = bytes.to_vec();
                let event = move || flight.write(to, bytes, imm, ends_ns);
                self.world.schedule_at(begins_ns, event);
            }
        }
    }

    fn journey(
        &self,
        costs: Arc<SimCosts>,
        work: &Work<'_>,
        checked: Result<(), LinkError>,
    ) -> Journey {
        let act = match (checked, *work) {
            (Err(reason), _) => Act::Refused(reason),
            (_, Work::Read { from, into, bytes, .. }) => Act::Read { from, into, bytes },
            (_, Work::Write { to, bytes, imm, .. }) => {
                Act::Write { to, bytes: bytes.to_vec(), imm }
            }
        };
        let (world, target) = (self.world.clone(), self.target.clone());
        Journey { world, target, state: Arc::clone(&self.state), costs, act }
    }

    fn set_waiting(&self, task: Option<u64>) {
        *lock(&lock(&self.state).waiting) = task;
        if let Some(local) = &self.local {
            local.set_waiting(task);
        }
    }

    fn found(&mut self) -> Option<Waited> {
        let state = lock(&self.state);
        if !state.ready.is_empty() {
            return Some(Waited::Completed);
        }
        if let Some(local) = &self.local
            && local.arrivals() != self.seen_arrivals
        {
            self.seen_arrivals = local.arrivals();
            return Some(Waited::Arrived);
        }
        let failure = self.failure.or(state.lost);
        failure.filter(|_| state.pending.is_empty()).map(Waited::Failed)
    }
}

impl Link for SimLink {
    fn transport(&self) -> Transport {
        Transport::Sim
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        self.costs.as_ref().is_some_and(|costs| costs.reads_cost_peer_cpu)
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        batch.iter().for_each(|work| self.post_one(work));
    }

    fn poll(&mut self) -> Option<Completion> {
        let (completion, fetched) = lock(&self.state).ready.pop_front()?;
        if let Some((into, bytes)) = fetched {
            self.landing[into..into + bytes.len()].copy_from_slice(&bytes);
        }
        if let Err(reason) = completion.result {
            self.failure.get_or_insert(reason);
        }
        Some(completion)
    }

    /// Lets virtual time pass, and suspends the task until then. If there is no end and no event is
    /// scheduled, the time is over at once.
    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        let now = self.world.now_ns();
        let until = timeout.map_or(u64::MAX, |timeout| {
            now.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
        });
        // Bounded by the events until then.
        loop {
            if let Some(found) = self.found() {
                return found;
            }
            if let Some(task) = self.world.current_task() {
                if self.world.now_ns() >= until {
                    return Waited::TimedOut;
                }
                self.set_waiting(Some(task));
                self.world.suspend_until(task, until);
                self.set_waiting(None);
            } else if !self.world.step(until) {
                if timeout.is_some() {
                    self.world.advance(until - self.world.now_ns());
                }
                return Waited::TimedOut;
            }
        }
    }

    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        &self.landing[at..at + bytes]
    }

    fn reserve_landing(&mut self, bytes: usize) {
        if self.landing.len() < bytes {
            self.landing.resize(bytes, 0);
        }
    }

    fn failure(&self) -> Option<LinkError> {
        self.failure.or(lock(&self.state).lost)
    }

    fn has_completed(&self) -> bool {
        !lock(&self.state).ready.is_empty()
    }
}
