//! Values that prove whose they are.
//!
//! A value stands for a number. Its bytes name the key and the number and are
//! filled up by them, so that bytes of another key, of another write or of two
//! at once are noticed whoever reads them.

use remora_fabric::sim::Random;

/// Key, number and length in front of the filling.
const HEADER_BYTES: usize = 16;

/// The bytes of a key's name.
pub fn key_bytes(key: u32) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// Keys of odd number are counters: their values are decimal, as INCRBY needs.
pub fn is_counter(key: u32) -> bool {
    key % 2 == 1
}

/// The bytes that stand for a number under a key; up to `most_bytes` more than
/// the least.
pub fn encode(key: u32, number: i64, most_bytes: u64) -> Vec<u8> {
    if is_counter(key) {
        return number.to_string().into_bytes();
    }
    let mut filling = Random::new((key as u64) << 40 ^ number as u64);
    let length = filling.below(most_bytes + 1) as usize;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + length);
    bytes.extend_from_slice(&key.to_le_bytes());
    bytes.extend_from_slice(&(length as u32).to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend((0..length).map(|_| filling.number() as u8));
    bytes
}

/// The number that these bytes stand for under this key; `None` if nobody
/// ever wrote them there.
pub fn decode(key: u32, bytes: &[u8], most_bytes: u64) -> Option<i64> {
    if is_counter(key) {
        return std::str::from_utf8(bytes).ok()?.parse().ok();
    }
    let (header, _) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = i64::from_le_bytes(header[8..].try_into().ok()?);
    (encode(key, number, most_bytes) == bytes).then_some(number)
}
