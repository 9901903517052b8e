//! Replies: writers that append to a buffer.

use remora_protocol::integer;

/// For a bulk string of so many bytes the buffer is made as long as needed at once.
const LONG_BYTES: usize = 64 << 10;
/// What stands around the bytes of a bulk string, at most.
const BULK_ROOM: usize = 32;

/// The version of RESP that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RespVersion {
    /// The version of a connection before HELLO.
    #[default]
    Resp2,
    /// With maps, sets, nulls, doubles and verbatim strings.
    Resp3,
}

impl RespVersion {
    /// The number in HELLO.
    #[inline]
    pub const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// `+OK`, the commonest reply.
#[inline]
pub fn ok(out: &mut Vec<u8>) {
    out.extend_from_slice(b"+OK\r\n");
}

/// A simple string. Line ends in it become spaces: they would end the reply.
#[inline]
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    line(out, text);
}

/// An error, with its code first: `ERR syntax error`. Line ends become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    line(out, text);
}

fn line(out: &mut Vec<u8>, text: &str) {
    let blank = |byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
    out.extend(text.bytes().map(blank));
    out.extend_from_slice(b"\r\n");
}

/// An integer.
#[inline]
pub fn integer(out: &mut Vec<u8>, integer: i64) {
    header(out, b':', integer);
}

/// A bulk string.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() >= LONG_BYTES {
        // The end of the line would double the buffer.
        out.reserve(bytes.len() + BULK_ROOM);
    }
    header(out, b'$', bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A bulk string, or null without one.
#[inline]
pub fn bulk_or_null(out: &mut Vec<u8>, version: RespVersion, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => bulk(out, bytes),
        None => null(out, version),
    }
}

/// Null: no such key.
#[inline]
pub fn null(out: &mut Vec<u8>, version: RespVersion) {
    out.extend_from_slice(match version {
        RespVersion::Resp2 => b"$-1\r\n",
        RespVersion::Resp3 => b"_\r\n",
    });
}

/// Null in the place of an array.
#[inline]
pub fn null_array(out: &mut Vec<u8>, version: RespVersion) {
    out.extend_from_slice(match version {
        RespVersion::Resp2 => b"*-1\r\n",
        RespVersion::Resp3 => b"_\r\n",
    });
}

/// Opens an array of `items` values.
#[inline]
pub fn array(out: &mut Vec<u8>, items: usize) {
    header(out, b'*', items as i64);
}

/// Opens a map of `pairs` keys with their values; a flat array in RESP2.
#[inline]
pub fn map(out: &mut Vec<u8>, version: RespVersion, pairs: usize) {
    match version {
        RespVersion::Resp2 => array(out, pairs * 2),
        RespVersion::Resp3 => header(out, b'%', pairs as i64),
    }
}

/// Opens a message out of band of `items` values; an array in RESP2.
pub fn push(out: &mut Vec<u8>, version: RespVersion, items: usize) {
    match version {
        RespVersion::Resp2 => array(out, items),
        RespVersion::Resp3 => header(out, b'>', items as i64),
    }
}

/// Opens a set of `items` values; an array in RESP2.
#[inline]
pub fn set(out: &mut Vec<u8>, version: RespVersion, items: usize) {
    match version {
        RespVersion::Resp2 => array(out, items),
        RespVersion::Resp3 => header(out, b'~', items as i64),
    }
}

/// A boolean; 1 or 0 in RESP2.
#[inline]
pub fn boolean(out: &mut Vec<u8>, version: RespVersion, value: bool) {
    match (version, value) {
        (RespVersion::Resp2, _) => integer(out, i64::from(value)),
        (RespVersion::Resp3, true) => out.extend_from_slice(b"#t\r\n"),
        (RespVersion::Resp3, false) => out.extend_from_slice(b"#f\r\n"),
    }
}

/// A double, in the shortest form that reads back the same; a bulk string in
/// RESP2.
pub fn double(out: &mut Vec<u8>, version: RespVersion, value: f64) {
    let text = double_text(value);
    match version {
        RespVersion::Resp2 => bulk(out, text.as_bytes()),
        RespVersion::Resp3 => {
            out.push(b',');
            line(out, &text);
        }
    }
}

/// `inf`, `-inf` and `nan` are the protocol's words; Rust's differ in case.
/// Very large and very small numbers have an exponent: without one they would
/// have hundreds of digits.
pub(super) fn double_text(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "nan".to_owned(),
        size if size != 0.0 && size.is_finite() && !(1e-5..1e17).contains(&size) => {
            format!("{value:e}")
        }
        _ => format!("{value}"),
    }
}

/// A verbatim string with its format (`txt`, `mkd`), which is cut or filled up
/// to three bytes; a bulk string in RESP2.
pub fn verbatim(out: &mut Vec<u8>, version: RespVersion, format: &str, bytes: &[u8]) {
    match version {
        RespVersion::Resp2 => bulk(out, bytes),
        RespVersion::Resp3 => {
            header(out, b'=', bytes.len() as i64 + 4);
            out.extend(format.bytes().chain(*b"   ").take(3));
            out.push(b':');
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A request: an array of bulk strings. For clients.
pub fn request(out: &mut Vec<u8>, words: &[&[u8]]) {
    array(out, words.len());
    for word in words {
        bulk(out, word);
    }
}

/// A type byte, a number and a line end.
#[inline]
pub(super) fn header(out: &mut Vec<u8>, kind: u8, integer: i64) {
    // Nearly all lengths have one or two digits.
    match integer {
        0..10 => return out.extend_from_slice(&[kind, b'0' + integer as u8, b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (b'0' + integer as u8 / 10, b'0' + integer as u8 % 10);
            return out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {}
    }
    out.push(kind);
    integer::write(out, integer);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_protocols() {
        use RespVersion::{Resp2, Resp3};
        assert_eq!(written(ok), "+OK\r\n");
        assert_eq!(written(|out| simple(out, "a\r\nb")), "+a  b\r\n");
        assert_eq!(written(|out| error(out, "ERR x\n")), "-ERR x \r\n");
        assert_eq!(written(|out| integer(out, -12)), ":-12\r\n");
        assert_eq!(written(|out| bulk(out, b"ab")), "$2\r\nab\r\n");
        assert_eq!(written(|out| null(out, Resp2)), "$-1\r\n");
        assert_eq!(written(|out| bulk_or_null(out, Resp3, None)), "_\r\n");
        assert_eq!(written(|out| map(out, Resp2, 2)), "*4\r\n");
        assert_eq!(written(|out| map(out, Resp3, 2)), "%2\r\n");
        assert_eq!(written(|out| set(out, Resp2, 2)), "*2\r\n");
        assert_eq!(written(|out| set(out, Resp3, 2)), "~2\r\n");
        assert_eq!(written(|out| boolean(out, Resp2, true)), ":1\r\n");
        assert_eq!(written(|out| boolean(out, Resp3, false)), "#f\r\n");
        assert_eq!(written(|out| double(out, Resp2, 1.5)), "$3\r\n1.5\r\n");
        assert_eq!(written(|out| double(out, Resp3, f64::NEG_INFINITY)), ",-inf\r\n");
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1e16, "10000000000000000"),
            (1e17, "1e17"),
            (-1.25e-5, "-0.0000125"),
            (1.25e-6, "1.25e-6"),
            (f64::MAX, "1.7976931348623157e308"),
            (-5e-324, "-5e-324"),
        ] {
            assert_eq!(double_text(value), text);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
        assert_eq!(written(|out| verbatim(out, Resp2, "txt", b"hi")), "$2\r\nhi\r\n");
        assert_eq!(written(|out| verbatim(out, Resp3, "txt", b"hi")), "=6\r\ntxt:hi\r\n");
        assert_eq!(written(|out| verbatim(out, Resp3, "t", b"hi")), "=6\r\nt  :hi\r\n");
        assert_eq!(written(|out| request(out, &[b"GET", b"k"])), "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
