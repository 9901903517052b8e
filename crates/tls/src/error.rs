//! What may go wrong.

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
    Handshake(rustls::Error),
    /// The peer has gone, or the socket has failed, before the handshake was over.
    #[error("the TLS handshake ended early: {0}")]
    Io(#[from] std::io::Error),
}

impl TlsError {
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
