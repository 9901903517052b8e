//! Where the client of a session is.

use std::net::{IpAddr, SocketAddr};
use std::{fmt, io};

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// On this machine: it came over the Unix socket, and has no address.
    Local,
    /// There, as its connection shows.
    At(IpAddr),
}

impl Peer {
    /// The other end of a connection. One that has just ended has none any more, and its session
    /// ends at once.
    pub fn of(address: io::Result<SocketAddr>) -> Self {
        address.map_or(Self::Local, |address| Self::At(address.ip().to_canonical()))
    }
}

impl fmt::Display for Peer {
    /// An address by which it can be reached; that of a client on this machine is known.
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => into.write_str("127.0.0.1"),
            Self::At(address) => write!(into, "{address}"),
        }
    }
}
