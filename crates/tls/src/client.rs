//! The client's side.

use crate::error::TlsError;
use crate::files;
use crate::session::TlsSession;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a client's side comes from: files, which are read when they are needed, so that a certificate
/// that was replaced is the next session's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientTlsSettings {
    /// The authorities of servers' certificates: PEM.
    pub authorities: PathBuf,
    /// The client's certificate, and its private key, if it has one: PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl ClientTlsSettings {
    /// A client that trusts these authorities and shows no certificate.
    pub fn new(authorities: impl Into<PathBuf>) -> Self {
        Self { authorities: authorities.into(), identity: None }
    }

    /// The same, with a certificate and its key.
    #[must_use]
    pub fn with_identity(self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { identity: Some((certificate.into(), key.into())), ..self }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// As [`ClientTls::load`].
    pub fn load(&self) -> Result<ClientTls, TlsError> {
        let identity = self.identity.as_ref();
        let identity = identity.map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        ClientTls::load(&self.authorities, identity)
    }
}

/// Whether a certificate can hold this: a host's name or an IP address.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// Lets libraries that use `rustls` by its defaults take the cryptography that this crate takes. Without it
/// they end the process where a program's build has two such libraries.
pub fn use_own_cryptography() {
    // It fails where the program has chosen one, which holds then.
    let _ = aws_lc_rs::default_provider().install_default();
}

/// The authorities that a client trusts, and its own certificate.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls(..)")
    }
}

impl ClientTls {
    /// A client that trusts these authorities, a file of PEM, and shows this certificate with its
    /// private key, if it has one.
    ///
    /// # Errors
    /// A file cannot be read, holds something else, or they do not fit together.
    pub fn load(authorities: &Path, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let begun = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::settings)?
            .with_root_certificates(files::authorities(authorities)?);
        let config = match identity {
            None => begun.with_no_client_auth(),
            Some((certificate, key)) => begun
                .with_client_auth_cert(files::certificates(certificate)?, files::key(key)?)
                .map_err(TlsError::settings)?,
        };
        Ok(Self(Arc::new(config)))
    }

    /// A session with the server of this name: a host's name or an IP address, which its certificate
    /// has to hold.
    ///
    /// # Errors
    /// It is neither.
    pub fn begin(&self, name: &str) -> Result<TlsSession, TlsError> {
        let known =
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0), known).map_err(TlsError::settings)?;
        Ok(TlsSession::new(connection.into()))
    }
}
