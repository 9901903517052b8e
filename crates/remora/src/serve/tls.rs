//! Settings of TLS.

use anyhow::Result;
use clap::ValueEnum;
use remora_command_line::usage;
use remora_server::{
    ClientCertificates, ClientTlsSettings, LeastVersion, ServerTlsSettings, TlsSettings,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Whether clients show certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthClients {
    /// They are not asked for one.
    No,
    /// They may show one.
    Optional,
    /// They have to.
    Yes,
}

/// What a certificate says of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateUser {
    /// That it may connect.
    #[default]
    Off,
    /// That it is the user whose name is the certificate's common name, if there is one.
    Cn,
}

/// The oldest version of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    #[value(name = "1.2")]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "1.3")]
    #[serde(rename = "1.3")]
    Tls13,
}

/// All of them, as they were given.
#[derive(Clone, Copy, Debug)]
pub struct TlsArgs<'a> {
    pub cert: Option<&'a Path>,
    pub key: Option<&'a Path>,
    pub ca: Option<&'a Path>,
    pub auth_clients: Option<AuthClients>,
    pub auth_clients_user: CertificateUser,
    pub min_version: MinVersion,
    pub peer_ca: Option<&'a Path>,
    pub coordinator_ca: Option<&'a Path>,
}

impl TlsArgs<'_> {
    /// Those of its connections to other servers; `None`: they are plain. The authorities of clients'
    /// certificates are the other servers', too, if none are named: a server is a client of the others.
    pub fn peers(self) -> Option<ClientTlsSettings> {
        let of_clients = self.cert.zip(self.key).and(self.ca);
        Some(self.as_client(self.peer_ca.or(of_clients)?))
    }

    /// Those of its connection to the coordinator. Without an authority of its own it has those of the
    /// other servers.
    pub fn coordinator(self) -> Option<ClientTlsSettings> {
        self.coordinator_ca.map(|ca| self.as_client(ca)).or_else(|| self.peers())
    }

    fn as_client(self, authorities: &Path) -> ClientTlsSettings {
        let settings = ClientTlsSettings::new(authorities);
        match self.cert.zip(self.key) {
            Some((certificate, key)) => settings.with_identity(certificate, key),
            None => settings,
        }
    }

    /// The server's; `None` without a certificate.
    ///
    /// # Errors
    /// Some are missing, or contradict each other.
    pub fn settings(self) -> Result<Option<TlsSettings>> {
        let (cert, key) = match (self.cert, self.key) {
            (Some(cert), Some(key)) => (cert, key),
            (Some(_), None) => {
                return Err(usage("tls_cert needs tls_key, the file of its private key"));
            }
            (None, Some(_)) => {
                return Err(usage("tls_key needs tls_cert, the file of its certificate"));
            }
            (None, None) if self.ca.is_some() || self.auth_clients.is_some() => {
                return Err(usage(
                    "tls_ca, tls_auth_clients: there is no TLS without tls_cert and tls_key",
                ));
            }
            (None, None) => return Ok(None),
        };
        let default = if self.ca.is_some() { AuthClients::Yes } else { AuthClients::No };
        let auth_clients = self.auth_clients.unwrap_or(default);
        if auth_clients != AuthClients::No && self.ca.is_none() {
            return Err(usage(
                "tls_auth_clients: whose certificates? Name their authority, tls_ca",
            ));
        }
        let names_users = self.auth_clients_user == CertificateUser::Cn;
        if names_users && auth_clients == AuthClients::No {
            return Err(usage(
                "tls_auth_clients_user: clients are not asked for certificates; set tls_ca",
            ));
        }
        let server = ServerTlsSettings {
            certificate: cert.to_owned(),
            key: key.to_owned(),
            authorities: self.ca.map(PathBuf::from),
            clients: match auth_clients {
                AuthClients::No => ClientCertificates::Ignored,
                AuthClients::Optional => ClientCertificates::Optional,
                AuthClients::Yes => ClientCertificates::Required,
            },
            least: match self.min_version {
                MinVersion::Tls12 => LeastVersion::Tls12,
                MinVersion::Tls13 => LeastVersion::Tls13,
            },
        };
        Ok(Some(TlsSettings { server, names_users }))
    }
}
