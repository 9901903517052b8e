//! The primitives of the model-checked file: those of the standard library, and bounded queues. The
//! crate `models` compiles the same file against loom's.

pub use crossbeam_queue::ArrayQueue;
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
