//! The synchronization primitives of the files that are model-checked: the standard library's. The
//! crate `models` compiles the same files against loom's; the library's own tests use shuttle's
//! locks for [`crate::tcp`].

#[cfg(test)]
mod modelled;

#[cfg(test)]
pub use modelled::*;
#[cfg(not(test))]
pub use remora_layout::limits::SENDS_IN_A_ROW;
#[cfg(not(test))]
pub use std::sync::atomic::{AtomicBool, AtomicUsize};
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(test))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(test))]
pub use std::time::Instant;
