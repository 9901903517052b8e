//! Keys and pairs of one request: iterators over its arguments.

use crate::error::CommandError;
use crate::wire::Words;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// Checks a key's length.
#[inline]
pub(crate) fn key(key: &[u8]) -> Result<&[u8], CommandError> {
    if key.len() > MAX_KEY_BYTES { Err(CommandError::KeyTooLong) } else { Ok(key) }
}

/// Checks a value's length.
#[inline]
pub(crate) fn value(value: &[u8]) -> Result<&[u8], CommandError> {
    if value.len() > MAX_VALUE_BYTES { Err(CommandError::ValueTooLong) } else { Ok(value) }
}

/// Some arguments that follow each other, in order.
#[derive(Clone, Debug)]
pub struct Keys<'a> {
    words: Words<'a>,
    next: usize,
    end: usize,
    /// One between them that is no key; 0: all are.
    left_out: usize,
}

impl<'a> Keys<'a> {
    /// All arguments from `from` on, unchecked.
    pub(crate) fn all(words: Words<'a>, from: usize) -> Self {
        Self { words, next: from, end: words.len(), left_out: 0 }
    }

    /// The arguments from `from` up to `end`, checked.
    pub(crate) fn within(words: Words<'a>, from: usize, end: usize) -> Result<Self, CommandError> {
        Self { words, next: from, end, left_out: 0 }.of_fitting_lengths()
    }

    /// The same without the argument at `left_out`, which is behind the first.
    pub(crate) fn without(
        words: Words<'a>,
        (from, end): (usize, usize),
        left_out: usize,
    ) -> Result<Self, CommandError> {
        debug_assert!((from + 1..end).contains(&left_out), "the first and one in between");
        Self { words, next: from, end, left_out }.of_fitting_lengths()
    }

    fn of_fitting_lengths(self) -> Result<Self, CommandError> {
        self.clone().try_for_each(|word| key(word).map(drop))?;
        Ok(self)
    }

    /// All arguments from `from` on; the caller has checked their lengths.
    pub(crate) fn checked(words: Words<'a>, from: usize) -> Result<Self, CommandError> {
        Self::within(words, from, words.len())
    }
}

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next >= self.end {
            return None;
        }
        let word = self.words.get(self.next);
        self.next += 1;
        if self.next == self.left_out {
            self.next += 1;
        }
        Some(word)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let is_left_out = (self.next..self.end).contains(&self.left_out);
        let left = self.end.saturating_sub(self.next + usize::from(is_left_out));
        (left, Some(left))
    }
}

impl ExactSizeIterator for Keys<'_> {}

/// Keys with their values, in order.
#[derive(Clone, Debug)]
pub struct Pairs<'a>(Keys<'a>);

impl<'a> Pairs<'a> {
    /// The pairs from `from` on, checked; `None` if a value is missing.
    pub(crate) fn checked(words: Words<'a>, from: usize) -> Result<Option<Self>, CommandError> {
        let pairs = Self(Keys::all(words, from));
        if !pairs.0.len().is_multiple_of(2) {
            return Ok(None);
        }
        if pairs.0.len() > MAX_COMMAND_ITEMS {
            return Err(CommandError::TooManyItems);
        }
        for (word, text) in pairs.clone() {
            key(word)?;
            value(text)?;
        }
        Ok(Some(pairs))
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.len() / 2;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Pairs<'_> {}
