//! Growing and shrinking chains: the writer splits one bucket at a time (linear hashing, decision
//! 0012), and merges overflow buckets after removes (HydraDB 4.1.3, H11). Each is a bounded number
//! of stores.
//!
//! A split of bucket `i`, and the state that a reader finds after each of its stores:
//!
//! 1. The writer writes the new bucket's chain whole, one deeper. No view knows the bucket; nothing
//!    has changed.
//! 2. The arena's header page has one more bucket. Keys that move are in both chains, and both name
//!    the same record: an earlier view finds them in the old chain, a later one in the new.
//! 3. The writer changes the old chain's headers, from the main bucket on, each in one store: it
//!    removes the moved keys, and raises the depth by one. A view that would look here for a moved
//!    key learns from that depth, whatever its age, that the key does not belong to bucket `i` at
//!    that depth; for a key that stays the depth changes nothing. A walk that had passed the main
//!    bucket before learns it from the header of the next overflow bucket.
//! 4. The writer sheds the unused part of the old chain, as after a remove.
//!
//! To shed, the writer copies keys of the last overflow bucket to free places nearer to the main
//! bucket (slot word first, then its bit), then unlinks that bucket, then frees its slot. A walk
//! that is past the free place and not yet at the last bucket misses such a key: it does not
//! conclude that the key is absent, but asks. A late walk at the freed bucket finds old slot words,
//! or other bytes: it validates the records.

use super::table::{ALL_USED, OVERFLOW_SHIFT, SlotIndex, Table};
use remora_arena::{ArenaFull, Journal, Owner, Slot, Slots, database_of, flip_bucket_dead};
use remora_layout::bucket::{BUCKET_SLOTS, BucketHeader, BucketSlot};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{GROW_PAUSE_INSERTS, SLOT_UNIT_BYTES};
use remora_layout::table::{CHUNK_UNIT_BYTES, TableShape};

impl Table {
    /// Splits one bucket if the table is too full; call it after each [`Table::insert`]. Without
    /// memory for it the table stays as it is, with longer chains but correct, and tries again some
    /// insertions later. Returns whether it split a bucket: then places found before are invalid.
    /// `hash_of` must be the hash of the table's keys.
    pub fn grow<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        slots: &mut Slots,
        now_s: u64,
        hash_of: impl Fn(Database, &[u8]) -> KeyHash,
    ) -> bool {
        if !self.is_too_full() {
            return false;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        let Some(grown) = self.shape.grown() else { return false };
        self.gather_leaving(owner, grown, hash_of);
        let made = self.split(owner, slots, now_s, grown);
        self.leaving.clear();
        if made.is_err() {
            self.pause = GROW_PAUSE_INSERTS;
        }
        made.is_ok()
    }

    fn is_too_full(&self) -> bool {
        self.records * 4 > self.shape.buckets() * self.load_quarters
    }

    /// Bytes of the run of pages that the next call of [`Table::grow`] will take, if it will: a
    /// caller that can make room for it can do so before.
    pub fn wants_run(&self) -> Option<usize> {
        if !self.is_too_full() || self.pause > 0 || self.shape.grown().is_none() {
            return None;
        }
        let place = self.shape.chunk_place(self.shape.buckets())?;
        (self.chunk(place.entry) == 0).then(|| self.shape.chunk_bytes(place.entry) as usize)
    }

    /// Fills `leaving` with the places whose keys belong to the new bucket.
    fn gather_leaving<J: Journal>(
        &mut self,
        owner: &Owner<J>,
        grown: TableShape,
        hash_of: impl Fn(Database, &[u8]) -> KeyHash,
    ) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.extend(self.places_of(owner, self.shape.splits_next()));
        // The keys are scattered over the arena: all misses at once, then the keys.
        for place in &leaving {
            let slot = BucketSlot::from_word(owner.word(place.slot_word()));
            owner.prefetch(slot.slot as usize * SLOT_UNIT_BYTES);
        }
        leaving.retain(|place| {
            let slot = BucketSlot::from_word(owner.word(place.slot_word()));
            let key = super::record_key(owner, slot.slot);
            let hash = hash_of(database_of(owner, slot.slot), key);
            hash.bucket(grown.buckets()) == self.shape.buckets()
        });
        self.leaving = leaving;
    }

    /// Steps 1 to 4 of the module's text. Changes nothing if memory is full.
    fn split<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        slots: &mut Slots,
        now_s: u64,
        grown: TableShape,
    ) -> Result<(), ArenaFull> {
        let (old, new) = (self.shape.splits_next(), self.shape.buckets());
        let depth = grown.depth(new);
        self.provide_chunk(owner, slots, new)?;
        let more = self.leaving.len().div_ceil(BUCKET_SLOTS).saturating_sub(1);
        let spares = take_overflow_slots(owner, slots, now_s, more)?;
        self.write_chain(owner, new, depth, &spares);
        self.overflow_buckets += spares.len() as u64;
        owner.store_release(self.head.buckets, grown.buckets());
        self.shape = grown;
        self.take_leaving_out(owner, old, depth);
        self.shed(owner, slots, old, now_s);
        Ok(())
    }

    /// The chunk of a directory entry; 0 if there is none.
    fn chunk(&self, entry: usize) -> u32 {
        self.directory.get(entry).copied().unwrap_or(0)
    }

    /// Frees the chunks of a table that is empty and that no reader reaches.
    pub fn give_chunks(&mut self, slots: &mut Slots) {
        for (entry, chunk) in std::mem::take(&mut self.directory).into_iter().enumerate() {
            if chunk != 0 {
                let offset = chunk as u64 * CHUNK_UNIT_BYTES;
                slots.give_run(offset as usize, self.shape.chunk_bytes(entry) as usize);
            }
        }
    }

    /// Makes sure that the chunk of a new bucket exists.
    fn provide_chunk<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        slots: &mut Slots,
        bucket: u64,
    ) -> Result<(), ArenaFull> {
        let place = self.shape.chunk_place(bucket).expect("a new bucket is beyond the first ones");
        if self.chunk(place.entry) != 0 {
            return Ok(());
        }
        let bytes = self.shape.chunk_bytes(place.entry) as usize;
        let offset = slots.take_run(bytes)?;
        assert!((offset as u64).is_multiple_of(CHUNK_UNIT_BYTES), "runs are aligned");
        if self.directory.len() <= place.entry {
            self.directory.resize(place.entry + 1, 0);
        }
        self.directory[place.entry] = (offset as u64 / CHUNK_UNIT_BYTES) as u32;
        let even = place.entry & !1;
        let pair = self.chunk(even) as u64 | (self.chunk(even + 1) as u64) << 32;
        owner.store(self.head.directory + even / 2, pair);
        Ok(())
    }

    /// Writes the chain of a new bucket from its end, so that every link leads to a whole bucket.
    fn write_chain<J: Journal>(
        &self,
        owner: &mut Owner<J>,
        bucket: u64,
        depth: u32,
        spares: &[Slot],
    ) {
        let mut link = 0;
        for at in (0..=spares.len()).rev() {
            let mut words = [0; BUCKET_SLOTS];
            let from = at * BUCKET_SLOTS;
            let places = &self.leaving[from..self.leaving.len().min(from + BUCKET_SLOTS)];
            for (word, place) in words.iter_mut().zip(places) {
                *word = owner.word(place.slot_word());
            }
            let words = &words[..places.len()];
            match at.checked_sub(1) {
                Some(spare) => {
                    let own = spares[spare].slot + OVERFLOW_SHIFT;
                    Self::write_bucket(owner, Self::overflow_word(own), depth, link, words);
                    link = own;
                }
                None => {
                    Self::write_bucket(owner, self.bucket_word(bucket), depth, link, words);
                }
            }
        }
    }

    /// One store for each header of the old chain: it removes the moved keys and makes the chain
    /// deeper.
    fn take_leaving_out<J: Journal>(&self, owner: &mut Owner<J>, bucket: u64, depth: u32) {
        let mut next = Some(self.bucket_word(bucket));
        let mut leaving = self.leaving.iter().peekable();
        // Bounded by the chain, which only the writer changes.
        while let Some(header_word) = next {
            let header = BucketHeader(owner.word(header_word));
            let mut used = header.used();
            while let Some(place) = leaving.next_if(|place| place.header_word == header_word) {
                used &= !(1 << place.index);
            }
            owner.store_release(header_word, header.with_all_used(used).with_depth(depth).0);
            next = header.overflow().map(Self::overflow_word);
        }
    }

    /// Merges overflow buckets of a main bucket's chain as far as its keys fit fewer buckets (H11):
    /// after a remove it frees at most one. Places in the chain found before are invalid.
    pub fn shed<J: Journal>(
        &mut self,
        owner: &mut Owner<J>,
        slots: &mut Slots,
        bucket: u64,
        now_s: u64,
    ) {
        if BucketHeader(owner.word(self.bucket_word(bucket))).overflow().is_none() {
            return;
        }
        let mut chain: Vec<usize> = self.chain(owner, bucket).collect();
        let used = |word: &usize| BucketHeader(owner.word(*word)).used().count_ones() as usize;
        let keys: usize = chain.iter().map(used).sum();
        let needed = keys.div_ceil(BUCKET_SLOTS).max(1);
        while chain.len() > needed {
            let last = chain.pop().expect("more than are needed");
            let before = *chain.last().expect("at least one is needed");
            Self::empty_into(owner, last, &chain);
            let unlinked = BucketHeader(owner.word(before)).with_overflow(0);
            owner.store_release(before, unlinked.0);
            // The bucket lies right behind its slot's guardian.
            let slot = (last / (SLOT_UNIT_BYTES / 8)) as u32 - OVERFLOW_SHIFT;
            let dead = flip_bucket_dead(owner, slot);
            slots.release(owner, dead, None, now_s);
            self.overflow_buckets -= 1;
        }
    }

    /// Copies the keys of the bucket `last` to free places of `chain`.
    fn empty_into<J: Journal>(owner: &mut Owner<J>, last: usize, chain: &[usize]) {
        let mut used = BucketHeader(owner.word(last)).used();
        for &header_word in chain {
            // Bounded: each turn fills a place of seven.
            while used != 0 {
                let header = BucketHeader(owner.word(header_word));
                if header.used() == ALL_USED {
                    break;
                }
                let from = SlotIndex { header_word: last, index: used.trailing_zeros() as usize };
                let to =
                    SlotIndex { header_word, index: (!header.used()).trailing_zeros() as usize };
                owner.store(to.slot_word(), owner.word(from.slot_word()));
                owner.store_release(header_word, header.with_used(to.index, true).0);
                used &= used - 1;
            }
        }
        assert_eq!(used, 0, "the keys fit fewer buckets");
    }
}

/// Slots for so many overflow buckets, or none at all.
fn take_overflow_slots<J: Journal>(
    owner: &mut Owner<J>,
    slots: &mut Slots,
    now_s: u64,
    count: usize,
) -> Result<Vec<Slot>, ArenaFull> {
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        match slots.allocate_bucket(owner, now_s) {
            Ok(slot) => taken.push(slot),
            Err(full) => {
                for slot in taken {
                    let dead = flip_bucket_dead(owner, slot.slot);
                    slots.release(owner, dead, None, now_s);
                }
                return Err(full);
            }
        }
    }
    Ok(taken)
}
