//! What a round with a cluster does. Every kind of fault has its turn before any comes again, in an
//! order that the seed draws.

use crate::network::OneWay;
use clap::ValueEnum;
use rand::rngs::ChaCha8Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};
use remora_command_line::show_by_name;
use std::fmt;
use std::time::Duration;

/// Kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// kill -9 of the primary, which comes back once another one leads.
    KillPrimary,
    /// kill -9 of the primary, which is started again at once.
    RestartPrimary,
    /// kill -9 of all servers at one moment. They come back on their disks, one of them later.
    KillGroup,
    /// kill -9 of a replica, which comes back while the primary goes on.
    KillReplica,
    /// SIGSTOP of the primary for longer than its session, then SIGCONT.
    StopPrimary,
    /// SIGSTOP of a replica.
    StopReplica,
    /// ZooKeeper is killed and started again.
    KillCoordinator,
    /// SIGSTOP of ZooKeeper.
    StopCoordinator,
    /// The link between the primary and ZooKeeper is cut, both ways or one.
    CutCoordinator,
    /// The links between the primary and its replicas are cut, both ways or one.
    CutReplicas,
    /// The link between the primary and one replica is cut, both ways or one.
    CutReplica,
}

show_by_name!(Kind);

impl Kind {
    /// Whether it takes network namespaces.
    pub fn cuts(self) -> bool {
        matches!(self, Self::CutCoordinator | Self::CutReplicas | Self::CutReplica)
    }

    /// Whether what was acknowledged is on the disk of the primary only, afterwards.
    pub fn needs_fsync(self) -> bool {
        self == Self::KillGroup
    }
}

/// Kinds that are still to come.
#[derive(Debug)]
pub struct Deck {
    all: Vec<Kind>,
    left: Vec<Kind>,
}

impl Deck {
    /// Of these kinds, or of all if none is named; those that cut only if links can be cut, and those that
    /// need it only with durability `fsync`.
    pub fn new(named: &[Kind], can_cut: bool, has_fsync: bool) -> Self {
        let all = if named.is_empty() { Kind::value_variants() } else { named };
        let may = |kind: &Kind| (can_cut || !kind.cuts()) && (has_fsync || !kind.needs_fsync());
        let all = all.iter().copied().filter(may).collect();
        Self { all, left: Vec::new() }
    }

    /// The next one; `None` if there is none at all.
    pub fn draw(&mut self, rng: &mut impl Rng) -> Option<Kind> {
        if self.left.is_empty() {
            self.left.clone_from(&self.all);
            self.left.shuffle(rng);
        }
        self.left.pop()
    }
}

/// What a round does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The fault.
    pub kind: Kind,
    /// Load before it.
    pub load: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// The server that it strikes: the primary or a replica. If it strikes all, the one that comes back last.
    pub server: usize,
    /// Packets that are thrown away. The coordinator counts as the server behind the last one.
    pub ways: Vec<OneWay>,
}

impl Plan {
    /// Draws what a round of this kind does to a primary and its replicas.
    pub fn draw(
        kind: Kind,
        (primary, replicas): (usize, &[usize]),
        (seconds, session): (f64, Duration),
        rng: &mut ChaCha8Rng,
    ) -> Self {
        let replica = replicas.choose(rng).copied().unwrap_or(primary);
        let coordinator = replicas.len() + 1;
        let others = match kind {
            Kind::CutCoordinator => vec![coordinator],
            Kind::CutReplicas => replicas.to_vec(),
            Kind::CutReplica => vec![replica],
            _ => Vec::new(),
        };
        let sessions = match kind {
            Kind::StopPrimary => rng.random_range(1.3..2.0),
            // Shorter and longer than a session.
            _ => rng.random_range(0.2..2.0),
        };
        let server = match kind {
            Kind::KillReplica | Kind::StopReplica => replica,
            // The last one to come back.
            Kind::KillGroup if rng.random() => replica,
            _ => primary,
        };
        Self {
            kind,
            load: Duration::from_secs_f64(seconds * rng.random_range(0.3..1.0)),
            lasts: session.mul_f64(sessions),
            server,
            ways: ways(primary, &others, rng),
        }
    }

    /// Whether another server has to lead before anything is acknowledged again.
    pub fn needs_failover(&self) -> bool {
        matches!(self.kind, Kind::KillPrimary | Kind::RestartPrimary | Kind::StopPrimary)
    }
}

/// Both ways, or one of them, between the primary and these.
fn ways(primary: usize, others: &[usize], rng: &mut ChaCha8Rng) -> Vec<OneWay> {
    let drawn = rng.random_range(0..4);
    let of = |other: &usize| {
        let there = OneWay { from: primary, to: *other };
        let back = OneWay { from: *other, to: primary };
        match drawn {
            0 => vec![there],
            1 => vec![back],
            _ => vec![there, back],
        }
    };
    others.iter().flat_map(of).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, lasts) = (self.server, self.lasts.as_secs_f64());
        match self.kind {
            Kind::KillPrimary => write!(out, "kill -9 of primary {server}"),
            Kind::RestartPrimary => write!(out, "kill -9 and restart of primary {server}"),
            Kind::KillGroup => {
                write!(out, "kill -9 of all servers, {server} came back {lasts:.2} s later")
            }
            Kind::KillReplica => write!(out, "kill -9 of replica {server}"),
            Kind::StopPrimary => write!(out, "primary {server} stood still for {lasts:.2} s"),
            Kind::StopReplica => write!(out, "replica {server} stood still for {lasts:.2} s"),
            Kind::KillCoordinator => write!(out, "ZooKeeper was gone for {lasts:.2} s"),
            Kind::StopCoordinator => write!(out, "ZooKeeper stood still for {lasts:.2} s"),
            Kind::CutCoordinator | Kind::CutReplicas | Kind::CutReplica => {
                let way = |way: &OneWay| format!("{} to {}", way.from, way.to);
                let ways: Vec<String> = self.ways.iter().map(way).collect();
                write!(out, "{}: cut from {} for {lasts:.2} s", self.kind, ways.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_kind_has_its_turn_and_cuts_only_where_links_can_be_cut() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut drawn = |mut deck: Deck, count: usize| -> Vec<Kind> {
            (0..count).filter_map(|_| deck.draw(&mut rng)).collect()
        };
        let kinds = Kind::value_variants();
        let all = drawn(Deck::new(&[], true, true), kinds.len());
        assert!(kinds.iter().all(|kind| all.contains(kind)), "{all:?}");
        let whole = drawn(Deck::new(&[], false, true), 20);
        assert!(whole.len() == 20 && !whole.iter().any(|kind| kind.cuts()), "{whole:?}");
        let in_memory = drawn(Deck::new(&[], true, false), 20);
        assert!(!in_memory.contains(&Kind::KillGroup), "{in_memory:?}");
        assert!(drawn(Deck::new(&[Kind::CutReplica], false, true), 1).is_empty());
        let named = drawn(Deck::new(&[Kind::KillPrimary], true, true), 3);
        assert_eq!(named, [Kind::KillPrimary; 3]);
    }

    #[test]
    fn plans_strike_whom_their_kind_names() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let session = Duration::from_secs(1);
        for kind in Kind::value_variants() {
            let mut ways_of = Vec::new();
            for _ in 0..100 {
                let plan = Plan::draw(*kind, (1, &[0, 2]), (1.0, session), &mut rng);
                let strikes_replica = matches!(kind, Kind::KillReplica | Kind::StopReplica);
                let strikes_any = *kind == Kind::KillGroup;
                assert!(strikes_any || (plan.server != 1) == strikes_replica, "{plan}");
                assert_eq!(plan.ways.is_empty(), !kind.cuts(), "{plan}");
                if *kind == Kind::StopPrimary {
                    assert!(plan.lasts > session, "longer than its session: {plan}");
                }
                ways_of.push(plan.ways);
            }
            let reaches = |to| ways_of.iter().flatten().any(|way| [way.from, way.to].contains(&to));
            assert_eq!(reaches(3), *kind == Kind::CutCoordinator, "the coordinator is the fourth");
            if kind.cuts() {
                let one_way = ways_of.iter().any(|ways| ways.iter().all(|way| way.from == 1));
                assert!(one_way, "some cuts are one way");
            }
        }
    }
}
