//! Calls about one list, and what their results say.

use crate::check::keys::Window;

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// The front.
    Left,
    /// The back.
    Right,
}

/// An operation on a list, with its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListOp {
    /// LPUSH or RPUSH: one after the other.
    Push {
        /// Where.
        end: End,
        /// The elements.
        items: Vec<i64>,
        /// The length that was told.
        length: Option<u64>,
    },
    /// An element that came from another list; not known, if the outcome is not.
    PushAny {
        /// Where.
        end: End,
    },
    /// Elements that were taken, the outermost first; none: the list was empty.
    Pop {
        /// Where.
        end: End,
        /// The elements.
        items: Vec<i64>,
    },
    /// Up to so many elements that may have been taken.
    PopAny {
        /// Where.
        end: End,
        /// Most of them.
        count: usize,
    },
    /// LINSERT.
    Insert {
        /// The element beside which it goes.
        pivot: i64,
        /// Whether it goes before that one.
        before: bool,
        /// The element.
        item: i64,
        /// Whether the pivot was there.
        done: Option<bool>,
    },
    /// LREM.
    Remove {
        /// The element.
        item: i64,
        /// Whether it was there.
        done: Option<bool>,
    },
    /// The whole list.
    Range {
        /// Its elements.
        found: Vec<i64>,
    },
    /// DEL, and what flushes do.
    Del {
        /// Whether there was something.
        done: Option<bool>,
    },
    /// PEXPIRE.
    Expire {
        /// When the list is gone.
        window: Window,
        /// Whether it was there.
        done: Option<bool>,
    },
    /// A wait that ended without an element: it says nothing of the list.
    Ended,
    /// A look whose result is not known.
    Nothing,
}

impl ListOp {
    /// Whether its result says that the list was not empty.
    pub(super) fn found_something(&self) -> bool {
        match self {
            Self::Pop { items, .. } => !items.is_empty(),
            Self::Range { found } => !found.is_empty(),
            Self::Insert { done, .. }
            | Self::Remove { done, .. }
            | Self::Del { done }
            | Self::Expire { done, .. } => *done == Some(true),
            _ => false,
        }
    }

    /// Whether its result says that it changes nothing.
    pub(super) fn only_looks(&self) -> bool {
        match self {
            Self::Pop { items, .. } => items.is_empty(),
            Self::Range { .. } | Self::Ended | Self::Nothing => true,
            Self::Insert { done, .. }
            | Self::Remove { done, .. }
            | Self::Del { done }
            | Self::Expire { done, .. } => *done == Some(false),
            _ => false,
        }
    }

    /// The elements that its result shows.
    pub(super) fn shows(&self) -> &[i64] {
        match self {
            Self::Pop { items, .. } | Self::Range { found: items } => items,
            Self::Remove { item, done: Some(true) } => std::slice::from_ref(item),
            Self::Insert { pivot, done: Some(true), .. } => std::slice::from_ref(pivot),
            _ => &[],
        }
    }

    /// Whether its result says that the list was not empty, and not with which elements.
    pub(super) fn finds_unseen(&self) -> bool {
        self.found_something() && self.shows().is_empty()
    }

    /// The elements that it adds.
    pub(super) fn adds(&self) -> &[i64] {
        match self {
            Self::Push { items, .. } => items,
            Self::Insert { item, .. } => std::slice::from_ref(item),
            _ => &[],
        }
    }
}

/// One call about a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListCall {
    /// When it was invoked; of a wait that ended without an element, since when it could end.
    pub invoked_ns: u64,
    /// When its result was known; `None` if it never was.
    pub returned_ns: Option<u64>,
    /// Since when it was seen to wait at this key alone.
    pub waits_ns: Option<u64>,
    /// It waits, and what it takes goes to a list of another shard: between its waking and its change
    /// others may see the element, and those that wait behind it go on waiting.
    pub hands_over: bool,
    /// The server executed a command: who reads its memory may see an element on its way to a waiter.
    pub is_command: bool,
    /// The operation, and its result.
    pub op: ListOp,
}

impl ListCall {
    /// A command that is invoked now.
    pub fn begun(invoked_ns: u64, op: ListOp) -> Self {
        let (returned_ns, waits_ns) = (None, None);
        Self { invoked_ns, returned_ns, waits_ns, hands_over: false, is_command: true, op }
    }
}

/// A list whose calls nothing explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unexplained {
    /// The first call that could not take effect.
    pub call: usize,
    /// False: the search was too long to decide.
    pub is_certain: bool,
}
