//! The bare base: laid once by debootstrap, kept, never run in. Each run gets
//! a copy.

use super::chroot::{Chroot, RELEASE, remove};
use super::host::Host;
use super::process;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Copies the base to the chroot, laying it first where it is not kept.
pub fn copy_to(host: &Host, directory: &Path, chroot: &Chroot, new_base: bool) -> Result<()> {
    let base = directory.join(format!("base-{RELEASE}"));
    if new_base {
        remove(&base)?;
    }
    if base.is_dir() {
        println!("fresh base: the one that was kept");
    } else {
        lay(host, directory, &base)?;
    }
    let copy = ["--archive", "--reflink=auto", "--no-target-directory"];
    process::run(Command::new("cp").args(copy).arg(&base).arg(chroot.root()))
}

/// Lays the base beside its place and renames it when it is whole, so that an
/// interrupted run leaves no half of one.
fn lay(host: &Host, directory: &Path, base: &Path) -> Result<()> {
    require_debootstrap()?;
    let partial = directory.join("base.partial");
    remove(&partial)?;
    let mut command = process::isolated();
    command
        .args(["--mount-proc", "debootstrap", "--variant=minbase", RELEASE])
        .arg(&partial)
        .args(host.mirror.as_deref());
    process::run_logged(&mut command, &directory.join("setup.log")).context("debootstrap")?;
    std::fs::rename(&partial, base).context("the base cannot be put in its place")
}

fn require_debootstrap() -> Result<()> {
    let there = Command::new("debootstrap").arg("--version").output();
    if there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    println!("fresh base: debootstrap is missing, installing it by apt-get");
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-o", "DPkg::Lock::Timeout=300", "--quiet=2"]).args(arguments);
        process::run(command.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt_get(&["update"])?;
    apt_get(&["install", "--yes", "--no-install-recommends", "debootstrap"])
        .context("install debootstrap by hand and try again")
}
