//! The client's cache of remote pointers (HydraDB 4.2.2, H19, H20).
//!
//! Entries are hints: the record itself validates a pointer, by generation, checksum and full key.
//! So the 64-bit hash alone identifies an entry, and the cache keeps no keys. Two entries share a
//! cache line.

use remora_arena::HugeTable;
use remora_layout::hash::KeyHash;
use remora_layout::pointer::RemotePointer;
use zerocopy::FromZeros;

/// Slots that a lookup looks at, from the hash's home on.
const WINDOW: usize = 16;
/// Entries of a fresh cache.
const FIRST_ENTRIES: usize = 1 << 6;

/// A cached pointer.
#[derive(Clone, Copy, Debug, Default, FromZeros)]
#[repr(C)]
pub struct Entry {
    hash: u64,
    slot: u32,
    generation: u32,
    length: u32,
    /// The low half of the region's number: it nearly always detects an arena that has gone; the
    /// record's checksum covers the whole number.
    region_low: u16,
    /// Uses under the present lease, saturating.
    uses: u8,
    /// The lease's term in seconds, saturating.
    term_s: u8,
    /// End of the lease on the client's clock, ns; 0 for a free entry.
    lease_end_ns: u64,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Uses under one lease that make a key popular (H25).
pub(crate) const POPULAR_USES: u8 = 8;

impl Entry {
    /// An entry; `None` for a pointer that no server gives.
    #[inline(always)]
    pub(crate) fn new(
        hash: KeyHash,
        pointer: RemotePointer,
        term_ms: u64,
        lease_end_ns: u64,
    ) -> Option<Self> {
        if !pointer.is_some() {
            return None;
        }
        Some(Self {
            hash: hash.0,
            slot: pointer.slot,
            generation: pointer.generation,
            length: pointer.length,
            region_low: pointer.region as u16,
            uses: 0,
            term_s: (term_ms / 1000).min(u8::MAX as u64) as u8,
            lease_end_ns: lease_end_ns.max(1),
        })
    }

    /// The same, used so often.
    #[inline(always)]
    pub(crate) fn used(self, uses: u8) -> Self {
        Self { uses, ..self }
    }

    /// The low half of the region's number.
    #[inline(always)]
    pub fn region_low(&self) -> u32 {
        self.region_low.into()
    }

    /// Whether the pointer may be one into the region with this number.
    #[inline(always)]
    pub fn is_into(&self, region: u32) -> bool {
        self.region_low == region as u16
    }

    /// The pointer, into the region with this number.
    #[inline(always)]
    pub fn pointer(&self, region: u32) -> RemotePointer {
        RemotePointer { region, slot: self.slot, length: self.length, generation: self.generation }
    }

    /// End of the lease on the client's clock, ns.
    #[inline(always)]
    pub fn lease_end_ns(&self) -> u64 {
        self.lease_end_ns
    }

    /// Whether a popular key's lease is about to end: then the client renews it by asking (H25). A
    /// key is popular if it was used often under this lease; a lease is about to end in the last
    /// eighth of its term.
    #[inline(always)]
    pub fn wants_renewal(&self, now_ns: u64) -> bool {
        let eighth_ns = self.term_s as u64 * 1_000_000_000 / 8;
        self.uses >= POPULAR_USES && now_ns + eighth_ns > self.lease_end_ns
    }
}

/// The cache.
pub struct PointerCache {
    /// A power of two of entries, and `WINDOW` more so that no window wraps.
    entries: HugeTable<Entry>,
    used: usize,
    most: usize,
}

impl PointerCache {
    /// A cache that grows up to `most` entries; 0 switches it off.
    pub fn new(most: usize) -> Self {
        let most = if most == 0 { 0 } else { most.next_power_of_two().max(FIRST_ENTRIES) };
        let first = most.min(FIRST_ENTRIES);
        Self { entries: HugeTable::zeroed(first + WINDOW), used: 0, most }
    }

    /// Pointers in it.
    pub fn pointers(&self) -> usize {
        self.used
    }

    /// Whether there is a cache at all.
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    #[inline(always)]
    fn home(&self, hash: KeyHash) -> usize {
        // Bits that are used neither for the shard alone nor for the server's bucket alone.
        let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.entries.len() - WINDOW).wrapping_sub(1)
    }

    /// Asks for the home's line ahead of use.
    #[inline(always)]
    pub fn prefetch(&self, hash: KeyHash) {
        if self.is_on() {
            remora_arena::prefetch(&self.entries[self.home(hash)]);
        }
    }

    /// The entry of this hash.
    #[inline(always)]
    pub fn find(&mut self, hash: KeyHash) -> Option<&mut Entry> {
        if !self.is_on() {
            return None;
        }
        let home = self.home(hash);
        let at = self.entries[home..home + WINDOW]
            .iter()
            .position(|entry| entry.hash == hash.0 && entry.lease_end_ns != 0)?;
        let entry = &mut self.entries[home + at];
        entry.uses = entry.uses.saturating_add(1);
        Some(entry)
    }

    /// Caches a pointer until `lease_end_ns`.
    pub fn put(&mut self, hash: KeyHash, pointer: RemotePointer, term_ms: u64, lease_end_ns: u64) {
        let entry = Entry::new(hash, pointer, term_ms, lease_end_ns);
        let Some(entry) = entry.filter(|_| self.is_on()) else { return };
        if self.used * 2 > self.entries.len() && self.may_grow() {
            self.grow();
        }
        // Each round doubles the cache.
        let at = loop {
            match self.room_for(entry.hash) {
                Some(at) => break at,
                None if self.may_grow() => self.grow(),
                None => break self.first_to_end(entry.hash),
            }
        };
        self.set(at, entry);
    }

    fn may_grow(&self) -> bool {
        self.entries.len() - WINDOW < self.most
    }

    /// The entries that a hash may have, and the index of the first.
    fn window(&self, hash: u64) -> (usize, &[Entry]) {
        let home = self.home(KeyHash(hash));
        (home, &self.entries[home..home + WINDOW])
    }

    /// The entry of the same hash, else a free one.
    fn room_for(&self, hash: u64) -> Option<usize> {
        let (home, window) = self.window(hash);
        let same = window.iter().position(|old| old.hash == hash && old.lease_end_ns != 0);
        let at = same.or_else(|| window.iter().position(|old| old.lease_end_ns == 0))?;
        Some(home + at)
    }

    /// The entry whose lease ends first.
    fn first_to_end(&self, hash: u64) -> usize {
        let (home, window) = self.window(hash);
        let ends = (0..WINDOW).min_by_key(|&at| window[at].lease_end_ns);
        home + ends.expect("a window is not empty")
    }

    fn set(&mut self, at: usize, entry: Entry) {
        let old = std::mem::replace(&mut self.entries[at], entry);
        self.used += (old.lease_end_ns == 0) as usize;
    }

    /// Forgets the pointer of this hash.
    #[inline]
    pub fn remove(&mut self, hash: KeyHash) {
        if let Some(entry) = self.find(hash) {
            *entry = Entry::default();
            self.used -= 1;
        }
    }

    fn grow(&mut self) {
        let entries = ((self.entries.len() - WINDOW) * 2).min(self.most);
        let old = std::mem::replace(&mut self.entries, HugeTable::zeroed(entries + WINDOW));
        self.used = 0;
        for entry in old.iter().filter(|entry| entry.lease_end_ns != 0) {
            let at = self.room_for(entry.hash).unwrap_or_else(|| self.first_to_end(entry.hash));
            self.set(at, *entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;
    use std::collections::HashMap;

    fn pointer(number: u32) -> RemotePointer {
        RemotePointer { region: number % 3, slot: number, length: 80, generation: number / 7 }
    }

    #[test]
    fn never_gives_a_pointer_that_was_not_put_last() {
        let mut cache = PointerCache::new(1 << 12);
        let mut oracle: HashMap<u64, RemotePointer> = HashMap::new();
        let mut random = Random::new(5);
        let (mut hits, mut lookups) = (0, 0);
        for step in 0..200_000u32 {
            let draw = random.bits();
            let hash = KeyHash(remora_layout::hash::mix(draw % 2_500, 1));
            match draw >> 40 & 7 {
                0 => {
                    cache.put(hash, pointer(step), 1_000, step as u64 + 1);
                    oracle.insert(hash.0, pointer(step));
                }
                1 if draw >> 50 & 3 == 0 => {
                    cache.remove(hash);
                    oracle.remove(&hash.0);
                }
                _ => {
                    lookups += oracle.contains_key(&hash.0) as u32;
                    if let Some(entry) = cache.find(hash) {
                        hits += 1;
                        assert_eq!(Some(&entry.pointer(entry.region_low())), oracle.get(&hash.0));
                    }
                }
            }
        }
        assert!(hits * 100 > lookups * 99, "it keeps what fits: {hits} of {lookups}");
    }

    /// For any distribution of the hashes: a window of a small cache may be full before half of the
    /// cache is used.
    #[test]
    fn a_cache_that_may_grow_loses_no_pointer() {
        for seed in 0..200 {
            let mut cache = PointerCache::new(1 << 12);
            let hash = |key| KeyHash(remora_layout::hash::mix(key, seed));
            (0..200).for_each(|key| cache.put(hash(key), pointer(key as u32), 1_000, 1 + key));
            let lost = (0..200).filter(|key| cache.find(hash(*key)).is_none()).count();
            assert_eq!(lost, 0, "seed {seed}");
        }
    }

    #[test]
    fn a_cache_of_nothing_caches_nothing() {
        let mut cache = PointerCache::new(0);
        cache.put(KeyHash(1), pointer(1), 1_000, 10);
        assert!(cache.find(KeyHash(1)).is_none() && !cache.is_on());
    }

    #[test]
    fn popular_keys_are_renewed_near_the_end_of_their_lease() {
        let mut cache = PointerCache::new(1024);
        cache.put(KeyHash(1), pointer(1), 8_000, 8_000_000_000);
        for _ in 0..7 {
            assert!(!cache.find(KeyHash(1)).unwrap().wants_renewal(7_900_000_000));
        }
        let entry = *cache.find(KeyHash(1)).unwrap();
        assert!(entry.wants_renewal(7_900_000_000) && entry.wants_renewal(7_000_000_001));
        assert!(!entry.wants_renewal(7_000_000_000), "not in the first seven eighths");
    }

    #[test]
    fn a_cache_is_as_large_as_what_it_holds_asks_for_and_no_larger() {
        let entries = |cache: &PointerCache| cache.entries.len() - WINDOW;
        let hash = |number: u32| KeyHash(remora_layout::hash::mix(number as u64, 1));
        let mut cache = PointerCache::new(4 * FIRST_ENTRIES);
        for number in 0..20 * FIRST_ENTRIES as u32 {
            cache.put(hash(number), pointer(number), 1_000, 1);
            cache.remove(hash(number));
        }
        assert_eq!(entries(&cache), FIRST_ENTRIES, "nothing is in it");
        // It is at most half full before it grows.
        for number in 0..FIRST_ENTRIES as u32 / 2 {
            cache.put(hash(number), pointer(number), 1_000, 1);
        }
        assert_eq!(entries(&cache), FIRST_ENTRIES);
        for number in 0..20 * FIRST_ENTRIES as u32 {
            cache.put(hash(number), pointer(number), 1_000, number as u64 + 1);
            assert!(entries(&cache) <= 4 * FIRST_ENTRIES);
            assert_eq!(
                cache.find(hash(number)).map(|entry| entry.pointer(entry.region_low())),
                Some(pointer(number))
            );
        }
        assert_eq!(entries(&cache), 4 * FIRST_ENTRIES);
    }
}
