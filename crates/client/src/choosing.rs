//! A session and its choices: which way an operation goes, what it took, and
//! what is told of it to who wants to know.

use crate::api::{Counts, Path, Via};
use crate::choose::{Class, Decision, Explanation, Policy, Spent, Way, Why};
use crate::error::Error;
use crate::read::Found;
use crate::session::Session;

/// What a session tells of its choices.
#[derive(Default)]
pub(crate) struct Explaining {
    /// Whether it is wanted.
    is_wanted: bool,
    last: Option<Explanation>,
}

/// An operation that has begun.
pub(crate) struct Begun {
    pub way: Way,
    why: Why,
    /// The clock then, if what it takes is to be learned or told.
    began_ns: Option<u64>,
    /// Whether the chooser learns from it.
    is_learned: bool,
    expected: (Option<f32>, Option<f32>),
}

impl Begun {
    /// One of which nothing is learned or told.
    #[inline(always)]
    fn untimed(way: Way, why: Why) -> Self {
        Self { way, why, began_ns: None, is_learned: false, expected: (None, None) }
    }
}

impl Session {
    /// Whether each operation that has two ways, GET and the searches of trees,
    /// is explained from now on. Each then costs two more looks at the clock.
    pub fn explain(&mut self, is_wanted: bool) {
        self.explaining = Explaining { is_wanted, last: None };
    }

    /// Which way the last operation went that has two, why, what was expected
    /// of each and what it took; `None` if [`Session::explain`] was not called
    /// before it.
    pub fn explanation(&self) -> Option<Explanation> {
        self.explaining.last
    }

    /// Begins an operation whose way was chosen. The chooser learns from what
    /// its policy wants to know; where that is nothing, for explanations alone.
    fn begin(
        &mut self,
        decision: Decision,
        expected: (Option<f32>, Option<f32>),
    ) -> Result<Begun, Error> {
        let Decision { way, why, is_measured } = decision;
        let is_timed = is_measured || self.explaining.is_wanted;
        let is_learned = is_measured || self.chooser.policy() != Policy::Cost;
        let began_ns = if is_timed { Some(self.now()?) } else { None };
        Ok(Begun { way, why, began_ns, is_learned, expected })
    }

    /// Begins one whose way the caller has given.
    #[inline(always)]
    pub(crate) fn begin_given(&mut self, way: Way) -> Result<Begun, Error> {
        let began_ns = if self.explaining.is_wanted { Some(self.now()?) } else { None };
        Ok(Begun { began_ns, ..Begun::untimed(way, Why::Given) })
    }

    /// Ends an operation; gives what it took if the chooser is to learn it.
    fn end_operation(
        &mut self,
        begun: &Begun,
        via: Via,
        reads: u64,
    ) -> Result<Option<Spent>, Error> {
        let Some(began_ns) = begun.began_ns else { return Ok(None) };
        let elapsed_ns = self.now()?.saturating_sub(began_ns);
        if self.explaining.is_wanted {
            let (ask_ns, read_ns) = begun.expected;
            self.explaining.last = Some(Explanation {
                policy: self.chooser.policy(),
                way: begun.way,
                why: begun.why,
                ask_ns: ask_ns.map(f64::from),
                read_ns: read_ns.map(f64::from),
                actual_ns: elapsed_ns,
                via,
            });
        }
        let in_vain = f32::from(via == Via::AskedAfterRead);
        Ok(begun.is_learned.then_some(Spent { elapsed_ns, reads, in_vain }))
    }

    /// Ends one whose way the caller has given.
    #[inline(always)]
    pub(crate) fn end_given(&mut self, begun: Begun, via: Via) -> Result<(), Error> {
        match begun.began_ns {
            None => Ok(()),
            Some(_) => self.end_operation(&begun, via, 0).map(drop),
        }
    }

    /// Begins a GET of a key of this class, see [`crate::choose::key_class`].
    #[inline(always)]
    pub(crate) fn begin_key(&mut self, path: Path, class: usize) -> Result<Begun, Error> {
        if path == Path::Read {
            return self.begin_given(Way::Read);
        }
        let now_ns = self.clock_ns;
        let decision = self.chooser.decide_key(class, self.right.load(), now_ns);
        if !decision.is_measured && !self.explaining.is_wanted {
            return Ok(Begun::untimed(decision.way, decision.why));
        }
        let expected = self.chooser.predict(&self.chooser.keys[class], now_ns);
        self.begin(decision, expected)
    }

    /// Ends it.
    #[inline(always)]
    pub(crate) fn end_key(
        &mut self,
        begun: Begun,
        class: usize,
        found: &Found,
    ) -> Result<(), Error> {
        if begun.began_ns.is_none() {
            return Ok(());
        }
        if let Some(spent) = self.end_operation(&begun, found.via, found.counts.nodes)? {
            self.chooser.learn_key(class, begun.way, spent, self.clock_ns);
        }
        Ok(())
    }

    /// Begins a search of this class. At how many nodes reading is to be given
    /// up, if at any.
    pub(crate) fn begin_search(
        &mut self,
        class: &mut Class,
        path: Path,
    ) -> Result<(Begun, Option<u64>), Error> {
        match path {
            Path::Ask => Ok((self.begin_given(Way::Ask)?, None)),
            Path::Read => Ok((self.begin_given(Way::Read)?, None)),
            Path::Choose => {
                let now_ns = self.clock_ns;
                let decision = self.chooser.decide(class, self.right.load(), now_ns);
                if !decision.is_measured && !self.explaining.is_wanted {
                    return Ok((Begun::untimed(decision.way, decision.why), class.most_reads));
                }
                let expected = self.chooser.predict(class, now_ns);
                Ok((self.begin(decision, expected)?, class.most_reads))
            }
        }
    }

    /// Ends it.
    pub(crate) fn end_search(
        &mut self,
        class: &mut Class,
        begun: &Begun,
        via: Via,
        counts: &Counts,
    ) -> Result<(), Error> {
        if let Some(spent) = self.end_operation(begun, via, counts.nodes)? {
            self.chooser.learn(class, begun.way, spent, self.clock_ns);
        }
        Ok(())
    }
}
