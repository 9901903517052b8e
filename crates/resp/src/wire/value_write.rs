//! Values back to bytes.

use super::encode::{self, RespVersion, header};
use super::value::Value;

impl Value<'_> {
    /// Appends the value. In RESP2, a type that RESP2 lacks is written as a Redis server writes it;
    /// attributes are left out.
    pub fn write(&self, out: &mut Vec<u8>, version: RespVersion) {
        let resp3 = version == RespVersion::Resp3;
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(integer) => encode::integer(out, *integer),
            Self::Bulk(bytes) => encode::bulk(out, bytes),
            Self::Null => encode::null(out, version),
            Self::Array(items) => list(out, version, b'*', items),
            Self::Set(items) => list(out, version, if resp3 { b'~' } else { b'*' }, items),
            Self::Push(items) => list(out, version, if resp3 { b'>' } else { b'*' }, items),
            Self::Map(entries) => {
                encode::map(out, version, entries.len());
                pairs(out, version, entries);
            }
            Self::Double(value) => encode::double(out, version, *value),
            Self::Boolean(value) => encode::boolean(out, version, *value),
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
                    pairs(out, version, attributes);
                }
                value.write(out, version);
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

fn list(out: &mut Vec<u8>, version: RespVersion, kind: u8, items: &[Value<'_>]) {
    header(out, kind, items.len() as i64);
    for item in items {
        item.write(out, version);
    }
}

fn pairs(out: &mut Vec<u8>, version: RespVersion, pairs: &[(Value<'_>, Value<'_>)]) {
    for (key, value) in pairs {
        key.write(out, version);
        value.write(out, version);
    }
}
