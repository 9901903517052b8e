//! Chains: sequences of entries in chunks with pointers to their neighbours (K5, docs/decisions/0067).
//!
//! One owner changes a chain ([`Chain`]); readers walk it ([`Range`]). The layout is in
//! [`remora_layout::chain`].

mod directory;
mod walk;
mod writer;

pub use directory::{At, Directory, Place};
pub use walk::{AskReason, ChainRef, Range};
pub use writer::{
    Chain, End, PushPlan, Run, chunk_entries, lengths_of_entries, release_dropped, root_of_chunk,
};
