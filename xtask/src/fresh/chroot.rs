//! The directory that becomes the bare machine's root, and running in it.

use super::{environment, process};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that the chroot has.
pub const RELEASE: &str = "bookworm";
/// Where the toolchain stands in the chroot.
const TOOLCHAIN: &str = "/opt/rust";
/// Where the clone stands in the chroot.
pub const CLONE: &str = "/root/remora";

/// Runs as the first process of its namespaces: mounts, then runs the command
/// in the chroot. The shell stays (no `exec`): as process 1 it reaps orphans.
const ENTER: &str = r#"
set -eu
root=$1 directory=$2
shift 2
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
chroot "$root" /usr/bin/env --chdir="$directory" "$@"
"#;

/// A directory with a whole system in it.
pub struct Chroot {
    root: PathBuf,
    keep: bool,
}

impl Chroot {
    /// An empty place for a chroot; what a former run left there goes.
    pub fn new(root: PathBuf, keep: bool) -> Result<Self> {
        remove(&root)?;
        Ok(Self { root, keep })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes the directory, unless it is to be kept.
    pub fn leave(&self) -> Result<()> {
        if self.keep {
            println!("fresh: kept {}", self.root.display());
            return Ok(());
        }
        remove(&self.root)
    }

    /// An absolute path of the chroot, as seen from outside.
    fn outside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Writes a file of the chroot.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.outside(Path::new(path));
        make_parent(&path)?;
        std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Copies a file of this machine to the same place in the chroot.
    pub fn copy_file(&self, path: &Path) -> Result<()> {
        let target = self.outside(path);
        make_parent(&target)?;
        // The target may be a link that leads out of the chroot.
        if target.symlink_metadata().is_ok() {
            std::fs::remove_file(&target)?;
        }
        std::fs::copy(path, &target)
            .with_context(|| format!("{} cannot be copied", path.display()))?;
        Ok(())
    }

    /// Copies the parts of the toolchain that building needs.
    pub fn copy_toolchain(&self, sysroot: &Path) -> Result<()> {
        let target = self.outside(Path::new(TOOLCHAIN));
        std::fs::create_dir_all(&target)?;
        for part in ["bin", "lib"] {
            let copy = ["--recursive", "--preserve=mode,links,timestamps", "--reflink=auto"];
            process::run(Command::new("cp").args(copy).arg(sysroot.join(part)).arg(&target))?;
        }
        Ok(())
    }

    /// Clones HEAD of the repository into the chroot.
    pub fn clone_head(&self, repository: &Path) -> Result<()> {
        let clone = ["clone", "--quiet", "--no-hardlinks"];
        let target = self.outside(Path::new(CLONE));
        process::run(Command::new("git").args(clone).arg(repository).arg(target))
    }

    /// Runs a command of the project in the chroot; its output is ours.
    pub fn run(&self, directory: &str, command: &[&str]) -> Result<()> {
        process::run(&mut self.enter(directory, command))
    }

    /// Runs a command that prepares the chroot; its output goes to a log.
    pub fn prepare(&self, command: &[&str]) -> Result<()> {
        process::run_logged(&mut self.enter("/", command), &self.root.with_file_name("setup.log"))
    }

    /// A command in the chroot, in its own namespaces, with an environment of
    /// its own: nothing of this machine's but how to reach registries.
    fn enter(&self, directory: &str, command: &[&str]) -> Command {
        let mut enter = process::isolated();
        enter.args(["sh", "-c", ENTER, "enter"]).arg(&self.root).arg(directory).args(command);
        enter.env_clear().envs(environment::network_variables());
        let path =
            format!("{TOOLCHAIN}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        enter.env("PATH", path).env("HOME", "/root").env("LANG", "C.UTF-8");
        enter.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
        enter
    }
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent).with_context(|| format!("{} cannot be made", parent.display()))
}

/// Removes a directory tree, unless something is mounted in it.
pub fn remove(directory: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("mountinfo")?;
    if let Some(mount) = mount_under(&mounts, directory) {
        bail!("{mount} is mounted: unmount it first, its files are not ours to remove");
    }
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", directory.display()))
        }
        _ => Ok(()),
    }
}

/// The first mount at or under a directory, by the text of `mountinfo`.
fn mount_under<'m>(mountinfo: &'m str, directory: &Path) -> Option<&'m str> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.into_iter().find(|point| Path::new(point).starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_seen() {
        let text = "1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /a/root/proc rw - proc proc rw\n";
        assert_eq!(mount_under(text, Path::new("/a/root")), Some("/a/root/proc"));
        assert_eq!(mount_under(text, Path::new("/a/root/proc")), Some("/a/root/proc"));
        assert_eq!(mount_under(text, Path::new("/a/roo")), None);
    }

    #[test]
    fn paths_stay_in_the_room() {
        let chroot = Chroot { root: "/x".into(), keep: false };
        assert_eq!(chroot.outside(Path::new("/etc/hosts")), Path::new("/x/etc/hosts"));
    }
}
