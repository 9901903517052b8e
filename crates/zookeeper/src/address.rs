//! Where a cluster is: `zk://h1,h2:2182,h3/path`, or `zk+tls://` where ZooKeeper speaks TLS.

use remora_tls::is_server_name;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// ZooKeeper's, with and without TLS.
const DEFAULT_PORT: u16 = 2181;

/// The servers of an ensemble, and the node below which the cluster lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZookeeperAddress {
    is_encrypted: bool,
    /// Hosts with or without a port (2181), separated by commas.
    hosts: String,
    /// Begins with `/`, and does not end with it.
    path: String,
}

/// Why a text is no address of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// It begins otherwise.
    #[error(
        "{0:?} does not begin with zk://, as zk://host1,host2,host3/path does, or with zk+tls://, for TLS"
    )]
    Scheme(String),
    /// No host, an empty one, or a port that is none; for TLS, a name that no certificate can hold.
    #[error("{0:?} is not a host, or a host and a port")]
    Host(String),
    /// No path, or one that ZooKeeper does not take or keeps for itself.
    #[error("{0:?} is not a path like /remora: letters, digits, -, _ and . between slashes")]
    Path(String),
}

const PLAIN: &str = "zk://";
const ENCRYPTED: &str = "zk+tls://";

impl ZookeeperAddress {
    /// Whether the servers are reached over TLS.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Each server: its host, without brackets, and its port.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (&str, u16)> {
        self.hosts.split(',').map(|of| {
            let (host, port) = host_and_port(of);
            let number = port.strip_prefix(':').and_then(|port| port.parse().ok());
            (host, number.unwrap_or(DEFAULT_PORT))
        })
    }

    /// The servers, separated by commas.
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// The node below which the cluster lies.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl FromStr for ZookeeperAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (is_encrypted, rest) = match (text.strip_prefix(PLAIN), text.strip_prefix(ENCRYPTED)) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(AddressError::Scheme(text.into())),
        };
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let has_name = |host: &str| !is_encrypted || is_server_name(host_and_port(host).0);
        if let Some(wrong) = hosts.split(',').find(|host| !is_host(host) || !has_name(host)) {
            return Err(AddressError::Host(wrong.into()));
        }
        let mut parts = path.split('/').skip(1);
        let is_path = parts.clone().next().is_some_and(|first| first != "zookeeper");
        if !is_path || !parts.all(is_node) {
            return Err(AddressError::Path(path.into()));
        }
        Ok(Self { is_encrypted, hosts: hosts.into(), path: path.into() })
    }
}

impl Display for ZookeeperAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { ENCRYPTED } else { PLAIN };
        write!(f, "{scheme}{}{}", self.hosts, self.path)
    }
}

/// A host without the brackets of an IPv6 address, and what is behind it: `:` and a port, or nothing.
fn host_and_port(text: &str) -> (&str, &str) {
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some(parts) => parts,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    }
}

/// A name, an IPv4 address or an IPv6 address in brackets, and a port or none.
fn is_host(text: &str) -> bool {
    let (host, port) = match (text.starts_with('['), host_and_port(text)) {
        (true, (host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", port),
        (true, _) => return false,
        (false, parts) => parts,
    };
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !host.is_empty()
        && host.bytes().all(may_be)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// A node's name that is neither empty nor `.` nor `..`.
fn is_node(name: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name != "." && name != ".." && name.bytes().all(may_be)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["zk://a/b", "zk://h1,h2:2182,10.0.0.3/remora/eu-1", "zk://[::1]:2181/x"] {
            let address: ZookeeperAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        let address: ZookeeperAddress = "zk://h1,h2:7/a/b".parse().expect("valid");
        assert_eq!((address.hosts(), address.path()), ("h1,h2:7", "/a/b"));
        assert!(!address.is_encrypted());
        let text = "zk+tls://h1,h2:7,[::1]:8,10.0.0.1/a";
        let address: ZookeeperAddress = text.parse().expect("valid");
        assert!(address.is_encrypted() && address.to_string() == text);
        let servers: Vec<_> = address.servers().collect();
        assert_eq!(servers, [("h1", 2181), ("h2", 7), ("::1", 8), ("10.0.0.1", 2181)]);
    }

    #[test]
    fn other_texts_are_refused_by_part() {
        let error = |text: &str| text.parse::<ZookeeperAddress>().expect_err(text);
        assert!(matches!(error("h1,h2/path"), AddressError::Scheme(_)));
        // Names that TLS cannot ask for.
        for text in ["zk+tls://a..b/c", "zk+tls://-a:2181/c", "zk+tls://h,1.2.3/c"] {
            assert!(matches!(error(text), AddressError::Host(_)), "{text}");
        }
        for text in ["zk:///a", "zk://a,,b/c", "zk://a:/b", "zk://a:0/b", "zk://a:99999/b"] {
            assert!(matches!(error(text), AddressError::Host(_)), "{text}");
        }
        for text in ["zk://a", "zk://a/", "zk://a/b/", "zk://a//b", "zk://a/zookeeper", "zk://a/.."]
        {
            assert!(matches!(error(text), AddressError::Path(_)), "{text}");
        }
    }
}
