//! What a client says of the session that it wants.

use crate::credentials::Credentials;
use crate::detect::Wanted;
use crate::hello::HELLO_TIMEOUT;
use crate::verbs::Packets;
use remora_tls::ClientTlsSettings;
use std::time::Duration;

/// How a client makes a session.
#[derive(Clone, Debug)]
pub struct Dialling {
    /// The transport.
    pub wanted: Wanted,
    /// The user that it logs in as.
    pub credentials: Credentials,
    /// TLS with servers that are reached by TCP; `None`: they speak none.
    pub tls: Option<ClientTlsSettings>,
    /// Packets of the queue pair, for RDMA.
    pub packets: Packets,
    /// How long to dial a busy server again.
    pub backoff: Duration,
    /// How long to wait for each answer of the server.
    pub hello_timeout: Duration,
}

impl Default for Dialling {
    fn default() -> Self {
        Self {
            wanted: Wanted::default(),
            credentials: Credentials::default(),
            tls: None,
            packets: Packets::default(),
            backoff: Duration::ZERO,
            hello_timeout: HELLO_TIMEOUT,
        }
    }
}
