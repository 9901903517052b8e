//! Inline requests: words on a line, for people with a terminal.
//!
//! Words may be quoted. Between double quotes `\xHH`, `\n`, `\r`, `\t`, `\b`,
//! `\a`, `\\` and `\"` are escapes; between single quotes only `\'` is.

use super::args::{Args, Progress};
use super::protocol_error::ProtocolError;
use remora_frontend::Parsed;
use remora_layout::limits::RESP_MAX_INLINE_BYTES;

/// Parses the line at the start of `buffer`, whose first `scanned` bytes are
/// known to hold no newline.
pub(super) fn parse(
    buffer: &[u8],
    scanned: usize,
    args: &mut Args,
) -> Result<Parsed, ProtocolError> {
    // The newline itself does not count, so that the limit does not depend on
    // how the line was cut into pieces.
    let window = &buffer[..buffer.len().min(RESP_MAX_INLINE_BYTES + 1)];
    let unseen = window.get(scanned..).unwrap_or(&[]);
    let Some(newline) = unseen.iter().position(|&byte| byte == b'\n') else {
        if buffer.len() > RESP_MAX_INLINE_BYTES {
            return Err(ProtocolError::TooBigInline);
        }
        args.progress = Progress::Inline { scanned: window.len().max(scanned) };
        return Ok(Parsed::Incomplete { need: buffer.len() + 1 });
    };
    let end = scanned + newline;
    let line = buffer[..end].strip_suffix(b"\r").unwrap_or(&buffer[..end]);
    args.inline = true;
    split(line, args)?;
    Ok(Parsed::Request { consumed: end + 1 })
}

fn split(line: &[u8], args: &mut Args) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        while line.get(at).copied().is_some_and(is_space) {
            at += 1;
        }
        if at >= line.len() {
            return Ok(());
        }
        let from = args.scratch.len();
        at = word(line, at, &mut args.scratch)?;
        args.ranges.push((from as u32, args.scratch.len() as u32));
    }
}

/// Appends the word at `at` and returns where it ends.
fn word(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    let mut quote = None;
    loop {
        let Some(&byte) = line.get(at) else {
            return if quote.is_none() { Ok(at) } else { Err(ProtocolError::UnbalancedQuotes) };
        };
        let next = line.get(at + 1).copied();
        match (quote, byte, next) {
            (Some(b'"'), b'\\', Some(escaped)) => {
                let (byte, length) = hexadecimal(&line[at + 1..]).unwrap_or((unescape(escaped), 2));
                out.push(byte);
                at += length;
            }
            (Some(b'\''), b'\\', Some(b'\'')) => {
                out.push(b'\'');
                at += 2;
            }
            (Some(open), close, _) if open == close => {
                // A closing quote ends the word: only space may follow.
                return match next {
                    Some(next) if !is_space(next) => Err(ProtocolError::UnbalancedQuotes),
                    _ => Ok(at + 1),
                };
            }
            (None, b'"' | b'\'', _) => {
                quote = Some(byte);
                at += 1;
            }
            (None, b' ' | b'\t' | b'\r', _) => return Ok(at),
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

/// The byte of `xHH`, and the escape's length with its backslash.
fn hexadecimal(escape: &[u8]) -> Option<(u8, usize)> {
    let &[b'x', high, low, ..] = escape else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some(((digit(high)? << 4 | digit(low)?) as u8, 4))
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// A space by C's definition, without the newline, which has already ended the line.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut args = Args::new();
        match super::super::parse(line, &mut args)? {
            Parsed::Request { consumed } => assert_eq!(consumed, line.len()),
            other => panic!("{other:?}"),
        }
        Ok((0..args.len()).map(|index| args.get(index, line).to_vec()).collect())
    }

    #[test]
    fn words_as_redis_splits_them() {
        let cases: [(&[u8], &[&[u8]]); 14] = [
            (b"PING\n", &[b"PING"]),
            (b"  PING \t a \r\n", &[b"PING", b"a"]),
            (b"E \"a\\x41\\n\\r\\t\\b\\a\\\\\\\"\\q\"\r\n", &[b"E", b"aA\n\r\t\x08\x07\\\"q"]),
            (b"E 'a\\'b\\n'\r\n", &[b"E", b"a'b\\n"]),
            (b"E a\"b c\"\r\n", &[b"E", b"ab c"]),
            (b"E \"\"\r\n", &[b"E", b""]),
            (b"E \"\\x4\"\r\n", &[b"E", b"x4"]),
            (b"E \"\\xzz\"\r\n", &[b"E", b"xzz"]),
            (b"E a\\x41\r\n", &[b"E", b"a\\x41"]),
            (b"E\ta\x0bb\r\n", &[b"E", b"a\x0bb"]),
            (b"PING\rx\n", &[b"PING", b"x"]),
            (b"PING \r\r\n", &[b"PING"]),
            (b"E a\x00b\r\n", &[b"E", b"a\x00b"]),
            (b"E 'a' \"b\"\r\n", &[b"E", b"a", b"b"]),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line).unwrap(), expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn unbalanced_quotes() {
        for line in [&b"E \"a\r\n"[..], b"E \"a\"b\r\n", b"E 'a'b\r\n", b"E 'a\n", b"E \"a\\\n"] {
            assert_eq!(words(line), Err(ProtocolError::UnbalancedQuotes));
        }
    }

    #[test]
    fn the_limit_is_the_same_in_pieces_and_whole() {
        let mut line = vec![b'x'; RESP_MAX_INLINE_BYTES];
        line.push(b'\n');
        assert_eq!(words(&line).unwrap()[0].len(), RESP_MAX_INLINE_BYTES);
        let mut args = Args::new();
        for end in 0..line.len() {
            let parsed = super::super::parse(&line[..end], &mut args);
            assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })));
        }
        assert!(super::super::parse(&line, &mut args).is_ok());
        line.insert(0, b'x');
        assert_eq!(words(&line), Err(ProtocolError::TooBigInline));
    }
}
