//! The server's side: its certificate, which may change, and whose certificates it takes.

use crate::error::TlsError;
use crate::files;
use crate::session::TlsSession;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// Whether clients have to show a certificate of the authorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientCertificates {
    /// They are not asked for one.
    #[default]
    Ignored,
    /// They may.
    Optional,
    /// They have to.
    Required,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeastVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Where the server's side comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTlsSettings {
    /// The server's certificate, and those that lead to its authority: PEM.
    pub certificate: PathBuf,
    /// Its private key: PEM, without a passphrase.
    pub key: PathBuf,
    /// The authorities of clients' certificates: PEM.
    pub authorities: Option<PathBuf>,
    /// Whether clients have to show one of these.
    pub clients: ClientCertificates,
    /// The oldest version that is spoken.
    pub least: LeastVersion,
}

impl ServerTlsSettings {
    /// A server that asks its clients for no certificate.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        let (clients, least) = Default::default();
        Self { certificate, key, authorities: None, clients, least }
    }

    /// The files, to see whether they have changed.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.certificate), Some(&self.key), self.authorities.as_ref()].into_iter().flatten()
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static ALL: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self.least {
            LeastVersion::Tls12 => &ALL,
            LeastVersion::Tls13 => &ALL[..1],
        }
    }

    fn read(&self) -> Result<ServerConfig, TlsError> {
        let chain = files::certificates(&self.certificate)?;
        let key = files::key(&self.key)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let begun = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(self.versions())
            .map_err(TlsError::settings)?;
        let begun = match (self.clients, &self.authorities) {
            (ClientCertificates::Ignored, _) => begun.with_no_client_auth(),
            (_, None) => {
                return Err(TlsError::settings("clients' certificates need authorities"));
            }
            (clients, Some(authorities)) => {
                let roots = Arc::new(files::authorities(authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match clients {
                    ClientCertificates::Required => verifier,
                    _ => verifier.allow_unauthenticated(),
                };
                begun.with_client_cert_verifier(verifier.build().map_err(TlsError::settings)?)
            }
        };
        begun.with_single_cert(chain, key).map_err(TlsError::settings)
    }
}

/// The server's side. Sessions go on with the certificate with which they began.
pub struct ServerTls {
    settings: ServerTlsSettings,
    current: RwLock<Arc<ServerConfig>>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read, holds something else, or they do not fit together.
    pub fn load(settings: ServerTlsSettings) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(settings.read()?));
        Ok(Self { settings, current })
    }

    /// Where it comes from.
    pub const fn settings(&self) -> &ServerTlsSettings {
        &self.settings
    }

    /// Reads the files again: later sessions begin with what is there now.
    ///
    /// # Errors
    /// As [`Self::load`]; then all stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let read = Arc::new(self.settings.read()?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// A session with a client that has connected.
    ///
    /// # Errors
    /// None that the files of a [`Self::load`] can cause.
    pub fn begin(&self) -> Result<TlsSession, TlsError> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        let connection = ServerConnection::new(current).map_err(TlsError::settings)?;
        Ok(TlsSession::new(connection.into()))
    }
}
