//! Values that have links. A link names a key; behind it stands a hint of where the key's record lies
//! (KELI 3.2; K1, K3, K4).
//!
//! ```text
//! value   links 1 | pad 1 | text | zeros | hint 8, one for each link
//! ```
//! `text` is what the value says without hints: of a hash that lies whole in its record its packed
//! fields ([`crate::packed`]), of a field of a large hash the key that the link names. `pad` counts the zeros,
//! which let the hints begin at a word of the arena. The record's kind says that its value is
//! such a one ([`Kind::linked`](crate::kind::Kind::linked)).
//!
//! **A hint** is a word as it stands in a bucket ([`BucketSlot`](crate::bucket::BucketSlot)): slot, class, low bits of the
//! generation, signature. It is about the arena of the shard that owns the key; 0 is none. It is
//! mended in place, and no checksum covers it: the record that it leads to says by its key whether
//! it is the one that the link names. So a hint that is old, torn or forged costs a READ and is never believed.

use crate::limits::WORD_BYTES;

/// Bytes before the text.
pub(crate) const HEAD_BYTES: usize = 2;
/// Links of one value at most.
pub const MAX_LINKS: usize = u8::MAX as usize;

/// A value with links, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linked<'v> {
    /// What it says.
    pub text: &'v [u8],
    hints: &'v [u8],
}

impl<'v> Linked<'v> {
    /// Takes a value apart; `None` if it is none of these.
    pub fn of(value: &'v [u8]) -> Option<Self> {
        let (&[_, pad], rest) = value.split_first_chunk()?;
        let (text, hints) = rest.split_at_checked(rest.len().checked_sub(hint_bytes(value))?)?;
        let text = text.get(..text.len().checked_sub(pad.into())?)?;
        Some(Self { text, hints })
    }

    /// How many links there are.
    pub const fn len(&self) -> usize {
        self.hints.len() / WORD_BYTES
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.hints.is_empty()
    }

    /// The hint of a link; 0 without any.
    #[inline]
    pub fn hint(&self, link: usize) -> u64 {
        let word = self.hints.as_chunks::<WORD_BYTES>().0.get(link);
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }
}

/// Bytes of the hints at the end of a value with links.
#[inline]
pub fn hint_bytes(value: &[u8]) -> usize {
    let links = value.first().map_or(0, |links| *links as usize);
    (links * WORD_BYTES).min(value.len().saturating_sub(HEAD_BYTES))
}

/// Makes a value of a text and the hints of its links, at most [`MAX_LINKS`], for a record that has so many bytes
/// before its value.
pub fn make(value: &mut Vec<u8>, before: usize, text: &[u8], hints: &[u64]) {
    debug_assert!(hints.len() <= MAX_LINKS);
    let end = before + HEAD_BYTES + text.len();
    let pad = end.next_multiple_of(WORD_BYTES) - end;
    value.clear();
    value.extend_from_slice(&[hints.len() as u8, pad as u8]);
    value.extend_from_slice(text);
    value.resize(value.len() + pad, 0);
    hints.iter().for_each(|hint| value.extend_from_slice(&hint.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_apart_as_it_was_made_and_its_hints_are_words_of_the_arena() {
        let mut value = Vec::new();
        for before in 0..24 {
            for (text, hints) in
                [(&b""[..], vec![]), (b"key", vec![7]), (b"longer text", vec![1; 255])]
            {
                make(&mut value, before, text, &hints);
                let linked = Linked::of(&value).unwrap();
                assert_eq!((linked.text, linked.len()), (text, hints.len()));
                assert!(hints.iter().enumerate().all(|(at, hint)| linked.hint(at) == *hint));
                assert_eq!(linked.hint(hints.len()), 0);
                assert_eq!((before + value.len() - hint_bytes(&value)) % WORD_BYTES, 0);
                assert_eq!(hint_bytes(&value), hints.len() * WORD_BYTES);
            }
        }
    }

    #[test]
    fn bytes_of_no_writer_are_no_such_value_and_break_nothing() {
        assert_eq!((Linked::of(&[]), Linked::of(&[1])), (None, None));
        assert_eq!(Linked::of(&[0, 9]), None, "more zeros than bytes");
        for links in 0..=255 {
            for bytes in 0..40 {
                let value = [vec![links, 0], vec![3; bytes]].concat();
                let linked = Linked::of(&value).unwrap();
                assert!(linked.text.len() + linked.hints.len() == bytes);
            }
        }
    }
}
