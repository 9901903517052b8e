//! Reads of sets that are one step: several members, and scans.

use super::bins::{Bins, Members, is_bin};
use super::held::Sets;
use crate::elements::{Elements, Held, ScanOptions, packed_of};
use crate::store::Store;
use remora_arena::Journal;
use remora_index::hash::{record_field, record_key};
use remora_protocol::elements::Told;
use remora_protocol::{Items, Reply};

/// Lowest bit of a cursor: of a bucket of members of their own, behind all bins.
const OWN: u64 = 1;

impl Sets {
    pub(super) fn contains_many<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        members: Items<'_>,
    ) -> Reply<'_> {
        let mut are_there = std::mem::take(&mut self.scratch);
        are_there.clear();
        let is_there = |member| held.is_some_and(|held| self.has(store, held, member));
        are_there.extend(members.iter().flatten().map(|member| u8::from(is_there(member))));
        self.scratch = are_there;
        Reply { value: Some(&self.scratch), ..Reply::number(self.scratch.len() as i64) }
    }

    /// One step of a scan. A cursor is twice a bin's number; behind the bins twice a bucket's, and
    /// [`OWN`]. Splits move members only to later bins, and no bin or bucket is removed.
    pub(super) fn scan<J: Journal>(
        &mut self,
        store: &Store<J>,
        held: Option<Held>,
        cursor: u64,
        options: Items<'_>,
    ) -> Reply<'_> {
        let mut looks = ScanOptions::new(options);
        let mut list = std::mem::take(&mut self.scratch);
        list.clear();
        let next = match held {
            None => 0,
            Some(Held::Whole(found)) => {
                Members::of_whole(packed_of(store, found), |member, value| {
                    looks.look(Told::Names, member, value, &mut list);
                });
                0
            }
            Some(Held::Parts(root)) => {
                let bins = *self.bins_of(root);
                scan_parts((store, root.slot.slot), bins, cursor, (&mut looks, &mut list))
            }
        };
        self.scratch = list;
        Reply { value: Some(&self.scratch), ..Reply::number(next as i64) }
    }
}

fn scan_parts<J: Journal>(
    (store, root): (&Store<J>, u32),
    bins: Bins,
    cursor: u64,
    (looks, list): (&mut ScanOptions, &mut Vec<u8>),
) -> u64 {
    let parts = store.parts.of(root);
    let (count, mut looked, mut steps, mut is_full) = (looks.count, 0, 0, false);
    let mut at = cursor;
    while looked < count && steps < 10 * count && !is_full {
        steps += 1;
        let (is_own, place) = (at & OWN != 0, at >> 1);
        let end = match is_own {
            true => parts.buckets(),
            false => bins.count(),
        };
        if place >= end {
            if is_own || !bins.has_own() {
                return 0;
            }
            at = OWN;
            continue;
        }
        let slots = match is_own {
            true => parts.in_bucket(&store.owner, place),
            false => Bins::bin(store, root, place).into_iter().collect(),
        };
        for slot in slots {
            let name = record_key(&store.owner, slot);
            if is_own && is_bin(name) {
                continue;
            }
            Members::of_part(name, record_field(&store.owner, slot), |member, value| {
                is_full |= looks.look(Told::Names, member, value, list);
                looked += 1;
            });
        }
        at += 2;
    }
    at
}
