//! Parts of a message with their lengths before them: length 4 | part.

use crate::message::Status;

/// Appends such a part.
pub(crate) fn push_sized(scratch: &mut Vec<u8>, part: &[u8]) {
    // One that is too long is refused when it is checked.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    scratch.extend_from_slice(&length.to_le_bytes());
    scratch.extend_from_slice(part);
}

/// Such a part, and the rest.
///
/// # Errors
/// [`Status::Malformed`]: the value is shorter.
pub(crate) fn take_sized(value: &[u8]) -> Result<(&[u8], &[u8]), Status> {
    let (length, rest) = value.split_first_chunk::<4>().ok_or(Status::Malformed)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(Status::Malformed)
}
