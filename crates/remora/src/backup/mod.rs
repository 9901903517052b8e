//! `remora backup`: a copy of a server's data while it runs. `remora restore`: a data directory from
//! such a copy, or its keys in a server that runs.
//!
//! A backup is a data directory of its own (the newest snapshot, and the log behind it) with a
//! manifest, which is written last. The copy is made on the server's host, out of its directory:
//! its permissions decide which users may take one, as RESP knows no users.
//!
//! Invariant: a backup with a manifest is whole, and a command that fails leaves nothing.

mod live;
mod place;
mod restore;
mod restore_live;

use crate::log::Data;
use crate::recovery_bar::RecoveryBar;
use anyhow::{Context, ensure};
use clap::Args;
use live::LiveServer;
use place::EmptyDirectory;
use remora_command_line::{Address, DEFAULT_SERVER, Size, note, usage};
use remora_server::{Loaded, LoadedData};
use remora_storage::{Directory, Identity, Manifest, StorageError, copy_data};
pub use restore::{RestoreArgs, restore};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Flags of `remora backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The server, on this host: HOST:PORT of its RESP port. It goes on serving.
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER)]
    server: Address,
    /// The data directory of a server that does not run, instead of a server.
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    data_dir: Option<PathBuf>,
    /// The backup's directory: empty, or not there yet.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    check: CheckArgs,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Flags of the check by digest.
#[derive(Debug, Args)]
struct CheckArgs {
    /// Does not load the data to compute their digest, which takes as much memory as a server with
    /// them. Every byte is read all the same.
    #[arg(long)]
    no_digest: bool,
    /// Memory for that: twice what the data took, if it is not named.
    #[arg(long, value_name = "SIZE", conflicts_with = "no_digest")]
    max_memory: Option<Size>,
}

/// What a backup or a restored directory holds. The fields' names are a contract.
#[derive(Debug, Serialize)]
struct Report {
    directory: PathBuf,
    /// The server that has it now, if it was restored into one.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    files: usize,
    bytes: u64,
    keys: Option<u64>,
    digest: Option<String>,
}

impl Report {
    fn of(directory: &Path, manifest: &Manifest) -> Self {
        let (keys, digest) = manifest.content.clone().unzip();
        let bytes = manifest.files.iter().map(|file| file.bytes).sum();
        let (directory, files) = (directory.to_owned(), manifest.files.len());
        Self { directory, server: None, files, bytes, keys, digest }
    }

    fn print(&self, what: &str, is_json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if is_json {
            serde_json::to_writer(&mut out, self)?;
            return Ok(writeln!(out)?);
        }
        let Self { directory, server, files, bytes, keys, digest } = self;
        write!(out, "{what} {}", directory.display())?;
        if let Some(server) = server {
            write!(out, " into the server at {server}")?;
        }
        write!(out, ": {files} files, {bytes} bytes")?;
        if let (Some(keys), Some(digest)) = (keys, digest) {
            write!(out, ", {keys} keys, digest {digest}")?;
        }
        Ok(writeln!(out)?)
    }
}

/// Makes a backup.
pub fn backup(args: &BackupArgs) -> anyhow::Result<()> {
    // Before the server is asked to write anything.
    let place = EmptyDirectory::empty(&args.to, "--to")?;
    let from = match &args.data_dir {
        Some(directory) => directory.clone(),
        None => LiveServer::at(&args.server)?.snapshot()?,
    };
    let from = Directory::existing(&from).map_err(|error| usage(error.to_string()))?;
    let manifest = place.fill(|to| make(&from, to, &args.check))?;
    Report::of(&args.to, &manifest).print("backup", args.json)
}

fn make(from: &Directory, to: &Directory, check: &CheckArgs) -> anyhow::Result<Manifest> {
    let name = from.path().display().to_string();
    let identity = Identity::read(from, &name)?;
    let identity = identity.ok_or_else(|| usage(format!("{name} is empty: it holds no data")))?;
    let files = copy_data(from, &identity, to)?;
    identity.write(to)?;
    read_every_byte(to.path())?;
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").into(),
        cluster: identity.cluster,
        taken_ms: SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64,
        content: check.content(to.path())?.map(|content| (content.keys, content.digest)),
        files,
    };
    manifest.write(to)?;
    Ok(manifest)
}

/// Every byte has to be as it was written; here a torn end is damage.
fn read_every_byte(directory: &Path) -> anyhow::Result<()> {
    let data = Data::open(directory)?;
    if let Some(torn) = data.found.notices.first() {
        let reason = format!("{} bytes from here on have changed", torn.bytes);
        return Err(StorageError::corrupt(&torn.name, torn.offset, reason).into());
    }
    data.verify().map(drop)
}

impl CheckArgs {
    /// Loads the data.
    fn load(&self, directory: &Path) -> anyhow::Result<LoadedData> {
        let bar = RecoveryBar::new("checking");
        let most = self.max_memory.map(|most| most.0);
        LoadedData::of(directory, most, &|progress| bar.show(&progress)).context("loading the data")
    }

    /// What the data are when they are loaded.
    fn content(&self, directory: &Path) -> anyhow::Result<Option<Loaded>> {
        if self.no_digest {
            return Ok(None);
        }
        let bar = RecoveryBar::new("checking");
        let most = self.max_memory.map(|most| most.0);
        let content = Loaded::of(directory, most, &|progress| bar.show(&progress));
        content.map(Some).context("loading the data to check them (--no-digest leaves that out)")
    }

    /// The data of this directory are those of the manifest.
    fn compare(&self, directory: &Path, manifest: &Manifest) -> anyhow::Result<()> {
        let Some(content) = self.content(directory)? else { return Ok(()) };
        compare(&content, directory, manifest)
    }
}

/// The data of this directory are those of the manifest.
fn compare(content: &Loaded, directory: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let Some((keys, digest)) = &manifest.content else {
        note("the backup was made without a digest: there is none to compare with");
        return Ok(());
    };
    ensure!(
        content.digest == *digest && content.keys == *keys,
        "{} has {} keys and digest {}, but the backup's manifest says {keys} keys and {digest}",
        directory.display(),
        content.keys,
        content.digest
    );
    Ok(())
}
