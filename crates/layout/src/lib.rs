//! Every byte that another process or machine can see.
//!
//! Invariants of this crate: each layout has a picture, a `repr(C)` struct and const assertions
//! side by side; all integers are little endian and of fixed width; no code here does I/O or
//! allocates.

#![forbid(unsafe_code)]

pub mod arena_header;
pub mod bins;
pub mod btree;
pub mod bucket;
pub mod buffer_name;
pub mod chain;
pub mod collection;
pub mod database;
pub mod frame;
pub mod hash;
pub mod hello;
pub mod immediate;
pub mod integer;
pub mod kind;
pub mod lag;
pub mod limits;
pub mod link;
pub mod node;
pub mod object;
pub mod packed;
pub mod packed_scores;
pub mod packed_set;
pub mod part;
pub mod pointer;
pub mod pointer_table;
pub mod record;
pub mod rect;
pub mod session;
pub mod slot;
pub mod sorted;
pub mod table;
pub mod tree;
pub mod verbs;
pub mod wire;
