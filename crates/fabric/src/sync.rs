//! What threads meet at in the files that are model-checked: the standard
//! library's. The crate `models` compiles the same files against loom's.

pub use std::sync::atomic::{AtomicU64, Ordering, fence};
