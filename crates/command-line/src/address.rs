//! The address of a server: `--server ADDR` names its Unix socket or its RESP port, and the server
//! reports the other.

use crate::credentials::options_of_environment;
use crate::failure::{unavailable, usage};
use crate::options::Transport;
use crate::resp_connection::Connection;
use anyhow::Context;
use remora_client_core::{Client, Options, Session};
use std::convert::Infallible;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The server's default port; not Redis' own.
pub const DEFAULT_PORT: u16 = 7379;
/// The default server address.
pub const DEFAULT_SERVER: &str = "127.0.0.1:7379";

/// A server, as it was named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Path of its Unix socket: whatever has a slash in it.
    Socket(PathBuf),
    /// `HOST:PORT` of its RESP listener.
    Resp(String),
}

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text.contains('/') { Self::Socket(text.into()) } else { Self::Resp(text.to_owned()) })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(out),
            Self::Resp(address) => out.write_str(address),
        }
    }
}

impl Address {
    /// The address for sessions over this transport.
    pub fn of_sessions(&self, transport: Transport) -> anyhow::Result<remora_client_core::Address> {
        if !transport.is_remote() {
            return Ok(self.socket()?.as_path().into());
        }
        let address = match self {
            // The server sends us on from there.
            Self::Socket(path) => return Ok(path.into()),
            Self::Resp(address) => address,
        };
        let told = connect_by_resp(address)?.config_get("fabric_address");
        match told.with_context(|| format!("asking {address}"))? {
            Some(fabric) if !fabric.is_empty() => Ok(fabric.parse()?),
            _ => Err(unavailable(format!(
                "{transport}: the server at {address} does not listen for clients on TCP; set fabric_address"
            ))),
        }
    }

    /// A session over this transport, all else by default.
    pub fn session(&self, transport: Transport) -> anyhow::Result<Session> {
        let options = Options { transport: transport.wanted(), ..Options::default() };
        Ok(connect(self.of_sessions(transport)?, &options)?.session()?)
    }

    /// The Unix socket.
    fn socket(&self) -> anyhow::Result<PathBuf> {
        let address = match self {
            Self::Socket(path) => return Ok(path.clone()),
            Self::Resp(address) => address,
        };
        let mut connection = connect_by_resp(address)?;
        match connection.config_get("socket").with_context(|| format!("asking {address}"))? {
            Some(path) if !path.is_empty() => Ok(path.into()),
            _ => Err(unavailable(format!("{address} names no Unix socket to share memory by"))),
        }
    }

    /// `HOST:PORT` of the RESP listener.
    pub fn resp(&self) -> anyhow::Result<&str> {
        match self {
            Self::Resp(address) => Ok(address),
            Self::Socket(_) => {
                Err(usage("--path resp with --server: name HOST:PORT of the RESP port, no socket"))
            }
        }
    }

    /// The server's process, if it is on this machine.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Socket(path) => pid_behind(path),
            Self::Resp(address) => {
                let mut connection = Connection::connect(address).ok()?;
                let pid = connection.info("process_id").ok()??.parse().ok()?;
                connection.peer_is_local().then_some(pid)
            }
        }
    }
}

fn connect_by_resp(address: &str) -> anyhow::Result<Connection> {
    Connection::connect(address)
        .map_err(|error| unavailable(format!("RESP over tcp, to ask for the socket: {error:#}")))
}

/// This process's connection to the server at an address, as the user whom the environment names.
pub fn connect(
    address: impl Into<remora_client_core::Address>,
    options: &Options,
) -> anyhow::Result<Client> {
    Client::connect(address, &options_of_environment(options))
        .map_err(|error| unavailable(format!("{:#}", anyhow::Error::new(error))))
}

/// The kernel knows the process that listens on a Unix socket.
fn pid_behind(socket: &Path) -> Option<u32> {
    let stream = UnixStream::connect(socket).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_slash_makes_a_path() {
        let parse = |text: &str| text.parse::<Address>().unwrap();
        assert_eq!(parse("/run/r.sock"), Address::Socket("/run/r.sock".into()));
        assert_eq!(parse("./r.sock"), Address::Socket("./r.sock".into()));
        assert_eq!(parse("localhost:7379"), Address::Resp("localhost:7379".into()));
        assert!(parse("/run/r.sock").resp().is_err());
        assert_eq!(parse("[::1]:7379").resp().unwrap(), "[::1]:7379");
    }

    #[test]
    fn the_kernel_names_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(Address::Socket(path).pid(), Some(std::process::id()));
        assert_eq!(Address::Socket(directory.path().join("none")).pid(), None);
    }
}
