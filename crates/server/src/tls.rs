//! The server's TLS: its certificate, the users of client certificates, and the watch of the files.

use crate::file_watch::{FileWatch, Stamp, stamp};
use crate::handshakes::HandshakeCounts;
use crate::start_error::StartError;
use crate::thread_counts::count;
use crate::users::UserTable;
use remora_acl::{Login, LoginError};
use remora_layout::limits::TLS_FILE_LOOK_MS;
use remora_tls::{ServerTls, ServerTlsSettings, TlsSession};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSettings {
    /// Certificates and versions.
    pub server: ServerTlsSettings,
    /// Whether a client whose certificate has a user's name as its common name is that user.
    pub names_users: bool,
}

/// See the module's text.
pub struct Tls {
    server: ServerTls,
    names_users: bool,
    /// The files as they were read first.
    first_seen: Vec<Option<Stamp>>,
    /// Handshakes since the start.
    pub counts: HandshakeCounts,
    /// Times that the files were read again, and that they could not be.
    pub reloads: AtomicU64,
    pub reloads_failed: AtomicU64,
}

/// What the watch remembers.
struct Looks {
    /// The files as they were read.
    read: Vec<Option<Stamp>>,
    /// As they were at the last look.
    last: Vec<Option<Stamp>>,
    /// The error that the log has.
    told: String,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// They cannot be read, or do not fit together.
    pub fn load(settings: TlsSettings) -> Result<Self, StartError> {
        let TlsSettings { server, names_users } = settings;
        let first_seen = stamps(&server);
        let server =
            ServerTls::load(server).map_err(|error| StartError::Config(error.to_string()))?;
        let (counts, reloads) = (HandshakeCounts::default(), AtomicU64::new(0));
        let reloads_failed = AtomicU64::new(0);
        Ok(Self { server, names_users, first_seen, counts, reloads, reloads_failed })
    }

    /// A session with a client that has connected.
    pub fn begin(&self) -> Option<TlsSession> {
        let begun = self.server.begin();
        begun.inspect_err(|error| tracing::error!("no TLS session: {error}")).ok()
    }

    /// The login of a client by its certificate; one without a login, if it names no user.
    ///
    /// # Errors
    /// Too many are logged in as the user of the certificate. The users count it.
    pub fn login(&self, session: &TlsSession, users: &UserTable) -> Result<Login, LoginError> {
        let mut login = Login::default();
        if self.names_users
            && let Some(name) = session.peer_name()
            && login.certify(users.published(), name.as_bytes()) == Err(LoginError::TooMany)
        {
            count(&users.refused.logins, 1);
            return Err(LoginError::TooMany);
        }
        Ok(login)
    }

    /// Reads the files if they are others than were read last, and stay the same between two looks. What
    /// cannot be read is tried again at each look.
    fn look_again(&self, looks: &mut Looks) {
        let now = stamps(self.server.settings());
        let is_steady = std::mem::replace(&mut looks.last, now.clone()) == now;
        if now == looks.read || !is_steady {
            return;
        }
        match self.server.reload() {
            Ok(()) => {
                looks.read = now;
                looks.told.clear();
                count(&self.reloads, 1);
                tracing::info!(target: "audit", "the files of TLS were read");
            }
            Err(error) => {
                count(&self.reloads_failed, 1);
                let error = error.to_string();
                if looks.told != error {
                    tracing::warn!("TLS stays as it is: {error}");
                    looks.told = error;
                }
            }
        }
    }
}

fn stamps(settings: &ServerTlsSettings) -> Vec<Option<Stamp>> {
    settings.files().map(|path| stamp(path)).collect()
}

/// The watch of the files: they are read again whenever they have changed, and no client waits for that.
///
/// # Errors
/// The kernel gives no thread.
pub fn watch(tls: Arc<Tls>) -> std::io::Result<FileWatch> {
    let (read, last) = (tls.first_seen.clone(), tls.first_seen.clone());
    let mut looks = Looks { read, last, told: String::new() };
    let look = move || tls.look_again(&mut looks);
    FileWatch::start("remora-tls", Duration::from_millis(TLS_FILE_LOOK_MS), look)
}
