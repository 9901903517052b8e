//! The owner's view: the single writer of a region.

use crate::journal::{Journal, NoJournal};
use crate::mapping::Mapping;
use crate::view::ReadView;
use crate::words::{Words, prefetch_line};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The single writer of a region. It reads its own memory through plain references, at full speed;
/// all other readers use a [`ReadView`].
///
/// There is one owner for each region: the creator of the region makes it.
pub struct Owner<J: Journal = NoJournal> {
    view: ReadView,
    base: *const u8,
    /// No slice begins before this byte, which debug builds assert.
    sliced_from: usize,
    journal: J,
}

// SAFETY: `base` points into the mapping that `view` keeps alive; moving the
// owner to another thread moves the right to write with it.
unsafe impl<J: Journal + Send> Send for Owner<J> {}

impl<J: Journal> Owner<J> {
    /// The owner of a region just made.
    ///
    /// # Safety
    /// `mapping` is writable, there is no other owner of it, and no peer can
    /// write it (an arena, not a mailbox), nor does anybody else store to it
    /// from byte `sliced_from` on: only then may the owner hold plain
    /// references into it.
    pub(crate) unsafe fn new(mapping: &Arc<Mapping>, sliced_from: usize, journal: J) -> Self {
        let view = ReadView::new(Words::new(Arc::clone(mapping)));
        Self { base: mapping.base(), view, sliced_from, journal }
    }

    /// The owner of zeroed heap words (tests, Miri, the simulator, trees of one process).
    pub fn heap(bytes: usize, journal: J) -> Self {
        // SAFETY: fresh memory that no other thread knows yet.
        unsafe { Self::new(&Mapping::heap(bytes), 0, journal) }
    }

    /// A view for readers.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// Size in bytes.
    #[inline(always)]
    pub fn region_bytes(&self) -> usize {
        self.view.bytes()
    }

    /// One of the owner's own words.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u64 {
        self.view.load(index)
    }

    /// The owner's own bytes, as a plain reference.
    #[inline(always)]
    pub fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        let end = offset.checked_add(bytes).expect("no overflow");
        assert!(end <= self.view.bytes(), "slice out of bounds");
        debug_assert!(offset >= self.sliced_from, "others store to a word before this");
        // SAFETY: in bounds. Only this owner writes the region, and its
        // writing methods take `&mut self`, so that nothing changes while the
        // reference lives; readers elsewhere do not write.
        unsafe { std::slice::from_raw_parts(self.base.add(offset), bytes) }
    }

    /// As [`Owner::slice`]; `None` if other threads store to words of the range, or the range does
    /// not lie in the region.
    #[inline(always)]
    pub fn try_slice(&self, offset: usize, bytes: usize) -> Option<&[u8]> {
        let is_own = offset >= self.sliced_from
            && offset.checked_add(bytes).is_some_and(|end| end <= self.view.bytes());
        is_own.then(|| self.slice(offset, bytes))
    }

    /// The addresses of its bytes: they tell whether a slice belongs to the region, and where it
    /// lies.
    pub fn addresses(&self) -> Range<usize> {
        let from = self.base.addr();
        from..from + self.view.bytes()
    }

    /// Stores one word.
    #[inline(always)]
    pub fn store(&mut self, index: usize, word: u64) {
        self.view.words().store(index, word);
        self.journal.stored(index, word);
    }

    /// Stores one word after everything stored before it.
    #[inline(always)]
    pub fn store_release(&mut self, index: usize, word: u64) {
        self.release();
        self.view.words().store_release(index, word);
        self.journal.stored(index, word);
    }

    /// No later store becomes visible before an earlier one.
    #[inline(always)]
    pub fn release(&mut self) {
        fence(Ordering::Release);
        self.journal.fenced();
    }

    /// Stores bytes; `offset` is a multiple of 8. It zeroes the rest of the last word.
    #[inline(always)]
    pub fn store_bytes(&mut self, offset: usize, bytes: &[u8]) {
        if !J::ACTIVE {
            self.view.words().copy_in(offset, bytes);
            return;
        }
        for (at, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.store(offset / 8 + at, u64::from_le_bytes(word));
        }
    }

    /// Stores two byte strings one behind the other, as one: key and value.
    #[inline(always)]
    pub fn store_pair(&mut self, offset: usize, first: &[u8], second: &[u8]) {
        let whole = first.len() & !7;
        let (head, tail) = first.split_at(whole);
        if tail.is_empty() {
            self.store_bytes(offset, head);
            self.store_bytes(offset + whole, second);
            return;
        }
        // The word in which the two meet is assembled separately.
        let take = second.len().min(8 - tail.len());
        let mut word = [0u8; 8];
        word[..tail.len()].copy_from_slice(tail);
        word[tail.len()..tail.len() + take].copy_from_slice(&second[..take]);
        self.store_bytes(offset, head);
        self.store(offset / 8 + whole / 8, u64::from_le_bytes(word));
        self.store_bytes(offset + whole + 8, &second[take..]);
    }

    /// Stores bytes at any offset; the other bytes of the words at both ends stay unchanged.
    pub fn store_within(&mut self, offset: usize, bytes: &[u8]) {
        let lead = (offset.next_multiple_of(8) - offset).min(bytes.len());
        let (head, rest) = bytes.split_at(lead);
        let (whole, tail) = rest.split_at(rest.len() & !7);
        self.store_part(offset, head);
        if !rest.is_empty() {
            self.store_bytes(offset + lead, whole);
            self.store_part(offset + lead + whole.len(), tail);
        }
    }

    /// Stores bytes that lie within one word.
    fn store_part(&mut self, offset: usize, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        let mut word = self.word(offset / 8).to_le_bytes();
        word[offset % 8..offset % 8 + part.len()].copy_from_slice(part);
        self.store(offset / 8, u64::from_le_bytes(word));
    }

    /// Stores so many zeros at any offset.
    pub fn store_zeros(&mut self, offset: usize, bytes: usize) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut at = 0;
        while at < bytes {
            let step = (bytes - at).min(ZEROS.len());
            self.store_within(offset + at, &ZEROS[..step]);
            at += step;
        }
    }

    /// Copies bytes to another place, without overlap; both offsets are multiples of 8. It zeroes
    /// the rest of the last word.
    pub fn copy_within(&mut self, from: usize, to: usize, bytes: usize) {
        let mut chunk = [0u8; 4096];
        let mut at = 0;
        while at < bytes {
            let step = (bytes - at).min(chunk.len());
            chunk[..step].copy_from_slice(self.slice(from + at, step));
            self.store_bytes(to + at, &chunk[..step]);
            at += step;
        }
    }

    /// Asks the processor to fetch the line at `offset`.
    #[inline(always)]
    pub fn prefetch(&self, offset: usize) {
        if offset < self.view.bytes() {
            prefetch_line(self.base.wrapping_add(offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words stored, and how many had been when each fence came.
    #[derive(Default)]
    struct Listening(Vec<(usize, u64)>, Vec<usize>);

    impl Journal for Listening {
        const ACTIVE: bool = true;
        fn stored(&mut self, index: usize, value: u64) {
            self.0.push((index, value));
        }
        fn fenced(&mut self) {
            self.1.push(self.0.len());
        }
    }

    #[test]
    fn only_bytes_that_are_the_owners_alone_are_lent() {
        // SAFETY: fresh memory without another owner or reader.
        let owner = unsafe { Owner::new(&Mapping::heap(128), 64, NoJournal) };
        assert_eq!(owner.try_slice(64, 64), Some(&[0; 64][..]));
        assert_eq!(owner.try_slice(56, 8), None, "others store there");
        assert_eq!(owner.try_slice(64, 72), None, "beyond the end");
        assert_eq!(owner.try_slice(usize::MAX, 8), None);
    }

    #[test]
    fn bytes_within_words_leave_their_neighbours() {
        for offset in 0..20usize {
            for length in 0..40usize {
                let mut expected = vec![0xee; 64];
                let new: Vec<u8> = (1..=length as u8).collect();
                expected[offset..offset + length].copy_from_slice(&new);
                let mut owner = Owner::heap(128, NoJournal);
                owner.store_bytes(0, &[0xee; 64]);
                owner.store_within(offset, &new);
                assert_eq!(owner.slice(0, 64), expected);
                owner.copy_within(0, 64, 64);
                owner.store_zeros(offset, length);
                expected[offset..offset + length].fill(0);
                assert_eq!(owner.slice(0, 64), expected);
                assert_eq!(&owner.slice(64, 64)[offset..offset + length], new);
            }
        }
    }

    #[test]
    fn pairs_of_every_length_lie_side_by_side() {
        for first in 0..20usize {
            for second in 0..40usize {
                let a: Vec<u8> = (1..=first as u8).collect();
                let b: Vec<u8> = (101..=100 + second as u8).collect();
                let together: Vec<u8> = [a.clone(), b.clone()].concat();
                let mut plain = Owner::heap(128, NoJournal);
                plain.store_pair(16, &a, &b);
                assert_eq!(plain.slice(16, first + second), together);
                let mut heard = Owner::heap(128, Listening::default());
                heard.store_pair(16, &a, &b);
                assert_eq!(heard.slice(16, first + second), together);
                // The journal replays to the same memory.
                let mut replayed = Owner::heap(128, NoJournal);
                for &(index, word) in &heard.journal.0 {
                    replayed.store(index, word);
                }
                assert_eq!(replayed.slice(0, 128), heard.slice(0, 128));
            }
        }
    }

    #[test]
    fn a_release_is_told_before_the_store_that_it_orders() {
        let mut owner = Owner::heap(128, Listening::default());
        assert_eq!(owner.region_bytes(), 128);
        owner.store(3, 1);
        owner.store_release(4, 2);
        owner.release();
        assert_eq!(owner.journal.0, [(3, 1), (4, 2)]);
        assert_eq!(owner.journal.1, [1, 2]);
    }

    #[test]
    fn long_zeros_and_copies_reach_to_their_ends_and_no_further() {
        const BYTES: usize = 48 << 10;
        let pattern: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8 | 1).collect();
        for length in [4088, 4096, 4104, 12_288, 13_000] {
            let mut owner = Owner::heap(BYTES, NoJournal);
            owner.store_bytes(0, &pattern);
            let mut expected = pattern.clone();
            owner.copy_within(800, 24_000, length);
            expected.copy_within(800..800 + length, 24_000);
            assert!(owner.slice(0, BYTES) == expected, "{length} copied");
            owner.store_zeros(803, length);
            expected[803..803 + length].fill(0);
            assert!(owner.slice(0, BYTES) == expected, "{length} zeroed");
        }
    }
}
