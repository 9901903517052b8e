//! Values that prove whose they are.
//!
//! A value stands for a number. Its bytes name the key and the number and are
//! filled up by them, so that bytes of another key, of another write or of two
//! at once are noticed whoever reads them.

use remora_fabric::sim::Random;

/// Key, length of the filling and number in front of it.
const HEADER_BYTES: usize = 16;

/// How long values are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Most bytes with which a value is filled up.
    pub most_bytes: u64,
    /// Whether all values of a key are of one length, so that one may be
    /// written over another.
    pub one_for_each_key: bool,
}

/// The bytes of a key's name.
pub fn key_bytes(key: u32) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// Keys of odd number are counters: their values are decimal, as INCRBY needs.
pub fn is_counter(key: u32) -> bool {
    key % 2 == 1
}

/// The bytes that stand for a number under a key.
pub fn encode(key: u32, number: i64, lengths: Lengths) -> Vec<u8> {
    if is_counter(key) {
        return number.to_string().into_bytes();
    }
    let number_or_none = if lengths.one_for_each_key { 0 } else { number as u64 };
    let length = Random::new((key as u64) << 40 ^ number_or_none).below(lengths.most_bytes + 1);
    let mut filling = Random::new((key as u64) << 40 ^ number as u64);
    let bytes = HEADER_BYTES + length as usize;
    let mut value = Vec::with_capacity(bytes + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&(length as u32).to_le_bytes());
    value.extend_from_slice(&number.to_le_bytes());
    while value.len() < bytes {
        value.extend_from_slice(&filling.number().to_le_bytes());
    }
    value.truncate(bytes);
    value
}

/// The number that these bytes stand for under this key; `None` if nobody
/// ever wrote them there.
pub fn decode(key: u32, bytes: &[u8], lengths: Lengths) -> Option<i64> {
    if is_counter(key) {
        return std::str::from_utf8(bytes).ok()?.parse().ok();
    }
    let (header, _) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = i64::from_le_bytes(header[8..].try_into().ok()?);
    (encode(key, number, lengths) == bytes).then_some(number)
}
