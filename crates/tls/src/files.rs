//! Certificates and keys in files of PEM (RFC 7468).

use crate::error::TlsError;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::Read;
use std::path::Path;

/// A file with more bytes holds no certificates that anybody meant.
const MOST_BYTES: u64 = 4 << 20;

fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| TlsError::unreadable(path, error))?;
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    if read.map_err(|error| TlsError::unreadable(path, error))? as u64 > MOST_BYTES {
        return Err(TlsError::content(path, expected, "it has more than 4 MiB"));
    }
    Ok(bytes)
}

/// A chain, the end's own certificate first.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&read(path, "certificates")?).collect();
    let found = found.map_err(|error| TlsError::content(path, "certificates", error))?;
    match found.is_empty() {
        true => Err(TlsError::content(path, "certificates", "there is none")),
        false => Ok(found),
    }
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let expected = "private key without a passphrase";
    PrivateKeyDer::from_pem_slice(&read(path, expected)?)
        .map_err(|error| TlsError::content(path, expected, error))
}

pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::content(path, "certificates of authorities", error))?;
    }
    Ok(roots)
}
