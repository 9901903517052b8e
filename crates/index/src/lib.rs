//! Structures in an arena: one writer, readers anywhere.
//!
//! Invariants of this crate: a *walk* is a pure state machine that names the bytes it wants,
//! receives them, and returns a result; it does no I/O, keeps no time and draws no random numbers.
//! A *writer* changes a structure in place, in an order that keeps every concurrent walk correct.

#![forbid(unsafe_code)]

pub mod btree;
pub mod chain;
pub mod hash;
mod pool;
mod round;
pub mod rtree;
mod slot_table;

pub use slot_table::{HashSweep, SlotTable};
