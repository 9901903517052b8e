//! Members with scores in bins, against a map.

use super::plan::Counts;
use super::{Buffers, audit, dump, find, get, plan_one, scan};
use crate::elements::tests::{
    ENTRY, NOW, Scores, members, on, plan, put_large, store as new_store,
};
use crate::elements::{Held, Reading, find as find_key};
use crate::store::{self, Store};
use remora_arena::NoJournal;
use remora_index::hash::{record_key, record_value};
use remora_layout::database::Database;
use remora_layout::limits::{BIN_MEMBERS, BIN_MOST_MEMBERS, OBJECT_BASE_BUCKETS, WHOLE_ITEM_BYTES};
use remora_layout::packed_scores::find_in_part;
use remora_protocol::Items;
use remora_protocol::elements::Told;
use remora_testing::Random;
use std::collections::BTreeMap;

const KEY: &[u8] = b"scores";

type Model = BTreeMap<Vec<u8>, f64>;

/// The memory and the members are as the books say.
fn check(store: &Store) {
    let parts = audit::<Scores, NoJournal>(store).unwrap();
    store::audit(store, parts).unwrap();
}

/// An object, and what it holds.
struct Both {
    store: Store,
    root: u32,
    model: Model,
    buffers: Buffers,
}

impl Both {
    fn new(bytes: usize, all: Model) -> Self {
        let mut store = new_store(bytes);
        let list: Vec<_> = all.iter().map(|(member, score)| (member.clone(), *score)).collect();
        let root = put_large(&mut store, KEY, &list);
        Self { store, root, model: all, buffers: Buffers::default() }
    }

    /// What a change does to the members.
    fn expected(&self, puts: &Model, gone: &[Vec<u8>]) -> (u64, u64, u64) {
        let (mut new, mut changed) = (0, 0);
        for (member, score) in puts {
            match self.model.get(member) {
                None => new += 1,
                Some(present) => changed += u64::from(present != score),
            }
        }
        let removed = gone.iter().filter(|of| self.model.contains_key(*of)).count() as u64;
        (new, changed, removed)
    }

    /// Makes a change, or drops it, or finds no room for it. Whether it was made.
    fn change(&mut self, puts: &Model, gone: &[Vec<u8>], is_dropped: bool) -> bool {
        let expected = self.expected(puts, gone);
        let list: Vec<_> = puts.iter().map(|(member, score)| (member.clone(), *score)).collect();
        let planned = match (&list[..], gone) {
            ([(member, score)], []) => {
                let at = (&mut self.store, self.root);
                let put = (&member[..], Some(*score));
                plan_one::<Scores, NoJournal>(at, put, &mut self.buffers, NOW)
            }
            ([], [member]) => {
                let at = (&mut self.store, self.root);
                plan_one::<Scores, NoJournal>(at, (member, None), &mut self.buffers, NOW)
            }
            _ => plan(&mut self.store, self.root, &list, gone),
        };
        let Ok(mut planned) = planned else { return false };
        let Counts { new, changed, removed } = planned.counts;
        assert_eq!((new, changed, removed), expected);
        assert_eq!(planned.is_nothing(), expected == (0, 0, 0));
        let members_after = self.model.len() as u64 + new - removed;
        if is_dropped {
            planned.drop_plan(&mut self.store, NOW);
            return false;
        }
        let changes = self.store.parts.of(self.root).bins().changes;
        self.store.commit(Database::ZERO, &ENTRY, |store| planned.publish(store, NOW));
        planned.settle(&mut self.store, NOW);
        let bins = *self.store.parts.of(self.root).bins();
        assert_eq!(bins.members(), members_after);
        assert_eq!(bins.changes, changes + u64::from(expected != (0, 0, 0)));
        for (member, score) in puts {
            // An equal score does not take the place of the present one: -0 is 0.
            let present = self.model.entry(member.clone()).or_insert(*score);
            if *present != *score {
                *present = *score;
            }
        }
        self.model.retain(|member, _| !gone.contains(member));
        true
    }

    /// A member is found if it is there, in the part that holds it.
    fn look(&self, member: &[u8]) {
        let expected = self.model.get(member).map(|score| score.to_bits());
        let score = get::<Scores, NoJournal>(&self.store, self.root, member);
        assert_eq!(score.map(f64::to_bits), expected, "{member:?}");
        let part = find::<Scores, NoJournal>(&self.store, self.root, member);
        let held = part.and_then(|part| {
            let (owner, slot) = (&self.store.owner, part.slot.slot);
            find_in_part(record_key(owner, slot), record_value(owner, slot), member).copied()
        });
        assert_eq!(held.map(u64::from_le_bytes), expected, "{member:?}");
    }

    /// All members, by each of the ways.
    fn look_at_all(&mut self) {
        check(&self.store);
        self.model.keys().for_each(|member| self.look(member));
        let told = |list: Vec<(Vec<u8>, f64)>| {
            let count = list.len();
            let all: BTreeMap<Vec<u8>, u64> =
                list.into_iter().map(|(member, score)| (member, score.to_bits())).collect();
            assert_eq!(all.len(), count, "a member comes twice");
            all
        };
        let expected = told(self.model.clone().into_iter().collect());
        let (mut at, mut list, mut ended) = (None, Vec::new(), false);
        while !ended {
            let mut piece = Vec::new();
            ended = dump::<Scores, NoJournal>(&self.store, self.root, &mut at, &mut piece);
            list.append(&mut piece);
        }
        assert_eq!(told(members(&list)), expected);

        let on = on(&self.store, KEY);
        let held = find_key::<Scores, NoJournal>(&mut self.store, on).unwrap();
        let (mut list, mut cursor, mut options) = (Vec::new(), 0, Vec::new());
        Items::push(&mut options, b"*");
        Items::push(&mut options, &50_u64.to_le_bytes());
        loop {
            let options = Items::parse(&options).unwrap();
            cursor = scan::<Scores, NoJournal>(&self.store, held, (cursor, options), &mut list);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(told(members(&list)), expected);

        let count = self.model.len() as u64;
        let of = (held, count);
        let mut reading = Reading::all::<Scores, NoJournal>(&mut self.store, of, Told::Both);
        let mut list = Vec::new();
        while !reading.turn::<Scores, NoJournal>(&self.store, &mut list, usize::MAX).unwrap() {}
        assert_eq!((told(members(&list)), reading.items()), (expected, count as i64));
    }
}

/// A member by its number; one of eight is a long one.
fn member(number: u64) -> Vec<u8> {
    let mut member = format!("member:{number}").into_bytes();
    if number % 8 == 3 {
        member.resize(WHOLE_ITEM_BYTES + 1 + number as usize % 50, b'.');
    }
    member
}

fn score(random: &mut Random) -> f64 {
    let some = [0.0, -0.0, 1.5, -7.0, 1e300, f64::INFINITY, f64::NEG_INFINITY];
    match random.below(3) {
        0 => random.pick(&some),
        _ => random.below(1000) as f64 / 8.0,
    }
}

#[test]
fn changes_of_any_kind_agree_with_a_map() {
    let mut random = Random::new(1);
    let first = (0..40).map(|number| (member(number), number as f64)).collect();
    let mut both = Both::new(8 << 20, first);
    for round in 0..3_000 {
        let many = random.pick(&[1, 1, 1, 2, 30]);
        let numbers = if round < 1_500 { 3_000 } else { 400 };
        let mut puts = Model::new();
        for _ in 0..random.below(many + 1) {
            puts.insert(member(random.below(numbers)), score(&mut random));
        }
        let removes = if round < 1_500 { 1 } else { 3 * many };
        let mut gone: Vec<Vec<u8>> =
            (0..random.below(removes + 1)).map(|_| member(random.below(3_000))).collect();
        gone.sort();
        gone.dedup();
        gone.retain(|of| !puts.contains_key(of));
        let is_dropped = random.one_in(10);
        both.change(&puts, &gone, is_dropped);
        puts.keys().chain(&gone).for_each(|of| both.look(of));
        if round % 500 == 499 {
            both.look_at_all();
        }
    }
    assert!(both.store.parts.of(both.root).bins().count() > 4 * OBJECT_BASE_BUCKETS);
}

#[test]
fn a_full_bin_spills_its_members_with_their_scores() {
    let first = (0..100).map(|number| (member(number), 1.0)).collect();
    let mut both = Both::new(4 << 20, first);
    // Members of one bin whatever its splits.
    let mask = 1023;
    let wanted = both.store.parts.of(both.root).hash(b"wanted").0 & mask;
    let chosen: Vec<Vec<u8>> = (0..)
        .map(|number: u64| format!("chosen {number}").into_bytes())
        .filter(|of| both.store.parts.of(both.root).hash(of).0 & mask == wanted)
        .take(BIN_MOST_MEMBERS + 30)
        .collect();
    for (at, of) in chosen.iter().enumerate() {
        assert!(both.change(&Model::from([(of.clone(), at as f64)]), &[], false));
    }
    let spilled = both.store.parts.of(both.root).bins().spilled;
    assert!(spilled >= 30 - 2 * BIN_MEMBERS, "{spilled}");
    // Some get other scores, in their bins or as parts of their own, alone and together; some go.
    for of in &chosen {
        assert!(both.change(&Model::from([(of.clone(), -1.0)]), &[], false));
    }
    let puts = chosen[20..].iter().map(|of| (of.clone(), 7.5)).collect();
    assert!(both.change(&puts, &chosen[..20], false));
    both.look_at_all();
    assert!(both.change(&Model::new(), &chosen[20..], false));
    both.look_at_all();
    assert_eq!(both.store.parts.of(both.root).bins().spilled, 0);
}

#[test]
fn a_change_without_room_leaves_no_trace() {
    let mut random = Random::new(2);
    let first = (0..40).map(|number| (member(number), number as f64)).collect();
    let mut both = Both::new(600 << 10, first);
    let (mut refused, mut made) = (0, 0);
    for round in 0..1_200 {
        let many = random.pick(&[1, 1, 20]);
        let puts: Model =
            (0..many).map(|_| (member(random.below(100_000)), score(&mut random))).collect();
        match both.change(&puts, &[], false) {
            true => made += 1,
            false => refused += 1,
        }
        if round % 100 == 99 {
            check(&both.store);
        }
    }
    assert!(refused > 100 && made > 100, "{refused} of {made}");
    both.look_at_all();
}

#[test]
fn random_members_come_with_their_scores() {
    let first: Model = (0..2_000).map(|number| (member(number), number as f64 / 4.0)).collect();
    let mut both = Both::new(8 << 20, first);
    let on = on(&both.store, KEY);
    let held = find_key::<Scores, NoJournal>(&mut both.store, on).unwrap();
    assert!(matches!(held, Some(Held::Parts(_))));
    for count in [7, 300, 1_500, 5_000, -7, -3_000] {
        let (of, what) = ((held, 2_000), (count, Told::Both));
        let mut reading = Reading::random::<Scores, NoJournal>(&mut both.store, of, what, 9);
        let mut list = Vec::new();
        while !reading.turn::<Scores, NoJournal>(&both.store, &mut list, usize::MAX).unwrap() {}
        let all = members(&list);
        assert_eq!(all.len() as i64, if count > 0 { count.min(2_000) } else { -count });
        assert_eq!(reading.items(), all.len() as i64);
        assert!(all.iter().all(|(member, score)| both.model[member] == *score));
        let different: BTreeMap<_, _> = all.iter().cloned().collect();
        assert!(count < 0 || different.len() == all.len());
    }
}
