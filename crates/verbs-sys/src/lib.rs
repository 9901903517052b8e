//! Bindings to libibverbs, the user space of RDMA on Linux (rdma-core).
//!
//! The library is loaded when the program runs, so that one binary runs with
//! it and without. The hot verbs (posting, polling, arming) are inline
//! functions in its header, which call through `ibv_context.ops`; so does who
//! uses these bindings.
//!
//! `bindings.rs` is made by `generate.sh`. The structures are the library's
//! ABI, which its symbol versions keep stable (IBVERBS_1.0, 1.1).

#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings;

pub use bindings::*;
