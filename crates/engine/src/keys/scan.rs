//! Going through all keys of a database, and finding any.
//!
//! Invariant: a scan returns each key that exists from its first step to its last at least once,
//! however the table grows meanwhile; a step is bounded in buckets and bytes.

use crate::store::{Now, Store, has_expired};
use remora_arena::{Journal, database_of, kind_of, mutable_of};
use remora_index::hash::record_key;
use remora_layout::database::Database;
use remora_layout::hash::mix;
use remora_layout::limits::{
    RANDOM_KEY_BUCKETS, RANDOM_KEY_TRIES, SCAN_TURN_BUCKETS, SCAN_TURN_BYTES,
};
use remora_protocol::message::Status;
use remora_protocol::{Reply, ScannedKeys};

/// Places of a chain that are as likely to be looked at: those of five buckets.
/// Few chains are longer, and all their places are looked at, too.
const CHAIN_PLACES: u64 = 35;

/// Some keys of a database from a place on.
pub(crate) fn scan<'s, J: Journal>(
    store: &'s mut Store<J>,
    database: Database,
    (place, count): (u32, u32),
    now: Now,
) -> Reply<'s> {
    let mut list = Vec::new();
    let (mut next, mut found) = (u64::from(place), 0);
    for _ in 0..SCAN_TURN_BUCKETS {
        let (bucket, end) = store.table.at_scan_place(next as u32);
        let met = at_places(store, database, bucket, next as u32, now);
        next = end;
        for (at, &(place, slot)) in met.iter().enumerate() {
            let is_new_place = at == 0 || met[at - 1].0 != place;
            if list.len() >= SCAN_TURN_BYTES && is_new_place {
                next = place.into();
                break;
            }
            let (kind, key) = (kind_of(&store.owner, slot), record_key(&store.owner, slot));
            ScannedKeys::push(&mut list, kind, key);
            found += 1;
        }
        if next >= 1 << 32 || found >= count || list.len() >= SCAN_TURN_BYTES {
            break;
        }
    }
    store.listed = list;
    let number = if next >= 1 << 32 { 0 } else { next as i64 };
    Reply { value: Some(&store.listed), ..Reply::number(number) }
}

/// Places in the order of a scan, from one on, and slots of a bucket's keys.
fn at_places<J: Journal>(
    store: &Store<J>,
    database: Database,
    bucket: u64,
    from: u32,
    now: Now,
) -> Vec<(u32, u32)> {
    let slots = store.table.places(&store.owner, bucket).into_iter().map(|(_, word)| word.slot);
    let is_there = |slot: &u32| {
        database_of(&store.owner, *slot) == database
            && !has_expired(mutable_of(&store.owner, *slot), now)
            && !store.is_flushed_in(bucket, *slot)
    };
    let place = |slot: u32| ((store.hash_in(slot).0 as u32).reverse_bits(), slot);
    let mut met: Vec<(u32, u32)> =
        slots.filter(is_there).map(place).filter(|met| met.0 >= from).collect();
    met.sort_unstable();
    met
}

/// Any key of a database. It draws a random entry of a random bucket a number of times, so that
/// each key is equally likely. If the table has many keys of other databases, or many expired ones,
/// a pass over the table follows: it starts at a random bucket, takes some buckets in each turn,
/// and returns the first key that it meets. Expired keys that it meets are removed.
pub(crate) fn random_key<'s, J: Journal>(
    store: &'s mut Store<J>,
    database: Database,
    (random, place): (u32, Option<u32>),
    now: Now,
) -> Reply<'s> {
    let draw =
        |at: u64, most: u64| ((u128::from(mix(random.into(), at)) * u128::from(most)) >> 64) as u64;
    if store.keys_of(database) == 0 {
        return Reply::status(Status::NotFound);
    }
    let tries = if place.is_none() { RANDOM_KEY_TRIES } else { 0 };
    for at in 0..tries {
        let met = unexpired_at(store, database, draw(2 * at, store.table.buckets()), now);
        let place = draw(2 * at + 1, CHAIN_PLACES.max(met.len() as u64)) as usize;
        if let Some(&(_, slot)) = met.get(place) {
            return told_key(store, slot);
        }
    }
    let from = draw(u64::MAX, 1 << 32) as u32;
    let mut next = place.unwrap_or(from);
    for at in 0..RANDOM_KEY_BUCKETS {
        let (bucket, end) = store.table.at_scan_place(next);
        let met = unexpired_at(store, database, bucket, now);
        let chosen = draw(u64::MAX - 1 - at, met.len() as u64) as usize;
        if let Some(&(_, slot)) = met.get(chosen) {
            return told_key(store, slot);
        }
        let passed = u64::from(next.wrapping_sub(from)) + end - u64::from(next);
        if passed >= 1 << 32 {
            return Reply::status(Status::NotFound);
        }
        // Behind the last place comes the first one.
        next = end as u32;
    }
    Reply { number: next.into(), ..Reply::status(Status::NotDone) }
}

/// The keys of a bucket; removes the expired ones.
fn unexpired_at<J: Journal>(
    store: &mut Store<J>,
    database: Database,
    bucket: u64,
    now: Now,
) -> Vec<(u32, u32)> {
    if store.stats.expiring > 0 && !store.is_applying && store.may_expire() {
        store.expire_bucket(bucket, now);
    }
    at_places(store, database, bucket, 0, now)
}

fn told_key<'s, J: Journal>(store: &'s Store<J>, slot: u32) -> Reply<'s> {
    let value = Some(record_key(&store.owner, slot));
    Reply { value, ..Reply::status(Status::Ok) }
}
