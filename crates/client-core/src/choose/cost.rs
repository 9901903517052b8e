//! Remora's own rule: the route that costs less time.
//!
//! The session learns for each class of operations what each route takes. Two numbers are
//! added that change from one moment to the next for all classes alike: how long a request
//! waits at the server, which heartbeats tell also a client that only reads (the paper's rule
//! learns it only by asking again: A17), and by how much READs are slower than usual, as on a
//! full network or with many torn nodes (A18).
//!
//! A score says which route is better. Each decision moves it by how much the two differ, and
//! never beyond a bound. One bad measurement does not change the decision. When both routes
//! cost the same, clients spread over both. The steps of the score grow while it keeps its
//! direction and halve when it turns.
//!
//! The worse route is tried once in a while, the more rarely the worse it is: trials take
//! about a hundredth of all time ([`super::estimate::PROBES`]). A cold route must be used for
//! some time before its cost is representative, so such a trial is longer. What trials really
//! cost is counted: one that costs too much ends, and no other begins before it is paid off,
//! whatever was expected ([`super::trials`]).
//!
//! A measurement counts as at most twice what was expected, so that a thread that lost its
//! processor does not change the decision. Where that happens to one route more than to the
//! other, it is a part of what the route costs: [`super::tails`].

use super::classes::Class;
use super::decision::{Decision, Draws, Route, Spent, Why};
use super::estimate::{Estimate, Fading};
use super::tails::Tails;
use super::trials::Trials;
use crate::read_lease::ServerLoad;

/// Operations that take the same route together, so that a shard that is rarely asked
/// is asked a few times in a row: the first of them wake it.
const RUN: u32 = 8;
/// The first operations of a run in another direction than the previous run; the chooser does not
/// learn from them.
const WARM_UP: u32 = 3;
/// Operations of a run that tries a way for the first time.
const FIRST_RUN: u32 = 4;
/// A route that was not used for so long is cold: shards sleep, caches hold other things. It
/// must be used for some time before its cost is representative.
const COLD_NS: u64 = 100_000;
/// Approximate duration of a run on a cold route; the chooser does not learn from its first half.
const LONG_RUN_NS: f32 = 200e3;
/// Each operation that takes this long is measured.
const LONG_NS: f32 = 5e3;
const LONGEST_RUN: u32 = 256;
/// The score of a rarely decided class moves as far as if all the session's decisions had been for
/// this class, up to so many.
const MOST_STEPS: u32 = 16;
/// The session tries the worse route although the last trials are not paid off, if the better route
/// now takes so many times longer than it did then: the cost of an earlier trial then says nothing
/// about now. Each trial raises the bound.
const GROWN: f32 = 8.0;
/// If a route takes so many times longer according to a neighbour, the session does not try it
/// before the next probe is due.
const FAR_WORSE: f32 = 8.0;
/// If both routes take the same time, the one without the server's processor is better: by so much
/// of the cheaper one's time.
const SPARES_SERVER: f32 = 0.02;
/// A measurement counts as at most so many times the expected value, and at least as the inverse
/// part of it: a thread that was not scheduled for a while has learned nothing about either route.
/// The estimate follows a lasting change in some steps.
const MOST: f32 = 2.0;
/// The present load never makes a route cheaper than this share of its own cost.
const LEAST: f32 = 0.25;
/// A search gives up reading for asking only if it needs at least so many times the nodes that its
/// class does.
const UNEXPECTED: f32 = 1.5;
/// The factor that asking after all has to save, because the completed READs are lost.
const GIVING_UP: f32 = 1.2;

/// The value that a measurement counts as, if its expectation is settled.
fn plausible(took: f32, estimate: Estimate, expected: Option<f32>) -> f32 {
    match expected {
        Some(expected) if estimate.is_settled() => took.clamp(expected / MOST, expected * MOST),
        _ => took,
    }
}

/// A session's state beyond that of each class.
#[derive(Clone, Debug)]
pub struct Cost {
    reads_cost_server: bool,
    /// The wait at the server by its last heartbeat, ns.
    wait_ns: f32,
    /// Recent waiting time beyond that, ns.
    more_wait_ns: Fading,
    /// How much longer than usual READs took recently, as a share.
    slower_reads: Fading,
    /// How much longer each route takes than its measurements count for.
    tails: Tails,
    /// What trials have cost.
    trials: Trials,
    /// The shortest time of asking, ns.
    least_ask_ns: f32,
    /// Number of runs begun, over all classes.
    runs: u32,
    /// How often a class found that another route is better now.
    turns: u32,
}

impl Cost {
    /// Nothing known.
    pub fn new(reads_cost_server: bool) -> Self {
        Self {
            reads_cost_server,
            wait_ns: 0.0,
            more_wait_ns: Fading::default(),
            slower_reads: Fading::default(),
            tails: Tails::default(),
            trials: Trials::default(),
            least_ask_ns: f32::INFINITY,
            runs: 0,
            turns: 0,
        }
    }

    /// See [`super::Chooser::predict`].
    pub fn predict(&self, class: &Class, now_ns: u64) -> (Option<f32>, Option<f32>) {
        let (ask, read) = self.typical(class, now_ns);
        let tail = |route| self.tails.of(route, now_ns);
        (ask.map(|ask| ask * tail(Route::Ask)), read.map(|read| read * tail(Route::Read)))
    }

    /// Time that most operations of a class take on each route now, ns.
    fn typical(&self, class: &Class, now_ns: u64) -> (Option<f32>, Option<f32>) {
        let ask = class.ask.value().map(|own| {
            let waits = self.wait_ns + self.more_wait_ns.at(now_ns);
            (own + waits).max(own * LEAST).max(1.0)
        });
        let read = class.read.value().map(|own| {
            let slower = 1.0 + self.slower_reads.at(now_ns);
            (own * slower).max(own * LEAST).max(1.0)
        });
        (ask, read)
    }

    /// Takes the load from the last heartbeat.
    pub fn hear(&mut self, load: Option<ServerLoad>) {
        if let Some(load) = load {
            self.wait_ns = load.wait_ns as f32;
        }
    }

    /// Begins a run.
    pub fn decide(&mut self, class: &mut Class, now_ns: u64, draws: &mut Draws) -> Decision {
        let expected = self.predict(class, now_ns);
        let (route, why, run) = self.choose(class, expected, now_ns, draws);
        let is_first = why == Why::Untried;
        let has_turned = route != class.route && !is_first;
        class.learned = match run {
            _ if !has_turned => run,
            RUN => RUN - WARM_UP,
            long => long / 2,
        };
        class.is_trial = is_first || (has_turned && run > RUN);
        class.better_ns = match expected {
            (Some(ask), Some(read)) if why == Why::Probe => Some(ask.min(read)),
            (ask, read) if is_first => {
                if route == Route::Ask {
                    read
                } else {
                    ask
                }
            }
            _ => None,
        };
        class.lost_ns = 0.0;
        class.tried_ns = class.better_ns.unwrap_or(class.tried_ns);
        if route != class.route {
            class.turned_ns = now_ns;
        }
        self.runs = self.runs.wrapping_add(1);
        (class.runs, class.turns) = (self.runs, self.turns);
        (class.route, class.run, class.run_left) = (route, run, run - 1);
        class.most_reads = match route {
            Route::Read => self.most_reads(class, expected),
            Route::Ask => None,
        };
        Decision { route, why, is_measured: class.is_measured() }
    }

    /// The route, the reason, and the number of operations.
    fn choose(
        &mut self,
        class: &mut Class,
        expected: (Option<f32>, Option<f32>),
        now_ns: u64,
        draws: &mut Draws,
    ) -> (Route, Why, u32) {
        let first = if self.reads_cost_server { Route::Ask } else { Route::Read };
        // While the last trials are not paid off, any ratio from a neighbour is enough.
        let least = if self.trials.are_paid(now_ns) { FAR_WORSE } else { 1.0 };
        let (ask, read) = match (expected, class.neighbour) {
            ((Some(ask), Some(read)), _) => (ask, read),
            ((None, None), Some(ratio)) if ratio > FAR_WORSE => {
                return (Route::Ask, Why::Untried, FIRST_RUN);
            }
            ((None, None), Some(ratio)) if ratio < 1.0 / FAR_WORSE => {
                return (Route::Read, Why::Untried, FIRST_RUN);
            }
            ((None, None), _) => return (first, Why::Untried, FIRST_RUN),
            ((Some(ask), None), Some(ratio)) if ratio > least => {
                (ask, class.guessed(class.ask, ratio))
            }
            ((None, Some(read)), Some(ratio)) if ratio < 1.0 / least => {
                (class.guessed(class.read, 1.0 / ratio), read)
            }
            ((Some(_), None), _) => return (Route::Read, Why::Untried, FIRST_RUN),
            ((None, Some(_)), _) => return (Route::Ask, Why::Untried, FIRST_RUN),
        };
        let cheaper = self.weigh(class, ask, read);
        let route = if draws.share() < class.score.asks() { Route::Ask } else { Route::Read };
        let mut run = RUN;
        if route != class.route && now_ns.saturating_sub(class.turned_ns) > COLD_NS {
            let one = (ask * read).sqrt().max(ask.max(read) / 2.0);
            run = ((LONG_RUN_NS / one) as u32).clamp(RUN, LONGEST_RUN);
        }
        let is_cheaper = route == cheaper;
        let has_grown = class.tried_ns > 0.0 && ask.min(read) > GROWN * class.tried_ns;
        let is_paid = has_grown || self.trials.are_paid(now_ns);
        // The longer a trial is, the more rarely it is made.
        if !is_cheaper && (draws.below(run) >= RUN || !is_paid) {
            return (cheaper, Why::Cheaper, RUN);
        }
        (route, if is_cheaper { Why::Cheaper } else { Why::Probe }, run)
    }

    /// Moves the score by the times of the two routes, ns; returns the route that costs less.
    fn weigh(&mut self, class: &mut Class, ask: f32, read: f32) -> Route {
        // A read without a result is asked after all, and costs the server as much as asking.
        let spares = 1.0 - 2.0 * class.in_vain;
        let spares = SPARES_SERVER * if self.reads_cost_server { -1.0 } else { spares };
        let difference = (read - ask) / read.min(ask) - spares;
        let favoured = class.score.favours();
        let steps = self.runs.wrapping_sub(class.runs).clamp(1, MOST_STEPS);
        class.score.take(difference, steps);
        if class.is_trial && (class.route == Route::Ask) == (difference > 0.0) {
            class.score.turn(difference);
        }
        self.turns = self.turns.wrapping_add((class.score.favours() != favoured) as u32);
        class.measured_every = ((LONG_NS / read.min(ask)) as u32).clamp(1, Class::SHORTEST);
        if difference > 0.0 { Route::Ask } else { Route::Read }
    }

    /// Whether the run of this class may continue. A trial may until it takes far longer than
    /// planned; another run may until another class finds that the other route is better now.
    #[inline(always)]
    pub fn goes_on(&self, class: &mut Class, now_ns: u64) -> bool {
        if !class.is_trial {
            return class.turns == self.turns;
        }
        let (gone, took_ns) = (class.run - class.run_left, now_ns.saturating_sub(class.turned_ns));
        if gone >= WARM_UP && took_ns > COLD_NS {
            // By now the route is warm, however few operations that were.
            class.learned = class.learned.max(class.run_left);
        }
        let most_ns = class.better_ns.map_or(f32::INFINITY, |better| RUN as f32 * better);
        class.lost_ns < most_ns.max(Trials::MOST_NS)
    }

    /// See [`super::Chooser::learn`].
    pub fn learn(&mut self, class: &mut Class, route: Route, spent: Spent, now_ns: u64) {
        let took = spent.elapsed_ns as f32;
        if let Some(better) = class.better_ns {
            class.lost_ns += took - better;
            self.trials.cost(took - better, now_ns);
            // It was measured for the cost of the trial; most of a trial is cold.
            if !class.is_learned() {
                return;
            }
        }
        let (ask, read) = self.typical(class, now_ns);
        match route {
            Route::Ask => {
                let took = self.counted(route, took, plausible(took, class.ask, ask), now_ns);
                let more = self.more_wait_ns.at(now_ns);
                if let Some(expected) = ask.filter(|_| class.ask.is_settled()) {
                    self.more_wait_ns.correct(took - expected, now_ns);
                }
                class.ask.learn((took - self.wait_ns - more).max(1.0));
                self.least_ask_ns = self.least_ask_ns.min(class.ask.mean);
            }
            Route::Read => {
                let took = self.counted(route, took, plausible(took, class.read, read), now_ns);
                let slower = 1.0 + self.slower_reads.at(now_ns);
                if let Some(expected) = read.filter(|_| class.read.is_settled()) {
                    self.slower_reads.correct((took - expected) / class.read.mean, now_ns);
                }
                class.read.learn((took / slower.max(LEAST)).max(1.0));
                class.reads.learn(spent.reads as f32);
                class.in_vain += (spent.in_vain - class.in_vain) * Fading::GAIN;
            }
        }
    }

    /// Records the actual time of an operation beside the time that it counts as.
    fn counted(&mut self, route: Route, took: f32, counted: f32, now_ns: u64) -> f32 {
        self.tails.add(route, took, counted, now_ns);
        counted
    }

    /// See [`Class::most_reads`]. Reading takes time in proportion to
    /// the nodes; asking, beyond the least that any class takes, as well.
    fn most_reads(&self, class: &Class, expected: (Option<f32>, Option<f32>)) -> Option<u64> {
        let (Some(ask), Some(read)) = expected else { return None };
        let usual = class.reads.value()?.max(1.0);
        let fixed = self.least_ask_ns.min(ask);
        let per_node = (read - GIVING_UP * (ask - fixed)) / usual;
        if per_node <= 0.0 {
            return None;
        }
        Some((GIVING_UP * fixed / per_node).max(UNEXPECTED * usual).ceil() as u64)
    }
}
