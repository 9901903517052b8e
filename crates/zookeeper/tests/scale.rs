//! Many sessions at a real ZooKeeper, of which each server of a cluster has one: what they cost at rest, and
//! until all have seen one change of the topology (docs/scale.md).
//!
//! `REMORA_SCALE_SESSIONS=1000` has so many; the suite has few.

use remora_cluster::coordinator::{Coordinator, Event, Outcome, Proposal, RequestId, SessionState};
use remora_cluster::topology::change::{self, Joining, Promotion};
use remora_cluster::topology::{GroupId, Instance, MemberId, Topology};
use remora_zookeeper::{LocalServer, LocalServerPlan, ZookeeperAddress, ZookeeperCoordinator};
use std::time::{Duration, Instant};

const SESSION_MS: u64 = 2_000;
/// What is measured at rest.
const REST: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);

fn sessions() -> usize {
    std::env::var("REMORA_SCALE_SESSIONS").map_or(24, |text| text.parse().expect("a number"))
}

/// Three members of each group, of which the first leads and the others are in sync.
fn topology(groups: u32) -> Topology {
    let named = |id| (GroupId(id), format!("group{id}"), 1);
    let mut topology = Topology::new(7, (1..=groups).map(named).collect()).unwrap();
    for group in 1..=groups {
        let id = GroupId(group);
        for at in 0..3 {
            let joining = Joining {
                instance: instance(group, at),
                group: id,
                fabric_address: format!("10.{}.{}.{at}:7380", group / 250, group % 250),
                resp_address: format!("10.{}.{}.{at}:7379", group / 250, group % 250),
            };
            topology = change::join(&topology, joining).unwrap();
        }
        let to = instance(group, 0);
        let first = Promotion { group: id, epoch: 0, to, in_sync: Vec::new() };
        topology = change::promote(&topology, first).unwrap();
        topology = with_set(&topology, group, &[1, 2]);
    }
    topology
}

fn instance(group: u32, at: u64) -> Instance {
    Instance { member: MemberId(u64::from(group) * 10 + at), incarnation: 1 }
}

fn with_set(topology: &Topology, group: u32, set: &[u64]) -> Topology {
    let set = set.iter().map(|at| instance(group, *at)).collect();
    change::set_in_sync(topology, GroupId(group), (instance(group, 0), 1), set).unwrap()
}

/// What a process has used.
#[derive(Clone, Copy)]
struct Used {
    at: Instant,
    cpu_ms: u64,
}

impl Used {
    fn by(pid: u32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        // In user code and in the kernel, of all threads that are or were: in ticks of 10 ms.
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
        Self { at: Instant::now(), cpu_ms: ticks.sum::<u64>() * 10 }
    }

    /// CPU time since an earlier look, ms, and that time in ms.
    fn since(self, before: Self) -> (u64, u128) {
        (self.cpu_ms - before.cpu_ms, (self.at - before.at).as_millis())
    }
}

/// Resident memory of a process, MiB.
fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// Sessions at a ZooKeeper, and what has happened to each.
struct Sessions {
    zookeeper: LocalServer,
    all: Vec<ZookeeperCoordinator>,
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    is_connected: bool,
    version: u64,
    members: usize,
    answered: Option<(RequestId, Outcome)>,
}

impl Sessions {
    /// Polls all until a condition holds for each. How long that took, ms.
    fn until(&mut self, what: &str, holds: impl Fn(&Seen) -> bool) -> u128 {
        let began = Instant::now();
        loop {
            for (session, seen) in self.all.iter_mut().zip(&mut self.seen) {
                while let Some(event) = session.poll(0) {
                    match event {
                        Event::Session(state) => {
                            seen.is_connected = state == SessionState::Connected;
                        }
                        Event::Topology(topology) => seen.version = topology.version,
                        Event::Members(members) => seen.members = members.len(),
                        Event::Answer(id, outcome) => seen.answered = Some((id, outcome)),
                        _ => {}
                    }
                }
            }
            if self.seen.iter().all(&holds) {
                return began.elapsed().as_millis();
            }
            assert!(began.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Does something, until a condition holds for each session, and prints what it cost ZooKeeper.
    fn cost(
        &mut self,
        what: &str,
        does: impl FnOnce(&mut Self),
        holds: impl Fn(&Seen) -> bool,
    ) -> Cost {
        let pid = self.zookeeper.pid().unwrap();
        // On a busy machine ZooKeeper may not answer in time.
        let metric = |of: &Self, name| {
            let began = Instant::now();
            loop {
                match of.zookeeper.metric(name) {
                    Ok(number) => return number,
                    Err(error) => assert!(began.elapsed() < LIMIT, "{name}: {error}"),
                }
                std::thread::sleep(PAUSE);
            }
        };
        let packets =
            |of: &Self| [metric(of, "zk_packets_received"), metric(of, "zk_packets_sent")];
        let (before, used) = (packets(self), Used::by(pid));
        does(self);
        let ms = self.until(what, holds);
        let (cpu_ms, all_ms) = Used::by(pid).since(used);
        let after = packets(self);
        let cost = Cost { requests: after[0] - before[0], replies: after[1] - before[1] };
        println!(
            "{what}: {ms} ms, {} requests, {} replies, {cpu_ms} ms of CPU in {all_ms} ms, {} MiB resident",
            cost.requests,
            cost.replies,
            resident_mib(pid)
        );
        cost
    }
}

/// Packets of ZooKeeper's clients, and to them.
struct Cost {
    requests: u64,
    replies: u64,
}

#[test]
fn sessions_at_zookeeper_rest_and_hear_of_one_change_with_one_read_each() {
    if LocalServer::is_skipped() {
        return println!("not run: ZooKeeper is missing, as REMORA_SKIP says");
    }
    let count = sessions();
    let plan = LocalServerPlan { heap_mib: 1024, ..LocalServerPlan::default() };
    let zookeeper = LocalServer::start(plan).expect("it answers");
    let first = topology((count / 3) as u32);
    println!("{count} sessions, a topology of {} bytes", first.encode().len());
    let mut sessions = Sessions { zookeeper, all: Vec::new(), seen: Vec::new() };
    let address = format!("zk://{}/scale", sessions.zookeeper.address());
    let address: ZookeeperAddress = address.parse().unwrap();
    let open = |sessions: &mut Sessions, more: usize| {
        for _ in 0..more {
            let session = ZookeeperCoordinator::connect(address.clone(), None, SESSION_MS).unwrap();
            sessions.all.push(session);
            sessions.seen.push(Seen::default());
        }
    };
    open(&mut sessions, 1);
    sessions.until("the first connects", |seen| seen.is_connected);
    sessions.all[0].create(0, &first);
    sessions.until("the first has a topology", |seen| seen.version == first.version);
    let all_connect = |sessions: &mut Sessions| open(sessions, count - 1);
    sessions.cost("all connect", all_connect, |seen| {
        seen.is_connected && seen.version == first.version
    });
    let enter = |sessions: &mut Sessions| {
        for (at, session) in sessions.all.iter_mut().enumerate() {
            session.enter(0, Instance { member: MemberId(1 + at as u64), incarnation: 1 });
        }
    };
    sessions.cost("all enter at once", enter, |seen| seen.members == count);
    let stand = |sessions: &mut Sessions| {
        sessions.seen.iter_mut().for_each(|seen| seen.answered = None);
        sessions.all.iter_mut().for_each(|session| _ = session.stand(0));
    };
    sessions.cost("all stand at once", stand, |seen| seen.answered.is_some());
    let rest = sessions.cost("rest", |_| std::thread::sleep(REST), |_| true);
    let next = with_set(&first, 1, &[1]);
    let version = next.version;
    let proposal = Proposal { topology: next, term: None };
    let change = |sessions: &mut Sessions| _ = sessions.all[0].propose(0, &proposal);
    let cost = sessions.cost("one change", change, |seen| seen.version == version);
    let die = |sessions: &mut Sessions| {
        drop(sessions.all.pop());
        sessions.seen.pop();
    };
    sessions.cost("one leaves", die, |seen| seen.members + 1 == count);
    // Pings, a seventh of the session apart or rarer, and what the measurement itself asks.
    let pings = count as u64 * 1_000 * 7 / SESSION_MS * REST.as_secs();
    assert!(rest.requests <= 2 * pings + 20, "{} requests at rest", rest.requests);
    // One read for each, and pings meanwhile.
    assert!(cost.requests <= 3 * count as u64 + 20, "{} requests", cost.requests);
    assert!(cost.replies >= count as u64, "each is told");
}
