//! Chains against plain sequences: changes at the ends and in the middle, and walks beside them.

use crate::store::{REGION, SECRET, Store, plain_hash};
use remora_arena::{NoJournal, Slot, lengths_of, publish_live, write_root};
use remora_index::chain::{
    AskReason, Chain, ChainRef, Directory, End, Range, Run, lengths_of_entries, release_dropped,
};
use remora_layout::chain::{CHAIN_STATE_BYTES, Entry, encoded};
use remora_layout::kind::Kind;
use remora_layout::limits::{CHUNK_BYTES, SLOT_UNIT_BYTES, WALK_RESTARTS};
use remora_layout::node::{Home, NodeRef, Proof};
use remora_layout::record::{state_offset, verify};
use remora_testing::Random;
use remora_walk::{Step, Walk};
use std::collections::{BTreeMap, VecDeque};

const KEY: &[u8] = b"a list";
const MOST_ENTRIES: usize = 10;

/// A chain, and what it should hold.
struct Fixture {
    store: Store<NoJournal>,
    root: Slot,
    chain: Chain,
    model: VecDeque<Vec<u8>>,
    changes: u64,
}

fn bytes_at(store: &Store<NoJournal>, offset: u64, bytes: usize) -> Vec<u8> {
    store.owner.slice(offset as usize, bytes).to_vec()
}

impl Fixture {
    fn new() -> Self {
        Self::with_chunks_of(MOST_ENTRIES)
    }

    fn with_chunks_of(most_entries: usize) -> Self {
        Self::within(Store::new(4 << 20, 16, plain_hash, NoJournal), most_entries)
    }

    /// A chain of its own in a store that may have others.
    fn within(mut store: Store<NoJournal>, most_entries: usize) -> Self {
        let bytes = state_offset(KEY.len()) + CHAIN_STATE_BYTES;
        let root = store.slots.allocate(&mut store.owner, bytes, 0).unwrap();
        write_root(&mut store.owner, SECRET, REGION, root, (Kind::LIST, KEY), CHAIN_STATE_BYTES, 0);
        let slot = root.slot + (state_offset(KEY.len()) / SLOT_UNIT_BYTES) as u32;
        let at = NodeRef { slot, generation: root.generation };
        let home = Home { secret: SECRET, region: REGION };
        let chain = Chain::create(&mut store.owner, home, (root, at), most_entries);
        publish_live(&mut store.owner, root);
        Self { store, root, chain, model: VecDeque::new(), changes: 0 }
    }

    fn slots(&mut self, bytes: impl Iterator<Item = usize>) -> Vec<Slot> {
        let Store { owner, slots, .. } = &mut self.store;
        bytes.map(|bytes| slots.allocate(owner, bytes, 0).unwrap()).collect()
    }

    /// Carries a change out, and releases what it drops at once.
    fn change(&mut self, change: impl FnOnce(&mut Chain, &mut Store<NoJournal>, &mut Directory)) {
        let mut dropped = Directory::default();
        self.changes += 1;
        self.chain.begin(&mut self.store.owner);
        change(&mut self.chain, &mut self.store, &mut dropped);
        self.chain.end(&mut self.store.owner, self.changes);
        let Store { owner, slots, .. } = &mut self.store;
        assert!(release_dropped((owner, slots), &mut dropped, (usize::MAX, 0)));
    }

    fn push(&mut self, end: End, items: &[Vec<u8>]) {
        let mut bytes = Vec::new();
        items.iter().for_each(|item| Entry::of(item).push(&mut bytes));
        let mut lengths = Vec::new();
        lengths_of_entries(&bytes, &mut lengths);
        let plan = self.chain.plan_push((&self.store.owner, &self.store.slots), end, &lengths);
        let new = self.slots(plan.new.iter().map(|(_, bytes)| *bytes));
        self.change(|chain, store, _| {
            let run = Run { bytes: &bytes, lengths: &lengths };
            chain.push((&mut store.owner, &store.slots), end, run, (&plan, &new));
        });
        match end {
            End::Back => self.model.extend(items.iter().cloned()),
            End::Front => items.iter().rev().for_each(|item| self.model.push_front(item.clone())),
        }
    }

    fn cut(&mut self, front: usize, back: usize) {
        self.change(|chain, store, dropped| {
            let memory = (&mut store.owner, &store.slots);
            chain.cut(memory, (front as u64, back as u64), dropped);
        });
        let kept = self.model.len().saturating_sub(front + back);
        self.model = self.model.iter().skip(front).take(kept).cloned().collect();
    }

    /// Replaces entries from `index` on, `gone` of one chunk, by others.
    fn splice(&mut self, index: usize, gone: usize, new: &[Vec<u8>]) {
        let (at, number) = self.chain.directory().find(index as u64).unwrap();
        let all = self.chain.entries(&self.store.owner, at).to_vec();
        let gone = gone.min(encoded(&all).count() - number);
        let mut made: Vec<u8> = encoded(&all).take(number).flatten().copied().collect();
        new.iter().for_each(|item| Entry::of(item).push(&mut made));
        made.extend(encoded(&all).skip(number + gone).flatten());
        let fits =
            !made.is_empty() && self.chain.fits((&self.store.owner, &self.store.slots), at, &made);
        let plan = if fits { Vec::new() } else { self.chain.plan_replace(&made) };
        let slots = self.slots(plan.iter().map(|(_, bytes)| *bytes));
        self.change(|chain, store, dropped| {
            let memory = (&mut store.owner, &store.slots);
            match fits {
                true => chain.rewrite(memory, at, &made),
                false => chain.replace(memory, at, &made, (&plan, &slots), dropped),
            }
        });
        let mut behind = self.model.split_off(index);
        behind.drain(..gone);
        self.model.extend(new.iter().cloned());
        self.model.append(&mut behind);
    }

    /// One random change.
    fn step(&mut self, random: &mut Random) {
        let item = |random: &mut Random| match random.below(30) {
            0 => vec![b'x'; random.below(CHUNK_BYTES + 400)],
            1..15 => random.below(1_000_000u64).to_string().into_bytes(),
            _ => format!("entry {}", random.below(100)).into_bytes(),
        };
        let length = self.model.len();
        let end = if random.one_in(2) { End::Front } else { End::Back };
        match random.below(11) {
            0..5 => {
                let items: Vec<_> = (0..1 + random.below(6u64)).map(|_| item(random)).collect();
                self.push(end, &items);
            }
            5..8 if length > 0 => {
                let (front, back) = (random.below(7usize), random.below(7usize));
                self.cut(front, back);
            }
            8 if length > 0 && random.one_in(20) => {
                self.cut(random.below(length), random.below(length))
            }
            9 if length > 0 => {
                let items: Vec<_> = (0..random.below(14u64)).map(|_| item(random)).collect();
                let gone = random.below(4);
                if length > gone {
                    self.splice(random.below(length), gone, &items);
                }
            }
            10 if length > 0 => {
                let index = random.below(length);
                let (at, number) = self.chain.directory().find(index as u64).unwrap();
                let old = self.model[index].clone();
                let new: Vec<u8> =
                    old.iter().map(|byte| if *byte == b'e' { b'f' } else { *byte }).collect();
                let mut entry = Vec::new();
                Entry::of(&new).push(&mut entry);
                self.change(|chain, store, _| {
                    chain.overwrite(&mut store.owner, (at, number), &entry)
                });
                self.model[index] = new;
            }
            _ => {}
        }
    }

    fn check(&self) {
        self.chain.audit(&self.store.owner, &self.store.slots).unwrap();
        assert_eq!(self.chain.length() as usize, self.model.len());
        for index in [0, self.model.len() / 2, self.model.len().saturating_sub(1)] {
            let entry = self.chain.entry(&self.store.owner, index as u64);
            let expected = self.model.get(index).map(|item| {
                let mut bytes = Vec::new();
                Entry::of(item).push(&mut bytes);
                bytes
            });
            assert_eq!(entry.map(<[u8]>::to_vec), expected);
        }
    }

    /// Compares the entries at both ends, one of which is found by where the last entries begin.
    fn check_ends(&mut self) {
        for (end, item) in [(End::Back, self.model.back()), (End::Front, self.model.front())] {
            let found = self.chain.entry_at(&self.store.owner, end).map(<[u8]>::to_vec);
            assert_eq!(found, item.map(|item| encode(std::slice::from_ref(item)).remove(0)));
        }
    }

    /// What a reader knows once it has found the root record.
    fn reference(&self) -> ChainRef {
        let bytes = lengths_of(&self.store.owner, self.root.slot).record_bytes();
        let offset = u64::from(self.root.slot) * SLOT_UNIT_BYTES as u64;
        let record = bytes_at(&self.store, offset, bytes);
        let found = verify(&record, SECRET, REGION, self.root.slot, None, Kind::LIST, KEY).unwrap();
        ChainRef::of_record(&self.store.view(), &found, &record).unwrap()
    }
}

fn encode(items: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let encode = |item: &Vec<u8>| {
        let mut bytes = Vec::new();
        Entry::of(item).push(&mut bytes);
        bytes
    };
    items.iter().map(encode).collect()
}

#[test]
fn random_changes_agree_with_a_plain_sequence() {
    for seed in 0..4 {
        let (mut fixture, mut random) = (Fixture::new(), Random::new(seed));
        let mut longest = 0;
        for step in 0..6_000 {
            fixture.step(&mut random);
            longest = longest.max(fixture.model.len());
            if step % 16 == 0 {
                fixture.check();
            }
        }
        assert!(longest > 20 * MOST_ENTRIES, "seed {seed}: {longest}");
        let length = fixture.model.len();
        fixture.cut(length, 0);
        fixture.check();
        assert_eq!(fixture.chain.bytes(), 0);
    }
}

/// The last entry is known whatever has happened since the places of the last ones were noted.
#[test]
fn the_entries_at_both_ends_are_known_beside_changes() {
    for (seed, most_entries) in [(0, MOST_ENTRIES), (1, 100), (2, 100), (3, 40)] {
        let (mut fixture, mut random) =
            (Fixture::with_chunks_of(most_entries), Random::new(seed + 300));
        for step in 0..20_000 {
            // Most changes are of one entry at one end; others come in between.
            let pushes = if step / 1_500 % 2 == 0 { 24 } else { 16 };
            match random.below(40) {
                0 => fixture.step(&mut random),
                of if of <= pushes => {
                    let end = if random.one_in(2) { End::Front } else { End::Back };
                    fixture.push(end, &[vec![b'a'; random.below(20)]]);
                }
                _ if random.one_in(2) => fixture.cut(1, 0),
                _ => fixture.cut(0, 1),
            }
            if random.one_in(3) {
                fixture.check_ends();
            }
            if step % 1_000 == 0 {
                fixture.check();
            }
        }
    }
}

/// Between any two READs of a walk the chain may change: the walk gives the list as it was under one
/// state, begins again, or asks.
#[test]
fn a_walk_beside_changes_gives_the_list_of_one_moment() {
    let (mut found, mut again, mut asked) = (0u64, 0u64, 0u64);
    for seed in 0..6 {
        let (mut fixture, mut random) = (Fixture::new(), Random::new(seed + 90));
        let mut states: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for _ in 0..3_000 {
            fixture.step(&mut random);
            let mut chain = fixture.reference();
            let model: Vec<Vec<u8>> = fixture.model.iter().cloned().collect();
            states.insert(chain.state.version, encode(&model));
            let length = chain.state.length;
            if length == 0 {
                continue;
            }
            let from = random.below(length);
            let count = 1 + random.below(length - from).min(60);
            let mut walk = Range::begin(chain, from, count);
            // How often something happens between two READs.
            let often = [2, 10, 1_000][random.below(3usize)];
            let happens =
                |fixture: &mut Fixture, random: &mut Random, states: &mut BTreeMap<_, _>| {
                    if random.one_in(often) {
                        fixture.step(random);
                        let model: Vec<Vec<u8>> = fixture.model.iter().cloned().collect();
                        states.insert(fixture.reference().state.version, encode(&model));
                    }
                };
            let (region_root, mut restarts) = (chain.root_range(), 0);
            while let Some(want) = walk.next_want() {
                let bytes = bytes_at(&fixture.store, want.offset, want.bytes);
                happens(&mut fixture, &mut random, &mut states);
                let root = bytes_at(&fixture.store, region_root.0, region_root.1);
                let (_, state) = chain.check_root(&root).unwrap();
                happens(&mut fixture, &mut random, &mut states);
                let step = match state == chain.state {
                    true => walk.feed(want, &bytes, Proof::Checksum),
                    false => Step::Restart,
                };
                match step {
                    Step::More => {}
                    Step::Found(()) => {
                        let (from, count) = (from as usize, count as usize);
                        let whole = &states[&chain.state.version];
                        let to = whole.len().min(from + count);
                        let expected: Vec<&[u8]> =
                            whole[from.min(to)..to].iter().map(Vec::as_slice).collect();
                        assert_eq!(walk.found().collect::<Vec<_>>(), expected, "seed {seed}");
                        found += 1;
                        break;
                    }
                    Step::Restart => {
                        again += 1;
                        restarts += 1;
                        assert!(restarts <= WALK_RESTARTS + 1);
                        chain.state = state;
                        let is_over = state.length <= from || walk.restart(&state).is_err();
                        if is_over {
                            asked += 1;
                            break;
                        }
                        walk.aim(from, count);
                    }
                    Step::Ask(_) => {
                        asked += 1;
                        break;
                    }
                }
            }
        }
    }
    assert!(found > 5_000 && again > 1_000 && asked > 50, "{found} {again} {asked}");
}

/// A chunk that was freed, and whose slot another chain's chunk has now, is not taken for the old one.
#[test]
fn a_chunk_of_another_chain_is_not_taken() {
    let mut fixture = Fixture::new();
    let items: Vec<Vec<u8>> = (0..40u64).map(|at| at.to_string().into_bytes()).collect();
    fixture.push(End::Back, &items);
    let chain = fixture.reference();
    let mut walk = Range::begin(chain, 0, 5);
    let want = walk.next_want().unwrap();
    fixture.cut(40, 0);
    let mut other = Fixture::within(fixture.store, MOST_ENTRIES);
    let has_slot = |other: &Fixture| {
        let places = other.chain.directory().iter();
        places
            .map(|place| u64::from(place.slot))
            .any(|of| of * SLOT_UNIT_BYTES as u64 == want.offset)
    };
    while !has_slot(&other) {
        assert!(other.model.len() < 4_000, "the slot is not used again");
        other.push(End::Back, &items);
    }
    let bytes = bytes_at(&other.store, want.offset, want.bytes);
    assert_eq!(walk.feed(want, &bytes, Proof::Checksum), Step::Restart);
}

/// Chunks of long entries have few of them: how many there are to walk is not known before.
#[test]
fn a_walk_ends_at_the_most_chunks_that_it_may_fetch() {
    let mut fixture = Fixture::new();
    let items: Vec<Vec<u8>> = (0..40u8).map(|at| vec![at; 3_000]).collect();
    fixture.push(End::Back, &items);
    let chain = fixture.reference();
    let chunks = fixture.chain.directory().chunks() as u64;
    for most in [1, 3, chunks - 1, chunks] {
        let mut walk = Range::begin(chain, 0, 40).within(most);
        let mut fetched = 0;
        let end = loop {
            let want = walk.next_want().unwrap();
            fetched += 1;
            let bytes = bytes_at(&fixture.store, want.offset, want.bytes);
            match walk.feed(want, &bytes, Proof::Checksum) {
                Step::More => {}
                end => break end,
            }
        };
        assert_eq!(fetched, most);
        let is_enough = most == chunks;
        let expected = if is_enough { Step::Found(()) } else { Step::Ask(AskReason::TooFar) };
        assert_eq!(end, expected, "{most} of {chunks}");
    }
}
