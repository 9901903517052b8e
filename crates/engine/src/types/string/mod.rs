//! Strings: a key whose record's value is the string itself.

mod edit;
mod read;
mod set;
mod upload;

pub(crate) use edit::Change;
pub(crate) use set::Set;
pub use upload::{LargeSet, Upload};

/// How a string is kept, in Redis's words: by its length and what it says.
pub(crate) fn encoding(value: &[u8]) -> &'static str {
    // What Redis puts beside an object's header.
    const EMBEDDED_BYTES: usize = 44;
    match value.len() {
        _ if remora_protocol::integer::parse(value).is_some() => "int",
        0..=EMBEDDED_BYTES => "embstr",
        _ => "raw",
    }
}
