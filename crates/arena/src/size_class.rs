//! Size classes of slots: fine steps, so that a record wastes little.
//!
//! Steps of 16 bytes up to 512, then eight steps for each doubling: a record of 16 + 32 bytes (80
//! with its header) wastes nothing, and no small record wastes more than an eighth. Above
//! [`SMALL_SLOT_BYTES`] a class only says how much a reader fetches; such a record lies in pages of
//! its own.

use remora_layout::bucket::BUCKET_BYTES;
use remora_layout::limits::{
    CACHE_LINE_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, SLOT_UNIT_BYTES, SMALL_SLOT_BYTES,
};
use remora_layout::record::RECORD_HEADER_BYTES;

const FINE_LIMIT: usize = 512;
const STEPS_PER_DOUBLING: usize = 8;
/// The first step beyond the longest value: key and header have room there.
const LARGEST: usize = MAX_VALUE_BYTES + MAX_VALUE_BYTES / STEPS_PER_DOUBLING;
const FINE_CLASSES: usize = FINE_LIMIT / SLOT_UNIT_BYTES;

/// Number of classes of records. Class 0 is the smallest.
const RECORD_CLASSES: usize = FINE_CLASSES
    + (MAX_VALUE_BYTES / FINE_LIMIT).trailing_zeros() as usize * STEPS_PER_DOUBLING
    + 1;
/// Number of size classes.
pub const CLASSES: usize = RECORD_CLASSES + 1;
/// The class of slots for overflow buckets: a guardian word that is never live, a word of padding,
/// a bucket. It has its own spans, which the owner never empties by moving: no key leads to a
/// bucket.
pub const BUCKET_CLASS: u8 = RECORD_CLASSES as u8;

/// Classes whose slots are carved from spans; [`BUCKET_CLASS`] comes on top.
pub(crate) const SMALL_CLASSES: usize =
    FINE_CLASSES + (SMALL_SLOT_BYTES / FINE_LIMIT).trailing_zeros() as usize * STEPS_PER_DOUBLING;

/// Whether slots of this class are carved from spans.
#[inline]
pub(crate) const fn is_small(class: u8) -> bool {
    (class as usize) < SMALL_CLASSES || class == BUCKET_CLASS
}

const SIZES: [u32; CLASSES] = {
    let mut sizes = [0u32; CLASSES];
    let mut class = 0;
    while class < FINE_CLASSES {
        sizes[class] = ((class + 1) * SLOT_UNIT_BYTES) as u32;
        class += 1;
    }
    let mut base = FINE_LIMIT;
    while class < RECORD_CLASSES {
        let mut step = 1;
        while step <= STEPS_PER_DOUBLING && class < RECORD_CLASSES {
            sizes[class] = (base + base / STEPS_PER_DOUBLING * step) as u32;
            class += 1;
            step += 1;
        }
        base *= 2;
    }
    sizes[BUCKET_CLASS as usize] = (BUCKET_BYTES + SLOT_UNIT_BYTES) as u32;
    sizes
};

/// Bytes of a slot of this class: a reader that does not know the record's length fetches this
/// much. Above [`SMALL_SLOT_BYTES`] the record's pages may end before.
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
const _: () = assert!(SIZES[RECORD_CLASSES - 1] as usize == LARGEST);
const _: () = assert!(RECORD_HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES <= LARGEST);
const _: () = assert!(SIZES[SMALL_CLASSES - 1] as usize == SMALL_SLOT_BYTES);
const _: () = assert!(class_bytes(3) == CACHE_LINE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        // Every size of small ones, the edges of all classes, some between.
        let edges = (0..RECORD_CLASSES as u8).flat_map(|class| {
            let bytes = class_bytes(class);
            [bytes - 1, bytes, bytes + 1]
        });
        let between = (0..100_000).map(|step| step * 719 + 1);
        for bytes in (1..40_000).chain(edges).chain(between).filter(|&bytes| bytes <= LARGEST) {
            let class = class_for(bytes).unwrap();
            assert!(class != BUCKET_CLASS && class_bytes(class) >= bytes);
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
            assert!(class_bytes(class) - bytes <= (bytes / 8).max(15));
            assert_eq!(is_small(class), bytes <= SMALL_SLOT_BYTES);
        }
        assert_eq!(class_for(LARGEST + 1), None);
        assert_eq!(class_bytes(class_for(32 + 16 + 32).unwrap()), 80);
        assert!(is_small(BUCKET_CLASS));
    }
}
