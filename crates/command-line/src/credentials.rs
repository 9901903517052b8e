//! What Remora's commands are to servers: their user, and their TLS. The environment says it, which no list of
//! processes shows.

use anyhow::Context;
use remora_client_core::{ClientTlsSettings, Credentials, Options};
use remora_tls::ClientTls;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The name and the password of the user that Remora's commands log in as: REMORA_USER and REMORA_PASSWORD.
/// Both are empty without one.
pub fn login() -> (OsString, OsString) {
    let of = |name| variable(name).unwrap_or_default();
    (of("REMORA_USER"), of("REMORA_PASSWORD"))
}

/// The same, as a session gives them.
pub fn credentials() -> Credentials {
    let (user, password) = login();
    Credentials::new(user.as_bytes(), password.as_bytes())
}

/// The files of TLS that Remora's commands speak.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Certificates of the authorities.
    pub authorities: OsString,
    /// The client's own certificate, and its private key.
    pub identity: Option<(OsString, OsString)>,
}

/// TLS of Remora's commands: with REMORA_TLS_CA they speak it, and show the certificate of REMORA_TLS_CERT
/// and REMORA_TLS_KEY if there is one.
pub fn tls_files() -> Option<TlsFiles> {
    Some(with_own_certificate(variable("REMORA_TLS_CA")?))
}

fn tls_settings() -> Option<ClientTlsSettings> {
    tls_files().map(settings_of)
}

/// TLS of Remora's commands to the coordinator: that of the servers, with the authority
/// REMORA_COORDINATOR_TLS_CA if there is one.
pub fn coordinator_tls() -> Option<ClientTlsSettings> {
    let coordinators = variable("REMORA_COORDINATOR_TLS_CA").map(with_own_certificate);
    coordinators.or_else(tls_files).map(settings_of)
}

fn with_own_certificate(authorities: OsString) -> TlsFiles {
    TlsFiles { authorities, identity: variable("REMORA_TLS_CERT").zip(variable("REMORA_TLS_KEY")) }
}

fn settings_of(files: TlsFiles) -> ClientTlsSettings {
    let settings = ClientTlsSettings::new(files.authorities);
    match files.identity {
        Some((certificate, key)) => settings.with_identity(certificate, key),
        None => settings,
    }
}

/// The settings of TLS, their files read.
pub(crate) fn tls() -> anyhow::Result<Option<ClientTls>> {
    let loaded = tls_settings().map(|settings| settings.load()).transpose();
    loaded.context("REMORA_TLS_CA, REMORA_TLS_CERT and REMORA_TLS_KEY")
}

/// These options, as the user and with the TLS of the environment.
pub(crate) fn options_of_environment(options: &Options) -> Options {
    Options { credentials: credentials(), tls: tls_settings(), ..options.clone() }
}
