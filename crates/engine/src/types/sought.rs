//! What a plan looks for in an object. A type says by which reads it is found (`Type::seek`),
//! so a shard that carries out plans names no type.

use remora_layout::rect::Rect;
use remora_protocol::ordered::OrderedRange;
use remora_protocol::{Items, Request};

/// What is looked for in the object of one key.
#[derive(Clone, Copy, Debug)]
pub enum Sought<'a> {
    /// Objects that have a place.
    Objects {
        /// Where.
        area: Area,
        /// So many of the nearest ones were found before.
        skip: usize,
        /// So many at most.
        count: usize,
    },
    /// Entries in the order of their keys.
    Entries {
        /// Which of them.
        range: OrderedRange<'a>,
        /// From the greatest key.
        is_reverse: bool,
        /// So many at most.
        count: usize,
    },
}

/// Where objects are looked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Area {
    /// Those that share a point with a rectangle.
    Window(Rect),
    /// Those nearest to a point.
    Nearest(f64, f64),
}

/// What the reads of a search have found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Met {
    /// Ids of objects.
    Objects {
        /// The ids, as texts.
        ids: Vec<Box<[u8]>>,
        /// So many come before those that follow; 0: there are no more.
        next: u64,
    },
    /// Entries: the read's results are their keys and values, as [`Items`].
    Entries {
        /// Whether there may be more behind the last one.
        goes_on: bool,
    },
}

/// A search that a plan makes: one long read after the other, mostly one.
pub trait Seek: Send {
    /// The next read. `None`: nothing can be found.
    fn request(&mut self) -> Option<Request<'_>>;

    /// Whether a read that has not ended has found enough.
    fn is_enough(&self, _found: &[u8]) -> bool {
        false
    }

    /// Takes all that a read has found. `None`: another read has to find more.
    fn take(&mut self, found: &[u8]) -> Option<Met>;

    /// The request for these fields of an object that was found; `None` if objects have no fields here.
    fn fields<'s>(&self, _id: &'s [u8], _names: Items<'s>) -> Option<Request<'s>> {
        None
    }
}
