//! Half a byte for each place where a record may start.
//!
//! ```text
//!  0        no record
//!  1 to 4   small queue: touches 0 or 1, at the even slot number or the odd one
//!  5 to 12  main queue: touches 0 to 3, at the even slot number or the odd one
//! ```
//! Slots of records are 32 bytes or longer, so half a byte for each 32 bytes of the arena is enough
//! (a sixty-fourth of it, touched only where records are), and there is no table to look up.
//!
//! Invariant: a slot number is tracked only if a record starts exactly there. Pages change their
//! class, so the number of a former record may lie within the value of another record, whose bytes
//! prove nothing.

/// Slot numbers that share half a byte; a record takes two units or more.
const SLOTS_PER_MARK: usize = 2;
/// Touches that the main queue distinguishes; in the small queue one touch is as good as many.
const MAX_TOUCHES: u8 = 3;
const MAX_SMALL_TOUCHES: u8 = 1;
/// The first code of the main queue.
const MAIN: u8 = 1 + 2 * (MAX_SMALL_TOUCHES + 1);

/// The marks of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Whether there is a record that the policy knows.
    pub tracked: bool,
    /// Whether it is in the small queue; otherwise it is in the main one.
    pub small: bool,
    /// Touches, 0 to 3.
    pub touches: u8,
}

impl Mark {
    /// Adds one touch.
    pub const fn touched(self) -> Self {
        let most = if self.small { MAX_SMALL_TOUCHES } else { MAX_TOUCHES };
        let touches = if self.touches < most { self.touches + 1 } else { most };
        Self { touches, ..self }
    }

    const fn to_code(self, slot: u32) -> u8 {
        let odd = (slot % 2) as u8;
        match (self.tracked, self.small) {
            (false, _) => 0,
            (true, true) => 1 + self.touches * 2 + odd,
            (true, false) => MAIN + self.touches * 2 + odd,
        }
    }

    /// Not tracked unless the code belongs to exactly this slot.
    const fn of_code(code: u8, slot: u32) -> Self {
        let (small, first) = if code < MAIN { (true, 1) } else { (false, MAIN) };
        if code == 0 || (code - first) % 2 != (slot % 2) as u8 {
            return Self { tracked: false, small: false, touches: 0 };
        }
        Self { tracked: true, small, touches: (code - first) / 2 }
    }
}

/// The marks of all slots.
pub struct Marks {
    bytes: Vec<u8>,
    slots: usize,
}

impl Marks {
    /// Marks for slot numbers below `slots`. Pages of slots that are never tracked are never
    /// touched.
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
        Mark::of_code(self.bytes[byte] >> shift & 15, slot)
    }

    #[inline]
    pub fn set(&mut self, slot: u32, mark: Mark) {
        let (byte, shift) = Self::place(slot);
        self.bytes[byte] = self.bytes[byte] & !(15 << shift) | mark.to_code(slot) << shift;
    }

    pub fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_disturb_each_other_and_only_exact_slots_are_known() {
        let mut marks = Marks::new(4096);
        let mark = |place: u32| {
            let (tracked, small) = (!place.is_multiple_of(3), place.is_multiple_of(5));
            let most = if small { MAX_SMALL_TOUCHES } else { MAX_TOUCHES };
            let touches = (place / 7 % (most as u32 + 1)) as u8;
            if tracked { Mark { tracked, small, touches } } else { Mark::default() }
        };
        // One record in each two slot numbers, at the first or the second.
        let slot_of = |place: u32| place * 2 + place / 11 % 2;
        (0..2048).for_each(|place| marks.set(slot_of(place), mark(place)));
        for place in 0..2048 {
            assert_eq!(marks.get(slot_of(place)), mark(place), "{place}");
            assert!(!marks.get(slot_of(place) ^ 1).tracked, "{place}");
        }
        assert_eq!(marks.heap_bytes(), 4096 * 16 / 64);
    }

    #[test]
    fn touches_stop_at_what_is_told_apart() {
        let small = Mark { tracked: true, small: true, touches: 0 };
        assert_eq!(small.touched().touched().touches, 1);
        let main = Mark { small: false, ..small };
        assert_eq!((0..9).fold(main, |mark, _| mark.touched()).touches, 3);
    }
}
