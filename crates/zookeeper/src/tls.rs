//! TLS to ZooKeeper: its library's settings from our files, and why a handshake fails, which the library
//! does not say.

use crate::address::ZookeeperAddress;
use remora_layout::limits::ZOOKEEPER_TLS_LOOK_MS;
use remora_tls::{ClientTls, ClientTlsSettings, TlsError};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;
use zookeeper_client::TlsOptions;

/// Time for one server to accept, and for each step of its handshake.
const LOOK: Duration = Duration::from_millis(ZOOKEEPER_TLS_LOOK_MS);

/// What the library needs for the next connection.
///
/// # Errors
/// A file cannot be read, holds something else, or they do not fit together.
pub(crate) fn options(files: &ClientTlsSettings) -> Result<TlsOptions, TlsError> {
    // Our own reading has the errors that say which file is wrong. The library passes over certificates
    // that it cannot read.
    files.load()?;
    let settings = |error: zookeeper_client::Error| TlsError::Settings(error.to_string());
    let options = TlsOptions::new().with_pem_ca(&text(&files.authorities)?).map_err(settings)?;
    match &files.identity {
        None => Ok(options),
        Some((certificate, key)) => {
            options.with_pem_identity(&text(certificate)?, &text(key)?).map_err(settings)
        }
    }
}

fn text(path: &Path) -> Result<String, TlsError> {
    let unreadable = |error| TlsError::Unreadable { path: path.to_owned(), error };
    std::fs::read_to_string(path).map_err(unreadable)
}

/// Why a handshake with one of the servers fails, with what to do about it. `None` where all of them that
/// can be reached come through it. It waits for the network.
pub(crate) fn failure(address: &ZookeeperAddress, files: &ClientTlsSettings) -> Option<String> {
    let tls = match files.load() {
        Ok(tls) => tls,
        Err(error) => return Some(error.with_advice()),
    };
    address.servers().find_map(|(host, port)| {
        let error = handshake(&tls, host, port)?;
        let unshown = match files.identity {
            Some(_) => "",
            None => " (no certificate is shown: name one, tls_cert of a server or REMORA_TLS_CERT)",
        };
        Some(format!("{host}:{port}: {}{unshown}", error.with_advice()))
    })
}

fn handshake(tls: &ClientTls, host: &str, port: u16) -> Option<TlsError> {
    let at = (host, port).to_socket_addrs().ok()?.next()?;
    let stream = TcpStream::connect_timeout(&at, LOOK).ok()?;
    stream.set_read_timeout(Some(LOOK)).ok()?;
    stream.set_write_timeout(Some(LOOK)).ok()?;
    let mut session = match tls.begin(host) {
        Ok(session) => session,
        Err(error) => return Some(error),
    };
    // With TLS 1.3 a server that refuses the client says so behind the handshake.
    match session.handshake(&mut &stream) {
        Err(error) => Some(error),
        Ok(_) => TlsError::of(&session.receive(&mut &stream, &mut [0; 16]).err()?),
    }
}
