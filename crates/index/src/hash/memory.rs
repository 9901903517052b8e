//! Where whoever shares the owner's memory finds the bytes that it reads.

use remora_arena::Words;

/// Memory that its owner may change at any time, as somebody reads it who does
/// not ask. The server hands in the mapping itself.
pub trait Memory {
    /// Its size in bytes.
    fn bytes(&self) -> usize;

    /// Copies bytes out; no word is torn, and nothing orders one word against
    /// another. False, and nothing is copied, if the range does not lie in it
    /// or does not begin on a word.
    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool;
}

impl Memory for Words {
    #[inline(always)]
    fn bytes(&self) -> usize {
        self.bytes()
    }

    #[inline(always)]
    fn fetch(&self, offset: u64, into: &mut [u8]) -> bool {
        let Ok(start) = self.check(offset, into.len()) else { return false };
        self.copy_out(start, into);
        true
    }
}
