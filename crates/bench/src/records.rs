//! The records of a run: keys in one table, values that name their keys.

use remora_command_line::usage;
use remora_layout::hash::mix;
use std::ops::Range;

/// Records that can be loaded and recognized. An index names a record.
pub trait Records: Sync {
    /// Number of records.
    fn count(&self) -> usize;
    /// Key of a record.
    fn key(&self, index: u32) -> &[u8];
    /// Asks the processor to fetch a key ahead of its use.
    fn prefetch(&self, _index: u32) {}
    /// Value of a record, made in `buffer` unless it lies somewhere already.
    fn value<'a>(&'a self, index: u32, buffer: &'a mut Vec<u8>) -> &'a [u8];
    /// Whether `value` is this record's, as far as a few nanoseconds can tell.
    fn is_right(&self, index: u32, value: &[u8]) -> bool;
    /// Whether every byte of `value` is as loaded.
    fn is_exactly_right(&self, index: u32, value: &[u8], buffer: &mut Vec<u8>) -> bool {
        self.value(index, buffer) == value
    }
}

/// Keys `key:000000000123`, whose digits fill the length, and values of one length that begin with
/// the record's index, 8 bytes, little endian. `redis-benchmark` uses the same keys, of 16 bytes.
#[derive(Debug)]
pub struct Numbered {
    keys: Vec<u8>,
    key_bytes: usize,
    value_bytes: usize,
}

const PREFIX: &[u8] = b"key:";
const INDEX_BYTES: usize = size_of::<u64>();

impl Numbered {
    /// One record for each of `numbers`, which the keys carry.
    pub fn new(
        numbers: impl ExactSizeIterator<Item = u32>,
        key_bytes: usize,
        value_bytes: usize,
    ) -> anyhow::Result<Self> {
        let mut keys = Vec::with_capacity(numbers.len() * key_bytes);
        let width = key_bytes.saturating_sub(PREFIX.len());
        for number in numbers {
            let from = keys.len();
            keys.extend_from_slice(PREFIX);
            keys.extend_from_slice(format!("{number:0width$}").as_bytes());
            if keys.len() - from != key_bytes {
                let least = keys.len() - from;
                return Err(usage(format!("--key-bytes: this run needs at least {least}")));
            }
        }
        Ok(Self { keys, key_bytes, value_bytes })
    }

    fn key_range(&self, index: u32) -> Range<usize> {
        let from = index as usize * self.key_bytes;
        from..from + self.key_bytes
    }
}

impl Records for Numbered {
    fn count(&self) -> usize {
        self.keys.len() / self.key_bytes
    }

    #[inline]
    fn key(&self, index: u32) -> &[u8] {
        &self.keys[self.key_range(index)]
    }

    #[inline]
    fn prefetch(&self, index: u32) {
        remora_arena::prefetch(&self.keys[self.key_range(index).start]);
    }

    fn value<'a>(&'a self, index: u32, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        buffer.clear();
        buffer.extend_from_slice(&u64::from(index).to_le_bytes());
        let mut word = 1;
        while buffer.len() < self.value_bytes {
            buffer.extend_from_slice(&mix(u64::from(index), word).to_le_bytes());
            word += 1;
        }
        buffer.truncate(self.value_bytes);
        buffer
    }

    #[inline]
    fn is_right(&self, index: u32, value: &[u8]) -> bool {
        let own = u64::from(index).to_le_bytes();
        let shown = self.value_bytes.min(INDEX_BYTES);
        value.len() == self.value_bytes && value[..shown] == own[..shown]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_redis_benchmark() {
        let records = Numbered::new(0..200, 16, 32).unwrap();
        assert_eq!(records.count(), 200);
        assert_eq!(records.key(123), b"key:000000000123");
    }

    #[test]
    fn a_key_that_does_not_fit_is_refused() {
        assert!(Numbered::new(0..1000, 7, 32).is_ok());
        let error = Numbered::new(0..1001, 7, 32).unwrap_err().to_string();
        assert!(error.contains("at least 8"), "{error}");
    }

    #[test]
    fn values_say_whose_they_are() {
        for value_bytes in [0, 1, 3, 8, 9, 32, 100] {
            let records = Numbered::new(0..300, 16, value_bytes).unwrap();
            let mut buffer = Vec::new();
            let value = records.value(258, &mut buffer).to_vec();
            assert_eq!(value.len(), value_bytes);
            assert!(records.is_right(258, &value));
            assert!(records.is_exactly_right(258, &value, &mut buffer));
            if value_bytes > 0 {
                assert!(!records.is_right(259, &value));
                assert!(!records.is_right(258, &value[1..]));
            }
            if value_bytes > INDEX_BYTES {
                let mut changed = value.clone();
                *changed.last_mut().unwrap() ^= 1;
                assert!(!records.is_exactly_right(258, &changed, &mut buffer));
            }
        }
    }
}
