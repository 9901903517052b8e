//! A data directory from a backup, or its keys in a server that runs.

use super::place::EmptyDirectory;
use super::restore_live::{Target, TargetArgs};
use super::{CheckArgs, Report, read_every_byte};
use anyhow::{Context, ensure};
use clap::Args;
use remora_command_line::usage;
use remora_storage::{Directory, FileSum, Identity, Manifest, copy_data};
use std::path::{Path, PathBuf};

/// Flags of `remora restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup.
    backup: PathBuf,
    /// The data directory that is made: empty, or not there yet. `remora serve --data-dir` starts
    /// from it, with any number of shards.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["check", "server"])]
    data_dir: Option<PathBuf>,
    /// Makes nothing: tells whether the backup is whole.
    #[arg(long = "check", conflicts_with_all = ["data_dir", "server"])]
    check: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    digest: CheckArgs,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Makes a data directory from a backup, gives its keys to a server, or only checks the backup.
pub fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let place = args
        .data_dir
        .as_deref()
        .map(|path| EmptyDirectory::empty(path, "--data-dir"))
        .transpose()?;
    let target = args.target.server.as_ref().map(|_| Target::at(&args.target)).transpose()?;
    let from = Directory::existing(&args.backup).map_err(|error| usage(error.to_string()))?;
    let named = args.backup.display();
    let manifest = Manifest::read(&from)?.ok_or_else(|| {
        usage(format!("{named} has no file `manifest`: it is no backup, or its backup did not end"))
    })?;
    check(&from, &manifest).with_context(|| format!("{named} is damaged"))?;
    if let Some(target) = target {
        let (server, content) = target.restore(&args.backup, &manifest, &args.digest)?;
        let mut report = Report::of(&args.backup, &manifest);
        (report.keys, report.digest) = content.map(|of| (of.keys, of.digest)).unzip();
        return Report { server: Some(server), ..report }.print("restored", args.json);
    }
    let (Some(place), Some(directory)) = (place, &args.data_dir) else {
        args.digest.compare(&args.backup, &manifest)?;
        return Report::of(&args.backup, &manifest).print("whole", args.json);
    };
    place.fill(|to| {
        copy(&from, to, &manifest)?;
        args.digest.compare(to.path(), &manifest)
    })?;
    Report::of(directory, &manifest).print("restored", args.json)
}

/// The backup is as it was made.
fn check(backup: &Directory, manifest: &Manifest) -> anyhow::Result<()> {
    manifest.check_lengths(backup)?;
    // This names the place of a changed byte; the checksums of the manifest would find it, too.
    read_every_byte(backup.path())?;
    Ok(manifest.check_bytes(backup)?)
}

fn copy(from: &Directory, to: &Directory, manifest: &Manifest) -> anyhow::Result<()> {
    let identity = identity_of(from)?;
    let sorted = |mut files: Vec<FileSum>| {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        files
    };
    let copied = sorted(copy_data(from, &identity, to)?);
    ensure!(
        copied == sorted(manifest.files.clone()),
        "the copy is not what the manifest says: the backup has changed meanwhile"
    );
    Ok(identity.write(to)?)
}

fn identity_of(backup: &Directory) -> anyhow::Result<Identity> {
    let name = Path::display(backup.path()).to_string();
    Identity::read(backup, &name)?.with_context(|| format!("{name} is empty"))
}
