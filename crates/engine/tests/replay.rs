//! Replay: the logs of some shards make the same keys in another number of shards. Random histories
//! of all types, with expiry and eviction.

use crate::history::{Copy, Source, digest_of, entries};
use remora_engine::{Applied, ApplyError, Digest, Eviction};
use remora_log::OwnedEntry;
use remora_testing::Random;
use std::collections::BTreeMap;

fn history(seed: u64, shards: usize, eviction: Eviction, steps: usize) -> Source {
    let mut source = Source::new(seed, shards, eviction);
    source.run(steps);
    source.ask_only = source.shards.iter().map(|shard| shard.stats().ask_only).sum();
    source.wait_for_idle_stages();
    source
}

fn logs_of(source: &Source) -> Vec<Vec<OwnedEntry>> {
    source.logs.iter().enumerate().map(|(at, bytes)| entries(at as u32, bytes)).collect()
}

#[test]
fn logs_make_the_same_keys_in_any_number_of_shards() {
    let mut counts = BTreeMap::new();
    for seed in 1..=10u64 {
        let eviction = if seed % 2 == 0 { Eviction::S3Fifo } else { Eviction::None };
        let (from, to) = (1 + seed as usize % 3, [1, 2, 3, 5][seed as usize % 4]);
        let source = history(seed, from, eviction, 2_500);
        let logs = logs_of(&source);
        let expected = digest_of(&source.shards);
        assert_ne!(expected, Digest::default());
        let mut random = Random::new(seed + 99);
        for times in [1, 2] {
            let mut copy = Copy::new(to, from);
            copy.apply_all(&logs, times, &mut random);
            assert_eq!(digest_of(&copy.shards), expected, "seed {seed}: {from} to {to}");
            copy.audit();
            for shard in &copy.shards {
                assert_eq!(shard.stats().staged_bytes, 0, "what was dropped there is dropped here");
            }
            for (log, entries) in logs.iter().enumerate() {
                let last = entries.last().map_or(0, |entry| entry.sequence);
                assert!(copy.shards.iter().all(|shard| shard.applied(log as u32) == last));
                assert_eq!(source.shards[log].log().last_sequence(), last);
            }
        }
        *counts.entry("given").or_insert(0) += source.given;
        *counts.entry("pieces").or_insert(0) += source.pieces;
        *counts.entry("waited").or_insert(0) += source.waited;
        *counts.entry("served").or_insert(0) += source.served;
        *counts.entry("ask-only").or_insert(0) += source.ask_only;
        for shard in &source.shards {
            let stats = shard.stats();
            *counts.entry("expired").or_insert(0) += stats.expired;
            *counts.entry("evicted").or_insert(0) += stats.evicted;
            *counts.entry("trees").or_insert(0) += stats.trees;
            *counts.entry("large sorted sets").or_insert(0) += stats.sorted_sets;
            *counts.entry("stages").or_insert(0) += stats.stages_abandoned;
        }
    }
    for (what, count) in counts {
        assert!(count > 0, "no history had any: {what}");
    }
}

/// Each shard draws its own lots: a log has to say which members left.
#[test]
fn members_that_left_at_random_are_named() {
    for seed in 1..=4 {
        let mut source = Source::new(seed, 2, Eviction::None);
        (0..600).for_each(|_| source.members());
        let mut copy = Copy::new(3, 2);
        copy.apply_all(&logs_of(&source), 1, &mut Random::new(seed));
        assert_eq!(digest_of(&copy.shards), digest_of(&source.shards), "seed {seed}");
    }
}

/// A log that is cut anywhere, in the middle of an entry of several pieces too, or
/// in which a byte is wrong, gives the state before that.
#[test]
fn a_cut_or_damaged_log_gives_the_state_before() {
    let source = history(5, 1, Eviction::None, 500);
    let bytes = &source.logs[0];
    let all = entries(0, bytes);
    // The state after each sequence.
    let mut states = vec![Digest::default()];
    let mut copy = Copy::new(1, 1);
    for entry in &all {
        assert_eq!(copy.apply(0, entry), [Ok(Applied::Done)]);
        states.push(copy.shards[0].digest());
    }
    assert_eq!(states.last(), Some(&source.shards[0].digest()));
    let mut random = Random::new(77);
    let mut in_pieces = 0;
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(2) {
            0 => damaged.truncate(at),
            _ => damaged[at] ^= 1 << random.below(8),
        }
        let kept = entries(0, &damaged);
        assert!(kept.len() < all.len() && kept[..] == all[..kept.len()]);
        in_pieces += (all[kept.len()].operation().len() > 1 << 16) as usize;
        let mut copy = Copy::new(2, 1);
        copy.apply_all(std::slice::from_ref(&kept), 1, &mut random);
        assert_eq!(digest_of(&copy.shards), states[kept.len()]);
        if kept.len() + 1 < all.len() {
            // Later entries are not applied.
            let (expected, sequence) = (kept.len() as u64 + 1, kept.len() as u64 + 2);
            let gap = Err(ApplyError::Gap { expected, sequence });
            assert_eq!(copy.apply(0, &all[kept.len() + 1]), [gap, gap]);
            assert_eq!(digest_of(&copy.shards), states[kept.len()]);
        }
    }
    assert!(in_pieces > 5, "{in_pieces}");
}
