//! libibverbs, loaded once when it is first needed: one binary runs with it
//! and without.

use remora_arena::ForkGuard;
use remora_verbs_sys::Ibverbs;
use std::sync::OnceLock;

/// The name under which every rdma-core since version 1 installs it.
const NAME: &str = "libibverbs.so.1";

/// The library cannot be had on this machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{NAME} cannot be loaded ({0}): install rdma-core's libibverbs1 and ibverbs-providers")]
pub struct NoLibrary(String);

/// The library, if this machine has it.
///
/// # Errors
/// It is not installed, or not to be loaded.
pub(super) fn library() -> Result<&'static Ibverbs, NoLibrary> {
    static LIBRARY: OnceLock<Result<Ibverbs, NoLibrary>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        may_release();
        // SAFETY: the library's initialisers are rdma-core's own, which every
        // program that is linked to it runs.
        unsafe { Ibverbs::new(NAME) }.map_err(|error| NoLibrary(error.to_string()))
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// Whether this process may release objects of the library. A forked child
/// has its parent's, and the kernel would release them for the parent too.
pub(super) fn may_release() -> bool {
    static GUARD: OnceLock<Option<ForkGuard>> = OnceLock::new();
    // Made with the first object, and so before any fork that matters. Without it a process does
    // not know whether it was forked: then it releases all objects, as without forks.
    GUARD.get_or_init(|| ForkGuard::new().ok()).as_ref().is_none_or(ForkGuard::same_process)
}

/// The system's last error.
pub(super) fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}
