//! What may go wrong.

use rustls::{AlertDescription, CertificateError, Error};
use std::path::{Path, PathBuf};

/// Why there is no TLS, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("TLS: {} cannot be read: {error}", .path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// A file holds something else.
    #[error("TLS: {} holds no {expected}: it is to be a file of PEM: {why}", .path.display())]
    Content {
        /// Its path.
        path: PathBuf,
        /// What it is to hold.
        expected: &'static str,
        /// What was found.
        why: String,
    },
    /// The certificate and the key, or what was asked for, do not fit together.
    #[error("TLS: these settings cannot be used: {0}")]
    Settings(String),
    /// The name is no name of a host and no address.
    #[error("TLS: {0:?} is no name of a server: give a host's name, or an IP address")]
    Name(String),
    /// The handshake has failed.
    #[error("the TLS handshake failed: {0}")]
    Handshake(Error),
    /// The peer has gone, or the socket has failed, before the handshake was over.
    #[error("the TLS handshake ended early: {0}")]
    Io(#[from] std::io::Error),
}

impl TlsError {
    /// The reason of an error of a session's bytes, if TLS is the reason: with TLS 1.3 a client learns by
    /// its first read that the server refuses its certificate.
    pub fn of(error: &std::io::Error) -> Option<Self> {
        Some(Self::Handshake(error.get_ref()?.downcast_ref::<Error>()?.clone()))
    }

    /// What the user of a client can do about it, if that is known.
    fn advice(&self) -> Option<&'static str> {
        use AlertDescription as Alert;
        use CertificateError as Certificate;
        let Self::Handshake(error) = self else { return None };
        Some(match error {
            Error::InvalidMessage(_) => {
                "no TLS is spoken there: is this the right port, and has the server a certificate?"
            }
            Error::InvalidCertificate(why) => match why {
                // Of an authority of the same name, but with another key.
                Certificate::UnknownIssuer | Certificate::BadSignature => {
                    "the server's certificate is of another authority: name the file of the right one"
                }
                Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                    "dial the server by a name or an address that its certificate holds"
                }
                Certificate::Expired | Certificate::ExpiredContext { .. } => {
                    "the server's certificate has expired: the server needs a new one"
                }
                Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                    "the server's certificate is not valid yet: compare the clocks"
                }
                _ => return None,
            },
            Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure) => {
                "the server asks for a certificate of the client: name its file and that of its key"
            }
            Error::AlertReceived(
                Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::DecryptError
                | Alert::CertificateUnknown
                | Alert::UnsupportedCertificate
                | Alert::AccessDenied,
            ) => {
                "the server does not take the client's certificate: it has to be of an authority that the server trusts"
            }
            Error::AlertReceived(Alert::CertificateExpired) => {
                "the client's certificate has expired"
            }
            Error::AlertReceived(Alert::ProtocolVersion) => {
                "the server speaks newer versions of TLS only"
            }
            _ => return None,
        })
    }

    /// Its text, with the advice.
    pub fn with_advice(&self) -> String {
        match self.advice() {
            Some(advice) => format!("{self}; {advice}"),
            None => self.to_string(),
        }
    }

    pub(crate) fn unreadable(path: &Path, error: std::io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), error }
    }

    pub(crate) fn content(path: &Path, expected: &'static str, why: impl ToString) -> Self {
        Self::Content { path: path.to_owned(), expected, why: why.to_string() }
    }

    pub(crate) fn settings(error: impl ToString) -> Self {
        Self::Settings(error.to_string())
    }
}
