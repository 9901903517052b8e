//! What a round with replicas does, and what survives it.
//!
//! Every kind of fault has its turn before any comes again, in an order that the seed draws.

use crate::args::Durability;
use crate::history::Promise;
use crate::network::OneWay;
use rand::rngs::ChaCha8Rng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};
use std::fmt;
use std::time::Duration;

/// Kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The primary dies, alone.
    KillPrimary,
    /// Some replicas die, and come back while the primary goes on.
    KillReplicas,
    /// The primary dies with some replicas.
    KillSome,
    /// All die at once.
    KillAll,
    /// Some replicas stand still for a while.
    StopReplicas,
    /// The primary stands still for a while.
    StopPrimary,
    /// Links between the primary and replicas are cut for a while.
    CutLinks,
    /// A replica that comes back empty is disturbed in the middle of its copy.
    DisturbCopy,
}

/// All of them; the most important one twice.
const KINDS: [Kind; 9] = [
    Kind::KillPrimary,
    Kind::KillPrimary,
    Kind::KillReplicas,
    Kind::KillSome,
    Kind::KillAll,
    Kind::StopReplicas,
    Kind::StopPrimary,
    Kind::CutLinks,
    Kind::DisturbCopy,
];

/// Kinds that are still to come.
#[derive(Debug, Default)]
pub struct Deck(Vec<Kind>);

impl Deck {
    /// The next one.
    pub fn draw(&mut self, rng: &mut impl Rng) -> Kind {
        if self.0.is_empty() {
            self.0 = KINDS.to_vec();
            self.0.shuffle(rng);
        }
        self.0.pop().expect("it was filled")
    }
}

/// What a server keeps in memory of its log for replicas that are away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backlog {
    /// So little that a replica that was away for a moment copies.
    Small,
    /// The default: most replicas that kept their disk go on where they were.
    Default,
}

impl Backlog {
    /// What a server starts with. Both come often, whichever server is the primary.
    pub fn draw(rng: &mut impl Rng) -> Self {
        if rng.random() { Self::Small } else { Self::Default }
    }

    /// The flag of `remora serve`, if it needs one.
    pub fn flag(self) -> Option<&'static str> {
        match self {
            Self::Small => Some("--replica-backlog=1MiB"),
            Self::Default => None,
        }
    }
}

/// How a copy is disturbed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disturbance {
    /// The replica dies again.
    Kill,
    /// It stands still.
    Stop,
    /// Its link is cut, if links can be.
    Cut,
    /// The primary dies.
    KillPrimary,
}

/// What a round does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// These die, the primary among them or not.
    Kill(Vec<usize>),
    /// These stand still.
    Stop(Vec<usize>),
    /// These packets are thrown away.
    Cut(Vec<OneWay>),
    /// This replica is copying when it happens.
    Copy(usize, Disturbance),
}

/// See [`Fault`].
#[derive(Clone, Debug)]
pub struct Plan {
    /// The fault.
    pub fault: Fault,
    /// Load before it.
    pub load: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// The primary dies before the fault has ended.
    pub then_kills_primary: bool,
}

impl Plan {
    /// Draws what a round of this kind does to a primary and its replicas. `over_tcp` are replicas
    /// whose links can be cut; `None` if there is nothing to cut.
    pub fn draw(
        kind: Kind,
        (primary, replicas): (usize, &[usize]),
        over_tcp: &[usize],
        seconds: f64,
        rng: &mut ChaCha8Rng,
    ) -> Option<Self> {
        let some = |of: &[usize], rng: &mut ChaCha8Rng| -> Vec<usize> {
            let count = rng.random_range(1..=of.len());
            of.sample(rng, count).copied().collect()
        };
        let fault = match kind {
            Kind::KillPrimary => Fault::Kill(vec![primary]),
            Kind::KillReplicas => Fault::Kill(some(replicas, rng)),
            Kind::KillSome => {
                // At least one stays, if there are several.
                let most = replicas.len().saturating_sub(1).max(1);
                let of: Vec<usize> = replicas.sample(rng, most).copied().collect();
                Fault::Kill([vec![primary], some(&of, rng)].concat())
            }
            Kind::KillAll => Fault::Kill([&[primary], replicas].concat()),
            Kind::StopReplicas => Fault::Stop(some(replicas, rng)),
            Kind::StopPrimary => Fault::Stop(vec![primary]),
            Kind::CutLinks if over_tcp.is_empty() => return None,
            Kind::CutLinks => Fault::Cut(cuts(primary, &some(over_tcp, rng), rng)),
            Kind::DisturbCopy => {
                let mut ways = vec![Disturbance::Kill, Disturbance::Stop];
                ways.extend((!over_tcp.is_empty()).then_some(Disturbance::Cut));
                ways.extend((replicas.len() > 1).then_some(Disturbance::KillPrimary));
                Fault::Copy(*replicas.choose(rng)?, *ways.choose(rng)?)
            }
        };
        let load = Duration::from_secs_f64(seconds * rng.random_range(0.1..1.0));
        // Shorter and longer than a laggard's timeout, and than a link's.
        let lasts = Duration::from_secs_f64(rng.random_range(0.1..3.0));
        let then_kills_primary =
            matches!(kind, Kind::StopReplicas | Kind::CutLinks) && rng.random();
        Some(Self { fault, load, lasts, then_kills_primary })
    }

    /// Whether the primary dies.
    pub fn kills_primary(&self, primary: usize) -> bool {
        self.then_kills_primary
            || match &self.fault {
                Fault::Kill(of) => of.contains(&primary),
                Fault::Copy(_, disturbance) => *disturbance == Disturbance::KillPrimary,
                Fault::Stop(_) | Fault::Cut(_) => false,
            }
    }

    /// Replicas that lose their memory.
    pub fn replicas_lost(&self, primary: usize) -> usize {
        match &self.fault {
            Fault::Kill(of) => of.iter().filter(|server| **server != primary).count(),
            Fault::Copy(..) => 1,
            Fault::Stop(_) | Fault::Cut(_) => 0,
        }
    }
}

/// Both ways, or one of them, between the primary and these.
fn cuts(primary: usize, replicas: &[usize], rng: &mut ChaCha8Rng) -> Vec<OneWay> {
    let ways = rng.random_range(0..4);
    let of = |replica: &usize| {
        let (there, back) =
            (OneWay { from: primary, to: *replica }, OneWay { from: *replica, to: primary });
        match ways {
            0 => vec![there],
            1 => vec![back],
            _ => vec![there, back],
        }
    };
    replicas.iter().flat_map(of).collect()
}

/// How the run goes on once the primary is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// The replica with the greatest position is promoted.
    Promotion,
    /// The primary starts again, on its disk or empty.
    Restart,
}

/// How it goes on, and what has to be there then.
///
/// What is acknowledged lies in the memory of each replica of the in-sync set, which are at least
/// `min_replicas`: it survives in one of them if fewer than that are lost. A disk survives `kill -9`.
pub fn after_primary(
    (min_replicas, durability): (u32, Durability),
    (lost, alive): (usize, usize),
) -> (Recovery, Promise) {
    let has_disk = durability != Durability::Memory;
    match (lost < min_replicas as usize, alive > 0, has_disk) {
        (true, true, _) => (Recovery::Promotion, Promise::All),
        (_, _, true) => (Recovery::Restart, Promise::All),
        (_, true, false) => (Recovery::Promotion, Promise::Nothing),
        (_, false, false) => (Recovery::Restart, Promise::Nothing),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |of: &[usize]| of.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let lasts = self.lasts.as_secs_f64();
        match &self.fault {
            Fault::Kill(of) => write!(out, "kill -9 of {}", names(of))?,
            Fault::Stop(of) => write!(out, "{} stood still for {lasts:.2} s", names(of))?,
            Fault::Cut(ways) => {
                let ways: Vec<String> =
                    ways.iter().map(|way| format!("{} to {}", way.from, way.to)).collect();
                write!(out, "cut from {} for {lasts:.2} s", ways.join(", "))?;
            }
            Fault::Copy(replica, disturbance) => {
                write!(out, "copy of {replica} disturbed: {disturbance:?}")?;
            }
        }
        out.write_str(if self.then_kills_primary { ", kill -9 of the primary in it" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_kind_has_its_turn() {
        let (mut deck, mut rng) = (Deck::default(), ChaCha8Rng::seed_from_u64(1));
        let drawn: Vec<Kind> = (0..KINDS.len()).map(|_| deck.draw(&mut rng)).collect();
        assert!(KINDS.iter().all(|kind| drawn.contains(kind)), "{drawn:?}");
    }

    #[test]
    fn backlogs_of_both_sizes_are_drawn() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: Vec<_> = (0..40).map(|_| Backlog::draw(&mut rng)).collect();
        for backlog in [Backlog::Small, Backlog::Default] {
            assert!(drawn.iter().filter(|of| **of == backlog).count() > 8, "{backlog:?}");
        }
    }

    #[test]
    fn plans_spare_what_their_kind_spares() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for kind in KINDS {
            for _ in 0..200 {
                let plan = Plan::draw(kind, (1, &[0, 2]), &[2], 1.0, &mut rng).unwrap();
                match kind {
                    Kind::KillPrimary => assert_eq!(plan.replicas_lost(1), 0),
                    Kind::KillReplicas | Kind::StopPrimary => assert!(!plan.kills_primary(1)),
                    Kind::KillSome => {
                        assert!(plan.kills_primary(1) && plan.replicas_lost(1) == 1, "{plan}");
                    }
                    Kind::KillAll => assert_eq!(plan.replicas_lost(1), 2),
                    Kind::CutLinks => {
                        let Fault::Cut(ways) = &plan.fault else { panic!("{plan}") };
                        assert!(ways.iter().all(|way| [way.from, way.to].contains(&2)), "{plan}");
                    }
                    Kind::StopReplicas | Kind::DisturbCopy => {}
                }
            }
        }
        assert!(Plan::draw(Kind::CutLinks, (0, &[1]), &[], 1.0, &mut rng).is_none());
    }

    #[test]
    fn what_is_promised_depends_on_the_replicas_that_are_lost() {
        use {Durability as D, Promise as P, Recovery as R};
        for (min_replicas, durability, lost, alive, expected) in [
            (1, D::Memory, 0, 1, (R::Promotion, P::All)),
            (1, D::Memory, 1, 1, (R::Promotion, P::Nothing)),
            (2, D::Memory, 1, 1, (R::Promotion, P::All)),
            (0, D::Memory, 0, 2, (R::Promotion, P::Nothing)),
            (1, D::Memory, 1, 0, (R::Restart, P::Nothing)),
            (1, D::Fsync, 1, 1, (R::Restart, P::All)),
            (0, D::Everysec, 0, 1, (R::Restart, P::All)),
            (2, D::Fsync, 1, 1, (R::Promotion, P::All)),
        ] {
            let found = after_primary((min_replicas, durability), (lost, alive));
            assert_eq!(found, expected, "{min_replicas} {durability} {lost} {alive}");
        }
    }
}
