//! The one room of raw memory: regions, atomic word access, pages and slots,
//! generations, quarantine.
//!
//! What this crate keeps true:
//! * Stores to registered memory go word by word through [`Owner`], which
//!   tells a [`Journal`]; the journal is empty in real builds and filled by
//!   the simulator.
//! * Whoever is not the owner reads through [`Words`], whose one copying
//!   primitive never makes a Rust reference to memory that may change.
//! * The generation at a place only grows, whatever class of slot its page
//!   holds: a page whose slots are all free may serve another class (decision
//!   0011).

mod copy;
mod fork;
mod huge;
mod journal;
mod mapping;
mod numa;
mod owner;
mod pages;
mod pieces;
mod quarantine;
mod records;
mod size_class;
mod slots;
mod spans;
mod window;
mod words;

pub use fork::ForkGuard;
pub use huge::HugeTable;
pub use journal::{Journal, NoJournal};
pub use mapping::{MapError, Mapping, Region, RegionKind};
pub use owner::Owner;
pub use pieces::{PieceSum, PieceWriter, begin_pending, reopen, set_value_bytes};
pub use records::{
    NewRecord, copy_pending, flip_dead, is_live, lengths_of, mutable_of, publish_live, set_mutable,
    slot_of, write_pending,
};
pub use size_class::{BUCKET_CLASS, CLASSES, class_bytes, class_for};
pub use slots::{ArenaFull, Slot, SlotStats, Slots};
pub use window::{Leave, Window};
pub use words::{OutOfBounds, Words, prefetch};
