//! Replies as values: a complete parser of RESP2 and RESP3, for clients.
//!
//! The parser bounds depth ([`MAX_VALUE_DEPTH`]) and bytes ([`CONNECTION_MAX_OUTPUT_BYTES`]); its
//! allocations are bounded by the bytes that were really received, never by a count that the peer
//! only announced. It refuses RESP3's streamed strings and aggregates, which no server sends.

use super::encode::RespVersion;
use remora_layout::limits::{CONNECTION_MAX_OUTPUT_BYTES, RESP_MAX_INLINE_BYTES};
use thiserror::Error;

/// Deepest nesting of values. Our own deepest reply has eight levels.
pub const MAX_VALUE_DEPTH: usize = 32;
/// Longest line: simple strings, errors and numbers are short.
const MAX_LINE_BYTES: usize = RESP_MAX_INLINE_BYTES;
/// Shortest value: `_` or an empty simple string, and its line end.
const MIN_VALUE_BYTES: usize = 3;

/// One value. Bytes borrow from the buffer that was parsed.
#[derive(Clone, PartialEq, Debug)]
pub enum Value<'a> {
    /// `+`
    Simple(&'a [u8]),
    /// `-`
    Error(&'a [u8]),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(&'a [u8]),
    /// `_`, and the null string and null array of RESP2.
    Null,
    /// `*`
    Array(Vec<Value<'a>>),
    /// `%`, in the order received.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// `~`, in the order received; that values differ is not checked.
    Set(Vec<Value<'a>>),
    /// `,`
    Double(f64),
    /// `#`
    Boolean(bool),
    /// `(`, an integer of any length, as text.
    BigNumber(&'a [u8]),
    /// `!`
    BulkError(&'a [u8]),
    /// `=`
    Verbatim {
        /// `txt` or `mkd`.
        format: [u8; 3],
        /// The text.
        text: &'a [u8],
    },
    /// `>`, data out of band.
    Push(Vec<Value<'a>>),
    /// `|`, remarks about the value that follows them.
    Attribute {
        /// The remarks.
        attributes: Vec<(Value<'a>, Value<'a>)>,
        /// The value that they describe.
        value: Box<Value<'a>>,
    },
}

/// The result of [`Value::parse`].
#[derive(Clone, PartialEq, Debug)]
pub enum ParsedValue<'a> {
    /// The value is not all there.
    Incomplete {
        /// Bytes of the whole buffer below which calling again is useless.
        need: usize,
    },
    /// A whole value.
    Value {
        /// The value.
        value: Value<'a>,
        /// Bytes that it took from the start of the buffer.
        consumed: usize,
    },
}

/// Why bytes are not a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ValueError {
    /// A value cannot begin with this byte.
    #[error("no RESP value starts with '{}'", .0.escape_ascii())]
    UnknownType(u8),
    /// A length, an integer, a double or a boolean is not one.
    #[error("malformed number, length or boolean in a RESP value")]
    InvalidNumber,
    /// CR LF is missing where a line or a string must end.
    #[error("a RESP value does not end with CR LF")]
    MissingLineEnd,
    /// A verbatim string without its format.
    #[error("a verbatim string has no format")]
    InvalidVerbatim,
    /// Nested deeper than [`MAX_VALUE_DEPTH`].
    #[error("a RESP value is nested deeper than {MAX_VALUE_DEPTH} levels")]
    TooDeep,
    /// Longer than [`CONNECTION_MAX_OUTPUT_BYTES`], or a line of more than 64 KiB.
    #[error("a RESP value is longer than the limit of {CONNECTION_MAX_OUTPUT_BYTES} bytes")]
    TooLong,
}

/// Why parsing stops.
enum Stop {
    Need(usize),
    Error(ValueError),
}

impl From<ValueError> for Stop {
    fn from(error: ValueError) -> Self {
        Self::Error(error)
    }
}

impl<'a> Value<'a> {
    /// Parses the value at the start of `buffer`.
    ///
    /// # Errors
    /// Bytes that are not RESP, or above the limits.
    pub fn parse(buffer: &'a [u8]) -> Result<ParsedValue<'a>, ValueError> {
        let mut reader = Reader { buffer, at: 0 };
        match reader.value(0, 0) {
            Ok(value) => Ok(ParsedValue::Value { value, consumed: reader.at }),
            Err(Stop::Need(need)) => Ok(ParsedValue::Incomplete { need }),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    /// The bytes of a string of any kind.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Simple(bytes) | Self::Bulk(bytes) | Self::Verbatim { text: bytes, .. } => {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// The text of an error of either kind.
    pub fn error(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Error(text) | Self::BulkError(text) => Some(text),
            _ => None,
        }
    }

    /// The value's bytes, in RESP3.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out, RespVersion::Resp3);
        out
    }
}

struct Reader<'a> {
    buffer: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// `behind` is the least number of bytes that must follow this value.
    fn value(&mut self, depth: usize, behind: usize) -> Result<Value<'a>, Stop> {
        if depth >= MAX_VALUE_DEPTH {
            return Err(ValueError::TooDeep.into());
        }
        let Some(&kind) = self.buffer.get(self.at) else {
            return Err(self.missing(self.at + MIN_VALUE_BYTES + behind));
        };
        // Refused at once: later bytes cannot make it right.
        if !b"+-:$_*%~,#(!=>|".contains(&kind) {
            return Err(ValueError::UnknownType(kind).into());
        }
        let line = self.line(behind)?;
        Ok(match kind {
            b'+' => Value::Simple(line),
            b'-' => Value::Error(line),
            b':' => Value::Integer(integer(line)?),
            b'$' | b'*' if line == b"-1" => Value::Null,
            b'$' => Value::Bulk(self.string(line, behind)?),
            b'!' => Value::BulkError(self.string(line, behind)?),
            b'=' => match self.string(line, behind)? {
                &[a, b, c, b':', ref text @ ..] => Value::Verbatim { format: [a, b, c], text },
                _ => return Err(ValueError::InvalidVerbatim.into()),
            },
            b'*' => Value::Array(self.items(line, depth, behind)?),
            b'~' => Value::Set(self.items(line, depth, behind)?),
            b'>' => Value::Push(self.items(line, depth, behind)?),
            b'%' => Value::Map(self.pairs(line, depth, behind)?),
            b'|' => {
                let attributes = self.pairs(line, depth, behind + MIN_VALUE_BYTES)?;
                let value = Box::new(self.value(depth + 1, behind)?);
                Value::Attribute { attributes, value }
            }
            b',' => Value::Double(double(line)?),
            b'(' if is_integer(line) => Value::BigNumber(line),
            b'#' if line == b"t" => Value::Boolean(true),
            b'#' if line == b"f" => Value::Boolean(false),
            b'_' if line.is_empty() => Value::Null,
            _ => return Err(ValueError::InvalidNumber.into()),
        })
    }

    fn missing(&self, need: usize) -> Stop {
        let need = need.max(self.buffer.len() + 1);
        if need > CONNECTION_MAX_OUTPUT_BYTES {
            ValueError::TooLong.into()
        } else {
            Stop::Need(need)
        }
    }

    /// The rest of the line after the type byte.
    fn line(&mut self, behind: usize) -> Result<&'a [u8], Stop> {
        let from = self.at + 1;
        let rest = self.buffer.get(from..).unwrap_or(&[]);
        let window = &rest[..rest.len().min(MAX_LINE_BYTES)];
        let Some(end) = window.iter().position(|&byte| matches!(byte, b'\r' | b'\n')) else {
            return Err(if window.len() == MAX_LINE_BYTES {
                ValueError::TooLong.into()
            } else {
                self.missing(from + window.len() + 2 + behind)
            });
        };
        if window[end] == b'\n' {
            return Err(ValueError::MissingLineEnd.into());
        }
        match rest.get(end + 1) {
            Some(b'\n') => {
                self.at = from + end + 2;
                Ok(&rest[..end])
            }
            Some(_) => Err(ValueError::MissingLineEnd.into()),
            None => Err(self.missing(from + end + 2 + behind)),
        }
    }

    /// A string of the length that `line` says.
    fn string(&mut self, line: &[u8], behind: usize) -> Result<&'a [u8], Stop> {
        let to = self.at + length(line)?;
        match self.buffer.get(to..to + 2) {
            Some(b"\r\n") => {
                let string = &self.buffer[self.at..to];
                self.at = to + 2;
                Ok(string)
            }
            Some(_) => Err(ValueError::MissingLineEnd.into()),
            None => Err(self.missing(to + 2 + behind)),
        }
    }

    fn items(&mut self, line: &[u8], depth: usize, behind: usize) -> Result<Vec<Value<'a>>, Stop> {
        let count = length(line)?;
        let mut items = Vec::new();
        for left in (0..count).rev() {
            items.push(self.value(depth + 1, behind + left * MIN_VALUE_BYTES)?);
        }
        Ok(items)
    }

    #[allow(clippy::type_complexity, reason = "a list of pairs is no clearer by another name")]
    fn pairs(
        &mut self,
        line: &[u8],
        depth: usize,
        behind: usize,
    ) -> Result<Vec<(Value<'a>, Value<'a>)>, Stop> {
        let count = length(line)?;
        let mut pairs = Vec::new();
        for left in (0..count).rev() {
            let behind = behind + 2 * left * MIN_VALUE_BYTES;
            let key = self.value(depth + 1, behind + MIN_VALUE_BYTES)?;
            pairs.push((key, self.value(depth + 1, behind)?));
        }
        Ok(pairs)
    }
}

/// Digits with an optional sign.
fn is_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

fn integer(text: &[u8]) -> Result<i64, ValueError> {
    let text = std::str::from_utf8(text).map_err(|_| ValueError::InvalidNumber)?;
    text.parse().map_err(|_| ValueError::InvalidNumber)
}

/// A length or a count: not negative, and not above its limit.
fn length(text: &[u8]) -> Result<usize, ValueError> {
    let length = usize::try_from(integer(text)?).map_err(|_| ValueError::InvalidNumber)?;
    if length > CONNECTION_MAX_OUTPUT_BYTES { Err(ValueError::TooLong) } else { Ok(length) }
}

fn double(text: &[u8]) -> Result<f64, ValueError> {
    // Rust would read more words than the protocol has.
    let number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    if !matches!(text, b"inf" | b"-inf" | b"nan") && !text.iter().all(number) {
        return Err(ValueError::InvalidNumber);
    }
    let text = std::str::from_utf8(text).map_err(|_| ValueError::InvalidNumber)?;
    text.parse().map_err(|_| ValueError::InvalidNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Value<'_> {
        match Value::parse(bytes) {
            Ok(ParsedValue::Value { value, consumed }) => {
                assert_eq!(consumed, bytes.len());
                value
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_type() {
        assert_eq!(whole(b"+OK\r\n"), Value::Simple(b"OK"));
        assert_eq!(whole(b"-ERR x\r\n").error(), Some(&b"ERR x"[..]));
        assert_eq!(whole(b":-3\r\n"), Value::Integer(-3));
        assert_eq!(whole(b"$2\r\nab\r\n").bytes(), Some(&b"ab"[..]));
        for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
            assert_eq!(whole(null), Value::Null);
        }
        let one = Value::Integer(1);
        assert_eq!(whole(b"*1\r\n:1\r\n"), Value::Array(vec![one.clone()]));
        assert_eq!(whole(b"~1\r\n:1\r\n"), Value::Set(vec![one.clone()]));
        assert_eq!(whole(b">1\r\n:1\r\n"), Value::Push(vec![one.clone()]));
        assert_eq!(whole(b"%1\r\n:1\r\n_\r\n"), Value::Map(vec![(one.clone(), Value::Null)]));
        assert_eq!(
            whole(b"|1\r\n:1\r\n_\r\n#t\r\n"),
            Value::Attribute {
                attributes: vec![(one, Value::Null)],
                value: Box::new(Value::Boolean(true)),
            }
        );
        assert_eq!(whole(b",1.5e3\r\n"), Value::Double(1500.0));
        assert_eq!(whole(b",-inf\r\n"), Value::Double(f64::NEG_INFINITY));
        assert!(matches!(whole(b",nan\r\n"), Value::Double(nan) if nan.is_nan()));
        assert_eq!(
            whole(b"(-12345678901234567890\r\n"),
            Value::BigNumber(b"-12345678901234567890")
        );
        assert_eq!(whole(b"!3\r\nERR\r\n").error(), Some(&b"ERR"[..]));
        assert_eq!(whole(b"=6\r\ntxt:hi\r\n"), Value::Verbatim { format: *b"txt", text: b"hi" });
    }

    #[test]
    fn what_is_refused() {
        let cases: [(&[u8], ValueError); 13] = [
            (b"x", ValueError::UnknownType(b'x')),
            (b":1 \r\n", ValueError::InvalidNumber),
            (b"$-2\r\n", ValueError::InvalidNumber),
            (b"$?\r\n", ValueError::InvalidNumber),
            (b"#x\r\n", ValueError::InvalidNumber),
            (b"_x\r\n", ValueError::InvalidNumber),
            (b",infinity\r\n", ValueError::InvalidNumber),
            (b"(1.5\r\n", ValueError::InvalidNumber),
            (b"$1\r\nabc", ValueError::MissingLineEnd),
            (b"+a\rb", ValueError::MissingLineEnd),
            (b"+a\nb\r\n", ValueError::MissingLineEnd),
            (b"=2\r\ntx\r\n", ValueError::InvalidVerbatim),
            (b"*99999999\r\n", ValueError::TooLong),
        ];
        for (bytes, error) in cases {
            assert_eq!(Value::parse(bytes), Err(error), "{}", bytes.escape_ascii());
        }
        let deep = b"*1\r\n".repeat(MAX_VALUE_DEPTH);
        assert_eq!(Value::parse(&deep), Err(ValueError::TooDeep));
        let deep = b"|0\r\n".repeat(100_000);
        assert_eq!(Value::parse(&deep), Err(ValueError::TooDeep));
        assert_eq!(Value::parse(&[b'+'; 70_000]), Err(ValueError::TooLong));
    }

    #[test]
    fn what_is_needed() {
        let need = |bytes| match Value::parse(bytes) {
            Ok(ParsedValue::Incomplete { need }) => need,
            other => panic!("{other:?}"),
        };
        assert_eq!(need(b""), 3);
        assert_eq!(need(b"*2\r\n"), 10);
        assert_eq!(need(b"*2\r\n$10\r\n"), 9 + 12 + 3);
        assert_eq!(need(b"%2\r\n+\r\n"), 7 + 9);
        assert_eq!(need(b"*2\r\n*2\r\n+\r\n"), 11 + 6);
    }
}
