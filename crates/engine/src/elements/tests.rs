//! Objects of members with scores, for the tests of what types share.

use super::bins::{self, Packing, Planned};
use super::combine::{self, WithScores};
use super::{make_parts, put_whole};
use crate::Eviction;
use crate::store::{Now, ShardOptions, Store};
use crate::types::object::On;
use remora_arena::{NoJournal, Owner};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::packed_scores;
use remora_layout::table::OBJECT_HEAD_WORDS;
use remora_protocol::{Command, Items};

pub const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

/// An entry of a log that no test reads.
pub const ENTRY: Command<'static> = Command::Del { key: b"entry" };

/// Members with scores; something else begins in the state of a root record before their parts.
pub struct Scores;

impl Packing for Scores {
    const ROOT_KIND: Kind = Kind::SORTED_SET;
    const PART_KIND: Kind = Kind::SORTED_PART;
    const PARTS_AT: usize = 16 * OBJECT_HEAD_WORDS;
    type Payload = f64;

    fn each_of_whole(value: &[u8], each: impl FnMut(&[u8], f64)) {
        Self::each(value, each);
    }

    fn find_in_whole(value: &[u8], member: &[u8]) -> Option<f64> {
        packed_scores::find(value, member)
    }

    fn begin(items: &mut Vec<u8>) {
        items.clear();
    }

    fn push(items: &mut Vec<u8>, member: &[u8], score: f64) {
        packed_scores::push(items, score, member);
    }

    fn each(items: &[u8], mut each: impl FnMut(&[u8], f64)) {
        packed_scores::items(items).for_each(|(score, member)| each(member, score));
    }

    fn find(items: &[u8], member: &[u8]) -> Option<f64> {
        packed_scores::find(items, member)
    }

    fn count(items: &[u8]) -> usize {
        packed_scores::count(items)
    }

    fn is_empty(items: &[u8]) -> bool {
        items.is_empty()
    }

    fn bytes_of(score: f64) -> impl AsRef<[u8]> {
        score.to_le_bytes()
    }

    fn payload_of(bytes: &[u8]) -> f64 {
        f64::from_le_bytes(*bytes.first_chunk().expect("a score"))
    }

    fn push_told(list: &mut Vec<u8>, member: &[u8], score: f64) {
        list.extend_from_slice(&score.to_le_bytes());
        Items::push(list, member);
    }
}

/// A store whose objects of this type can be combined.
pub fn store(bytes: usize) -> Store {
    let options =
        ShardOptions { eviction: Eviction::None, record_secret: 7, ..ShardOptions::default() };
    let mut store = Store::new(Owner::heap(bytes, NoJournal), options);
    store.scored = vec![combine::reader::<Scores, WithScores, NoJournal>()];
    store
}

pub fn on<'a>(store: &Store, key: &'a [u8]) -> On<'a> {
    On { key, hash: store.hash(Database::ZERO, key), now: NOW }
}

/// The members of a list with scores.
pub fn members(list: &[u8]) -> Vec<(Vec<u8>, f64)> {
    let (mut all, mut rest) = (Vec::new(), list);
    while let Some((score, after)) = rest.split_first_chunk() {
        let (member, after) = Items::split(after).expect("an item");
        all.push((member.expect("a member").to_vec(), f64::from_le_bytes(*score)));
        rest = after;
    }
    all
}

/// Lets a key hold these members, whole in its record.
pub fn put_small(store: &mut Store, key: &[u8], members: &[(Vec<u8>, f64)]) {
    let mut packed = Vec::new();
    members.iter().for_each(|(member, score)| packed_scores::push(&mut packed, *score, member));
    let (on, found) = (on(store, key), None);
    put_whole::<Scores, NoJournal>(store, (on, found), (&packed, 0), &ENTRY).unwrap();
}

/// Lets a key hold a large object of these members; gives the slot of its root record.
pub fn put_large(store: &mut Store, key: &[u8], members: &[(Vec<u8>, f64)]) -> u32 {
    let (on, mut made) = (on(store, key), 0);
    let fill = |store: &mut Store, root: u32| {
        made = root;
        plan(store, root, members, &[])?.make(store, None, NOW);
        Ok(())
    };
    make_parts::<Scores, NoJournal>(store, (on, 0), fill, &ENTRY).unwrap();
    made
}

/// Plans a change of several members.
pub fn plan(
    store: &mut Store,
    root: u32,
    puts: &[(Vec<u8>, f64)],
    gone: &[Vec<u8>],
) -> Result<Planned, remora_arena::ArenaFull> {
    let puts = puts.iter().map(|(member, score)| (&member[..], *score));
    bins::plan::<Scores, NoJournal>((store, root), puts, gone.iter().map(|of| &of[..]), NOW)
}
