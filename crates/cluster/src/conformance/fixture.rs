//! What the conformance body needs of a backend, and a room with several members in it.

use super::journal::Journal;
use crate::coordinator::{
    Coordinator, Event, Outcome, Proposal, RequestId, SessionState, Standing,
};
use crate::topology::change::{self, Joining};
use crate::topology::{GroupId, Instance, MemberId, Topology};

/// A session that ends soon if its member is silent, ms.
pub const SHORT_SESSION_MS: u64 = 1_500;
/// A session that outlasts each test's faults, ms.
pub const LONG_SESSION_MS: u64 = 30_000;
/// Steps after which a test gives up.
const MOST_STEPS: usize = 12_000;

/// A check, and its name.
pub type Check = (&'static str, fn());

/// A coordinator that knows nothing yet, with faults.
pub trait TestEnsemble {
    /// A member's session.
    type Session: Coordinator;

    /// A coordinator without a topology, members and candidates.
    fn new() -> Self;
    /// Opens a session, over a link of its own.
    fn connect(&mut self, session_ms: u64) -> Self::Session;
    /// The clock of the members, ms.
    fn now_ms(&self) -> u64;
    /// A little time passes: less than a tenth of the short session.
    fn step(&mut self);
    /// Cuts the link of a session, to the coordinator and from it.
    fn cut(&mut self, session: &Self::Session, to: bool, from: bool);
    /// The coordinator has its quorum, or has lost it.
    fn set_quorum(&mut self, has_quorum: bool);
    /// Another program replaces the recorded topology by these bytes.
    fn overwrite(&mut self, bytes: Vec<u8>);
}

/// A member of the room.
pub(super) struct Guest<S> {
    pub session: S,
    pub journal: Journal,
}

/// A coordinator, and members that poll it.
pub(super) struct Room<E: TestEnsemble> {
    pub ensemble: E,
    pub guests: Vec<Guest<E::Session>>,
}

/// What is asked of a coordinator.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Create(Topology),
    Propose(Proposal),
    Enter(Instance),
    Leave,
    Renew(u64),
    Stand,
    StepDown,
}

impl<E: TestEnsemble> Room<E> {
    /// Members with sessions of these times, all connected.
    pub fn with(sessions_ms: &[u64]) -> Self {
        let mut ensemble = E::new();
        let connect = |&session_ms: &u64| Guest {
            session: ensemble.connect(session_ms),
            journal: Journal::default(),
        };
        let guests = sessions_ms.iter().map(connect).collect();
        let mut room = Self { ensemble, guests };
        room.until("all are connected", |room| {
            let is_ready = |of: &Guest<_>| {
                of.journal.members().is_some() && of.journal.standing() == Some(Standing::Out)
            };
            room.guests.iter().all(is_ready)
        });
        room
    }

    /// As [`Self::with`], and the cluster of [`first_topology`] is there.
    pub fn with_topology(sessions_ms: &[u64]) -> Self {
        let mut room = Self::with(sessions_ms);
        room.done(0, Ask::Create(first_topology()));
        room.until("all know the topology", |room| {
            room.guests.iter().all(|of| of.journal.version() == 1)
        });
        room
    }

    /// Asks, and waits for nothing.
    pub fn ask(&mut self, guest: usize, ask: Ask) -> RequestId {
        let now_ms = self.ensemble.now_ms();
        let Guest { session, journal } = &mut self.guests[guest];
        match ask {
            Ask::Create(topology) => journal.asked(session.create(now_ms, &topology)),
            Ask::Propose(proposal) => {
                let id = session.propose(now_ms, &proposal);
                journal.proposed(id, &proposal)
            }
            Ask::Enter(instance) => journal.asked(session.enter(now_ms, instance)),
            Ask::Leave => journal.asked(session.leave(now_ms)),
            Ask::Renew(version) => journal.renewed(session.renew(now_ms, version), version),
            Ask::Stand => journal.asked(session.stand(now_ms)),
            Ask::StepDown => journal.asked(session.step_down(now_ms)),
        }
    }

    /// Waits for an answer.
    pub fn answer(&mut self, guest: usize, id: RequestId) -> Outcome {
        self.until("an answer", |room| room.journal(guest).answer(id).is_some());
        self.journal(guest).answer(id).expect("just seen")
    }

    /// Asks, and waits for the answer.
    pub fn outcome(&mut self, guest: usize, ask: Ask) -> Outcome {
        let id = self.ask(guest, ask);
        self.answer(guest, id)
    }

    /// Asks for what is done.
    pub fn done(&mut self, guest: usize, ask: Ask) {
        let text = format!("{ask:?}");
        assert_eq!(self.outcome(guest, ask), Outcome::Done, "{text}");
    }

    /// All poll once, and a little time passes.
    pub fn step(&mut self) {
        let now_ms = self.ensemble.now_ms();
        for Guest { session, journal } in &mut self.guests {
            while let Some(event) = session.poll(now_ms) {
                journal.hear(&event);
            }
        }
        self.ensemble.step();
    }

    /// Steps until this holds.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..MOST_STEPS {
            self.step();
            if holds(self) {
                return;
            }
        }
        panic!("waited for too long until {what}");
    }

    pub fn journal(&self, guest: usize) -> &Journal {
        &self.guests[guest].journal
    }

    /// Waits until a guest knows that these are present.
    pub fn until_present(&mut self, guest: usize, members: &[Instance]) {
        self.until("the members are known", |room| room.journal(guest).members() == Some(members));
    }

    pub fn until_stands(&mut self, guest: usize, stands: impl Fn(Standing) -> bool) -> Standing {
        self.until("the candidate stands so", |room| {
            room.journal(guest).standing().is_some_and(&stands)
        });
        self.journal(guest).standing().expect("just seen")
    }

    pub fn until_session(&mut self, guest: usize, state: SessionState) {
        self.until("the session is so", |room| room.journal(guest).session() == Some(state));
    }

    pub fn cut(&mut self, guest: usize, to: bool, from: bool) {
        self.ensemble.cut(&self.guests[guest].session, to, from);
    }

    /// A proposal of a guest: what it knows, and one member more, which has this id.
    pub fn one_member_more(&self, guest: usize, id: u64) -> Proposal {
        let known = self.journal(guest).topology().expect("there is one");
        Proposal { topology: joined(known, instance(id, 1)), term: None }
    }
}

/// A cluster of two groups.
pub(super) fn first_topology() -> Topology {
    let group = |id: u32| (GroupId(id), format!("group-{id}"), 1);
    Topology::new(77, vec![group(1), group(2)]).expect("valid")
}

/// A process of a member.
pub(super) fn instance(member: u64, incarnation: u64) -> Instance {
    Instance { member: MemberId(member), incarnation }
}

/// A topology in which a member has joined.
pub(super) fn joined(topology: &Topology, instance: Instance) -> Topology {
    let joining = Joining {
        instance,
        group: GroupId(1),
        fabric_address: format!("10.0.0.{}:7380", instance.member.0),
        resp_address: format!("10.0.0.{}:7379", instance.member.0),
    };
    change::join(topology, joining).expect("it may join")
}

/// Whether an event of this kind came.
pub(super) fn has(events: &[Event], is: impl Fn(&Event) -> bool) -> bool {
    events.iter().any(is)
}
