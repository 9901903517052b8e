//! The coordinator in memory under faults, from seeds: links that are cut in one direction or in both,
//! delays, servers that lag, a quorum that is lost, processes that die and stand still. What each member
//! hears is held against the contract, and against what was recorded.

use remora_cluster::conformance::Journal;
use remora_cluster::coordinator::{
    Coordinator, Outcome, Proposal, RequestId, SessionState, Standing, Term,
};
use remora_cluster::memory::{MemoryCoordinator, MemoryEnsemble};
use remora_cluster::topology::change::{self, Joining};
use remora_cluster::topology::{GroupId, Instance, MemberId, Topology};
use remora_testing::Random;
use std::collections::BTreeMap;

const SESSION_MS: u64 = 300;

/// A member's process.
struct Process {
    session: MemoryCoordinator,
    journal: Journal,
    instance: Instance,
    /// Its clock is so far ahead, ms: it jumps.
    ahead_ms: u64,
    /// It polls nothing before this.
    stopped_until_ms: u64,
    proposed: BTreeMap<RequestId, Proposal>,
    /// When a renewal was sent, and the version that it named.
    renewed: BTreeMap<RequestId, (u64, u64)>,
}

/// What was recorded: each version, when it came, and what it says.
#[derive(Default)]
struct Recorded(BTreeMap<u64, (u64, Topology)>);

struct World {
    random: Random,
    ensemble: MemoryEnsemble,
    now_ms: u64,
    processes: Vec<Process>,
    recorded: Recorded,
    incarnations: u64,
    /// The version and the term of each proposal of a watcher that is done.
    terms: BTreeMap<u64, Term>,
    done: u64,
    refused: u64,
    unknown: u64,
    renewals: u64,
    lost: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            ensemble: MemoryEnsemble::new(),
            now_ms: 0,
            processes: Vec::new(),
            recorded: Recorded::default(),
            incarnations: 0,
            terms: BTreeMap::new(),
            done: 0,
            refused: 0,
            unknown: 0,
            renewals: 0,
            lost: 0,
        };
        for member in 1..=4 {
            let process = world.start(member);
            world.processes.push(process);
        }
        let first = Topology::new(1, vec![(GroupId(1), "a".into(), 1)]).expect("valid");
        world.ensemble.overwrite(first.encode());
        world.look();
        world
    }

    fn start(&mut self, member: u64) -> Process {
        self.incarnations += 1;
        Process {
            session: self.ensemble.connect(SESSION_MS),
            journal: Journal::default(),
            instance: Instance { member: MemberId(member), incarnation: self.incarnations },
            ahead_ms: 0,
            stopped_until_ms: 0,
            proposed: BTreeMap::new(),
            renewed: BTreeMap::new(),
        }
    }

    /// A millisecond passes.
    fn step(&mut self) {
        self.now_ms += 1;
        self.ensemble.advance(self.now_ms);
        self.look();
        for at in 0..self.processes.len() {
            self.poll(at);
        }
    }

    /// What is recorded now. A version that came and went within the millisecond is not seen.
    fn look(&mut self) {
        let Some(topology) = self.ensemble.topology() else { return };
        let now_ms = self.now_ms;
        let entry = self.recorded.0.entry(topology.version);
        let (_, known) = entry.or_insert_with(|| (now_ms, topology.clone()));
        assert_eq!(*known, topology, "2: two topologies of one version");
    }

    fn poll(&mut self, at: usize) {
        let process = &mut self.processes[at];
        if process.stopped_until_ms > self.now_ms {
            return;
        }
        let clock_ms = self.now_ms + process.ahead_ms;
        while let Some(event) = process.session.poll(clock_ms) {
            let before = process.journal.times(SessionState::Lost);
            process.journal.hear(&event);
            self.lost += process.journal.times(SessionState::Lost) - before;
            let remora_cluster::coordinator::Event::Answer(id, outcome) = event else { continue };
            self.unknown += u64::from(outcome == Outcome::Unknown);
            self.refused += u64::from(matches!(outcome, Outcome::Refused(_)));
            if let Some(proposal) = process.proposed.remove(&id) {
                self.done += u64::from(outcome == Outcome::Done);
                let terms = &mut self.terms;
                check_proposal(&self.recorded, terms, &proposal, outcome);
            }
            if let Some((sent_ms, version)) = process.renewed.remove(&id)
                && outcome == Outcome::Done
            {
                self.renewals += 1;
                self.recorded.check_renewal(sent_ms, self.now_ms, version);
            }
        }
    }

    /// A process asks for something.
    fn ask(&mut self) {
        let at = self.random.below(self.processes.len());
        let what = self.random.below(8);
        let now_ms = self.now_ms;
        let unique = self.incarnations + 1;
        let process = &mut self.processes[at];
        if process.stopped_until_ms > now_ms {
            return;
        }
        let clock_ms = now_ms + process.ahead_ms;
        let Process { session, journal, instance, .. } = process;
        match what {
            0 => drop(journal.asked(session.enter(clock_ms, *instance))),
            1 if self.random.one_in(4) => drop(journal.asked(session.leave(clock_ms))),
            2 => drop(journal.asked(session.stand(clock_ms))),
            3 if self.random.one_in(4) => drop(journal.asked(session.step_down(clock_ms))),
            4 | 5 => {
                let version = journal.version();
                let id = journal.renewed(session.renew(clock_ms, version), version);
                process.renewed.insert(id, (now_ms, version));
            }
            _ => {
                let Some(known) = journal.topology() else { return };
                let term = match journal.standing() {
                    Some(Standing::Leads(term)) => Some(term),
                    _ => None,
                };
                // No other proposal is like it.
                self.incarnations = unique;
                let joining = Joining {
                    instance: Instance { incarnation: unique, ..*instance },
                    group: GroupId(1),
                    fabric_address: format!("f{}", instance.member),
                    resp_address: format!("r{}", instance.member),
                };
                let topology = change::join(known, joining).expect("it joins");
                let proposal = Proposal { topology, term };
                let id = journal.proposed(session.propose(clock_ms, &proposal), &proposal);
                process.proposed.insert(id, proposal);
            }
        }
    }

    /// Something breaks, or is mended.
    fn fault(&mut self) {
        let at = self.random.below(self.processes.len());
        let link = self.processes[at].session.link();
        match self.random.below(16) {
            0..=2 => self.ensemble.cut(link, true, true),
            3 => self.ensemble.cut(link, true, false),
            4 => self.ensemble.cut(link, false, true),
            5..=8 => self.ensemble.cut(link, false, false),
            9 => {
                let (to, from) = (self.random.below(150), self.random.below(150));
                self.ensemble.delay(link, to, from);
            }
            10 => self.ensemble.delay(link, 1, 1),
            11 => self.ensemble.lag(link, true),
            12 => self.ensemble.lag(link, false),
            13 => {
                let has_quorum = !self.random.one_in(3);
                self.ensemble.set_quorum(has_quorum);
            }
            14 => {
                let process = &mut self.processes[at];
                process.stopped_until_ms = self.now_ms + self.random.below(2 * SESSION_MS);
                process.ahead_ms += self.random.below(2u64) * self.random.below(SESSION_MS);
            }
            _ => {
                let member = self.processes[at].instance.member.0;
                self.processes[at] = self.start(member);
            }
        }
    }

    /// All is mended: in the end each member knows what is recorded, and one leads.
    fn settle(&mut self) {
        self.ensemble.set_quorum(true);
        for at in 0..self.processes.len() {
            let link = self.processes[at].session.link();
            self.ensemble.cut(link, false, false);
            self.ensemble.delay(link, 1, 1);
            self.ensemble.lag(link, false);
            self.processes[at].stopped_until_ms = 0;
        }
        (0..4 * SESSION_MS).for_each(|_| self.step());
        for at in 0..self.processes.len() {
            let Process { session, journal, ahead_ms, .. } = &mut self.processes[at];
            journal.asked(session.stand(self.now_ms + *ahead_ms));
        }
        (0..4 * SESSION_MS).for_each(|_| self.step());
        let (topology, members) = (self.ensemble.topology(), self.ensemble.members());
        let mut leaders = Vec::new();
        for Process { journal, .. } in &self.processes {
            assert_eq!(
                journal.session(),
                Some(SessionState::Connected),
                "8: it does not come back"
            );
            assert_eq!(journal.open(), 0, "1: no answer");
            assert_eq!(journal.topology().map(|of| &**of), topology.as_ref(), "3: not the newest");
            assert_eq!(journal.members(), Some(&members[..]), "5: not the members");
            match journal.standing() {
                Some(Standing::Leads(term)) => leaders.push(term),
                standing => assert_eq!(standing, Some(Standing::Waits), "7"),
            }
        }
        let watcher = self.ensemble.watcher().map(|(term, _)| term);
        assert_eq!(leaders, Vec::from_iter(watcher), "7");
    }
}

/// Done: it is what was recorded as its version. Refused or not sent: it is not.
fn check_proposal(
    recorded: &Recorded,
    terms: &mut BTreeMap<u64, Term>,
    proposal: &Proposal,
    outcome: Outcome,
) {
    let version = proposal.topology.version;
    let known = recorded.0.get(&version).map(|(_, topology)| topology);
    match outcome {
        Outcome::Done => {
            assert!(known.is_none_or(|of| *of == proposal.topology), "1: done, and not recorded");
            if let Some(term) = proposal.term {
                let before = terms.range(..version).next_back().map(|(_, term)| *term);
                assert!(before <= Some(term), "7: a watcher of an older term was followed");
                let after = terms.range(version..).next().map(|(_, term)| *term);
                assert!(after.is_none_or(|after| term <= after), "7: a term is over");
                terms.insert(version, term);
            }
        }
        Outcome::Refused(_) | Outcome::NotSent => {
            assert_ne!(known, Some(&proposal.topology), "1: refused, and recorded");
        }
        Outcome::Unknown => {}
    }
}

impl Recorded {
    /// The version was the recorded one at a moment between the sending of a renewal and its answer.
    fn check_renewal(&self, sent_ms: u64, answered_ms: u64, version: u64) {
        let next = self.0.range(version + 1..).next();
        let ended_ms = next.map_or(u64::MAX, |(_, (since_ms, _))| *since_ms);
        assert!(sent_ms <= ended_ms, "6: renewed under a version that was over");
        let since_ms = self.0.get(&version).map_or(0, |(since_ms, _)| *since_ms);
        assert!(since_ms <= answered_ms, "6: renewed under a version that was not there");
    }
}

#[test]
fn the_contract_holds_under_faults() {
    let mut sums = [0; 5];
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..3_000 {
            if world.random.one_in(4) {
                world.ask();
            }
            if world.random.one_in(60) {
                world.fault();
            }
            world.step();
        }
        world.settle();
        let World { done, refused, unknown, renewals, lost, .. } = world;
        for (sum, more) in sums.iter_mut().zip([done, refused, unknown, renewals, lost]) {
            *sum += more;
        }
    }
    println!("done, refused, unknown, renewals, lost sessions: {sums:?}");
    assert!(sums.iter().all(|sum| *sum > 300), "{sums:?}");
}
