//! The limit of locked memory. Memory registered with an RDMA device is pinned, and the kernel
//! counts it against `RLIMIT_MEMLOCK` of the process, once for each registration (`ib_umem_get`).
//! This module checks the limit before registering, so that the error can say how much was wanted,
//! how much is allowed, and what to change.

use remora_layout::session::mailbox_bytes;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;

/// The kernel pins whole pages.
const PAGE_BYTES: usize = 4096;
/// Number of `CAP_IPC_LOCK`: a process that has it in the first user namespace is exempt.
const CAP_IPC_LOCK: u32 = 14;

/// What to change: a line for each way to start a process.
pub const REMEDY: [&str; 4] = [
    "systemd: LimitMEMLOCK=infinity in the unit's section [Service]",
    "shell: ulimit -l unlimited, after the line `* - memlock unlimited` in /etc/security/limits.conf and a new login",
    "docker: docker run --ulimit memlock=-1:-1",
    "Kubernetes: has no field for it: LimitMEMLOCK=infinity in the unit of the node's container runtime (containerd.service), or, for containers that run as root, securityContext.capabilities.add: [\"IPC_LOCK\"]",
];

/// How much memory this process may lock, and how much of that is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locked {
    /// Bytes that may be locked in all; `None` for any number.
    pub limit: Option<u64>,
    /// Bytes that devices have pinned already.
    pub pinned: u64,
    /// The limit does not hold: the process has `CAP_IPC_LOCK`.
    pub is_exempt: bool,
}

impl Locked {
    /// The present state. A value that the kernel does not report is left to the kernel's own
    /// check.
    pub fn now() -> Self {
        let limit = getrlimit(Resource::Memlock).current;
        let read = |file| std::fs::read_to_string(file).ok();
        // Capabilities are those of a thread.
        let (status, namespace) = (read("/proc/thread-self/status"), read("/proc/self/uid_map"));
        Self::of(limit, status.as_deref(), namespace.as_deref())
    }

    /// From the limit, `/proc/thread-self/status` and `/proc/self/uid_map`.
    fn of(limit: Option<u64>, status: Option<&str>, namespace: Option<&str>) -> Self {
        let field = |name: &str| {
            let line = status?.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()
        };
        let pinned = field("VmPin:").and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10;
        let capabilities = field("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok());
        let may_lock = capabilities.is_none_or(|bits| bits & (1 << CAP_IPC_LOCK) != 0);
        // A capability in another user namespace counts for nothing here. The
        // first maps every number to itself.
        let is_first =
            namespace.is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
        Self { limit, pinned, is_exempt: may_lock && is_first }
    }

    /// Bytes that may still be registered; `None` for any number.
    pub fn room(&self) -> Option<u64> {
        let limit = self.limit.filter(|_| !self.is_exempt)?;
        Some(limit.saturating_sub(self.pinned))
    }

    /// Whether so many more bytes may be registered.
    pub fn check(&self, bytes: u64) -> Result<(), NotRegistered> {
        match self.room() {
            Some(room) if room < bytes => {
                Err(NotRegistered { wanted: bytes, locked: *self, errno: None })
            }
            _ => Ok(()),
        }
    }
}

/// Memory cannot be registered with an RDMA device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotRegistered {
    /// Bytes that were to be registered.
    pub wanted: u64,
    /// The limit.
    pub locked: Locked,
    /// The kernel's answer, if it was asked.
    pub errno: Option<i32>,
}

impl NotRegistered {
    /// The kernel has just refused.
    pub(super) fn by_kernel(wanted: u64) -> Self {
        let errno = io::Error::last_os_error().raw_os_error();
        Self { wanted, locked: Locked::now(), errno }
    }
}

impl std::error::Error for NotRegistered {}

impl fmt::Display for NotRegistered {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, locked, errno } = self;
        write!(into, "cannot register {wanted} bytes with the RDMA device: ")?;
        if let Some(errno) = errno {
            write!(into, "{}; ", io::Error::from_raw_os_error(*errno))?;
        }
        match locked.limit.filter(|_| !locked.is_exempt) {
            None => into.write_str("the limit of locked memory is not the reason: there is none"),
            Some(limit) => {
                let pinned = locked.pinned;
                write!(into, "the limit of locked memory (memlock) is {limit} bytes")?;
                write!(into, ", of which {pinned} are in use. Raise it:")?;
                REMEDY.iter().try_for_each(|line| write!(into, "\n  {line}"))
            }
        }
    }
}

/// Whether this process may register so many more bytes.
///
/// # Errors
/// It may not.
pub fn check(bytes: u64) -> Result<(), NotRegistered> {
    Locked::now().check(bytes)
}

/// Bytes of the pages in which a range lies.
pub fn span(address: usize, bytes: usize) -> u64 {
    (address % PAGE_BYTES + bytes).next_multiple_of(PAGE_BYTES) as u64
}

/// Memory that WRITEs are sent from. Bytes beyond it wait in plain memory.
pub const STAGING_BYTES: usize = 256 << 10;

/// The bytes that a client of a server with this many shards registers when it connects. The
/// landing memory of its READs and large replies comes later, and is as long as the bytes that they
/// fetch.
pub fn client_bytes(shards: usize) -> u64 {
    span(0, mailbox_bytes(shards)) + span(0, STAGING_BYTES)
}

/// The bytes that a server with this many shards registers for each session.
pub fn session_bytes(shards: usize) -> u64 {
    span(0, mailbox_bytes(shards)) + span(0, STAGING_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "         0          0 4294967295\n";
    const STATUS: &str = "Name:\tremora\nVmLck:\t       8 kB\nVmPin:\t      16 kB\n";

    fn with(capabilities: &str, namespace: &str) -> Locked {
        let status = format!("{STATUS}CapEff:\t{capabilities}\n");
        Locked::of(Some(64 << 10), Some(&status), Some(namespace))
    }

    #[test]
    fn what_is_pinned_counts_and_the_capability_exempts_in_the_first_namespace_only() {
        let user = with("0000000000000000", FIRST);
        assert_eq!(user.room(), Some(48 << 10));
        assert_eq!(user.check(48 << 10), Ok(()));
        let refused = user.check((48 << 10) + 1).unwrap_err();
        assert_eq!((refused.wanted, refused.locked, refused.errno), ((48 << 10) + 1, user, None));
        assert_eq!(with("0000000000004000", FIRST).room(), None);
        assert_eq!(with("0000000000004000", "0 1000 1\n").room(), Some(48 << 10));
        assert_eq!(with("ffffffffffffbfff", FIRST).room(), Some(48 << 10));
        assert_eq!(Locked::of(None, Some(STATUS), Some(FIRST)).room(), None);
        // Nothing is refused on a guess.
        assert_eq!(Locked::of(Some(1), None, None).room(), None);
    }

    #[test]
    fn the_error_says_how_much_was_wanted_what_the_limit_is_and_what_to_change() {
        let locked = with("0", FIRST);
        let told = locked.check(1 << 30).unwrap_err().to_string();
        for part in [
            "1073741824 bytes",
            "65536 bytes, of which 16384",
            "LimitMEMLOCK=infinity",
            "* - memlock unlimited",
            "--ulimit memlock=-1:-1",
            "IPC_LOCK",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        // Another reason of the kernel's is not blamed on the limit.
        let exempt = Locked { is_exempt: true, ..locked };
        let told = NotRegistered { wanted: 8, locked: exempt, errno: Some(14) }.to_string();
        assert!(told.contains("Bad address") && !told.contains("ulimit"), "{told}");
    }

    #[test]
    fn this_process_is_asked() {
        let locked = Locked::now();
        assert_eq!(locked.limit, getrlimit(Resource::Memlock).current);
        assert_eq!(locked.check(0), Ok(()));
    }

    #[test]
    fn a_span_is_whole_pages() {
        assert_eq!([span(0, 1), span(4095, 2), span(4096, 4096)], [4096, 8192, 4096]);
    }
}
