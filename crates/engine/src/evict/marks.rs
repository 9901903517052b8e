//! Half a byte for each place where a record may stand.
//!
//! ```text
//!  half byte   | touches 2 | small 1 | tracked 1 |
//! ```
//! Slots of records are 32 bytes or longer, so that half a byte for each 32
//! bytes of the arena (a sixty-fourth of it, touched only where records are)
//! is enough, and no table has to be looked up.

/// Slot numbers that share half a byte; a record takes two units or more.
const SLOTS_PER_MARK: usize = 2;
/// Touches that are told apart.
const MAX_TOUCHES: u8 = 3;

/// What is known of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Whether there is a record that the policy knows.
    pub tracked: bool,
    /// Whether it stands in the small queue, else in the main one.
    pub small: bool,
    /// Touches, 0 to 3.
    pub touches: u8,
}

impl Mark {
    /// With one more touch.
    pub const fn touched(self) -> Self {
        let touches = if self.touches < MAX_TOUCHES { self.touches + 1 } else { MAX_TOUCHES };
        Self { touches, ..self }
    }

    const fn to_bits(self) -> u8 {
        self.touches | (self.small as u8) << 2 | (self.tracked as u8) << 3
    }

    const fn from_bits(bits: u8) -> Self {
        Self { touches: bits & 3, small: bits & 4 != 0, tracked: bits & 8 != 0 }
    }
}

/// The marks of all slots.
pub struct Marks {
    bytes: Vec<u8>,
    slots: usize,
}

impl Marks {
    /// Marks for slot numbers below `slots`. The pages of what is never
    /// tracked are never touched.
    pub fn new(slots: usize) -> Self {
        Self { bytes: vec![0; slots.div_ceil(SLOTS_PER_MARK).div_ceil(2)], slots }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    #[inline]
    fn place(slot: u32) -> (usize, u8) {
        let mark = slot as usize / SLOTS_PER_MARK;
        (mark / 2, (mark % 2 * 4) as u8)
    }

    #[inline]
    pub fn get(&self, slot: u32) -> Mark {
        let (byte, shift) = Self::place(slot);
        Mark::from_bits(self.bytes[byte] >> shift & 15)
    }

    #[inline]
    pub fn set(&mut self, slot: u32, mark: Mark) {
        let (byte, shift) = Self::place(slot);
        self.bytes[byte] = self.bytes[byte] & !(15 << shift) | mark.to_bits() << shift;
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_disturb_each_other() {
        let mut marks = Marks::new(4096);
        let mark = |slot: u32| Mark {
            tracked: slot.is_multiple_of(3),
            small: slot.is_multiple_of(5),
            touches: (slot / 2 % 4) as u8,
        };
        (0..4096).step_by(2).for_each(|slot| marks.set(slot, mark(slot)));
        for slot in (0..4096).step_by(2) {
            assert_eq!(marks.get(slot), mark(slot));
            assert_eq!(Mark::from_bits(mark(slot).to_bits()), mark(slot));
        }
        assert_eq!(marks.heap_bytes(), 4096 * 16 / 64);
    }
}
