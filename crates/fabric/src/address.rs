//! The address of a server.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// An IP address and port.
    Tcp(SocketAddr),
    /// The name of a host, and a port. It is resolved with each connection: a container that was started
    /// again has another address behind its name.
    Host(String, u16),
}

/// A text that is neither a path nor an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is neither a socket's path (with a /) nor an address like 127.0.0.1:7000 or host:7000"
)]
pub struct UnknownAddress(String);

impl Address {
    /// Whether it is a Unix socket, on this machine.
    pub const fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Where to connect: the addresses of a name, in the order of the resolver; none for a path.
    ///
    /// # Errors
    /// The name has no address, or the resolver does not answer.
    pub fn resolved(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Unix(_) => Ok(Vec::new()),
            Self::Tcp(address) => Ok(vec![*address]),
            Self::Host(name, port) => {
                let found: Vec<_> = (name.as_str(), *port).to_socket_addrs()?.collect();
                match found.is_empty() {
                    true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
                    false => Ok(found),
                }
            }
        }
    }
}

/// Whether a text may be the name of a host: ASCII letters, digits, `-`, `_` and `.`, and not what only
/// an IP address may look like, digits and dots alone.
fn is_host_name(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    !is_number && text.bytes().all(may_be)
}

impl FromStr for Address {
    type Err = UnknownAddress;

    fn from_str(text: &str) -> Result<Self, UnknownAddress> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Tcp(address));
        }
        let named = text.rsplit_once(':').filter(|(name, _)| is_host_name(name));
        let named = named.and_then(|(name, port)| Some((name.to_owned(), port.parse().ok()?)));
        named
            .map_or(Err(UnknownAddress(text.to_owned())), |(name, port)| Ok(Self::Host(name, port)))
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
            Self::Host(name, port) => write!(into, "{name}:{port}"),
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

    #[test]
    fn a_name_with_a_port_is_a_host_and_is_resolved_with_each_connection() {
        let named: Address = "remora-0.shop:7380".parse().unwrap();
        assert_eq!(named, Address::Host("remora-0.shop".into(), 7380));
        assert_eq!(named.to_string(), "remora-0.shop:7380");
        let local = "localhost:7380".parse::<Address>().unwrap().resolved().unwrap();
        assert!(local.iter().all(|of| of.ip().is_loopback() && of.port() == 7380), "{local:?}");
        assert!(!local.is_empty());
        for text in ["host", "host:", ":7380", "host:70000", "a b:1", "10.0.0.256:7380", "10.0:1"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
