//! Walks of one key over B+trees that change at the same time: every store of a history is recorded,
//! and a reader's READs are torn and late, as in `rtree_walks`.
//!
//! Two rules hold for each key. A walk shows a state that was true at some time during the walk, and
//! none that is older than one that an earlier walk has shown. So a key that was there all the time
//! is found, and none is found that never was.

use crate::btree_history::{Checker, KEYS, bytes_of, record};
use crate::feeder::{Source, feed};
use crate::fixture::HOME;
use crate::replay::Replay;
use remora_index::btree::{AskReason, Get, Want};
use remora_layout::btree::{KeyForm, OrderedHeader};
use remora_layout::node::{NodeRef, Proof};
use remora_testing::Random;
use remora_walk::{Walk, What};

/// Nodes that arrive late and torn.
struct Late<'l, 'r> {
    replay: &'l mut Replay<'r>,
    random: &'l mut Random,
    header: NodeRef,
    /// The node that was read last: a leaf, at the end.
    last: Option<NodeRef>,
}

impl Source<Get<'_>> for Late<'_, '_> {
    fn bytes(&mut self, want: &Want) -> (Vec<u8>, Proof) {
        let What::Node { at, .. } = want.what else { panic!("a walk wants nodes") };
        self.last = Some(at);
        (self.replay.read(at, want.bytes, self.random), Proof::Checksum)
    }

    fn head(&mut self) -> OrderedHeader {
        self.replay.ordered_header(self.header, self.random)
    }
}

/// Counts of walks.
#[derive(Default, Debug)]
struct Counts {
    walks: u64,
    found: u64,
    restarted: u64,
    went_right: u64,
    from_held: u64,
    asked: u64,
}

fn run(keys: KeyForm, fan_out: usize, calm: u64, seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let history = record(keys, fan_out, 3_000, &mut random);
    let mut checker = Checker::new(&history.changes);
    let mut replay =
        Replay { words: history.start.clone(), stores: &history.stores, time: 0, calm };
    // A leaf that the reader keeps from an earlier walk, as a cache of nodes does.
    let (mut kept, mut key) = (None, 0);
    while replay.time < history.stores.len() {
        // Often the same key again, after few stores: from the root, and from the leaf.
        let between = random.pick(&[3, 60]);
        replay.go_on(random.below(between));
        if random.one_in(8) {
            key = random.below(KEYS);
        }
        let bytes = bytes_of(keys, key);
        let from = replay.time;
        let mut header = replay.ordered_header(history.header_at, &mut random);
        if let Some(leaf) = kept.filter(|_| random.one_in(2)) {
            header = OrderedHeader { root: leaf, height: 1, ..header };
        }
        // An address that was held lately, to which a switch may lead.
        let began = history.held.partition_point(|held| held.from <= from);
        let lately = &history.held[began.saturating_sub(40)..began];
        if !lately.is_empty() && random.one_in(2) {
            let held = &lately[random.below(lately.len())];
            header = OrderedHeader { root: held.at, height: held.level + 1, ..header };
            counts.from_held += u64::from(from < held.to);
        }
        let region = replay.words.len() as u64 * 8;
        let mut walk = Get::begin(&bytes, HOME, history.header_at, header, region);
        let header = history.header_at;
        let mut late = Late { replay: &mut replay, random: &mut random, header, last: None };
        let end = feed(&mut walk, 1, &mut late);
        let last = late.last;
        if kept.is_none() || random.one_in(6) {
            kept = last.filter(|_| end.is_ok());
        }
        counts.walks += 1;
        counts.restarted += u64::from(walk.retries() > 0);
        counts.went_right += u64::from(walk.right_links() > 0);
        match end {
            Ok((found, _)) => {
                let value = walk.value().bytes;
                let value = found.then(|| u64::from_le_bytes(value.try_into().unwrap()));
                counts.found += u64::from(value.is_some());
                checker.check(key, (from, replay.time), value);
            }
            Err(AskReason::Broken) => panic!("the owner's memory is no tree"),
            Err(_) => counts.asked += 1,
        }
    }
}

#[test]
fn torn_and_late_reads_miss_no_key_and_invent_none() {
    let mut counts = Counts::default();
    for keys in [KeyForm::Integers, KeyForm::Bytes] {
        for (seed, fan_out) in [4, 5, 16].into_iter().enumerate() {
            for calm in [10, 60, 300, 2_000] {
                run(keys, fan_out, calm, seed as u64 * 31 + calm, &mut counts);
            }
        }
    }
    let Counts { walks, found, restarted, went_right, from_held, asked } = counts;
    let is_telling = walks > 10_000
        && from_held > 1_000
        && found > walks / 10
        && restarted > 500
        && went_right > 20;
    assert!(is_telling && asked < walks / 2, "{counts:?}");
}
