//! Numbers of a client's regions, which its server writes, on every transport.

/// Region of the client's mailbox at the client.
pub const CLIENT_MAILBOX: u32 = 0;
/// Region of the client's buffer for large replies at the client.
pub const CLIENT_LARGE: u32 = 1;
