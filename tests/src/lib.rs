//! Helpers of the end-to-end tests: the real binary as a process, a RESP
//! client and a ring client that know nothing of ours, and what /proc tells.
#![forbid(unsafe_code)]

mod bed;
mod binary;
pub mod proc;
mod random;
mod raw;
mod redis;
mod redis_py;
mod resp;
mod role;
pub mod scripted;
mod server;

pub use bed::FileBed;
pub use binary::{Finished, remora, remora_path, remora_with_open_files, run};
pub use random::Random;
pub use raw::{RawSession, greet};
pub use redis::{Bytes, RedisServer};
pub use redis_py::run_redis_py;
pub use resp::{Resp, Value, encode};
pub use role::{Role, role};
pub use server::{Place, ServerProcess};

use remora_client::{Options, Policy};
use std::time::{Duration, Instant};

/// Options of a client whose choices go by no times: a known pointer is read,
/// all else is asked.
pub fn by_pointers() -> Options {
    Options { policy: Policy::Pointer, ..Options::default() }
}

/// Waits for something that has to come about within some seconds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a tool that the tests need was said to be missing.
pub fn is_skipped(tool: &str) -> bool {
    let skip = std::env::var("REMORA_SKIP").unwrap_or_default();
    skip.split(',').any(|name| name.trim() == tool)
}
