//! Regions of a client, which its server writes: their numbers, whatever
//! carries the session.

/// Region of the client's mailbox at the client.
pub const CLIENT_MAILBOX: u32 = 0;
/// Region of the client's buffer for large replies at the client.
pub const CLIENT_LARGE: u32 = 1;
