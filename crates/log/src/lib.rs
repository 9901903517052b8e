//! The log of one shard, in memory: every change, in order (design, "One
//! change"; docs/decisions/0030).
//!
//! - [`Log`] takes entries and keeps the last of them, a bounded number of bytes.
//! - A [`Cursor`] reads frames from a sequence on, in batches; any number of
//!   cursors may. A [`Hold`] keeps frames from being dropped.
//! - [`Frames`] parses bytes that may be anything; an [`Assembler`] makes
//!   entries of frames, an entry of several pieces once its last one is there.
//! - [`consistent_cut`] returns the sequences up to which the logs of several shards are
//!   consistent.
//!
//! The log does not interpret its entries. It has no I/O, no clock, no randomness.

#![forbid(unsafe_code)]

mod append;
mod assemble;
mod cursor;
mod frame;
mod holds;
mod parts;

pub use append::{Appended, Log, LogOptions};
pub use assemble::{AssembleError, Assembler, Entry, OwnedEntry};
pub use cursor::{Cursor, CursorError, Lost, Outline, outline};
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameError, Frames, LogKey};
pub use holds::Hold;
pub use parts::{KnownLog, Part, Parts, consistent_cut};
