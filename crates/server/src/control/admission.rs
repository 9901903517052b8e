//! The order in which the server makes sessions over RDMA, and ends all sessions.
//!
//! Making and destroying queue pairs takes the time of the control thread, which also writes
//! heartbeats. So the thread does one step at a time (M30). Invariants:
//! * each lane is first come, first served, and the lanes take turns: clients that connect and
//!   clients that end never starve each other;
//! * the number of waiting clients is bounded, and so is the number of clients that have a queue
//!   pair but have not sent their own end yet;
//! * no client is lost: one that has arrived is greeted, unless it leaves before; one that is to
//!   end ends once.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// It has said hello: make a queue pair for it.
    Greet(T),
    /// The client has sent its end: connect the queue pair.
    Connect(T),
    /// End it.
    End(T),
}

/// The lanes.
pub struct Admission<T> {
    /// They have said hello.
    arrived: VecDeque<T>,
    most_arrived: usize,
    /// They have a queue pair and no session.
    half_open: HashSet<T>,
    most_half_open: usize,
    /// The clients among them that have sent their end.
    told: VecDeque<T>,
    /// They are to end.
    ending: VecDeque<T>,
    /// The lane whose turn it is.
    turn: usize,
}

impl<T: Copy + Eq + Hash> Admission<T> {
    /// Starts without clients. At most this many may wait, and at most this many may have a queue
    /// pair and no session.
    pub fn new(most_arrived: usize, most_half_open: usize) -> Self {
        Self {
            arrived: VecDeque::new(),
            most_arrived,
            half_open: HashSet::new(),
            most_half_open,
            told: VecDeque::new(),
            ending: VecDeque::new(),
            turn: 0,
        }
    }

    /// A client has said hello. False: too many wait already.
    #[must_use]
    pub fn arrive(&mut self, who: T) -> bool {
        let has_room = self.arrived.len() < self.most_arrived;
        if has_room {
            self.arrived.push_back(who);
        }
        has_room
    }

    /// A greeted client has sent its end of the queue pair.
    pub fn told(&mut self, who: T) {
        self.told.push_back(who);
    }

    /// A client has its session, or holds nothing.
    pub fn settle(&mut self, who: T) {
        self.leave(who);
        self.half_open.remove(&who);
    }

    /// A client is to end; once.
    pub fn end(&mut self, who: T) {
        self.leave(who);
        self.ending.push_back(who);
    }

    fn leave(&mut self, who: T) {
        self.arrived.retain(|other| *other != who);
        self.told.retain(|other| *other != who);
    }

    /// Clients that have a queue pair and no session.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Whether some are to end.
    pub fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Whether there is a step to do.
    pub fn has_step(&self) -> bool {
        self.is_ending() || !self.told.is_empty() || self.may_greet()
    }

    fn may_greet(&self) -> bool {
        !self.arrived.is_empty() && self.half_open.len() < self.most_half_open
    }

    /// The next step. A client to be greeted counts as half open from now on, until it is settled.
    pub fn next(&mut self) -> Option<Step<T>> {
        const LANES: usize = 3;
        (0..LANES).find_map(|_| {
            let lane = self.turn;
            self.turn = (lane + 1) % LANES;
            match lane {
                0 => self.ending.pop_front().map(Step::End),
                1 => self.told.pop_front().map(Step::Connect),
                _ if self.may_greet() => {
                    let who = self.arrived.pop_front()?;
                    self.half_open.insert(who);
                    Some(Step::Greet(who))
                }
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;
    use std::collections::BTreeSet;

    fn steps(admission: &mut Admission<u32>, most: usize) -> Vec<Step<u32>> {
        std::iter::from_fn(|| admission.next()).take(most).collect()
    }

    #[test]
    fn who_comes_first_is_served_first() {
        let mut admission = Admission::new(8, 8);
        assert!((0..5).all(|who| admission.arrive(who)));
        assert_eq!(steps(&mut admission, 9), (0..5).map(Step::Greet).collect::<Vec<_>>());
        for who in [3, 0, 4] {
            admission.told(who);
        }
        assert_eq!(steps(&mut admission, 9), [3, 0, 4].map(Step::Connect));
        for who in [1, 0] {
            admission.end(who);
        }
        assert_eq!(steps(&mut admission, 9), [1, 0].map(Step::End));
        assert!(!admission.has_step());
    }

    #[test]
    fn no_more_wait_or_are_half_open_than_the_bounds_say() {
        let mut admission = Admission::new(3, 2);
        assert_eq!((0..5).filter(|who| admission.arrive(*who)).count(), 3);
        assert_eq!(steps(&mut admission, 9), [Step::Greet(0), Step::Greet(1)]);
        assert!(!admission.has_step() && admission.half_open() == 2);
        assert!(admission.arrive(5) && admission.arrive(6) && !admission.arrive(7));
        // A client that ends holds its queue pair until the pair is destroyed.
        admission.end(0);
        assert_eq!(steps(&mut admission, 9), [Step::End(0)]);
        admission.settle(0);
        assert_eq!(steps(&mut admission, 9), [Step::Greet(2)]);
        // One that waits makes room by leaving.
        assert!(admission.arrive(7) && !admission.arrive(8));
        admission.settle(5);
        assert!(admission.arrive(8));
        admission.told(1);
        assert_eq!(steps(&mut admission, 9), [Step::Connect(1)]);
        admission.settle(1);
        admission.settle(2);
        assert_eq!(steps(&mut admission, 9), [Step::Greet(6), Step::Greet(7)]);
    }

    #[test]
    fn no_lane_starves_while_the_others_are_full() {
        let mut admission = Admission::new(100, 100);
        for who in 0..60 {
            assert!(admission.arrive(who));
        }
        assert_eq!(steps(&mut admission, 20).len(), 20);
        for who in 0..20 {
            admission.told(who);
        }
        for who in 100..120 {
            admission.end(who);
        }
        let first = steps(&mut admission, 12);
        let count = |of: fn(&Step<u32>) -> bool| first.iter().filter(|step| of(step)).count();
        assert_eq!(count(|step| matches!(step, Step::Greet(_))), 4);
        assert_eq!(count(|step| matches!(step, Step::Connect(_))), 4);
        assert_eq!(count(|step| matches!(step, Step::End(_))), 4);
    }

    /// Clients arrive, send their end, leave and are served in random order; in every order each
    /// accepted client ends exactly once, or was settled.
    #[test]
    fn nobody_is_lost_and_nobody_ends_twice() {
        let mut random = Random::new(1);
        let mut draw = move |below: u64| random.below(below);
        let mut admission = Admission::new(10, 4);
        let (mut waiting, mut silent, mut telling) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut sessions, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        let (mut next, mut ended) = (0u32, 0u32);
        for round in 0..40_000 {
            let any = |of: &BTreeSet<u32>, at: u64| of.iter().nth(at as usize % of.len()).copied();
            // At the end there are no new clients: all work is done then.
            match draw(if round < 30_000 { 8 } else { 3 }) {
                0 if !silent.is_empty() => {
                    let who = any(&silent, draw(100)).unwrap();
                    silent.remove(&who);
                    telling.insert(who);
                    admission.told(who);
                }
                1 => {
                    // Any client may have gone.
                    let all: BTreeSet<u32> = [&waiting, &silent, &telling, &sessions]
                        .into_iter()
                        .flatten()
                        .copied()
                        .collect();
                    if let Some(who) = (!all.is_empty()).then(|| any(&all, draw(100)).unwrap()) {
                        for of in [&mut waiting, &mut silent, &mut telling, &mut sessions] {
                            of.remove(&who);
                        }
                        leaving.insert(who);
                        admission.end(who);
                    }
                }
                2..=4 => match admission.next() {
                    Some(Step::Greet(who)) => {
                        assert_eq!(waiting.pop_first(), Some(who), "out of order");
                        silent.insert(who);
                        assert!(admission.half_open() <= 4);
                    }
                    Some(Step::Connect(who)) => {
                        assert!(telling.remove(&who));
                        admission.settle(who);
                        sessions.insert(who);
                    }
                    Some(Step::End(who)) => {
                        assert!(leaving.remove(&who), "twice");
                        admission.settle(who);
                        ended += 1;
                    }
                    None => assert!(!admission.has_step()),
                },
                _ if round < 30_000 => {
                    assert_eq!(admission.arrive(next), waiting.len() < 10);
                    if waiting.len() < 10 {
                        waiting.insert(next);
                    }
                    next += 1;
                }
                _ => {}
            }
        }
        assert!(waiting.is_empty() && leaving.is_empty() && !admission.has_step());
        assert!(sessions.is_empty() && admission.half_open() == silent.len());
        assert!(ended > 1000, "{ended}");
    }
}
