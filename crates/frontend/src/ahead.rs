//! Requests that have been parsed and are executed next.
//!
//! A key of a large table costs two cache misses, its bucket and its record. So the connection
//! parses some requests before it executes the first of them: it prefetches all buckets, then all
//! records, and the misses overlap.

use crate::protocol::{Parsed, ParsedRequest};
use remora_layout::hash::KeyHash;
use remora_layout::limits::CONNECTION_KEYS_PER_TURN;
use std::ops::Range;

/// A request that is parsed and not executed.
#[derive(Default)]
pub struct Next<R> {
    /// The positions of its words.
    pub request: R,
    /// Its bytes within the input.
    pub bytes: Range<usize>,
    /// Hash and shard of the key that it names first, as far as they are known.
    pub at: Option<(KeyHash, usize)>,
}

/// Parses at most `most` requests from the start of `input`, and stops near
/// [`CONNECTION_KEYS_PER_TURN`] words. Returns their number, and what follows them: more requests
/// (`None`), an incomplete request and the bytes that it needs (`Some(need)`), or a violation.
/// `last` keeps the progress of parsing the incomplete request.
///
/// A request of more words is parsed only as the first one, which is executed at once: the requests
/// behind it may have to be parsed again each time an earlier one pauses.
pub fn parse_ahead<R: ParsedRequest>(
    input: &[u8],
    last: &mut R,
    ahead: &mut Vec<Next<R>>,
    most: usize,
) -> (usize, Result<Option<usize>, R::Violation>) {
    let (mut from, mut words) = (0, 0);
    for parsed in 0..most {
        let announced = || R::announced_words(&input[from..]);
        let is_enough = parsed > 0 && words + announced() > CONNECTION_KEYS_PER_TURN;
        if is_enough || from == input.len() {
            return (parsed, Ok(None));
        }
        if ahead.len() == parsed {
            ahead.push(Next::default());
        }
        let next = &mut ahead[parsed];
        if parsed == 0 {
            std::mem::swap(&mut next.request, last);
        }
        match next.request.parse(&input[from..]) {
            Ok(Parsed::Request { consumed }) => {
                (next.bytes, next.at) = (from..from + consumed, None);
                from += consumed;
                words += next.request.words();
            }
            Ok(Parsed::Incomplete { need }) => {
                std::mem::swap(&mut next.request, last);
                return (parsed, Ok(Some(need)));
            }
            Err(error) => return (parsed, Err(error)),
        }
    }
    (most, Ok(None))
}
