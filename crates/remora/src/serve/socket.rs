//! The place of the Unix socket, and its protection: a user that may write the directory may
//! replace the socket, so no stranger may write it.

use anyhow::{Context, bail};
use remora_command_line::usage;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const SOCKET_NAME: &str = "remora.sock";
/// `sun_path` holds 108 bytes, one of them the closing zero.
const MAX_PATH_BYTES: usize = 107;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The default path of the socket.
pub fn default_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(directory) if directory.is_absolute() && directory.is_dir() => {
            directory.join(SOCKET_NAME)
        }
        _ => PathBuf::from(format!("/tmp/remora-{}", user())).join(SOCKET_NAME),
    }
}

/// Sees to it that the directory of `path` is safe; that of the default path
/// is made.
pub fn prepare(path: &Path, is_default: bool) -> anyhow::Result<()> {
    let bytes = path.as_os_str().len();
    if bytes > MAX_PATH_BYTES {
        let path = path.display();
        return Err(usage(format!(
            "socket: {path} has {bytes} bytes, {MAX_PATH_BYTES} are allowed"
        )));
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if is_default && !directory.exists() {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    check_directory(directory, user())
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory belongs to this user or to root, and others may write it
/// only if it is sticky, as `/tmp` is.
fn check_directory(directory: &Path, user: u32) -> anyhow::Result<()> {
    let shown = directory.display();
    let link = std::fs::symlink_metadata(directory)
        .map_err(|error| usage(format!("socket: directory {shown}: {error}")))?;
    let target = std::fs::metadata(directory)
        .map_err(|error| usage(format!("socket: directory {shown}: {error}")))?;
    if !target.is_dir() {
        return Err(usage(format!("socket: {shown} is not a directory")));
    }
    for metadata in [&link, &target] {
        if metadata.uid() != user && metadata.uid() != 0 {
            let owner = metadata.uid();
            bail!(
                "socket: directory {shown} belongs to user {owner}: who owns it may replace the socket"
            );
        }
    }
    let mode = target.mode();
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        bail!(
            "socket: directory {shown} may be written by others: chmod go-w it, or choose another"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        prepare(&path, false).unwrap();
        for (mode, good) in [(0o777, false), (0o770, false), (0o1777, true), (0o755, true)] {
            std::fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(prepare(&path, false).is_ok(), good, "{mode:o}");
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let owner = std::fs::metadata(directory.path()).unwrap().uid();
        assert!(check_directory(directory.path(), owner).is_ok());
        // Root's directories serve all users; only those of other users are refused.
        assert_eq!(check_directory(directory.path(), owner + 1).is_ok(), owner == 0);
    }

    #[test]
    fn the_default_directory_is_made_for_its_owner_alone() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("remora-1").join(SOCKET_NAME);
        assert!(prepare(&path, false).is_err());
        prepare(&path, true).unwrap();
        let mode = std::fs::metadata(path.parent().unwrap()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        prepare(&path, true).unwrap();
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_refused() {
        assert!(prepare(Path::new(&format!("/tmp/{}", "x".repeat(120))), false).is_err());
    }
}
