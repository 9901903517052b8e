//! What a run wants, and what it is given.

use crate::plan::{Bytes, KeyRange};
use remora_layout::rect::Rect;
use std::sync::Arc;

/// Something that a run wants to see.
#[derive(Clone, PartialEq, Debug)]
pub enum Want {
    /// The item of a key, a hash or a string: [`Given::Hash`], [`Given::Text`].
    Item {
        /// The item.
        place: Place,
        /// The fields that the run uses.
        fields: Fields,
    },
    /// Elements of a list: [`Given::List`].
    List {
        /// The list.
        place: Place,
        /// The first element, counted from 0, or from -1 at the end: as LRANGE does, so one before the
        /// list's first element means that element.
        from: i64,
        /// So many elements, or all behind the first one if there are fewer.
        count: u32,
    },
    /// Entries of an ordered tree: [`Given::Entries`].
    Entries {
        /// The tree.
        place: Place,
        /// Which of them.
        range: KeyRange,
        /// So many, or all if there are fewer.
        count: u32,
    },
    /// Documents of a collection: [`Given::Documents`].
    Documents {
        /// The collection.
        place: Place,
        /// Which of them.
        filter: Bytes,
        /// At most so many.
        count: u32,
        /// What the last answer gave to go on with; `None` at the beginning.
        next: Option<Bytes>,
    },
    /// Objects of a tree of places: [`Given::Objects`].
    Objects {
        /// The tree's key.
        tree: Bytes,
        /// Which of them.
        area: Area,
        /// Fields of the objects that the run uses.
        fields: Arc<[Bytes]>,
        /// At least one, and at most so many.
        count: u32,
        /// What the last answer gave to go on with; `None` at the beginning.
        next: Option<Bytes>,
    },
}

impl Want {
    /// The key that it is about: which shard owns it, and whether the caller may read it, follows
    /// from it.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Item { place, .. }
            | Self::List { place, .. }
            | Self::Entries { place, .. }
            | Self::Documents { place, .. } => &place.key,
            Self::Objects { tree, .. } => tree,
        }
    }
}

/// A key, and what helps to find its record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The key.
    pub key: Bytes,
    /// The word of the link that led here, if it has one.
    pub hint: Option<u64>,
    /// The link that led here: what to mend if the hint is stale.
    pub link: Option<LinkPlace>,
}

/// Where a link stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkPlace {
    /// The hash or list.
    pub key: Bytes,
    /// Where in it.
    pub at: LinkAt,
}

/// Where in a hash or list a link stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkAt {
    /// The field of a hash.
    Field(Bytes),
    /// The element of a list, counted from 0.
    Element(u64),
}

/// Fields of a hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fields {
    /// All of them.
    All,
    /// Those with these names, each once.
    Some(Arc<[Bytes]>),
}

/// Objects of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Area {
    /// Those that share a point with a rectangle, in any order, each at least once.
    Window(Rect),
    /// Those nearest to a point, nearest first, and equally near ones in one order.
    Nearest(f64, f64),
}

/// An answer to a [`Want`]. One that does not fit its want counts as [`Given::OtherType`].
#[derive(Clone, PartialEq, Debug)]
pub enum Given {
    /// Those of the wanted fields that a hash has, in any order; others may be among them.
    Hash(Vec<(Bytes, Value)>),
    /// The text of a string.
    Text(Bytes),
    /// The wanted elements of a list.
    List {
        /// As many as the want says, or all there are.
        elements: Vec<Value>,
        /// The number of the list's elements.
        total: u64,
    },
    /// The wanted entries of an ordered tree.
    Entries {
        /// Keys and values, in the order of the want.
        entries: Vec<(Bytes, Value)>,
        /// As many as were wanted: there may be more behind the last one.
        goes_on: bool,
    },
    /// Some of the wanted documents, perhaps none.
    Documents {
        /// The fields of each, in any order.
        documents: Vec<Vec<(Bytes, Value)>>,
        /// What the search goes on with; `None`: these were the last.
        next: Option<Bytes>,
    },
    /// Objects of a tree.
    Objects {
        /// If there are none, the search is over.
        objects: Vec<Object>,
        /// What the search goes on with; `None`: these were the last.
        next: Option<Bytes>,
    },
    /// Objects of a search for the nearest: [`crate::limits::MAX_NEAREST`] came before, and no more are
    /// looked at. There may be more.
    NoMoreNearest,
    /// There is nothing of that key. Only its owner says so.
    Gone,
    /// The key holds something else.
    OtherType,
}

/// A field's value, a list's element, or the value of a tree's entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Bytes.
    Plain(Bytes),
    /// A link.
    Link {
        /// The key of its target.
        key: Bytes,
        /// Its word, if it has one.
        hint: Option<u64>,
    },
}

impl Value {
    /// The bytes that every command reads: the value, or the key of the target.
    pub fn text(&self) -> &Bytes {
        match self {
            Self::Plain(text) | Self::Link { key: text, .. } => text,
        }
    }
}

/// An object that a search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its id; an integer in decimal.
    pub id: Bytes,
    /// Those of the wanted fields that it has.
    pub fields: Vec<(Bytes, Bytes)>,
}
