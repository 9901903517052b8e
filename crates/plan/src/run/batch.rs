//! Wants that a driver fetches together, and their answers.

use crate::limits::{BATCH_VISITS, BATCH_WANTS};
use crate::want::{Given, Want};

/// A batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    wants: Vec<Want>,
    given: Vec<Option<Given>>,
    /// Wants that have no answer yet.
    open: usize,
    /// Visits that the answers may lead to.
    visits: usize,
}

impl Batch {
    /// Whether it takes no more.
    pub fn is_full(&self) -> bool {
        self.wants.len() >= BATCH_WANTS || self.visits >= BATCH_VISITS
    }

    /// Adds a want; gives its number.
    pub fn add(&mut self, want: Want) -> usize {
        self.visits += match want {
            Want::Item { .. } => 1,
            Want::List { count, .. }
            | Want::Entries { count, .. }
            | Want::Documents { count, .. }
            | Want::Objects { count, .. } => count as usize,
        };
        self.wants.push(want);
        self.given.push(None);
        self.open += 1;
        self.wants.len() - 1
    }

    pub fn wants(&self) -> &[Want] {
        &self.wants
    }

    /// Keeps an answer. False: the want has one, or there is no such want.
    pub fn give(&mut self, number: usize, given: Given) -> bool {
        let Some(answer @ None) = self.given.get_mut(number) else { return false };
        *answer = Some(given);
        self.open -= 1;
        true
    }

    /// Whether all wants have answers.
    pub fn is_answered(&self) -> bool {
        self.open == 0
    }

    /// Takes an answer.
    pub fn answer(&mut self, number: usize) -> Given {
        self.given[number].take().unwrap_or(Given::OtherType)
    }
}
