//! Routing: the route of an operation, its cost, and the explanation for an application that wants
//! one.

use crate::choose::{Chooser, Class, Decision, Explanation, Policy, Route, Spent, Why};
use crate::counts::Counts;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::path::{Path, ServedBy};

/// A session's router: it asks the chooser, and reports the cost of operations to it.
pub(crate) struct Router {
    pub chooser: Chooser,
    /// Whether the session asks for everything, whatever path is named.
    pub asks_only: bool,
    /// Whether operations are explained.
    explains: bool,
    explanation: Option<Explanation>,
}

/// An operation in progress: its route, and the start of its timing.
pub(crate) struct Timing {
    pub route: Route,
    why: Why,
    /// The clock at the start, if the cost is learned or reported.
    began_ns: Option<u64>,
    /// Whether the chooser learns from it.
    is_learned: bool,
    expected: (Option<f32>, Option<f32>),
}

impl Timing {
    /// An operation whose cost is neither learned nor reported.
    #[inline(always)]
    fn untimed(route: Route, why: Why) -> Self {
        Self { route, why, began_ns: None, is_learned: false, expected: (None, None) }
    }
}

impl Router {
    /// Nothing is known yet.
    pub fn new(chooser: Chooser, asks_only: bool) -> Self {
        Self { chooser, asks_only, explains: false, explanation: None }
    }

    /// The path to take where the caller names this one.
    #[inline(always)]
    pub fn path(&self, named: Path) -> Path {
        if self.asks_only { Path::Ask } else { named }
    }

    /// Whether operations are explained from now on.
    pub fn explain(&mut self, explains: bool) {
        (self.explains, self.explanation) = (explains, None);
    }

    /// The explanation of the last operation with two routes.
    pub fn explanation(&self) -> Option<Explanation> {
        self.explanation
    }

    /// Begins an operation whose route the chooser decided. The chooser learns what its policy
    /// needs; if that is nothing, the timing is for explanations alone.
    fn begin(
        &mut self,
        endpoint: &mut Endpoint,
        decision: Decision,
        expected: (Option<f32>, Option<f32>),
    ) -> Result<Timing, Error> {
        let Decision { route, why, is_measured } = decision;
        let is_timed = is_measured || self.explains;
        let is_learned = is_measured || self.chooser.policy() != Policy::Cost;
        let began_ns = if is_timed { Some(endpoint.now()?) } else { None };
        Ok(Timing { route, why, began_ns, is_learned, expected })
    }

    /// Begins an operation whose route the caller names.
    #[inline(always)]
    pub fn begin_given(&mut self, endpoint: &mut Endpoint, route: Route) -> Result<Timing, Error> {
        let began_ns = if self.explains { Some(endpoint.now()?) } else { None };
        let why = if self.asks_only { Why::Rights } else { Why::Given };
        Ok(Timing { began_ns, ..Timing::untimed(route, why) })
    }

    /// Ends an operation; returns its cost if the chooser learns from it.
    fn end_operation(
        &mut self,
        endpoint: &mut Endpoint,
        timing: &Timing,
        served_by: ServedBy,
        reads: u64,
    ) -> Result<Option<Spent>, Error> {
        let Some(began_ns) = timing.began_ns else { return Ok(None) };
        let elapsed_ns = endpoint.now()?.saturating_sub(began_ns);
        if self.explains {
            let (ask_ns, read_ns) = timing.expected;
            self.explanation = Some(Explanation {
                policy: self.chooser.policy(),
                route: timing.route,
                why: timing.why,
                ask_ns: ask_ns.map(f64::from),
                read_ns: read_ns.map(f64::from),
                actual_ns: elapsed_ns,
                served_by,
            });
        }
        let in_vain = f32::from(served_by == ServedBy::AskedAfterRead);
        Ok(timing.is_learned.then_some(Spent { elapsed_ns, reads, in_vain }))
    }

    /// Ends an operation whose route the caller named.
    #[inline(always)]
    pub fn end_given(
        &mut self,
        endpoint: &mut Endpoint,
        timing: Timing,
        served_by: ServedBy,
    ) -> Result<(), Error> {
        match timing.began_ns {
            None => Ok(()),
            Some(_) => self.end_operation(endpoint, &timing, served_by, 0).map(drop),
        }
    }

    /// Begins a GET of a key of this class, see [`crate::choose::key_class`].
    #[inline(always)]
    pub fn begin_key(
        &mut self,
        endpoint: &mut Endpoint,
        path: Path,
        class: usize,
    ) -> Result<Timing, Error> {
        if path == Path::Read {
            return self.begin_given(endpoint, Route::Read);
        }
        let now_ns = endpoint.clock_ns;
        let decision = self.chooser.decide_key(class, endpoint.lease.load(), now_ns);
        if !decision.is_measured && !self.explains {
            return Ok(Timing::untimed(decision.route, decision.why));
        }
        let expected = self.chooser.predict(&self.chooser.keys[class], now_ns);
        self.begin(endpoint, decision, expected)
    }

    /// Ends it.
    #[inline(always)]
    pub fn end_key(
        &mut self,
        endpoint: &mut Endpoint,
        timing: Timing,
        class: usize,
        served_by: ServedBy,
        counts: &Counts,
    ) -> Result<(), Error> {
        if timing.began_ns.is_none() {
            return Ok(());
        }
        if let Some(spent) = self.end_operation(endpoint, &timing, served_by, counts.nodes)? {
            self.chooser.learn_key(class, timing.route, spent, endpoint.clock_ns);
        }
        Ok(())
    }

    /// Begins a search of this class. Returns also the number of nodes at which to give up reading,
    /// if there is one.
    pub fn begin_search(
        &mut self,
        endpoint: &mut Endpoint,
        class: &mut Class,
        path: Path,
    ) -> Result<(Timing, Option<u64>), Error> {
        match path {
            Path::Ask => Ok((self.begin_given(endpoint, Route::Ask)?, None)),
            Path::Read => Ok((self.begin_given(endpoint, Route::Read)?, None)),
            Path::Choose => {
                let now_ns = endpoint.clock_ns;
                let decision = self.chooser.decide(class, endpoint.lease.load(), now_ns);
                if !decision.is_measured && !self.explains {
                    return Ok((Timing::untimed(decision.route, decision.why), class.most_reads));
                }
                let expected = self.chooser.predict(class, now_ns);
                Ok((self.begin(endpoint, decision, expected)?, class.most_reads))
            }
        }
    }

    /// Ends it.
    pub fn end_search(
        &mut self,
        endpoint: &mut Endpoint,
        class: &mut Class,
        timing: &Timing,
        served_by: ServedBy,
        counts: &Counts,
    ) -> Result<(), Error> {
        if let Some(spent) = self.end_operation(endpoint, timing, served_by, counts.nodes)? {
            self.chooser.learn(class, timing.route, spent, endpoint.clock_ns);
        }
        Ok(())
    }
}
