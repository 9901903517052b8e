//! Files that are read again whenever they have changed.

use remora_fabric::vital_thread;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// A thread that looks at files from time to time.
pub struct FileWatch {
    thread: JoinHandle<()>,
    ends: Arc<AtomicBool>,
}

impl FileWatch {
    /// Begins to look, again and again with this pause.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        name: &str,
        pause: Duration,
        mut look: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let watch = move || {
            while !end.load(Ordering::Acquire) {
                std::thread::park_timeout(pause);
                look();
            }
        };
        Ok(Self { thread: vital_thread::spawn(name, watch)?, ends })
    }

    /// Ends the watch.
    pub fn stop(self) {
        self.ends.store(true, Ordering::Release);
        self.thread.thread().unpark();
        vital_thread::join(self.thread);
    }
}

/// Changes with each change of a file, its mode and its owner included.
pub type Stamp = (SystemTime, u64, (i64, i64));

/// `None` if the file is not there.
pub fn stamp(path: &Path) -> Option<Stamp> {
    let of = std::fs::metadata(path).ok()?;
    Some((of.modified().ok()?, of.len(), (of.ctime(), of.ctime_nsec())))
}
