//! The table of remote pointers that the clients of one user share on a
//! machine (HydraDB 4.2.4, H28): hints, a cache line each.
//!
//! ```text
//!  word 0 key's hash | 1, 2 remote pointer | 3 lease end, ns of CLOCK_BOOTTIME
//!       4 lease term, ms | 5 checksum of words 0 to 4 | 6 uses | 7 a client
//! ```
//! Every client may write every word at any time, and may die between any two stores. So the
//! checksum decides: a line that does not pass is empty, whether it is half written, mixed from two
//! writers, or garbage. There are no locks, no states, and nothing to repair. Uses are an estimate
//! of popularity (H25) and stand outside the checksum: a lost count does no harm. The last words of
//! the first [`MACHINE_CLIENTS`] lines say which clients of the machine walk trees (C24); they are
//! no part of their lines.
//!
//! A seed keys the checksum; the server sends it with the hello and chooses a new one in each of
//! its incarnations. A hash may stand in any of the [`POINTER_WINDOW_LINES`] lines from its home
//! on.

use crate::hash::{KeyHash, checksum};
use crate::limits::{CACHE_LINE_BYTES, MACHINE_CLIENTS, POINTER_TABLE_BYTES, POINTER_WINDOW_LINES};
use crate::pointer::RemotePointer;

/// Words of a line.
pub const LINE_WORDS: usize = CACHE_LINE_BYTES / 8;
/// Word of a line that holds the key's hash.
pub const HASH_WORD: usize = 0;
/// Word of a line that holds the checksum of those before it.
pub const CHECKSUM_WORD: usize = 5;
/// Word of a line that counts uses.
pub const USES_WORD: usize = 6;
/// Word of one of the first lines that holds the time when a client last walked a tree.
pub const CLIENT_WORD: usize = 7;
const CHECKED_BYTES: usize = CHECKSUM_WORD * 8;

/// The content of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// The key's hash.
    pub hash: KeyHash,
    /// Where the key's record was.
    pub pointer: RemotePointer,
    /// End of the lease, ns of the machine's CLOCK_BOOTTIME.
    pub lease_end_ns: u64,
    /// The lease's term, ms.
    pub term_ms: u64,
}

impl Hint {
    /// Words 0 to 5 of its line.
    pub fn to_words(&self, seed: u64) -> [u64; CHECKSUM_WORD + 1] {
        let [first, second] = self.pointer.to_words();
        let mut words = [self.hash.0, first, second, self.lease_end_ns, self.term_ms, 0];
        let mut bytes = [0u8; CHECKED_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        words[CHECKSUM_WORD] = line_checksum(&bytes, seed);
        words
    }

    /// Decodes a line's bytes; `None` if their checksum does not pass.
    #[inline(always)]
    pub fn from_line(line: &[u8; CACHE_LINE_BYTES], seed: u64) -> Option<Self> {
        let word = |index: usize| {
            u64::from_le_bytes(line[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
        };
        let checked = line.first_chunk().expect("a line is longer");
        if word(CHECKSUM_WORD) != line_checksum(checked, seed) {
            return None;
        }
        Some(Self {
            hash: KeyHash(word(HASH_WORD)),
            pointer: RemotePointer::from_words([word(1), word(2)]),
            lease_end_ns: word(3),
            term_ms: word(4),
        })
    }
}

/// Never 0: a line of fresh memory is empty, and 0 empties any line.
#[inline(always)]
fn line_checksum(bytes: &[u8; CHECKED_BYTES], seed: u64) -> u64 {
    checksum(bytes, seed).max(1)
}

/// The line that a hash's window begins at, among `lines` (a power of two).
#[inline(always)]
pub const fn home_line(hash: KeyHash, lines: usize) -> usize {
    // Bits that are used neither for the shard alone nor for the server's bucket alone.
    let mixed = hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (lines - 1)
}

const _: () = assert!(USES_WORD > CHECKSUM_WORD && USES_WORD < LINE_WORDS);
const _: () = assert!(CLIENT_WORD > USES_WORD && CLIENT_WORD < LINE_WORDS);
const _: () = assert!(POINTER_TABLE_BYTES / CACHE_LINE_BYTES >= POINTER_WINDOW_LINES);
const _: () = assert!(POINTER_TABLE_BYTES / CACHE_LINE_BYTES >= MACHINE_CLIENTS);
const _: () = assert!((POINTER_TABLE_BYTES / CACHE_LINE_BYTES) as u64 <= 1 << 32);

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 0x5eed;

    fn line(words: &[u64]) -> [u8; CACHE_LINE_BYTES] {
        let mut bytes = [0; CACHE_LINE_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn hint(number: u32) -> Hint {
        let pointer = RemotePointer { region: 1, slot: number, length: 80, generation: 7 };
        Hint { hash: KeyHash(9), pointer, lease_end_ns: 55 + number as u64, term_ms: 1_000 }
    }

    #[test]
    fn a_line_says_what_was_put_and_no_mix_of_two_does() {
        let (one, other) = (hint(1).to_words(SEED), hint(2).to_words(SEED));
        assert_eq!(Hint::from_line(&line(&one), SEED), Some(hint(1)));
        assert_eq!(Hint::from_line(&line(&one), SEED + 1), None, "another incarnation's");
        // Every mixture of words from the two lines.
        for choice in 0..1u32 << one.len() {
            let mixed: Vec<u64> = (0..one.len())
                .map(|at| if choice >> at & 1 == 0 { one[at] } else { other[at] })
                .collect();
            let is_either = mixed == one || mixed == other;
            assert_eq!(Hint::from_line(&line(&mixed), SEED).is_some(), is_either, "{choice:b}");
        }
    }

    #[test]
    fn fresh_and_emptied_lines_say_nothing_under_any_seed() {
        for seed in 0..1_000 {
            assert_eq!(Hint::from_line(&[0; CACHE_LINE_BYTES], seed), None);
            let mut words = hint(1).to_words(seed);
            words[CHECKSUM_WORD] = 0;
            assert_eq!(Hint::from_line(&line(&words), seed), None);
        }
    }
}
