//! Going through all keys of a database, and finding any.
//!
//! What it keeps true: a key that is there from the first step of a scan to the
//! last is given at least once, however the table grows meanwhile; a step is
//! bounded in buckets and bytes.

use super::expire::has_expired;
use super::{Now, Store};
use crate::command::{Reply, ScannedKeys};
use remora_arena::{Journal, database_of, kind_of, mutable_of};
use remora_index::hash::record_key;
use remora_layout::database::Database;
use remora_layout::hash::mix;
use remora_layout::limits::{
    RANDOM_KEY_BUCKETS, RANDOM_KEY_TRIES, SCAN_TURN_BUCKETS, SCAN_TURN_BYTES,
};
use remora_layout::message::Status;

/// Places of a chain that are as likely to be looked at: those of five buckets.
/// Few chains are longer, and all their places are looked at, too.
const CHAIN_PLACES: u64 = 35;

impl<J: Journal> Store<J> {
    /// Some keys of a database from a place on.
    pub(crate) fn scan(
        &mut self,
        database: Database,
        (place, count): (u32, u32),
        now: Now,
    ) -> Reply<'_> {
        let mut list = std::mem::take(&mut self.listed);
        list.clear();
        let (mut next, mut found) = (u64::from(place), 0);
        for _ in 0..SCAN_TURN_BUCKETS {
            let (bucket, end) = self.table.at_scan_place(next as u32);
            let met = self.at_places(database, bucket, next as u32, now);
            next = end;
            for (at, &(place, slot)) in met.iter().enumerate() {
                let is_new_place = at == 0 || met[at - 1].0 != place;
                if list.len() >= SCAN_TURN_BYTES && is_new_place {
                    next = place.into();
                    break;
                }
                let (kind, key) = (kind_of(&self.owner, slot), record_key(&self.owner, slot));
                ScannedKeys::push(&mut list, kind, key);
                found += 1;
            }
            if next >= 1 << 32 || found >= count || list.len() >= SCAN_TURN_BYTES {
                break;
            }
        }
        self.listed = list;
        let number = if next >= 1 << 32 { 0 } else { next as i64 };
        Reply { value: Some(&self.listed), ..Reply::number(number) }
    }

    /// Places in the order of a scan, from one on, and slots of a bucket's keys.
    fn at_places(&self, database: Database, bucket: u64, from: u32, now: Now) -> Vec<(u32, u32)> {
        if self.is_flushing() && self.is_flushed(bucket, database) {
            return Vec::new();
        }
        let slots = self.table.places(&self.owner, bucket).into_iter().map(|(_, word)| word.slot);
        let is_there = |slot: &u32| {
            database_of(&self.owner, *slot) == database
                && !has_expired(mutable_of(&self.owner, *slot), now)
        };
        let place = |slot: u32| ((self.hash_in(slot).0 as u32).reverse_bits(), slot);
        let mut met: Vec<(u32, u32)> =
            slots.filter(is_there).map(place).filter(|met| met.0 >= from).collect();
        met.sort_unstable();
        met
    }

    /// Any key of a database, each as likely as any other: any place of any bucket,
    /// again and again until a key stands there. Where keys of other databases are
    /// many, what stands behind any bucket.
    pub(crate) fn random_key(&mut self, database: Database, random: u64, now: Now) -> Reply<'_> {
        if self.keys_of(database) == 0 {
            return Reply::status(Status::NotFound);
        }
        let buckets = self.table.buckets();
        let draw =
            |at: u64, most: u64| ((u128::from(mix(random, at)) * u128::from(most)) >> 64) as u64;
        let looked = (0..RANDOM_KEY_TRIES).find_map(|at| {
            let met = self.at_places(database, draw(2 * at, buckets), 0, now);
            let place = draw(2 * at + 1, CHAIN_PLACES.max(met.len() as u64)) as usize;
            met.get(place).map(|&(_, slot)| slot)
        });
        let behind = || {
            let from = draw(u64::MAX, buckets);
            (0..RANDOM_KEY_BUCKETS.min(buckets)).find_map(|at| {
                let met = self.at_places(database, (from + at) % buckets, 0, now);
                let place = draw(at, met.len() as u64) as usize;
                met.get(place).map(|&(_, slot)| slot)
            })
        };
        match looked.or_else(behind) {
            Some(slot) => {
                let value = Some(record_key(&self.owner, slot));
                Reply { value, ..Reply::status(Status::Ok) }
            }
            // Those that are left may all have expired.
            None if buckets <= RANDOM_KEY_BUCKETS => Reply::status(Status::NotFound),
            None => Reply::status(Status::NotDone),
        }
    }
}
