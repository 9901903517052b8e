//! The crate for raw memory: regions, atomic word access, pages and slots, generations,
//! quarantine.
//!
//! Invariants of this crate:
//! * Stores to registered memory go word by word through [`Owner`], which reports them to a
//!   [`Journal`]; the journal is empty in real builds and filled by the simulator.
//! * All other threads and processes read through a [`ReadView`], whose one copying primitive never
//!   makes a Rust reference to memory that may change. Memory with several writers, mailboxes and
//!   hints, goes through [`Words`]; an arena never does.
//! * The generation at a place only grows, whatever class of slot its page holds: a page whose
//!   slots are all free may serve another class (decision 0011).

mod asleep;
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
mod region;
mod size_class;
mod slot;
mod slots;
mod spans;
mod view;
mod window;
mod words;

pub use asleep::AsleepWord;
pub use fork::ForkGuard;
pub use huge::HugeTable;
pub use journal::{Journal, NoJournal};
pub use mapping::{MapError, Mapping};
pub use owner::Owner;
pub use pieces::{PieceSum, PieceWriter, begin_pending, set_value_bytes};
pub use records::{
    NewRecord, copy_pending, database_of, flip_bucket_dead, flip_dead, is_live, is_named, kind_of,
    lengths_of, mutable_of, publish_live, set_hint, set_mutable, set_state_guardian, slot_of,
    state_in, withhold, write_pending, write_root,
};
pub use region::{Region, RegionKind};
pub use size_class::{BUCKET_CLASS, CLASSES, class_bytes, class_for};
pub use slot::Slot;
pub use slots::{ArenaFull, SlotStats, Slots};
pub use view::ReadView;
pub use window::{Leave, Window};
pub use words::{OutOfBounds, Words, prefetch};
