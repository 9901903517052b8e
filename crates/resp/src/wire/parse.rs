//! Requests: arrays of bulk strings, and inline commands.
//!
//! Parsing is incremental and linear: a request that arrives in many pieces is never parsed from
//! its start again, because [`Args`] remembers the progress. The parser accepts and refuses the
//! same requests as Redis 7, with the same words; the cuts between pieces make no difference.

use super::args::{Args, Progress};
use super::inline;
use super::protocol_error::ProtocolError;
use remora_frontend::Parsed;
use remora_layout::limits::{MAX_REQUEST_BYTES, RESP_MAX_ARGS, RESP_MAX_INLINE_BYTES};
use remora_protocol::integer;

/// Longest line that holds a count. The longest number has 20 characters.
const COUNT_LINE_BYTES: usize = 32;
/// Shortest bulk string: `$0`, its line end, no bytes and their line end.
const MIN_BULK_BYTES: usize = 6;
/// Bytes after a bulk string, which are skipped unread, as Redis does.
pub(super) const LINE_END_BYTES: usize = 2;

/// Parses the request at the start of `buffer` into `args`.
///
/// After [`Parsed::Incomplete`] the next call must bring the same bytes with
/// more behind them (they may have moved), or [`Args::reset`] must come first.
/// After a request or an error the next call starts anew.
///
/// # Errors
/// Bytes that no client of Redis would send; see [`ProtocolError`].
#[inline]
pub fn parse(buffer: &[u8], args: &mut Args) -> Result<Parsed, ProtocolError> {
    let result = match args.progress {
        Progress::Start => start(buffer, args),
        Progress::Inline { scanned } => inline::parse(buffer, scanned, args),
        Progress::Array { position, left } => array(buffer, position, left, args),
    };
    match result {
        Ok(Parsed::Incomplete { .. }) => {}
        Ok(Parsed::Request { .. }) => args.progress = Progress::Start,
        Err(_) => args.reset(),
    }
    result
}

/// The second argument of the request at the start of `buffer`, as far as it is there
/// and the request is an array: the key of most commands, to be fetched ahead of its
/// use. A hint: nothing else is looked at.
#[inline]
pub fn peek_key(buffer: &[u8]) -> Option<&[u8]> {
    let too_long = ProtocolError::TooBigMultibulkCount;
    let (_, position) = count_line(buffer.strip_prefix(b"*")?, 0, too_long).ok()??;
    let (length, from) = bulk_line(buffer, 1 + position).ok()??;
    let (length, from) = bulk_line(buffer, from + length + LINE_END_BYTES).ok()??;
    buffer.get(from..from + length)
}

/// The number of arguments that the request at the start of `buffer` announces, as far as that is
/// there and the request is an array: the cost of parsing it. A hint, as above.
#[inline]
pub fn peek_words(buffer: &[u8]) -> Option<usize> {
    let too_long = ProtocolError::TooBigMultibulkCount;
    let (count, _) = count_line(buffer.strip_prefix(b"*")?, 0, too_long).ok()??;
    usize::try_from(count?).ok()
}

fn start(buffer: &[u8], args: &mut Args) -> Result<Parsed, ProtocolError> {
    args.reset();
    match buffer.first() {
        None => Ok(Parsed::Incomplete { need: 1 }),
        Some(b'*') => {
            let Some((count, position)) =
                count_line(buffer, 1, ProtocolError::TooBigMultibulkCount)?
            else {
                return Ok(Parsed::Incomplete { need: (buffer.len() + 1).max(4) });
            };
            match count {
                Some(count) if count <= 0 => Ok(Parsed::Request { consumed: position }),
                Some(count) if count <= RESP_MAX_ARGS as i64 => {
                    array(buffer, position, count as usize, args)
                }
                _ => Err(ProtocolError::InvalidMultibulkLength),
            }
        }
        Some(_) => inline::parse(buffer, 0, args),
    }
}

fn array(
    buffer: &[u8],
    mut position: usize,
    mut left: usize,
    args: &mut Args,
) -> Result<Parsed, ProtocolError> {
    while left > 0 {
        let incomplete = |args: &mut Args, need: usize| {
            args.progress = Progress::Array { position, left };
            Ok(Parsed::Incomplete { need: need.max(buffer.len() + 1) })
        };
        let Some((length, from)) = bulk_line(buffer, position)? else {
            return incomplete(args, position + left * MIN_BULK_BYTES);
        };
        let to = from + length;
        let next = to + LINE_END_BYTES;
        let need = next + (left - 1) * MIN_BULK_BYTES;
        if need > MAX_REQUEST_BYTES {
            return Err(ProtocolError::TooBigRequest);
        }
        if buffer.len() < next {
            return incomplete(args, need);
        }
        args.ranges.push((from as u32, to as u32));
        position = next;
        left -= 1;
    }
    Ok(Parsed::Request { consumed: position })
}

/// The length of the bulk string that opens at `position`, and where its bytes
/// start; `None` if its first line is not all there.
#[inline]
pub(super) fn bulk_line(
    buffer: &[u8],
    position: usize,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    match buffer.get(position) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
    }
    match count_line(buffer, position + 1, ProtocolError::TooBigBulkCount)? {
        None => Ok(None),
        Some((Some(length), from)) if (0..=MAX_REQUEST_BYTES as i64).contains(&length) => {
            Ok(Some((length as usize, from)))
        }
        Some(_) => Err(ProtocolError::InvalidBulkLength),
    }
}

/// A number, or `None` if it is not one, and where the next line starts.
type CountLine = (Option<i64>, usize);

/// The number between `from` and the next CR; `None` if the line is not all
/// there. The byte after CR is skipped unread, as Redis does.
#[inline]
fn count_line(
    buffer: &[u8],
    from: usize,
    too_long: ProtocolError,
) -> Result<Option<CountLine>, ProtocolError> {
    let rest = buffer.get(from..).unwrap_or(&[]);
    // Nearly all counts have one or two digits.
    match *rest {
        [ones @ b'0'..=b'9', b'\r', _, ..] => {
            return Ok(Some((Some((ones - b'0').into()), from + 3)));
        }
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', _, ..] => {
            let count = 10 * (tens - b'0') + (ones - b'0');
            return Ok(Some((Some(count.into()), from + 4)));
        }
        _ => {}
    }
    let line = &rest[..rest.len().min(COUNT_LINE_BYTES)];
    match line.iter().position(|&byte| byte == b'\r') {
        Some(end) if rest.len() >= end + 2 => {
            Ok(Some((integer::parse(&line[..end]), from + end + 2)))
        }
        None if line.len() == COUNT_LINE_BYTES => Err(too_long),
        _ => Ok(None),
    }
}

const _: () = assert!(MAX_REQUEST_BYTES <= u32::MAX as usize);
const _: () = assert!(RESP_MAX_ARGS * MIN_BULK_BYTES <= MAX_REQUEST_BYTES);
const _: () = assert!(RESP_MAX_INLINE_BYTES < MAX_REQUEST_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Result<(Vec<Vec<u8>>, usize), ProtocolError> {
        let mut args = Args::new();
        match parse(bytes, &mut args)? {
            Parsed::Request { consumed } => {
                Ok(((0..args.len()).map(|at| args.get(at, bytes).to_vec()).collect(), consumed))
            }
            Parsed::Incomplete { need } => panic!("{need} bytes are wanted"),
        }
    }

    fn request(bytes: &[u8]) -> Vec<Vec<u8>> {
        let (found, consumed) = words(bytes).unwrap();
        assert_eq!(consumed, bytes.len());
        found
    }

    fn need(bytes: &[u8]) -> usize {
        match parse(bytes, &mut Args::new()) {
            Ok(Parsed::Incomplete { need }) => need,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_seen_before_its_request_is_parsed() {
        let set = b"*3\r\n$3\r\nSET\r\n$12\r\nabcdefghijkl\r\n$1\r\nv\r\n";
        let key_ends = 4 + 9 + 5 + 12;
        for end in 0..=set.len() {
            let seen = peek_key(&set[..end]);
            assert_eq!(seen, (end >= key_ends).then_some(&b"abcdefghijkl"[..]), "{end}");
        }
        for none in [&b"PING\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$-1\r\n$1\r\nk\r\n"] {
            assert_eq!(peek_key(none), None);
        }
    }

    #[test]
    fn words_are_counted_before_a_request_is_parsed() {
        for (bytes, words) in [
            (&b"*1\r\n$4\r\nPING\r\n"[..], Some(1)),
            (b"*1048576\r\n", Some(1_048_576)),
            (b"*1048576\r", None),
            (b"*-1\r\n", None),
            (b"*x\r\n", None),
            (b"MGET a b\r\n", None),
            (b"", None),
        ] {
            assert_eq!(peek_words(bytes), words);
        }
    }

    #[test]
    fn arrays() {
        assert_eq!(request(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), [&b"GET"[..], b"k"]);
        assert_eq!(request(b"*1\r\n$0\r\n\r\n"), [b""]);
        let empty: [Vec<u8>; 0] = [];
        for bytes in [&b"*0\r\n"[..], b"*-1\r\n", b"*-9223372036854775808\r\n", b"\r\n", b"  \n"] {
            assert_eq!(request(bytes), empty);
        }
        let (found, consumed) = words(b"*1\r\n$4\r\nPING\r\n*1\r\n").unwrap();
        assert_eq!((found, consumed), (vec![b"PING".to_vec()], 14));
    }

    #[test]
    fn what_is_needed() {
        assert_eq!(need(b""), 1);
        assert_eq!(need(b"*"), 4);
        assert_eq!(need(b"*3\r\n"), 4 + 3 * 6);
        assert_eq!(need(b"*2\r\n$100\r\nab"), 10 + 102 + 6);
        assert_eq!(need(b"GET k"), 6);
    }

    #[test]
    fn errors_are_those_of_redis() {
        let error = |bytes: &[u8]| format!("{}", words(bytes).unwrap_err());
        for bytes in [&b"*x\r\n"[..], b"*\r\n", b"*01\r\n", b"* 1\r\n", b"*1048577\r\n"] {
            assert_eq!(error(bytes), "Protocol error: invalid multibulk length");
        }
        assert_eq!(error(b"*1\r\n+a\r\n"), "Protocol error: expected '$', got '+'");
        assert_eq!(error(b"*1\r\n\\"), "Protocol error: expected '$', got '\\'");
        assert_eq!(error(b"*1\r\n\r\n"), "Protocol error: expected '$', got '\\r'");
        for bytes in [&b"*1\r\n$x\r\n"[..], b"*1\r\n$-1\r\n", b"*1\r\n$68157441\r\n"] {
            assert_eq!(error(bytes), "Protocol error: invalid bulk length");
        }
        assert_eq!(
            error(b"*1\r\n$68157440\r\n"),
            "Protocol error: request is longer than 68157440 bytes"
        );
        assert_eq!(error(&[b'x'; 70_000]), "Protocol error: too big inline request");
        let endless = |start: &[u8]| [start, &[b'1'; 100]].concat();
        assert_eq!(error(&endless(b"*")), "Protocol error: too big mbulk count string");
        assert_eq!(error(&endless(b"*1\r\n$")), "Protocol error: too big bulk count string");
    }

    #[test]
    fn a_request_in_pieces_is_not_parsed_again() {
        let mut bytes = b"*1000\r\n".to_vec();
        for _ in 0..1000 {
            bytes.extend_from_slice(b"$3\r\nabc\r\n");
        }
        let mut args = Args::new();
        for end in 0..bytes.len() {
            assert!(matches!(parse(&bytes[..end], &mut args), Ok(Parsed::Incomplete { .. })));
        }
        assert_eq!(parse(&bytes, &mut args), Ok(Parsed::Request { consumed: bytes.len() }));
        assert_eq!(args.len(), 1000);
    }

    #[test]
    fn a_broken_promise_does_not_panic() {
        let mut args = Args::new();
        let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nab";
        assert!(parse(bytes, &mut args).is_ok());
        assert!(matches!(parse(b"*1", &mut args), Ok(Parsed::Incomplete { .. })));
        assert_eq!(args.get(0, b"*1"), b"");
        args.reset();
        assert_eq!(parse(b"PING\n", &mut args), Ok(Parsed::Request { consumed: 5 }));
    }
}
