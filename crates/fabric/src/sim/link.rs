//! The simulated link: each operation is a few events of its world.
//!
//! ```text
//!   post .. request .. begin [ effect ] end .. answer .. completion
//! ```
//! The intervals of a link's operations do not overlap: that is the order
//! between operations. Inside an interval nothing is ordered.

use super::target::SimTarget;
use super::world::{SimWorld, lock};
use crate::{Completion, Link, LinkError, RemoteAddress, Transport, Waited, Work};
use remora_layout::limits::{MAX_READ_BYTES, MAX_WRITE_BYTES};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// WRITEs become visible in at most so many steps.
const MAX_STEPS: u64 = 8;

/// Bytes of a READ and their place.
type Fetched = Option<(usize, Vec<u8>)>;

struct State {
    world: SimWorld,
    /// The task that waits for a completion.
    waiting: Mutex<Option<u64>>,
    /// Posted and not completed, oldest first.
    pending: VecDeque<u64>,
    ready: VecDeque<(Completion, Fetched)>,
    /// Links that are lost with this one.
    bundle: SimBundle,
    /// Why the target executes nothing more for this link.
    refused: Option<LinkError>,
    lost: Option<LinkError>,
    /// When the last operation's effect ends, and its completion comes.
    effect_ends_ns: u64,
    completes_ns: u64,
}

impl State {
    fn new(world: &SimWorld) -> Self {
        Self {
            world: world.clone(),
            waiting: Mutex::default(),
            pending: VecDeque::new(),
            ready: VecDeque::new(),
            bundle: SimBundle::default(),
            refused: None,
            lost: None,
            effect_ends_ns: 0,
            completes_ns: 0,
        }
    }

    /// Completes the oldest operation, unless the link was lost before.
    fn complete(&mut self, result: Result<Fetched, LinkError>) {
        if self.lost.is_some() {
            return;
        }
        let id = self.pending.pop_front().expect("completions come one for one");
        let (result, fetched) = match result {
            Ok(fetched) => (Ok(()), fetched),
            Err(reason) => (Err(reason), None),
        };
        self.ready.push_back((Completion { id, result }, fetched));
        self.world.wake(&self.waiting);
    }

    fn lose(&mut self, reason: LinkError) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(reason);
        for id in std::mem::take(&mut self.pending) {
            self.ready.push_back((Completion { id, result: Err(reason) }, None));
        }
        self.world.wake(&self.waiting);
        let bundle = self.bundle.clone();
        self.world.schedule(0, move || bundle.lose());
    }

    fn dead(&self) -> Option<LinkError> {
        self.lost.or(self.refused)
    }
}

/// The links of one connection, both ends' of them: with one all are lost.
#[derive(Clone, Default)]
pub struct SimBundle(Arc<Mutex<Vec<Weak<Mutex<State>>>>>);

impl SimBundle {
    /// All its links are lost: what is under way on them fails.
    pub fn lose(&self) {
        for state in std::mem::take(&mut *lock(&self.0)).iter().filter_map(Weak::upgrade) {
            lock(&state).lose(LinkError::Disconnected);
        }
    }
}

/// What happens to one operation.
struct Flight {
    world: SimWorld,
    target: SimTarget,
    state: Arc<Mutex<State>>,
    completes_ns: u64,
    torn: bool,
    /// With it the link is lost: before its effect, or after.
    lost_before: bool,
    lost_after: bool,
}

impl Flight {
    /// The effect is over: completes, with its result, when the answer comes.
    fn finish(self, result: Result<Fetched, LinkError>) {
        let mut state = lock(&self.state);
        if let Err(reason) = result {
            state.refused.get_or_insert(reason);
        }
        if self.lost_after {
            state.lose(LinkError::Disconnected);
        }
        drop(state);
        let state = Arc::clone(&self.state);
        self.world.schedule_at(self.completes_ns, move || lock(&state).complete(result));
    }

    /// Whether the operation takes effect at all.
    fn begin(&self) -> Result<(), LinkError> {
        let mut state = lock(&self.state);
        if self.lost_before {
            state.lose(LinkError::Disconnected);
        }
        state.dead().map_or(Ok(()), Err)
    }

    fn read(self, from: RemoteAddress, into: usize, bytes: usize, ends_ns: u64) {
        let found = self.begin().and_then(|()| self.target.readable(from, bytes));
        let (words, journal, offset) = match found {
            Ok(found) => found,
            Err(reason) => return self.finish(Err(reason)),
        };
        let reader = lock(&journal.0).begin();
        let world = self.world.clone();
        world.schedule_at(ends_ns, move || {
            let mut history = lock(&journal.0);
            // Withdrawn meanwhile: it must not succeed.
            let result = self.target.readable(from, bytes).map(|_| {
                let compose = |random: &mut _| {
                    history.compose(reader, &words, offset, bytes, self.torn, random)
                };
                Some((into, self.world.draw(compose)))
            });
            history.end(reader);
            drop(history);
            self.finish(result);
        });
    }

    fn write(self, to: RemoteAddress, bytes: Vec<u8>, imm: Option<u32>, ends_ns: u64) {
        let length = bytes.len();
        let found = self.begin().and_then(|()| self.target.writable(to, length));
        let (words, offset) = match found {
            Ok(found) => found,
            Err(reason) => return self.finish(Err(reason)),
        };
        let (world, begins_ns) = (self.world.clone(), self.world.now_ns());
        for (time_ns, step) in self.steps(&bytes, offset / 8, begins_ns, ends_ns) {
            let (words, target) = (words.clone(), self.target.clone());
            let state = Arc::clone(&self.state);
            world.schedule_at(time_ns, move || {
                if lock(&state).lost.is_none() && target.writable(to, length).is_ok() {
                    step.into_iter().for_each(|(index, word)| words.store(index, word));
                }
            });
        }
        world.schedule_at(ends_ns, move || {
            let result = self.target.writable(to, length).map(|_| None);
            if result.is_ok() && lock(&self.state).lost.is_none() {
                self.target.arrived(imm, &self.world);
            }
            self.finish(result);
        });
    }

    /// The words of a WRITE, each in one of some steps at some times.
    fn steps(
        &self,
        bytes: &[u8],
        first: usize,
        begins_ns: u64,
        ends_ns: u64,
    ) -> Vec<(u64, Vec<(usize, u64)>)> {
        self.world.draw(|random| {
            let count = if self.torn { 1 + random.below(MAX_STEPS) } else { 1 };
            let times = begins_ns..=ends_ns;
            let mut steps: Vec<_> =
                (0..count).map(|_| (random.within(&times), Vec::new())).collect();
            for (at, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                let step = random.below(count) as usize;
                steps[step].1.push((first + at, u64::from_le_bytes(word)));
            }
            steps
        })
    }
}

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
}

impl SimLink {
    /// A link to `target`.
    pub fn new(world: &SimWorld, target: &SimTarget) -> Self {
        Self {
            world: world.clone(),
            target: target.clone(),
            local: None,
            seen_arrivals: 0,
            state: Arc::new(Mutex::new(State::new(world))),
            landing: Vec::new(),
            failure: None,
        }
    }

    /// This link is lost with the others of the bundle, and they with it.
    pub fn join(&mut self, bundle: &SimBundle) {
        lock(&bundle.0).push(Arc::downgrade(&self.state));
        lock(&self.state).bundle = bundle.clone();
    }

    /// What the peer writes there ends a [`Link::wait`].
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
        if let Err(reason) = checked {
            state.completes_ns = state.completes_ns.max(now);
            let (at, shared) = (state.completes_ns, Arc::clone(&self.state));
            drop(state);
            self.failure = Some(reason);
            self.world.schedule_at(at, move || lock(&shared).complete(Err(reason)));
            return;
        }
        let options = self.world.options();
        let (request, effect, answer, torn, lost, before) = self.world.draw(|random| {
            (
                random.within(&options.request_ns),
                random.within(&options.effect_ns),
                random.within(&options.answer_ns),
                random.happens(options.tear_ppm),
                random.happens(options.loss_ppm),
                random.below(2) == 0,
            )
        });
        let begins_ns = state.effect_ends_ns.max(now + request);
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
        false
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

    /// Lets virtual time pass; a task is suspended meanwhile. Without end and without anything that is to
    /// happen, the time is up at once.
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
}
