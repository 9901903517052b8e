//! Strings: a key whose record's value is the string itself.

mod edit;
mod in_place;
mod read;
mod set;
mod upload;

pub(crate) use edit::{append, get_bit, get_del, get_ex, get_range, set_bit, set_range, strlen};
pub(crate) use read::{answer, find, get, holds_other_type};
pub(crate) use set::{Set, incr, multi_set, set};
pub use upload::{LargeSet, Upload};
pub(crate) use upload::{abandon_upload, begin_upload, finish_upload, upload};

/// A string's encoding, in Redis's words: by its length and its content.
pub(crate) fn encoding(value: &[u8]) -> &'static str {
    // Bytes that Redis puts beside an object's header.
    const EMBEDDED_BYTES: usize = 44;
    match value.len() {
        _ if remora_protocol::integer::parse(value).is_some() => "int",
        0..=EMBEDDED_BYTES => "embstr",
        _ => "raw",
    }
}
