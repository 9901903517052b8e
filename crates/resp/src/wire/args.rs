//! The arguments of one request, without a copy where that is possible.

use std::cell::OnceCell;

/// Argument slots that a connection keeps between requests; more, left by one
/// huge request, are given back.
const KEPT_ARGS: usize = 4096;

/// How far an incomplete request has been parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Progress {
    /// The next byte opens a request.
    #[default]
    Start,
    /// An inline request; this many bytes hold no newline.
    Inline { scanned: usize },
    /// An array; the next bulk string opens at `position`, `left` are missing.
    Array { position: usize, left: usize },
}

/// The arguments of one request, reused for all requests of a connection so
/// that parsing allocates nothing.
///
/// Arguments of an array are ranges of the buffer that was parsed. Inline
/// arguments may need unescaping, so they are copies. After
/// [`crate::Parsed::Incomplete`] it also remembers how far the parser came.
#[derive(Clone, Debug, Default)]
pub struct Args {
    // Offsets fit: MAX_REQUEST_BYTES is below 4 GiB (asserted in parse.rs).
    pub(super) ranges: Vec<(u32, u32)>,
    pub(super) scratch: Vec<u8>,
    pub(super) inline: bool,
    pub(super) progress: Progress,
}

impl Args {
    /// No arguments.
    pub const fn new() -> Self {
        Self { ranges: Vec::new(), scratch: Vec::new(), inline: false, progress: Progress::Start }
    }

    /// Bytes of memory that it keeps.
    pub const fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<(u32, u32)>() + self.scratch.capacity()
    }

    /// Number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none: an empty request, which has no answer.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// One argument. `buffer` must be the one that was parsed. An index out of
    /// range gives an empty argument, as does a buffer that is too short.
    #[inline]
    pub fn get<'a>(&'a self, index: usize, buffer: &'a [u8]) -> &'a [u8] {
        let Some(&(from, to)) = self.ranges.get(index) else {
            return &[];
        };
        let bytes = if self.inline { &self.scratch[..] } else { buffer };
        bytes.get(from as usize..to as usize).unwrap_or(&[])
    }

    /// Gives back the room that one huge request has left. The arguments may be lost.
    #[inline]
    pub fn shrink(&mut self) {
        if self.ranges.capacity() > KEPT_ARGS {
            *self = Self { progress: self.progress, ..Self::new() };
        }
    }

    /// Forgets everything, also a request that was parsed in part: the caller calls it when the
    /// next bytes do not continue those parsed last.
    pub fn reset(&mut self) {
        if self.ranges.len() <= KEPT_ARGS {
            self.shrink();
        }
        self.ranges.clear();
        self.scratch.clear();
        self.inline = false;
        self.progress = Progress::Start;
    }
}

/// Bytes that a request makes of its arguments, such as a list of them or a geometry: it
/// borrows them as it does its arguments.
#[derive(Debug, Default)]
pub struct Made([OnceCell<Vec<u8>>; MADE_PARTS]);

/// A request makes at most these parts: a tree's object has a geometry and fields.
const MADE_PARTS: usize = 2;

impl Made {
    /// Keeps some bytes.
    ///
    /// # Panics
    /// It keeps [`MADE_PARTS`] already.
    fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        let free = self.0.iter().find(|part| part.get().is_none());
        free.expect("a request makes two parts at most").get_or_init(|| bytes)
    }
}

/// Arguments together with their buffer, and the parts made from them.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    args: &'a Args,
    buffer: &'a [u8],
    made: &'a Made,
}

impl<'a> Words<'a> {
    /// The arguments of a request that was parsed from `buffer`.
    #[inline]
    pub const fn new(args: &'a Args, buffer: &'a [u8], made: &'a Made) -> Self {
        Self { args, buffer, made }
    }

    /// Keeps bytes that were made of the arguments, as long as those.
    pub(crate) fn keep(&self, bytes: Vec<u8>) -> &'a [u8] {
        self.made.keep(bytes)
    }

    /// Number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// One argument; empty if there is no such.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        self.args.get(index, self.buffer)
    }

    /// Whether an argument is this word, in whatever case.
    #[inline]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.get(index).eq_ignore_ascii_case(word.as_bytes())
    }
}
