//! Classes of operations with similar expected cost.

use super::decision::{Decision, Route, Why};
use super::estimate::{Estimate, Score};
use remora_index::rtree::Query;
use remora_layout::rect::Rect;

/// The measurements of one class of operations.
#[derive(Clone, Debug)]
pub struct Class {
    /// Time when asked, ns, without the effect of the server's load.
    pub(super) ask: Estimate,
    /// Time when read, ns, without the effect of the network's load.
    pub(super) read: Estimate,
    /// Nodes that crossed the fabric for a read.
    pub(super) reads: Estimate,
    /// The share of recent reads that had no result.
    pub(super) in_vain: f32,
    /// Ratio of reading time to asking time, from a class of nearly the same size.
    pub(super) neighbour: Option<f32>,
    /// Estimated time of the untried route from that ratio, ns.
    pub(super) guess: Option<f32>,
    /// How clear it is which route is better.
    pub(super) score: Score,
    /// The route of the present run.
    pub(super) route: Route,
    pub(super) run: u32,
    pub(super) run_left: u32,
    /// The session's count at that time, see [`super::cost::Cost`].
    pub(super) runs: u32,
    pub(super) turns: u32,
    /// When the route last changed.
    pub(super) turned_ns: u64,
    /// The run tries a route that was never used, or not for long.
    pub(super) is_trial: bool,
    /// The number of last operations of this run to learn from.
    pub(super) learned: u32,
    /// In a run on the presumably worse route: expected time of an operation on the better one, ns.
    pub(super) better_ns: Option<f32>,
    /// Extra cost of the run beyond that, ns.
    pub(super) lost_ns: f32,
    /// Time of an operation on the better route at the last trial of the other one, ns; 0: there
    /// was no trial.
    pub(super) tried_ns: f32,
    /// One operation of so many is measured: few of the short ones, because reading the clock would
    /// slow them noticeably.
    pub(super) measured_every: u32,
    /// How many nodes a search may need in this run before asking is better after all.
    pub most_reads: Option<u64>,
}

impl Class {
    /// For the shortest operations one of so many is measured.
    pub(super) const SHORTEST: u32 = 8;
    /// No measurements; operations are short.
    pub const NEW: Self = Self {
        ask: Estimate::NONE,
        read: Estimate::NONE,
        reads: Estimate::NONE,
        in_vain: 0.0,
        neighbour: None,
        guess: None,
        score: Score::NEW,
        route: Route::Ask,
        run: 0,
        run_left: 0,
        runs: 0,
        turns: 0,
        turned_ns: 0,
        is_trial: false,
        learned: 0,
        better_ns: None,
        lost_ns: 0.0,
        tried_ns: 0.0,
        measured_every: Self::SHORTEST,
        most_reads: None,
    };

    /// Estimated time of an untried route that takes so many times as long as the other one, ns. It
    /// keeps its first value: later times of the other route say nothing about this one.
    pub(super) fn guessed(&mut self, other: Estimate, times: f32) -> f32 {
        *self.guess.get_or_insert(other.value().unwrap_or(1.0) * times)
    }

    /// The run's next operation, if there is a run.
    #[inline(always)]
    pub(super) fn go_on(&mut self) -> Option<Decision> {
        self.run_left = self.run_left.checked_sub(1)?;
        let is_measured = self.is_measured();
        Some(Decision { route: self.route, why: Why::SameRun, is_measured })
    }

    /// Whether this operation of the run is measured: the cost of a trial is always counted.
    pub(super) fn is_measured(&self) -> bool {
        self.better_ns.is_some() || self.is_learned()
    }

    /// Whether this operation is learned from.
    pub(super) fn is_learned(&self) -> bool {
        self.run_left < self.learned && self.run_left.is_multiple_of(self.measured_every)
    }
}

/// Which searches of a tree are one class: those of a kind whose sizes are
/// within a factor of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassKey {
    kind: u8,
    exponent: i16,
}

impl ClassKey {
    /// The class of a search.
    pub fn of(query: &Query) -> Self {
        match *query {
            Query::Window { window, .. } => Self { kind: 0, exponent: exponent(size(&window)) },
            Query::Nearest { wanted, .. } => Self { kind: 1, exponent: exponent(wanted as f64) },
        }
    }

    /// The class of a batch of so many links.
    pub fn of_links(links: usize) -> Self {
        Self { kind: 4, exponent: exponent(links as f64) }
    }

    /// The class of a plan whose steps are of this kind, and which starts with so much.
    pub fn of_plan(steps: u8, size: u64) -> Self {
        Self { kind: 5 + steps % 250, exponent: exponent(size as f64) }
    }

    /// The class of a search in a window that is refined by geometries, or of
    /// one that `counts`.
    pub fn refined(window: &Rect, counts: bool) -> Self {
        Self { kind: 2 + u8::from(counts), exponent: exponent(size(window)) }
    }
}

fn size(window: &Rect) -> f64 {
    (window.max_x - window.min_x) + (window.max_y - window.min_y)
}

/// The exponent of a number as floating point has it.
fn exponent(number: f64) -> i16 {
    (number.abs().to_bits() >> 52) as i16
}

/// Most classes that are kept of a tree: sizes over a factor of 2^24.
const MAX_CLASSES: usize = 24;

/// The classes of one tree's searches.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// The one that was used last comes first.
    classes: Vec<(ClassKey, Class)>,
}

impl Classes {
    /// The class of this key; a new one begins with its neighbour's ratio of the two routes. If
    /// there are too many classes, it replaces the least recently used one.
    pub fn get(&mut self, key: ClassKey) -> &mut Class {
        match self.classes.iter().position(|(known, _)| *known == key) {
            Some(at) => self.classes[..=at].rotate_right(1),
            None => {
                self.classes.truncate(MAX_CLASSES - 1);
                let neighbour = self.neighbour(key);
                let new = Class { measured_every: 1, neighbour, ..Class::NEW };
                self.classes.insert(0, (key, new));
            }
        }
        &mut self.classes[0].1
    }

    /// The ratio of the two routes in the class of the nearest size.
    fn neighbour(&self, key: ClassKey) -> Option<f32> {
        let alike = self.classes.iter().filter(|(known, _)| known.kind == key.kind);
        let known = alike.filter_map(|(known, class)| {
            let ratio = class.read.value()? / class.ask.value()?;
            Some((known.exponent.abs_diff(key.exponent), ratio))
        });
        known.min_by_key(|(distance, _)| *distance).map(|(_, ratio)| ratio)
    }
}
