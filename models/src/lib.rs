//! Production code under loom, which tries every order of the threads' steps
//! and every value that the memory model lets a load see.
//!
//! The modules below are the files of production themselves. They take what
//! threads meet at from `crate::sync`: there the standard library's, here
//! loom's (docs/decisions/0017).

#![forbid(unsafe_code)]

pub mod sync;

#[path = "../../crates/fabric/src/shm/asleep.rs"]
pub mod asleep;
#[path = "../../crates/client/src/combine.rs"]
pub mod combine;
#[path = "../../crates/client/src/pointer_cache.rs"]
#[allow(dead_code, reason = "only its entry is modelled")]
mod pointer_cache;
#[path = "../../crates/client/src/pointer_table.rs"]
pub mod pointer_table;
#[path = "../../crates/fabric/src/shm/ready.rs"]
pub mod ready;

pub use pointer_cache::Entry;
