//! `cargo xtask fresh`: what a newcomer's machine makes of the project.
//!
//! A bare Debian 12 is laid by debootstrap, gets git, make, gcc and this
//! machine's Rust toolchain, a clean clone of HEAD, and must then run the
//! README's commands. The laid base is kept; each run starts from a pristine
//! copy of it. All mounts are made in a mount namespace of their own, which
//! the kernel takes down with its last process: nothing can stay mounted,
//! whatever ends the run.

mod base;
mod chroot;
mod environment;
mod host;
mod process;
mod sources;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// What is installed in it beside the base.
const PACKAGES: [&str; 5] = ["git", "make", "gcc", "libc6-dev", "ca-certificates"];
/// What must succeed in it.
const COMMANDS: [&str; 3] = ["make demo", "make check", "make test"];

/// Options of `cargo xtask fresh`.
#[derive(clap::Args)]
pub struct Options {
    /// Go on although the work tree differs from HEAD; HEAD is cloned all the same.
    #[arg(long)]
    allow_dirty: bool,
    /// Keep the directory of the run, to look into it.
    #[arg(long)]
    keep: bool,
    /// Lay the base anew instead of using the one that was kept.
    #[arg(long)]
    new_base: bool,
    /// Run this in the clone instead of `make demo`, `make check` and `make test`; may be given several times.
    #[arg(long, value_name = "COMMAND")]
    run: Vec<String>,
}

/// Runs it all; 0 if every command succeeded, 1 if one failed, 2 without root.
pub fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if !is_root()? {
        eprintln!("xtask fresh: needs root, for debootstrap, mount and chroot; run it with sudo");
        return Ok(ExitCode::from(2));
    }
    refuse_dirty(root, options.allow_dirty)?;
    process::watch_signals()?;

    let directory = fresh_directory(root);
    std::fs::create_dir_all(&directory).context("the directory for fresh cannot be made")?;
    let chroot = chroot::Chroot::new(directory.join("root"), options.keep)?;
    let outcome = in_chroot(root, &directory, &chroot, options);
    chroot.leave()?;
    outcome
}

fn in_chroot(
    root: &Path,
    directory: &Path,
    chroot: &chroot::Chroot,
    options: &Options,
) -> Result<ExitCode> {
    let host = host::Host::look(root)?;
    step("base", || base::copy_to(&host, directory, chroot, options.new_base))?;
    step("registries", || host.furnish(chroot))?;
    step("packages", || {
        chroot.prepare(&["apt-get", "update", "--quiet=2"])?;
        let install = ["apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends"];
        chroot.prepare(&[install.as_slice(), &PACKAGES].concat())?;
        chroot.prepare(&["update-ca-certificates"])
    })?;
    step("toolchain", || {
        chroot.copy_toolchain(&host.sysroot)?;
        chroot.run("/", &["cargo", "--version"])
    })?;
    step("clone", || chroot.clone_head(root))?;

    let chosen: Vec<&str> = match options.run.as_slice() {
        [] => COMMANDS.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    for command in chosen {
        let done = step(command, || chroot.run(chroot::CLONE, &["bash", "-c", command]));
        if let Err(error) = done {
            process::interrupted()?;
            eprintln!("fresh {command} FAILED: {error:#}");
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("fresh ok");
    Ok(ExitCode::SUCCESS)
}

/// Runs one step and says how long it took.
fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("fresh {name} ...");
    let start = Instant::now();
    work().with_context(|| format!("step {name}"))?;
    println!("fresh {name} ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn is_root() -> Result<bool> {
    let id = Command::new("id").arg("-u").output().context("id could not be run")?;
    Ok(String::from_utf8_lossy(&id.stdout).trim() == "0")
}

fn refuse_dirty(root: &Path, allowed: bool) -> Result<()> {
    let status = Command::new("git")
        .args(["status", "--porcelain"])
        .current_dir(root)
        .output()
        .context("git could not be run")?;
    if !status.status.success() {
        bail!("git status failed: {}", String::from_utf8_lossy(&status.stderr).trim());
    }
    let changed = String::from_utf8_lossy(&status.stdout).lines().count();
    match (changed, allowed) {
        (0, _) => {}
        (_, true) => println!("fresh: {changed} uncommitted changes are NOT part of this run"),
        (_, false) => bail!(
            "{changed} uncommitted changes: fresh clones HEAD and would not see them. Commit them, or give --allow-dirty to run HEAD as it is"
        ),
    }
    Ok(())
}

/// `fresh` in cargo's target directory.
fn fresh_directory(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("fresh")
}
