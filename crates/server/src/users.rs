//! The server's users: the table that all threads share, the file that it comes from, and what was
//! refused.

use crate::address_limit::AddressLimit;
use crate::client_memory::{ClientMemory, ClientMemoryLimits};
use crate::file_watch::{FileWatch, Stamp, stamp};
use crate::start_error::StartError;
use remora_acl::{
    CommandId, Commands, DeleteError, Log, Published, Reason, Refusal, SetUserError, Users,
};
use remora_layout::limits::{ACL_FILE_LOOK_MS, MAX_ACL_FILE_BYTES};
use remora_mongo::scram::{Credentials, ITERATIONS, SALT_BYTES};
use remora_resp::table::CommandTable;
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A password: no log and no error shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub Vec<u8>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Where the users come from.
#[derive(Clone, Debug, Default)]
pub struct UserSettings {
    /// The users' file. `None`: only `default`, and those that ACL SETUSER makes.
    pub file: Option<PathBuf>,
    /// The password of `default`; it holds whatever the file says of that user's.
    pub password: Option<Password>,
    /// Connections and sessions that may be logged in as one user; 0: as many as come.
    pub most_logins: usize,
    /// Connections of RESP and sessions over a network that one address may have; 0: as many as come.
    pub most_of_address: usize,
    /// What the buffers of connections may hold.
    pub memory: ClientMemoryLimits,
    /// Users may log in by SCRAM: so something is kept for that of each password that is told.
    pub scram: bool,
}

impl UserSettings {
    const fn table(&self) -> Table {
        Table { scram: self.scram }
    }
}

/// The table of commands, and what is kept of passwords.
struct Table {
    scram: bool,
}

impl Commands for Table {
    fn count(&self) -> usize {
        CommandTable.count()
    }

    fn find(&self, name: &[u8], subcommand: Option<&[u8]>) -> Option<CommandId> {
        CommandTable.find(name, subcommand)
    }

    fn name(&self, id: CommandId) -> &str {
        CommandTable.name(id)
    }

    fn subcommands(&self, id: CommandId) -> impl Iterator<Item = CommandId> {
        CommandTable.subcommands(id)
    }

    fn categories(&self) -> &[&str] {
        CommandTable.categories()
    }

    fn is_in(&self, id: CommandId, category: &str) -> bool {
        CommandTable.is_in(id, category)
    }

    fn needs_no_auth(&self, id: CommandId) -> bool {
        CommandTable.needs_no_auth(id)
    }

    fn scram_keys(&self, password: &[u8]) -> Option<Vec<u8>> {
        let password = std::str::from_utf8(password).ok().filter(|_| self.scram)?;
        let mut salt = [0; SALT_BYTES];
        if !crate::random::fill(&mut salt) {
            tracing::warn!("the kernel gives no random bytes: this password is not for SCRAM");
            return None;
        }
        // An empty password, and characters that SASLprep forbids, are not for SCRAM.
        let keys = Credentials::derive(password, &salt, ITERATIONS).ok()?;
        Some(keys.to_text().into_bytes())
    }
}

/// Refusals since the start, by reason.
#[derive(Default, Debug)]
pub struct RefusalCounts {
    /// Wrong passwords, and users that are missing or off.
    pub auth: AtomicU64,
    /// Commands.
    pub command: AtomicU64,
    /// Keys.
    pub key: AtomicU64,
    /// Channels.
    pub channel: AtomicU64,
    /// Logins of a user as whom enough were logged in.
    pub logins: AtomicU64,
}

/// See the module's text.
#[derive(Debug)]
pub struct UserTable {
    published: Published,
    settings: UserSettings,
    /// The file as it was read or written last. A thread holds this while it reads or writes the file.
    seen: Mutex<Option<Stamp>>,
    log: Mutex<Log>,
    /// Refusals since the start.
    pub refused: RefusalCounts,
    /// Connections and sessions by address.
    pub addresses: Arc<AddressLimit>,
    /// What the buffers of connections hold.
    pub memory: Arc<ClientMemory>,
}

/// Why ACL LOAD or ACL SAVE did nothing: the text of the error.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no users' file.
    #[error(
        "This Redis instance is not configured to use an ACL file. You may want to specify users via \
         the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis \
         configuration file set) in order to store users in the Redis configuration."
    )]
    NoFile,
    /// The file cannot be written: the log says why.
    #[error(
        "There was an error trying to save the ACLs. Please check the server logs for more information"
    )]
    NotSaved,
    /// It has no line of `default`.
    #[error(
        "{0} has no line of the user default, and so would open the server: ACL LOAD reads it all the same"
    )]
    NoDefault(String),
    /// The file cannot be read.
    #[error("Error loading ACLs, opening file '{path}': {error}")]
    Io {
        /// Its path.
        path: String,
        /// The kernel's error.
        error: std::io::Error,
    },
    /// It is longer than [`MAX_ACL_FILE_BYTES`].
    #[error("{0}: more than {MAX_ACL_FILE_BYTES} bytes")]
    TooLong(String),
    /// Its lines are wrong.
    #[error("{0}")]
    Lines(String),
}

impl UserTable {
    /// The users of a server that starts.
    ///
    /// # Errors
    /// The users' file cannot be read, or has a wrong line.
    pub fn new(settings: UserSettings) -> Result<Self, StartError> {
        let seen = Mutex::new(settings.file.as_deref().and_then(stamp));
        let users = read(&settings);
        let users = users.map_err(|error| StartError::Config(format!("users: {error}")))?;
        let (log, refused) = (Mutex::default(), RefusalCounts::default());
        let published = match settings.most_logins {
            0 => Published::new(users),
            most => Published::new(users).with_most_logins(most),
        };
        let addresses = Arc::new(AddressLimit::new(settings.most_of_address));
        let memory = Arc::new(ClientMemory::new(settings.memory));
        Ok(Self { published, settings, seen, log, refused, addresses, memory })
    }

    /// The table, for logins.
    #[inline]
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// The users now.
    pub fn users(&self) -> Arc<Users> {
        self.published.users()
    }

    /// ACL SETUSER.
    ///
    /// # Errors
    /// A rule is wrong, or a limit is reached.
    pub fn set_user<'a>(
        &self,
        name: &[u8],
        rules: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), SetUserError> {
        self.published
            .change(|users| users.set_user(&self.settings.table(), name, rules).map(drop))?;
        let name = name.escape_ascii();
        tracing::info!(target: "audit", user = %name, "a user was made or changed");
        Ok(())
    }

    /// ACL DELUSER: how many there were.
    ///
    /// # Errors
    /// `default` is among them.
    pub fn del_users<'a>(
        &self,
        names: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<usize, DeleteError> {
        let removed = self.published.change(|users| users.del_users(names))?;
        for user in &removed {
            tracing::info!(target: "audit", user = %user.name().escape_ascii(), "a user was removed");
        }
        Ok(removed.len())
    }

    /// ACL LOAD: all users are those of the file.
    ///
    /// # Errors
    /// There is no file, or it cannot be read. Then nothing has changed.
    pub fn load(&self) -> Result<(), FileError> {
        let path = self.settings.file.as_deref().ok_or(FileError::NoFile)?;
        let mut seen = self.seen();
        *seen = stamp(path);
        self.publish(read(&self.settings)?);
        Ok(())
    }

    fn publish(&self, loaded: Users) {
        let Ok(()) = self.published.change(|users| {
            users.replace_by(loaded);
            Ok::<(), std::convert::Infallible>(())
        });
        tracing::info!(target: "audit", "the users' file was read");
    }

    fn seen(&self) -> MutexGuard<'_, Option<Stamp>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file if it is another one than was read or written last, and stays the same between two
    /// looks: no writer is at work. `last` is how it was at the last look. Whether the users have changed.
    ///
    /// A file without `default`, which would open the server, is read by ACL LOAD only.
    fn look_again(&self, path: &Path, last: &mut Option<Stamp>) -> Result<bool, FileError> {
        let mut seen = self.seen();
        let now = stamp(path);
        let is_steady = std::mem::replace(last, now) == now;
        if now.is_none() || now == *seen || !is_steady {
            return Ok(false);
        }
        let loaded = read(&self.settings);
        if stamp(path) != now {
            return Ok(false);
        }
        *seen = now;
        let loaded = loaded?;
        if !loaded.names_default() {
            return Err(FileError::NoDefault(path.display().to_string()));
        }
        self.publish(loaded);
        Ok(true)
    }

    /// ACL SAVE.
    ///
    /// # Errors
    /// There is no file, or it cannot be written. Then it is as before.
    pub fn save(&self) -> Result<(), FileError> {
        let path = self.settings.file.as_deref().ok_or(FileError::NoFile)?;
        let mut seen = self.seen();
        write(path, &self.users().to_file()).map_err(|error| {
            tracing::warn!("cannot write {}: {error}", path.display());
            FileError::NotSaved
        })?;
        *seen = stamp(path);
        tracing::info!(target: "audit", "the users' file was written");
        Ok(())
    }

    /// Something was refused: it is counted, and noted for ACL LOG and in the server's log.
    pub fn refuse(&self, refusal: &Refusal<'_>, now_ms: u64) {
        let (count, reason) = match refusal.reason {
            Reason::Auth => (&self.refused.auth, "auth"),
            Reason::Command => (&self.refused.command, "command"),
            Reason::Key => (&self.refused.key, "key"),
            Reason::Channel => (&self.refused.channel, "channel"),
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.log().add(refusal, now_ms);
        let (user, object) = (refusal.user.escape_ascii(), refusal.object.escape_ascii());
        // At a lower level than changes: a client can repeat it as often as it likes.
        tracing::debug!(target: "audit", %user, reason, %object, "refused");
    }

    /// What was refused last.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server with these users needs no login.
///
/// # Errors
/// The users' file cannot be read, or has a wrong line.
pub fn needs_no_login(settings: &UserSettings) -> Result<bool, StartError> {
    let users = read(settings).map_err(|error| StartError::Config(format!("users: {error}")))?;
    let default = users.default_user();
    Ok(default.is_on() && default.needs_no_password())
}

fn io_error(path: &Path, error: std::io::Error) -> FileError {
    FileError::Io { path: path.display().to_string(), error }
}

/// The users of the file, or those of a new server.
fn read(settings: &UserSettings) -> Result<Users, FileError> {
    let mut users = match &settings.file {
        None => Users::new(&settings.table()),
        Some(path) => {
            let shown = path.display().to_string();
            let mut text = Vec::new();
            let file = std::fs::File::open(path).map_err(|error| io_error(path, error))?;
            let read = file.take(MAX_ACL_FILE_BYTES + 1).read_to_end(&mut text);
            if read.map_err(|error| io_error(path, error))? as u64 > MAX_ACL_FILE_BYTES {
                return Err(FileError::TooLong(shown));
            }
            Users::parse_file(&settings.table(), &shown, &text).map_err(FileError::Lines)?
        }
    };
    if let Some(Password(password)) = &settings.password {
        users.require_password(&settings.table(), password);
    }
    Ok(users)
}

/// Writes a file that only its owner reads, in the place of another: it is never there in part.
fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}", crate::random::random_u64()));
    let beside = path.with_file_name(name);
    let written = (|| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    if written.is_err() {
        // It may not be there.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// The watch of the users' file, if there is one: it is read again whenever it has changed. `changed` is
/// called after each change of the users.
///
/// # Errors
/// The kernel gives no thread.
pub fn watch(
    users: Arc<UserTable>,
    changed: impl Fn() + Send + 'static,
) -> std::io::Result<Option<FileWatch>> {
    let Some(path) = users.settings.file.clone() else { return Ok(None) };
    let mut last = stamp(&path);
    let look = move || match users.look_again(&path, &mut last) {
        Ok(true) => changed(),
        Ok(false) => {}
        Err(error) => tracing::warn!("the users stay as they are: {error}"),
    };
    FileWatch::start("remora-users", Duration::from_millis(ACL_FILE_LOOK_MS), look).map(Some)
}
