//! Requests that have been parsed and are executed next.
//!
//! A key of a large table costs two misses of the caches, its bucket and its record.
//! So some requests are parsed before the first of them is executed: all buckets are
//! asked for, then all records, and the misses pass side by side.

use super::execute::Executor;
use super::host::Host;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{RESP_KEYS_PER_TURN, RESP_REQUESTS_AHEAD};
use remora_resp::wire::{Args, Parsed, ProtocolError, parse, peek_words};
use std::ops::Range;

/// A request that is parsed and not executed.
#[derive(Default)]
pub struct Next {
    /// Its arguments, as ranges of its bytes.
    pub args: Args,
    /// Where it stands in what was read.
    pub bytes: Range<usize>,
    /// Hash and shard of the key that it names first, as far as they are known.
    pub at: Option<(KeyHash, usize)>,
}

/// Parses requests from the start of `input`, so many at most, and about as many words
/// as a turn takes keys: how many, and what is
/// behind them: more (`None`), or a request that is not all there and the bytes
/// without which parsing it again is useless, or no request at all. `args` keeps how
/// far the last one came.
///
/// A request of more words is parsed only as the first one, which is executed at once:
/// what is behind may have to be parsed again, as often as one before it pauses.
pub(super) fn parse_ahead(
    input: &[u8],
    args: &mut Args,
    ahead: &mut Vec<Next>,
    most: usize,
) -> (usize, Result<Option<usize>, ProtocolError>) {
    let (mut from, mut words) = (0, 0);
    for parsed in 0..most {
        let announced = || peek_words(&input[from..]).unwrap_or_default();
        let is_enough = parsed > 0 && words + announced() > RESP_KEYS_PER_TURN;
        if is_enough || from == input.len() {
            return (parsed, Ok(None));
        }
        if ahead.len() == parsed {
            ahead.push(Next::default());
        }
        let next = &mut ahead[parsed];
        if parsed == 0 {
            std::mem::swap(&mut next.args, args);
        }
        match parse(&input[from..], &mut next.args) {
            Ok(Parsed::Request { consumed }) => {
                (next.bytes, next.at) = (from..from + consumed, None);
                from += consumed;
                words += next.args.len();
            }
            Ok(Parsed::Incomplete { need }) => {
                std::mem::swap(&mut next.args, args);
                return (parsed, Ok(Some(need)));
            }
            Err(error) => return (parsed, Err(error)),
        }
    }
    (most, Ok(None))
}

impl<H: Host> Executor<H> {
    /// Asks the processor for what these requests of a connection will look at. What
    /// is no key, or changes meanwhile, makes it a hint that is of no use.
    pub(super) fn fetch_ahead(&mut self, database: Database, input: &[u8], requests: &mut [Next]) {
        let mut places = [(KeyHash(0), 0); RESP_REQUESTS_AHEAD];
        let mut keys = 0;
        for request in requests.iter_mut().take(RESP_REQUESTS_AHEAD) {
            // All commands of one key name it first.
            let key = request.args.get(1, &input[request.bytes.clone()]);
            if !key.is_empty() {
                places[keys] = self.host.route(database, key);
                request.at = Some(places[keys]);
                keys += 1;
            }
        }
        self.fetch_each(&places[..keys]);
    }

    /// The same for keys with these hashes, of these shards.
    pub(super) fn fetch_each(&mut self, places: &[(KeyHash, usize)]) {
        let home = self.host.home();
        let (tables, host) = (&self.tables, &mut self.host);
        let others = || places.iter().filter(|at| at.1 != home);
        let here = || places.iter().filter(|at| at.1 == home).map(|at| at.0);
        let some_here = here().next().is_some();
        others().for_each(|&(hash, at)| tables[at].prefetch(host.memory(at), hash));
        if some_here {
            host.with_own(|shard, _, _| here().for_each(|hash| shard.prefetch(hash)));
        }
        others().for_each(|&(hash, at)| tables[at].prefetch_record(host.memory(at), hash));
        if some_here {
            host.with_own(|shard, _, _| here().for_each(|hash| shard.prefetch_record(hash)));
        }
    }
}

#[cfg(test)]
mod tests;
