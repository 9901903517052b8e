//! Size classes of slots: fine steps, so that a record wastes little.
//!
//! Steps of 16 bytes up to 512, then eight steps for each doubling: a record
//! of 16 + 32 bytes (80 with its header) wastes nothing, and no record wastes
//! more than an eighth.

use remora_layout::limits::{CACHE_LINE_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, SLOT_UNIT_BYTES};
use remora_layout::record::RECORD_HEADER_BYTES;

const FINE_LIMIT: usize = 512;
const STEPS_PER_DOUBLING: usize = 8;
const LARGEST: usize = 128 << 10;
const FINE_CLASSES: usize = FINE_LIMIT / SLOT_UNIT_BYTES;

/// Number of size classes. Class 0 is the smallest.
pub const CLASSES: usize =
    FINE_CLASSES + (LARGEST / FINE_LIMIT).trailing_zeros() as usize * STEPS_PER_DOUBLING;

const SIZES: [u32; CLASSES] = {
    let mut sizes = [0u32; CLASSES];
    let mut class = 0;
    while class < FINE_CLASSES {
        sizes[class] = ((class + 1) * SLOT_UNIT_BYTES) as u32;
        class += 1;
    }
    let mut base = FINE_LIMIT;
    while class < CLASSES {
        let mut step = 1;
        while step <= STEPS_PER_DOUBLING {
            sizes[class] = (base + base / STEPS_PER_DOUBLING * step) as u32;
            class += 1;
            step += 1;
        }
        base *= 2;
    }
    sizes
};

/// Bytes of a slot of this class.
#[inline]
pub const fn class_bytes(class: u8) -> usize {
    SIZES[class as usize] as usize
}

/// The smallest class that holds `bytes`; `None` beyond the largest.
#[inline]
pub const fn class_for(bytes: usize) -> Option<u8> {
    if bytes <= FINE_LIMIT {
        let bytes = if bytes == 0 { 1 } else { bytes };
        return Some((bytes.div_ceil(SLOT_UNIT_BYTES) - 1) as u8);
    }
    if bytes > LARGEST {
        return None;
    }
    // The doubling that holds `bytes`, then the step within it.
    let doubling = (bytes - 1).ilog2() as usize - FINE_LIMIT.ilog2() as usize;
    let base = FINE_LIMIT << doubling;
    let step = (bytes - base).div_ceil(base / STEPS_PER_DOUBLING);
    Some((FINE_CLASSES + doubling * STEPS_PER_DOUBLING + step - 1) as u8)
}

const _: () = assert!(CLASSES <= 256);
const _: () = assert!(SIZES[CLASSES - 1] as usize == LARGEST);
const _: () = assert!(RECORD_HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES <= LARGEST);
const _: () = assert!(class_bytes(3) == CACHE_LINE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 1..=LARGEST {
            let class = class_for(bytes).unwrap();
            assert!(class_bytes(class) >= bytes);
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
            assert!(class_bytes(class) - bytes <= (bytes / 8).max(15));
        }
        assert_eq!(class_for(LARGEST + 1), None);
        assert_eq!(class_bytes(class_for(32 + 16 + 32).unwrap()), 80);
    }
}
