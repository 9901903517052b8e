//! A small disk: a tmpfs over the data directory for one round, which a server really fills.
//!
//! The power-cut layer says "no space" on demand. Here the kernel says it: in the middle of a
//! write, to a new file, to a rename. The directory keeps its path, so a server does not notice the
//! change. Mounting needs root, or `sudo` without a password.

use crate::load::{Round, ServerAddress};
use crate::types::ask;
use anyhow::{Context, bail};
use remora_client::Path as Way;
use remora_resp::Value;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Room beside what the directory holds: a start writes again what was not synced, and a server whose
/// disk was full needs as much, while the load takes more.
const ROOM_BYTES: u64 = 112 << 20;
/// What the filler leaves of it once the server has started.
const FREE_BYTES: u64 = 8 << 20;
/// What is taken at once of the room that the server may take, too.
const STEP_BYTES: u64 = 256 << 10;
/// Room for what each file takes beyond its bytes.
const FILE_BYTES: u64 = 64 << 10;
/// A server meets the end of this much in no time.
const FULL_LIMIT: Duration = Duration::from_secs(10);
/// Replies to what was written before are on their way for less than this.
const BEGINS: Duration = Duration::from_millis(200);
/// How long the full disk is watched.
const LASTS: Duration = Duration::from_millis(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Takes the room of the disk until it is removed.
const FILLER: &str = "filler";
/// A key that does not change while the disk is full.
const STILL: &[u8] = b"small-disk:still";
/// How often a small disk that is busy is tried to be unmounted again, and after what pause.
const UNMOUNT_TRIES: u32 = 100;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(20);

/// A tmpfs over a directory. Dropping it brings the directory back as it is then.
#[derive(Debug)]
pub struct SmallDisk {
    root: PathBuf,
    is_mounted: bool,
}

impl SmallDisk {
    /// Whether this machine lets us mount one; the reason if it does not. `directory` is an empty one.
    pub fn try_out(directory: &Path) -> Result<(), String> {
        mount(directory, 1 << 20)?;
        unmount(directory)
    }

    /// Puts a tmpfs over a directory, with all that it holds and [`ROOM_BYTES`] more.
    pub fn over(root: &Path) -> anyhow::Result<Self> {
        let (bytes, files) = size_of(root)?;
        let kept = beside(root, "kept");
        fs::rename(root, &kept).context("putting the directory aside")?;
        fs::create_dir(root).context("making the place of the small disk")?;
        let mounted = mount(root, bytes + files * FILE_BYTES + ROOM_BYTES);
        if let Err(reason) = mounted {
            fs::remove_dir(root)?;
            fs::rename(&kept, root)?;
            bail!("mounting a small disk: {reason}");
        }
        copy(&kept, root).context("filling the small disk")?;
        fs::remove_dir_all(&kept)?;
        Ok(Self { root: root.to_owned(), is_mounted: true })
    }

    /// Brings the directory back to where it was, as it is now.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.bring_back()
    }

    fn bring_back(&mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let back = beside(&self.root, "back");
        fs::create_dir(&back)?;
        copy(&self.root, &back).context("copying from the small disk")?;
        if let Err(reason) = unmount(&self.root) {
            bail!("unmounting the small disk: {reason}");
        }
        fs::remove_dir(&self.root)?;
        fs::rename(&back, &self.root).context("putting the directory back")
    }

    /// Takes all that is free but so many bytes, while the server may take some of it, too.
    fn fill(&self, but: u64) -> anyhow::Result<()> {
        let filler = File::options().create(true).append(true).open(self.root.join(FILLER))?;
        loop {
            let disk = statvfs(&self.root)?;
            let more = (disk.f_bavail * disk.f_bsize).saturating_sub(but).min(STEP_BYTES);
            let from = filler.metadata()?.len();
            if more == 0 || fallocate(&filler, FallocateFlags::empty(), from, more).is_err() {
                return Ok(());
            }
        }
    }

    /// Makes room.
    fn free(&self) -> anyhow::Result<()> {
        fs::remove_file(self.root.join(FILLER)).context("making room on the small disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = self.bring_back() {
            let root = self.root.display();
            remora_command_line::note(&format!("a tmpfs stays mounted at {root}: {error:#}"));
        }
    }
}

/// Makes the disk small, and sets what is read while it is full. Call it before the load begins.
pub fn prepare(place: &ServerAddress, disk: &SmallDisk) -> anyhow::Result<()> {
    disk.fill(FREE_BYTES)?;
    ask(&mut place.resp()?, &[b"SET", STILL, b"here"]).map(drop)
}

/// Lets the server fill the disk: all but `left` bytes are taken before. It has to stop
/// acknowledging, to say so, and to answer reads; and to write again once there is room.
pub fn fill_up(
    round: &Round<'_>,
    disk: &SmallDisk,
    left: u64,
    resume_limit: Duration,
) -> anyhow::Result<()> {
    disk.fill(left)?;
    let began = Instant::now();
    while !says_full(&round.place)? {
        if began.elapsed() > FULL_LIMIT {
            bail!("the server does not say within {FULL_LIMIT:?} that its disk is full");
        }
        std::thread::sleep(PAUSE);
    }
    disk.fill(0)?;
    std::thread::sleep(BEGINS);
    let before = round.acknowledged.load(Ordering::Relaxed);
    let watched = Instant::now();
    let mut session = round.place.session(Way::Choose)?;
    while watched.elapsed() < LASTS {
        read_still(round, &mut session)?;
        std::thread::sleep(PAUSE);
    }
    let during = round.acknowledged.load(Ordering::Relaxed) - before;
    if during > 0 {
        round.problem(format!("{during} changes acknowledged while the small disk was full"));
    }
    if !says_full(&round.place)? {
        round.problem("INFO does not say any more that the small disk is full".to_owned());
    }
    disk.free()?;
    round.waits_for_changes(resume_limit, "there was room on the small disk again");
    std::thread::sleep(BEGINS);
    Ok(())
}

/// A read that depends on no change has to be answered, in both ways.
fn read_still(round: &Round<'_>, session: &mut remora_client::Session) -> anyhow::Result<()> {
    let began = Instant::now();
    let by_client = session.get(STILL).context("reading while the small disk is full")?;
    let by_client = by_client.value.map(<[u8]>::to_vec);
    let mut resp = round.place.resp()?;
    let by_resp = match ask(&mut resp, &[b"GET", STILL])? {
        Value::Bulk(value) => Some(value.to_vec()),
        _ => None,
    };
    if [&by_client, &by_resp].iter().any(|value| value.as_deref() != Some(b"here")) {
        round.problem(format!("while the small disk was full: {by_client:?}, {by_resp:?}"));
    }
    let took = began.elapsed();
    if took > Duration::from_secs(1) {
        round.problem(format!("two reads took {took:?} while the small disk was full"));
    }
    Ok(())
}

/// Whether INFO says that the log cannot be written, and why.
fn says_full(place: &ServerAddress) -> anyhow::Result<bool> {
    let text = place.info("persistence")?;
    let has = |line: &str| text.lines().any(|of| of.starts_with(line));
    Ok(has("log_status:err") && text.contains("No space left on device"))
}

/// A path beside a directory.
fn beside(root: &Path, what: &str) -> PathBuf {
    root.with_file_name(what)
}

fn mount(root: &Path, bytes: u64) -> Result<(), String> {
    use rustix::process::{getgid, getuid};
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let options = format!("size={bytes},mode=0700,uid={user},gid={group}");
    run_as_root(&["mount", "-t", "tmpfs", "-o", &options, "remora-crash"], root)
}

/// It may be busy for a moment: a process that another thread starts has this process's open files
/// until it runs its program.
fn unmount(root: &Path) -> Result<(), String> {
    let mut last = run_as_root(&["umount"], root);
    for _ in 0..UNMOUNT_TRIES {
        if !last.as_ref().is_err_and(|why| why.contains("busy")) {
            break;
        }
        std::thread::sleep(UNMOUNT_PAUSE);
        last = run_as_root(&["umount"], root);
    }
    last
}

fn run_as_root(words: &[&str], path: &Path) -> Result<(), String> {
    let sudo: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["sudo", "-n"] };
    let words = [sudo, words].concat();
    let output = Command::new(words[0]).args(&words[1..]).arg(path).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{}: {}",
            words[..words.len().min(3)].join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("cannot run {}: {error}", words[0])),
    }
}

/// Bytes of all files below a directory, and how many there are, with directories.
fn size_of(from: &Path) -> anyhow::Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 1);
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let known = entry.metadata()?;
        if known.is_dir() {
            let (more_bytes, more_files) = size_of(&entry.path())?;
            (bytes, files) = (bytes + more_bytes, files + more_files);
        } else {
            (bytes, files) = (bytes + known.len(), files + 1);
        }
    }
    Ok((bytes, files))
}

/// Copies all that is below a directory to another one.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&place)?;
            copy(&entry.path(), &place)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), &place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_goes_to_a_small_disk_and_back() {
        let base = tempfile::tempdir().unwrap();
        let (root, probe) = (base.path().join("data"), base.path().join("probe"));
        fs::create_dir_all(root.join("d")).unwrap();
        fs::create_dir(&probe).unwrap();
        fs::write(root.join("d/f"), "before").unwrap();
        if let Err(reason) = SmallDisk::try_out(&probe) {
            println!("DID NOT RUN: no small disk can be mounted: {reason}");
            return;
        }
        let disk = SmallDisk::over(&root).unwrap();
        assert_eq!(fs::read(root.join("d/f")).unwrap(), b"before");
        disk.fill(0).unwrap();
        let error = fs::write(root.join("more"), vec![1; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        disk.free().unwrap();
        fs::write(root.join("d/f"), "after").unwrap();
        disk.end().unwrap();
        assert_eq!(fs::read(root.join("d/f")).unwrap(), b"after");
        let names: Vec<_> = fs::read_dir(base.path()).unwrap().collect();
        assert_eq!(names.len(), 2, "nothing else stays");
    }
}
