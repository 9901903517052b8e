//! Piecemeal changes of a value as plans: pure functions of lengths and
//! arguments, so that a value that is rewritten and one that is changed in
//! place come out the same. The rules are those of Redis 7.
//!
//! Invariant: no plan goes beyond `MAX_VALUE_BYTES`; the bytes between the old end and the first
//! byte written are zero.

use remora_layout::limits::MAX_VALUE_BYTES;
use std::ops::Range;

/// An edit of a value's bytes; the bytes to write are passed separately.
///
/// ```text
/// old      |#######|
/// zeros            |0000|
/// written               |wwwww|        or inside the old value
/// new      |############ ... |
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edit {
    /// Bytes of the value afterwards.
    pub new_bytes: usize,
    /// Offset of the written bytes.
    pub write_at: usize,
    /// Zeros between the old end and `write_at`.
    pub zero_bytes: usize,
}

/// The value would be longer than `MAX_VALUE_BYTES`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

impl Edit {
    /// Carries the plan out: `value` holds the old bytes, then the new ones.
    pub fn apply(&self, value: &mut Vec<u8>, written: &[u8]) {
        value.resize(self.new_bytes, 0);
        value[self.write_at..self.write_at + written.len()].copy_from_slice(written);
    }
}

/// APPEND of `added` bytes to a value of `old_bytes` (`None`: no key). `None`
/// if nothing changes; an absent key is made, even by nothing.
///
/// # Errors
/// The value would be too long.
pub fn append(old_bytes: Option<usize>, added: usize) -> Result<Option<Edit>, TooLong> {
    if old_bytes.is_some() && added == 0 {
        return Ok(None);
    }
    let old_bytes = old_bytes.unwrap_or(0);
    write_at(old_bytes, old_bytes as u64, added).map(Some)
}

/// SETRANGE of `written` bytes at `offset`. `None` if nothing changes: nothing
/// written extends no value and makes no key.
///
/// # Errors
/// The value would be too long.
pub fn set_range(old_bytes: usize, offset: u64, written: usize) -> Result<Option<Edit>, TooLong> {
    if written == 0 {
        return Ok(None);
    }
    write_at(old_bytes, offset, written).map(Some)
}

fn write_at(old_bytes: usize, offset: u64, written: usize) -> Result<Edit, TooLong> {
    let end = offset.checked_add(written as u64).ok_or(TooLong)?;
    if end > MAX_VALUE_BYTES as u64 {
        return Err(TooLong);
    }
    let (write_at, end) = (offset as usize, end as usize);
    Ok(Edit {
        new_bytes: old_bytes.max(end),
        write_at,
        zero_bytes: write_at.saturating_sub(old_bytes),
    })
}

/// The bytes that GETRANGE `start` `end` names in a value of `bytes`: both are included and may
/// count from the end. As in Redis, an `end` before the first byte means the first byte, unless
/// both count from the end and are in the wrong order.
pub fn range(bytes: usize, start: i64, end: i64) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let length = bytes as i64;
    let from_start = |at: i64| if at < 0 { (at + length).max(0) } else { at };
    let (first, last) = (from_start(start), from_start(end).min(length - 1));
    if first > last { 0..0 } else { first as usize..last as usize + 1 }
}

/// Position of a bit: bit 0 is the highest bit of byte 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitPlace {
    /// The byte.
    pub byte: usize,
    /// The one bit of it.
    pub mask: u8,
}

impl BitPlace {
    /// The place of the bit with this offset.
    pub const fn of(offset: u32) -> Self {
        Self { byte: (offset >> 3) as usize, mask: 0x80 >> (offset & 7) }
    }

    /// The bit; bits behind the end are 0.
    pub fn is_set(self, value: &[u8]) -> bool {
        value.get(self.byte).is_some_and(|byte| byte & self.mask != 0)
    }

    /// The byte with the bit set so.
    pub const fn with(self, byte: u8, bit: bool) -> u8 {
        if bit { byte | self.mask } else { byte & !self.mask }
    }
}

/// The effect of a SETBIT: it writes one byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitEdit {
    /// The bit before.
    pub before: bool,
    /// The byte to write.
    pub byte: u8,
    /// The plan; `None` if the bit is so already.
    pub edit: Option<Edit>,
}

/// SETBIT in a value. A bit behind the end lengthens the value, whether it is 0 or 1.
///
/// # Errors
/// The value would be too long.
pub fn set_bit(value: &[u8], offset: u32, bit: bool) -> Result<BitEdit, TooLong> {
    let place = BitPlace::of(offset);
    let old = value.get(place.byte).copied();
    let byte = place.with(old.unwrap_or(0), bit);
    let edit =
        if old == Some(byte) { None } else { Some(write_at(value.len(), place.byte as u64, 1)?) };
    Ok(BitEdit { before: place.is_set(value), byte, edit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use remora_protocol::Command;

    const MOST: usize = MAX_VALUE_BYTES;

    /// One byte after the other, as slowly as it can be said.
    fn naive_write(old: &[u8], offset: u64, written: &[u8]) -> Option<Vec<u8>> {
        let mut new = old.to_vec();
        for (at, &byte) in (u128::from(offset)..).zip(written) {
            if at >= MOST as u128 {
                return None;
            }
            while new.len() as u128 <= at {
                new.push(0);
            }
            new[at as usize] = byte;
        }
        Some(new)
    }

    /// Redis 7.0's own steps, with room to spare for the numbers.
    fn naive_range(value: &[u8], start: i64, end: i64) -> Vec<u8> {
        let (length, mut start, mut end) =
            (value.len() as i128, i128::from(start), i128::from(end));
        if start < 0 && end < 0 && start > end {
            return Vec::new();
        }
        start = if start < 0 { length + start } else { start }.max(0);
        end = if end < 0 { length + end } else { end }.max(0);
        let is_named = |at: &usize| (*at as i128) >= start && (*at as i128) <= end;
        (0..value.len()).filter(is_named).map(|at| value[at]).collect()
    }

    fn bits_of(value: &[u8]) -> Vec<bool> {
        value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
    }

    fn offsets() -> impl Strategy<Value = u64> {
        prop_oneof![
            4 => 0u64..80,
            1 => MOST as u64 - 40..MOST as u64 + 40,
            1 => u64::MAX - 40..=u64::MAX,
        ]
    }

    fn bounds() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => -60i64..60,
            1 => any::<i64>(),
            1 => prop::sample::select(vec![
                i64::MIN,
                i64::MIN + 1,
                i64::MAX,
                i32::MIN.into(),
                i64::from(i32::MIN) - 1,
                i32::MAX.into(),
            ]),
        ]
    }

    fn carried_out(edit: Option<Edit>, old: &[u8], written: &[u8]) -> Vec<u8> {
        let mut value = old.to_vec();
        if let Some(edit) = edit {
            assert_eq!(edit.zero_bytes, edit.write_at.saturating_sub(old.len()));
            edit.apply(&mut value, written);
            assert_eq!(value.len(), edit.new_bytes);
        }
        value
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn set_range_writes_byte_by_byte(
            old in prop::collection::vec(any::<u8>(), 0..60),
            offset in offsets(),
            written in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            match (set_range(old.len(), offset, written.len()), naive_write(&old, offset, &written)) {
                (Err(TooLong), expected) => prop_assert!(expected.is_none()),
                (Ok(edit), expected) => {
                    prop_assert_eq!(edit.is_none(), written.is_empty());
                    prop_assert_eq!(Some(carried_out(edit, &old, &written)), expected);
                }
            }
        }

        #[test]
        fn append_writes_at_the_end(
            old in prop::option::of(prop::collection::vec(any::<u8>(), 0..60)),
            added in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let edit = append(old.as_ref().map(Vec::len), added.len()).unwrap();
            // Nothing appended makes an absent key all the same.
            prop_assert_eq!(edit.is_none(), old.is_some() && added.is_empty());
            let old = old.unwrap_or_default();
            prop_assert_eq!(carried_out(edit, &old, &added), [&old[..], &added[..]].concat());
        }

        #[test]
        fn ranges_are_those_of_redis(
            value in prop::collection::vec(any::<u8>(), 0..50),
            start in bounds(),
            end in bounds(),
        ) {
            let found = &value[range(value.len(), start, end)];
            prop_assert_eq!(found, naive_range(&value, start, end));
            let Command::GetRange { start, end, .. } = Command::get_range(b"", start, end) else {
                unreachable!()
            };
            prop_assert_eq!(found, &value[range(value.len(), start.into(), end.into())]);
        }

        #[test]
        fn bits_are_one_long_row(
            old in prop::collection::vec(any::<u8>(), 0..20),
            offset in 0u32..400,
            bit: bool,
        ) {
            let BitEdit { before, byte, edit } = set_bit(&old, offset, bit).unwrap();
            let mut row = bits_of(&old);
            prop_assert_eq!(before, row.get(offset as usize).copied().unwrap_or(false));
            prop_assert_eq!(before, BitPlace::of(offset).is_set(&old));
            prop_assert_eq!(edit.is_none(), row.get(offset as usize) == Some(&bit));
            while row.len() <= offset as usize {
                row.extend([false; 8]);
            }
            row[offset as usize] = bit;
            prop_assert_eq!(bits_of(&carried_out(edit, &old, &[byte])), row);
        }
    }

    #[test]
    fn no_plan_leads_beyond_the_limit() {
        assert!(append(Some(MOST - 1), 1).is_ok() && append(None, MOST).is_ok());
        assert_eq!(append(Some(MOST), 1), Err(TooLong));
        assert_eq!(append(Some(MOST), 0), Ok(None));
        assert!(set_range(0, MOST as u64 - 1, 1).is_ok());
        assert_eq!(set_range(0, MOST as u64, 1), Err(TooLong));
        assert_eq!(set_range(0, u64::MAX, 1), Err(TooLong));
        assert_eq!(set_range(0, u64::MAX, 0), Ok(None));
        let last = MOST as u32 * 8 - 1;
        assert_eq!(set_bit(b"", last, false).unwrap().edit.unwrap().new_bytes, MOST);
        assert_eq!(set_bit(b"", last + 1, true), Err(TooLong));
        assert_eq!(set_bit(b"", u32::MAX, false), Err(TooLong));
    }
}
