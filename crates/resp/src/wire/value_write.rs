//! Values back to bytes.

use super::encode::{self, Protocol, header};
use super::value::Value;

impl Value<'_> {
    /// Appends the value. In RESP2, a type that RESP2 lacks is written as a Redis server writes it;
    /// attributes are left out.
    pub fn write(&self, out: &mut Vec<u8>, protocol: Protocol) {
        let resp3 = protocol == Protocol::Resp3;
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(integer) => encode::integer(out, *integer),
            Self::Bulk(bytes) => encode::bulk(out, bytes),
            Self::Null => encode::null(out, protocol),
            Self::Array(items) => list(out, protocol, b'*', items),
            Self::Set(items) => list(out, protocol, if resp3 { b'~' } else { b'*' }, items),
            Self::Push(items) => list(out, protocol, if resp3 { b'>' } else { b'*' }, items),
            Self::Map(entries) => {
                encode::map(out, protocol, entries.len());
                pairs(out, protocol, entries);
            }
            Self::Double(value) => encode::double(out, protocol, *value),
            Self::Boolean(value) => encode::boolean(out, protocol, *value),
            Self::BigNumber(digits) if resp3 => line(out, b'(', digits),
            Self::BigNumber(digits) => encode::bulk(out, digits),
            Self::BulkError(text) if resp3 => {
                header(out, b'!', text.len() as i64);
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Self::BulkError(text) => line(out, b'-', text),
            Self::Verbatim { format, text } if resp3 => {
                header(out, b'=', text.len() as i64 + 4);
                out.extend_from_slice(format);
                out.push(b':');
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim { text, .. } => encode::bulk(out, text),
            Self::Attribute { attributes, value } => {
                if resp3 {
                    header(out, b'|', attributes.len() as i64);
                    pairs(out, protocol, attributes);
                }
                value.write(out, protocol);
            }
        }
    }
}

/// Line ends become spaces: they would end the value.
fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Vec<u8>, protocol: Protocol, kind: u8, items: &[Value<'_>]) {
    header(out, kind, items.len() as i64);
    for item in items {
        item.write(out, protocol);
    }
}

fn pairs(out: &mut Vec<u8>, protocol: Protocol, pairs: &[(Value<'_>, Value<'_>)]) {
    for (key, value) in pairs {
        key.write(out, protocol);
        value.write(out, protocol);
    }
}
