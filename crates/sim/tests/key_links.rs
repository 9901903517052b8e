//! Worlds with links. The longer form is `make worlds`.

use crate::alone::{MS, alone};
use remora_client_core::{Path, PointerCacheKind, ServedBy, SetOptions, Target as Found};
use remora_layout::limits::READ_LEASE_MS;
use remora_sim::key_links::Target;
use remora_sim::probes::{Probe, Probes};
use remora_sim::replicas::MAX_REPLICAS;
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

fn run(seed: u64, with_faults: bool, replicas: Option<usize>) -> Outcome {
    let less = Less { links: true, replicas, ..Less::default() };
    let outcome = World::run(less.of(seed, with_faults), false);
    let faults = if with_faults { "" } else { " --no-faults" };
    assert!(
        outcome.violations.is_empty(),
        "{}\nto repeat it: remora-sim --seed {seed}{faults}{less} --shrink",
        outcome.violations[0]
    );
    outcome
}

#[test]
fn the_same_seed_gives_the_same_run_with_links() {
    for seed in 0..3 {
        let (first, second) = (run(seed, true, None), run(seed, true, None));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
    }
}

#[test]
fn fixed_seeds_keep_every_promise_with_links() {
    let (mut probes, mut keys, mut undecided) = (Probes::default(), 0, 0);
    for seed in 0..40 {
        for outcome in [run(seed, true, None), run(seed, false, None)] {
            probes.add_all(&outcome.probes);
            keys += outcome.keys;
            undecided += outcome.undecided;
        }
    }
    let reached = Probe::OF_LINKS.map(|probe| probes.reached(probe));
    assert!(reached.iter().all(|&times| times > 20), "{reached:?}");
    assert!(100 * undecided < keys, "nearly all keys are judged: not {undecided} of {keys}");
}

/// The primary dies, and a replica takes its place, or it comes back: hints of before lead nowhere.
#[test]
fn links_keep_every_promise_over_failovers() {
    let mut promotions = 0;
    for seed in 0..60 {
        promotions += run(seed, true, Some(MAX_REPLICAS)).replicas.promotions;
    }
    // Few seeds follow a link of the former primary: the test of an epoch that may be over does.
    assert!(promotions > 5, "{promotions}");
}

/// Others each time: a failure names its seed.
#[test]
fn fresh_seeds_keep_every_promise_with_links() {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..15).map(|at| first.wrapping_add(at)) {
        run(seed, true, None);
        run(seed, true, Some(MAX_REPLICAS));
    }
}

/// A primary that stands still may be one no longer: once the read lease has lapsed its memory is of an epoch
/// that may be over, and a good hint leads into it as before.
#[test]
fn a_hint_of_an_epoch_that_may_be_over_is_not_believed() {
    alone(PointerCacheKind::Off, |alone| {
        let mut session = alone.session();
        session.set(b"zone", b"west", SetOptions::default()).expect("room");
        let mut open = session.open_hash(b"courier").expect("no long key");
        session.link_set(&open, &[(b"zone", b"zone")]).expect("room");
        let link = session.link_get(&mut open, b"zone", Path::Read).expect("an answer");
        let link = link.expect("it was just set");
        assert!(link.hint.is_some(), "it was read");
        for is_over in [false, true, false] {
            if is_over {
                alone.stall_server((READ_LEASE_MS + 50) * MS);
                alone.pause(READ_LEASE_MS * MS);
            }
            let chased = session.chase(&link, Path::Read).expect("an answer");
            assert!(matches!(chased.target, Found::Text(b"west")), "{chased:?}");
            let expected = if is_over { ServedBy::AskedAfterRead } else { ServedBy::Read };
            assert_eq!(chased.served_by, expected, "a hint of an epoch that may be over");
            assert_eq!(chased.counts.read_lease_lapsed, u64::from(is_over));
        }
    });
}

#[test]
fn a_target_is_known_by_its_name() {
    for target in [Target::Key(0), Target::Key(17), Target::Hash(2)] {
        assert_eq!(Target::named(&target.name()), Some(target));
    }
    for name in [&b"key:07"[..], b"key:", b"field:1", b"plain", b"hash:300", b"\xff:1"] {
        assert_eq!(Target::named(name), None, "{name:?}");
    }
    assert_ne!(Target::Hash(0).number(), Target::Key(0).number());
}
