//! Worlds with links. The longer form is `make worlds`.

use crate::alone::{MS, alone};
use crate::promises;
use remora_client_core::{Path, PointerCacheKind, ServedBy, SetOptions, Target as Found};
use remora_layout::limits::READ_LEASE_MS;
use remora_sim::key_links::Target;
use remora_sim::probes::Probe;
use remora_sim::shrink::Less;

fn worlds() -> Less {
    Less { links: true, ..Less::default() }
}

#[test]
fn the_same_seed_gives_the_same_run_with_links() {
    promises::repeats(&worlds());
}

#[test]
fn fixed_seeds_keep_every_promise_with_links() {
    promises::fixed_seeds(&worlds(), 40, (&Probe::OF_LINKS, 20), 100);
}

/// The primary dies, and a replica takes its place, or it comes back: hints of before lead nowhere.
#[test]
fn links_keep_every_promise_over_failovers() {
    promises::failovers(&worlds(), 60);
}

#[test]
fn fresh_seeds_keep_every_promise_with_links() {
    promises::fresh_seeds(&worlds(), 15);
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
