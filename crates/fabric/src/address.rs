//! The address of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// An IP address and port.
    Tcp(SocketAddr),
}

/// A text that is neither a path nor an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is neither a socket's path (with a /) nor an address like 127.0.0.1:7000")]
pub struct UnknownAddress(String);

impl FromStr for Address {
    type Err = UnknownAddress;

    fn from_str(text: &str) -> Result<Self, UnknownAddress> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| UnknownAddress(text.to_owned()))
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Self {
        Self::Unix(path.to_owned())
    }
}

impl From<&PathBuf> for Address {
    fn from(path: &PathBuf) -> Self {
        Self::Unix(path.clone())
    }
}

impl From<&Address> for Address {
    fn from(address: &Address) -> Self {
        address.clone()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(into, "{}", path.display()),
            Self::Tcp(address) => write!(into, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_by_the_slash() {
        assert_eq!("./s".parse(), Ok(Address::Unix("./s".into())));
        let tcp: Address = "127.0.0.1:7000".parse().unwrap();
        assert_eq!(tcp.to_string(), "127.0.0.1:7000");
        assert!("[::1]:7".parse::<Address>().is_ok());
        assert!("7000".parse::<Address>().is_err());
    }
}
