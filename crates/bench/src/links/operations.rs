//! Operations that are drawn, answered by fetching items, and compared with what memory answers.

use super::fetch::{Fetcher, Hopped};
use super::load::Loader;
use crate::meter::Meter;
use crate::run::Share;
use anyhow::ensure;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::fmt::Debug;
use std::time::Instant;

/// An application whose operations do not depend on one another.
pub trait Application: Sync {
    /// What is asked.
    type Question: Send;
    /// What is answered.
    type Answer: PartialEq + Debug + Send;

    /// Items to be stored, and bytes of all of them, about.
    fn size(&self) -> (usize, usize);

    /// Stores all items.
    fn store(&self, loader: &mut Loader) -> anyhow::Result<()>;

    /// Draws a question.
    fn draw(&self, random: &mut ChaCha8Rng) -> Self::Question;

    /// Answers it by items. Only the question and what items say is used.
    fn answer(
        &self,
        question: &Self::Question,
        fetcher: &mut Fetcher,
    ) -> anyhow::Result<Self::Answer>;

    /// Answers it from memory.
    fn known(&self, question: &Self::Question) -> Self::Answer;
}

/// A client that is ready for its operations.
pub struct Ready<A: Application> {
    fetcher: Fetcher,
    questions: Vec<A::Question>,
}

impl<A: Application> Ready<A> {
    /// Draws a client's operations; does them once if it is to be warm.
    pub fn new(
        application: &A,
        mut fetcher: Fetcher,
        seed: u64,
        ops: usize,
        is_cold: bool,
    ) -> anyhow::Result<Self> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let questions: Vec<_> = (0..ops).map(|_| application.draw(&mut random)).collect();
        for question in questions.iter().filter(|_| !is_cold) {
            application.answer(question, &mut fetcher)?;
        }
        Ok(Self { fetcher, questions })
    }

    /// Does the operations, and compares each answer after the clock has stopped.
    pub fn run(mut self, application: &A) -> anyhow::Result<(Share, Hopped)> {
        let (before, hops_before) = (self.fetcher.costs(), self.fetcher.hopped());
        let mut answers = Vec::with_capacity(self.questions.len());
        let mut meter = Meter::start(1, None)?;
        for question in &self.questions {
            meter.measure(1, |_| {
                answers.push(application.answer(question, &mut self.fetcher)?);
                Ok(())
            })?;
        }
        let ended = Instant::now();
        let costs = self.fetcher.costs() - before;
        let hopped = self.fetcher.hopped() - hops_before;
        for (question, answer) in self.questions.iter().zip(&answers) {
            let known = application.known(question);
            ensure!(*answer == known, "the answer is {answer:?}, not {known:?}");
        }
        Ok((Share { meter, ended, costs }, hopped))
    }
}
