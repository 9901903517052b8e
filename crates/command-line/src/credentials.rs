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

/// The user that Remora's commands log in as: REMORA_USER and REMORA_PASSWORD.
pub fn credentials() -> Credentials {
    let of = |name| variable(name).unwrap_or_default();
    Credentials::new(of("REMORA_USER").as_bytes(), of("REMORA_PASSWORD").as_bytes())
}

/// TLS of Remora's commands: with REMORA_TLS_CA they speak it, and show the certificate of REMORA_TLS_CERT
/// and REMORA_TLS_KEY if there is one.
fn tls_settings() -> Option<ClientTlsSettings> {
    Some(with_own_certificate(variable("REMORA_TLS_CA")?))
}

/// TLS of Remora's commands to the coordinator: that of the servers, with the authority
/// REMORA_COORDINATOR_TLS_CA if there is one.
pub fn coordinator_tls() -> Option<ClientTlsSettings> {
    variable("REMORA_COORDINATOR_TLS_CA").map(with_own_certificate).or_else(tls_settings)
}

fn with_own_certificate(authorities: OsString) -> ClientTlsSettings {
    let settings = ClientTlsSettings::new(authorities);
    match variable("REMORA_TLS_CERT").zip(variable("REMORA_TLS_KEY")) {
        Some((certificate, key)) => settings.with_identity(certificate, key),
        None => settings,
    }
}

/// The same, its files read.
pub(crate) fn tls() -> anyhow::Result<Option<ClientTls>> {
    let loaded = tls_settings().map(|settings| settings.load()).transpose();
    loaded.context("REMORA_TLS_CA, REMORA_TLS_CERT and REMORA_TLS_KEY")
}

/// These options, as the user and with the TLS of the environment.
pub(crate) fn options_of_environment(options: &Options) -> Options {
    Options { credentials: credentials(), tls: tls_settings(), ..options.clone() }
}
