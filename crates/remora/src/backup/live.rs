//! A server that runs, and writes a snapshot when it is asked to.

use anyhow::{Context, bail, ensure};
use remora_command_line::{Address, Connection, note, unavailable, usage};
use remora_resp::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// See the module's text.
pub struct LiveServer {
    connection: Connection,
    address: String,
    directory: PathBuf,
}

impl LiveServer {
    /// Connects, and finds the server's data directory on this host.
    pub fn at(address: &Address) -> anyhow::Result<Self> {
        let Address::Resp(address) = address else {
            return Err(usage("--server: name HOST:PORT of the RESP port, no socket"));
        };
        let mut connection = Connection::connect(address)
            .map_err(|error| unavailable(format!("RESP over tcp: {error:#}")))?;
        let told = connection.info_of("persistence", "data_directory")?.unwrap_or_default();
        if told.is_empty() {
            return Err(usage(format!(
                "the server at {address} keeps nothing: start it with --data-dir"
            )));
        }
        let pid = connection.info("process_id")?.context("the server tells no process id")?;
        let directory = directory_of(Path::new(&told), &pid);
        if !is_held_by(&directory, &pid) {
            return Err(usage(format!(
                "process {pid}, the server at {address}, does not have {} here: run this on the server's host, as its user",
                directory.display()
            )));
        }
        Ok(Self { connection, address: address.clone(), directory })
    }

    /// Has it write a snapshot, waits for that, and gives its data directory.
    pub fn snapshot(mut self) -> anyhow::Result<PathBuf> {
        let before = self.counts()?;
        self.connection.push(&[b"BGSAVE"]);
        self.connection.flush()?;
        match self.connection.reply()? {
            Value::Error(text) if !text.ends_with(b"already in progress") => {
                bail!("the server at {} says: {}", self.address, String::from_utf8_lossy(text))
            }
            // One that is under way does as well: it is exact at its end.
            _ => {}
        }
        // Bounded by the server: a snapshot is written or given up.
        loop {
            std::thread::sleep(ASK_EVERY);
            let now = self.counts()?;
            if now.written > before.written {
                return Ok(self.directory);
            }
            if now.given_up > before.given_up {
                let why = self.connection.info_of("persistence", "snapshot_failure")?;
                note(&format!(
                    "the server gave its snapshot up ({}): the backup has the one before, and a longer log",
                    why.unwrap_or_default()
                ));
                return Ok(self.directory);
            }
        }
    }

    fn counts(&mut self) -> anyhow::Result<SnapshotCounts> {
        let mut count = |name: &str| {
            let told = self.connection.info_of("persistence", name)?;
            Ok::<u64, anyhow::Error>(told.context("the server counts no snapshots")?.parse()?)
        };
        let counts = SnapshotCounts {
            written: count("snapshots_written")?,
            given_up: count("snapshots_given_up")?,
        };
        ensure!(self.directory.is_dir(), "{} is gone", self.directory.display());
        Ok(counts)
    }
}

/// Snapshots of a server.
struct SnapshotCounts {
    written: u64,
    given_up: u64,
}

/// The directory, which the server may have named as seen from where it was started.
fn directory_of(told: &Path, pid: &str) -> PathBuf {
    let started_in = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    started_in.join(told)
}

/// Whether the lock of this directory names this process.
fn is_held_by(directory: &Path, pid: &str) -> bool {
    let lock = std::fs::read_to_string(directory.join("lock")).unwrap_or_default();
    lock.trim() == format!("process {pid}")
}
