//! The pending operations of one link: posted and not yet polled.

use crate::{Completion, LinkError, Waited};
use std::collections::VecDeque;

struct Pending {
    id: u64,
    /// It was never sent, for this reason.
    unsent: Option<LinkError>,
}

/// Operations in the order in which they were posted.
#[derive(Default)]
pub(crate) struct PendingOps {
    pending: VecDeque<Pending>,
    /// Executed operations at the front of `pending`.
    executed: u64,
    /// Why later posts fail, as far as this link knows.
    failure: Option<LinkError>,
    /// Why the connection failed: all sent and unexecuted operations fail.
    broken: Option<LinkError>,
    /// Arrivals of the connection that `wait` has reported.
    seen_arrivals: u64,
}

impl PendingOps {
    /// Why later posts fail, as far as this link knows.
    pub fn failure(&self) -> Option<LinkError> {
        self.failure
    }

    /// Adds an operation that was sent, or that was not sent for this reason.
    pub fn post(&mut self, id: u64, taken: Result<(), LinkError>) {
        if let Err(reason) = taken {
            self.failure = Some(reason);
        }
        self.pending.push_back(Pending { id, unsent: taken.err() });
    }

    /// Later posts fail.
    pub fn fail(&mut self, reason: LinkError) {
        self.failure.get_or_insert(reason);
    }

    /// Counts so many more executed operations, and the connection's failure if there is one.
    pub fn absorb(&mut self, executed: u64, failure: Option<LinkError>) {
        self.executed += executed;
        if let Some(reason) = failure {
            self.broken.get_or_insert(reason);
            self.failure.get_or_insert(reason);
        }
    }

    /// The result of a `wait` without sleeping, after so many arrivals on the connection.
    pub fn found(&mut self, arrivals: u64) -> Option<Waited> {
        if self.has_next() {
            return Some(Waited::Completed);
        }
        if arrivals != self.seen_arrivals {
            self.seen_arrivals = arrivals;
            return Some(Waited::Arrived);
        }
        self.failure.map(Waited::Failed)
    }

    /// The next completion, if there is one.
    pub fn next(&mut self) -> Option<Completion> {
        let front = self.pending.front()?;
        let result = match (front.unsent, self.executed, self.broken) {
            (Some(reason), _, _) => Err(reason),
            (None, 1.., _) => {
                self.executed -= 1;
                Ok(())
            }
            (None, 0, Some(reason)) => Err(reason),
            (None, 0, None) => return None,
        };
        let id = front.id;
        self.pending.pop_front();
        Some(Completion { id, result })
    }

    /// Whether [`PendingOps::next`] has one.
    pub fn has_next(&self) -> bool {
        self.pending.front().is_some_and(|front| {
            front.unsent.is_some() || self.executed > 0 || self.broken.is_some()
        })
    }
}
