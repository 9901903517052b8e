//! A member that polls its session, and what it has heard.

use remora_cluster::conformance::Journal;
use remora_cluster::coordinator::{Coordinator, Outcome, Proposal, RequestId};
use remora_cluster::topology::change::{self, Joining};
use remora_cluster::topology::{GroupId, Instance, MemberId, Topology};
use remora_tls::ClientTlsSettings;
use remora_zookeeper::ZookeeperCoordinator;
use std::time::Duration;

/// Looks after which a test gives up: a minute, and more on a busy machine.
const MOST_LOOKS: usize = 12_000;

pub struct Member {
    pub session: ZookeeperCoordinator,
    pub journal: Journal,
    pub instance: Instance,
}

impl Member {
    pub fn new(id: u64, address: &str, session_ms: u64) -> Self {
        Self::with_tls(id, address, None, session_ms)
    }

    pub fn with_tls(
        id: u64,
        address: &str,
        tls: Option<ClientTlsSettings>,
        session_ms: u64,
    ) -> Self {
        let address = address.parse().expect("an address");
        Self {
            session: ZookeeperCoordinator::connect(address, tls, session_ms).expect("a thread"),
            journal: Journal::default(),
            instance: Instance { member: MemberId(id), incarnation: id },
        }
    }

    pub fn poll(&mut self) {
        while let Some(event) = self.session.poll(0) {
            self.journal.hear(&event);
        }
    }

    /// Polls until this holds.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Journal) -> bool) {
        for _ in 0..MOST_LOOKS {
            self.poll();
            if holds(&self.journal) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("waited for too long until {what}");
    }

    /// Waits until it is connected, and knows the members.
    pub fn until_connected(&mut self) {
        self.until("it is connected", |journal| journal.members().is_some());
    }

    pub fn answer(&mut self, id: RequestId) -> Outcome {
        self.until("an answer", |journal| journal.answer(id).is_some());
        self.journal.answer(id).expect("just seen")
    }

    pub fn create(&mut self) -> Outcome {
        let topology = Topology::new(7, vec![(GroupId(1), "a".into(), 1)]).expect("valid");
        let id = self.journal.asked(self.session.create(0, &topology));
        self.answer(id)
    }

    pub fn enter(&mut self) -> Outcome {
        let id = self.journal.asked(self.session.enter(0, self.instance));
        self.answer(id)
    }

    /// A renewal under what it knows.
    pub fn renew(&mut self) -> Outcome {
        let version = self.journal.version();
        let id = self.journal.renewed(self.session.renew(0, version), version);
        self.answer(id)
    }

    /// A topology with one more version.
    pub fn propose(&mut self) -> Outcome {
        let known = self.journal.topology().expect("there is one");
        let id = known.version;
        let joining = Joining {
            instance: Instance { member: MemberId(id), incarnation: 1 },
            group: GroupId(1),
            fabric_address: format!("f:{id}"),
            resp_address: format!("r:{id}"),
        };
        let topology = change::join(known, joining).expect("it may join");
        let proposal = Proposal { topology, term: None };
        let id = self.journal.proposed(self.session.propose(0, &proposal), &proposal);
        self.answer(id)
    }
}
