//! What threads meet at in the file that is model-checked: the standard library's,
//! and bounded queues. The crate `models` compiles the same file against loom's.

pub use crossbeam_queue::ArrayQueue;
pub use std::sync::atomic::{AtomicU64, Ordering, fence};
