//! Production code under loom, which tries every order of the threads' steps
//! and every value that the memory model lets a load see.
//!
//! The modules below are the files of production themselves. They take what
//! threads meet at from `crate::sync`: there the standard library's, here
//! loom's (docs/decisions/0017).

#![forbid(unsafe_code)]

pub mod sync;

use std::sync::atomic::Ordering;

#[path = "../../crates/fabric/src/shm/asleep.rs"]
pub mod asleep;
#[path = "../../crates/client-core/src/combine.rs"]
pub mod combine;
#[path = "../../crates/server/src/mail_queues.rs"]
pub mod mail_queues;
#[path = "../../crates/fabric/src/shm/mark.rs"]
pub mod mark;
#[path = "../../crates/client-core/src/pointer_cache.rs"]
#[allow(dead_code, reason = "only its entry is modelled")]
mod pointer_cache;
#[path = "../../crates/client-core/src/pointer_table.rs"]
pub mod pointer_table;
#[path = "../../crates/fabric/src/shm/ready.rs"]
pub mod ready;

pub use pointer_cache::Entry;

/// Runs `once` in every order of the steps of the threads that it starts, which are
/// interrupted at most so often, if that is bounded. Whether any run gives true.
pub fn any_run(
    preemptions: Option<usize>,
    once: impl Fn() -> bool + Send + Sync + 'static,
) -> bool {
    let found = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let any = std::sync::Arc::clone(&found);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        any.fetch_or(once(), Ordering::Relaxed);
    });
    found.load(Ordering::Relaxed)
}
