//! Replies of RESP2, one item at a time: an array is its length, and its
//! elements follow as items of their own.

use std::fmt;

/// Longest bulk string that is taken for honest: values are far shorter.
const MAX_BULK_BYTES: usize = 1 << 20;
/// Longest line: a simple string, an error or a number.
const MAX_LINE_BYTES: usize = 64 << 10;

/// One item of a reply, borrowed from the connection's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// `+OK`
    Simple(&'a [u8]),
    /// `-ERR what`
    Error(&'a [u8]),
    /// `:1000`
    Integer(i64),
    /// `$5` and five bytes; `None` for `$-1`.
    Bulk(Option<&'a [u8]>),
    /// `*2`: so many items follow; `None` for `*-1`.
    Array(Option<usize>),
}

/// The bytes are no RESP2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the peer does not speak RESP2")
    }
}

impl std::error::Error for Malformed {}

/// The first item of `bytes` and its length; `None` if it is not whole yet.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    if !matches!(kind, b'+' | b'-' | b':' | b'$' | b'*') {
        return Err(Malformed);
    }
    let Some(line_bytes) = find_line_end(rest)? else { return Ok(None) };
    let line = &rest[..line_bytes];
    let used = 1 + line_bytes + 2;
    let reply = match kind {
        b'+' => Reply::Simple(line),
        b'-' => Reply::Error(line),
        b':' => Reply::Integer(integer(line)?),
        b'*' => Reply::Array(length(line)?),
        _ => match length(line)? {
            None => Reply::Bulk(None),
            Some(bulk_bytes) if bulk_bytes > MAX_BULK_BYTES => return Err(Malformed),
            Some(bulk_bytes) => {
                let Some(tail) = bytes.get(used..used + bulk_bytes + 2) else { return Ok(None) };
                if &tail[bulk_bytes..] != b"\r\n" {
                    return Err(Malformed);
                }
                return Ok(Some((Reply::Bulk(Some(&tail[..bulk_bytes])), used + bulk_bytes + 2)));
            }
        },
    };
    Ok(Some((reply, used)))
}

/// Length of the line before its CR LF.
#[inline]
fn find_line_end(rest: &[u8]) -> Result<Option<usize>, Malformed> {
    match rest.iter().position(|byte| *byte == b'\r') {
        Some(at) if at > MAX_LINE_BYTES => Err(Malformed),
        Some(at) => match rest.get(at + 1) {
            Some(b'\n') => Ok(Some(at)),
            Some(_) => Err(Malformed),
            None => Ok(None),
        },
        None if rest.len() > MAX_LINE_BYTES => Err(Malformed),
        None => Ok(None),
    }
}

fn length(line: &[u8]) -> Result<Option<usize>, Malformed> {
    match integer(line)? {
        -1 => Ok(None),
        number => usize::try_from(number).map(Some).map_err(|_| Malformed),
    }
}

#[inline]
fn integer(line: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_bytes_are_refused() {
        for bytes in [
            &b"hello\r\n"[..],
            b"$x\r\n",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"$1\r\nab\r\n",
            b":\r\n",
            b"+a\rb",
            b"*9223372036854775808\r\n",
        ] {
            assert_eq!(parse(bytes), Err(Malformed), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn every_kind_is_read_and_never_before_it_is_whole() {
        let cases: [(&[u8], Reply<'_>); 8] = [
            (b"+OK\r\n", Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b":-42\r\n", Reply::Integer(-42)),
            (b"$5\r\na\r\nbc\r\n", Reply::Bulk(Some(b"a\r\nbc"))),
            (b"$0\r\n\r\n", Reply::Bulk(Some(b""))),
            (b"$-1\r\n", Reply::Bulk(None)),
            (b"*2\r\n", Reply::Array(Some(2))),
            (b"*-1\r\n", Reply::Array(None)),
        ];
        for (bytes, reply) in cases {
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
            }
            let mut longer = bytes.to_vec();
            longer.extend_from_slice(b"+next\r\n");
            assert_eq!(parse(&longer), Ok(Some((reply, bytes.len()))));
        }
    }
}
