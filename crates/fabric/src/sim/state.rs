//! A simulated link's operations: those in flight, and the completed ones.

use super::world::{SimWorld, lock};
use crate::{Completion, LinkError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

/// Bytes of a READ and their place.
pub(super) type Fetched = Option<(usize, Vec<u8>)>;

/// The state of a link.
pub(super) struct State {
    pub world: SimWorld,
    /// The task that waits for a completion.
    pub waiting: Mutex<Option<u64>>,
    /// Posted and not completed, oldest first.
    pub pending: VecDeque<u64>,
    pub ready: VecDeque<(Completion, Fetched)>,
    /// Links that are lost with this one.
    pub bundle: SimBundle,
    /// Why the target executes nothing more for this link.
    pub refused: Option<LinkError>,
    pub lost: Option<LinkError>,
    /// When the last operation's effect ends, and its completion comes.
    pub effect_ends_ns: u64,
    pub completes_ns: u64,
}

impl State {
    /// A link with nothing under way.
    pub fn new(world: &SimWorld) -> Self {
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
    pub fn complete(&mut self, result: Result<Fetched, LinkError>) {
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

    pub fn lose(&mut self, reason: LinkError) {
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

    pub fn dead(&self) -> Option<LinkError> {
        self.lost.or(self.refused)
    }
}

/// The links of one connection, both ends' of them: with one all are lost.
#[derive(Clone, Default)]
pub struct SimBundle(pub(super) Arc<Mutex<Vec<Weak<Mutex<State>>>>>);

impl SimBundle {
    /// All its links are lost: their operations in flight fail.
    pub fn lose(&self) {
        for state in std::mem::take(&mut *lock(&self.0)).iter().filter_map(Weak::upgrade) {
            lock(&state).lose(LinkError::Disconnected);
        }
    }
}
