//! One operation of a simulated link under way.

use super::state::{Fetched, State};
use super::target::SimTarget;
use super::world::{SimWorld, lock};
use crate::{LinkError, RemoteAddress};
use std::sync::{Arc, Mutex};

/// WRITEs become visible in at most so many steps.
const MAX_STEPS: u64 = 8;

/// What happens to one operation.
pub(super) struct Flight {
    pub world: SimWorld,
    pub target: SimTarget,
    pub state: Arc<Mutex<State>>,
    pub completes_ns: u64,
    pub torn: bool,
    /// With it the link is lost: before its effect, or after.
    pub lost_before: bool,
    pub lost_after: bool,
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

    pub fn read(self, from: RemoteAddress, into: usize, bytes: usize, ends_ns: u64) {
        let found = self.begin().and_then(|()| self.target.readable(from, bytes));
        let (words, journal, offset) = match found {
            Ok(found) => found,
            Err(reason) => return self.finish(Err(reason)),
        };
        let reader = lock(&journal.0).begin();
        let world = self.world.clone();
        world.schedule_at(ends_ns, move || {
            let mut history = lock(&journal.0);
            // Withdrawn during the flight: it must not succeed.
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

    pub fn write(self, to: RemoteAddress, bytes: Vec<u8>, imm: Option<u32>, ends_ns: u64) {
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
