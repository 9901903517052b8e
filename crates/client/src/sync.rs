//! What threads and processes meet at: the standard library's, and the arena's
//! words. The crate `models` compiles the same files against loom's.

pub use remora_arena::Words;
