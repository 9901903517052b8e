//! What a key holds, and what changes it, for every type alike.
//!
//! Any object is parts by name: a string is one part without a name, a hash its fields, a sorted set
//! its members, a tree its objects. So one model judges all types, and a type only says how its
//! changes are sent and how its parts are read.

use std::collections::BTreeMap;
use xxhash_rust::xxh3::Xxh3Default;

/// The name of a string's only part.
pub const WHOLE: &[u8] = b"";
/// The part that readers look at, of objects that have several.
pub const HEAD: &[u8] = b"0";

/// What a key holds. Without parts there is no key.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Value by name.
    pub parts: BTreeMap<Vec<u8>, Vec<u8>>,
    /// When it expires, Unix ms.
    pub expires_at_ms: Option<u64>,
}

/// One operation on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The string has this value, and no expiry.
    Set(Vec<u8>),
    /// Bytes at the end of the string.
    Append(Vec<u8>),
    /// So many bytes are gone at the front of the string, all of which may be; with the last one the
    /// key.
    Cut(usize),
    /// Adds to the string's integer.
    Add(i64),
    /// Parts are there, with these values.
    Put(Vec<(Vec<u8>, Vec<u8>)>),
    /// A part is gone; with the last one the key.
    Take(Vec<u8>),
    /// The key expires at this Unix time, in ms.
    ExpireAt(u64),
    /// The key is gone.
    Delete,
}

impl State {
    /// A string's value.
    pub fn string(&self) -> Option<&[u8]> {
        self.parts.get(WHOLE).map(Vec::as_slice)
    }

    /// A string's value as an integer, if it is written as the server writes one.
    pub fn integer(&self) -> Option<i64> {
        let value = self.string()?;
        let number: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
        (number.to_string().as_bytes() == value).then_some(number)
    }

    /// The state after a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Set(value) => {
                *self = Self::default();
                self.parts.insert(WHOLE.to_vec(), value.clone());
            }
            Change::Append(bytes) => self.parts.entry(WHOLE.to_vec()).or_default().extend(bytes),
            Change::Cut(bytes) => {
                let value = self.parts.entry(WHOLE.to_vec()).or_default();
                value.drain(..(*bytes).min(value.len()));
                if value.is_empty() {
                    self.parts.clear();
                }
            }
            Change::Add(by) => {
                let sum = self.integer().unwrap_or(0) + by;
                self.parts.insert(WHOLE.to_vec(), sum.to_string().into_bytes());
            }
            Change::Put(parts) => self.parts.extend(parts.iter().cloned()),
            Change::Take(name) => {
                self.parts.remove(name);
            }
            Change::ExpireAt(ms) => self.expires_at_ms = Some(*ms),
            Change::Delete => self.parts.clear(),
        }
        if self.parts.is_empty() {
            self.expires_at_ms = None;
        }
    }

    /// Equal for equal states; differs, but by chance, for others.
    pub fn digest(&self) -> u64 {
        let mut hash = Xxh3Default::new();
        for (name, value) in &self.parts {
            for bytes in [name, value] {
                hash.update(&bytes.len().to_le_bytes());
                hash.update(bytes);
            }
        }
        hash.update(&self.expires_at_ms.unwrap_or(u64::MAX).to_le_bytes());
        hash.digest()
    }

    /// The digest of what a reader sees: the part [`HEAD`], of strings the value.
    pub fn head_digest(&self) -> u64 {
        let head = self.parts.get(WHOLE).or_else(|| self.parts.get(HEAD));
        head_digest(head.map(Vec::as_slice))
    }
}

/// The digest of what a reader saw.
pub fn head_digest(head: Option<&[u8]>) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(&[u8::from(head.is_some())]);
    hash.update(head.unwrap_or_default());
    hash.digest()
}

/// Short enough for a line, whatever its size.
impl std::fmt::Display for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.parts.is_empty() {
            return out.write_str("no key");
        }
        write!(out, "{} part(s)", self.parts.len())?;
        for (name, value) in self.parts.iter().take(3) {
            let start = &value[..value.len().min(32)];
            let (name, start) = (name.escape_ascii(), start.escape_ascii());
            write!(out, " {name}={start} ({} bytes)", value.len())?;
        }
        match self.expires_at_ms {
            Some(ms) => write!(out, ", expires at {ms}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(changes: &[Change]) -> State {
        let mut state = State::default();
        changes.iter().for_each(|change| state.apply(change));
        state
    }

    #[test]
    fn changes_do_what_the_commands_do() {
        let set = Change::Set(b"41".to_vec());
        let state = after(&[set.clone(), Change::Add(1), Change::ExpireAt(9)]);
        assert_eq!((state.integer(), state.expires_at_ms), (Some(42), Some(9)));
        let state = after(&[set.clone(), Change::ExpireAt(9), set, Change::Append(b"x".to_vec())]);
        assert_eq!((state.string(), state.expires_at_ms), (Some(&b"41x"[..]), None));
        let put = Change::Put(vec![(b"a".to_vec(), b"1".to_vec())]);
        let state = after(&[put.clone(), Change::ExpireAt(9), Change::Take(b"a".to_vec())]);
        assert!(state == State::default());
        assert!(after(&[put, Change::ExpireAt(9), Change::Delete]) == State::default());
    }

    #[test]
    fn an_integer_is_written_in_one_way() {
        for (value, integer) in [("-7", Some(-7)), ("+7", None), ("07", None), ("", None)] {
            assert_eq!(after(&[Change::Set(value.into())]).integer(), integer, "{value}");
        }
    }

    #[test]
    fn digests_tell_states_apart() {
        let put = |name: &[u8], value: &[u8]| Change::Put(vec![(name.to_vec(), value.to_vec())]);
        let states = [
            after(&[]),
            after(&[Change::Set(Vec::new())]),
            after(&[Change::Set(Vec::new()), Change::ExpireAt(7)]),
            after(&[put(b"a", b"bc")]),
            after(&[put(b"ab", b"c")]),
        ];
        let digests: std::collections::BTreeSet<u64> = states.iter().map(State::digest).collect();
        assert_eq!(digests.len(), states.len());
        assert_ne!(head_digest(None), head_digest(Some(b"")));
    }
}
