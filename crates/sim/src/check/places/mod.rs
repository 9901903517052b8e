//! A checker for trees of places.
//!
//! The checker judges each object of a tree by itself, and so its bytes. A change writes a version
//! of the object, an absent one too; each rectangle is written once, so that a client that sees it
//! names the change. The time of a change's request, the time by which it has taken effect, and
//! later requests bound the time in which each version may have been current (`lives`). The
//! observations must agree with these bounds (`judge`):
//!
//! * a shown object is a version that may have been current at some moment of the call, and each
//!   object is shown once;
//! * an object that is not shown may have been absent, or outside the search, at some moment of the
//!   call;
//! * a count lies between the objects that matched all the time and those that may have matched;
//! * of the nearest, an object that did not change is at its proper rank;
//! * a change says truly whether the object was there;
//! * a change of a whole tree, one that arrives from another key or is removed, is seen whole or
//!   not at all.
//!
//! A client that sees a version proves that its change has taken effect by then. So no observation
//! is taken back, and a session sees its own writes.

mod judge;
mod lives;

use remora_client_core::{Predicate, Rect};
use std::collections::BTreeMap;

/// Names a change that was begun.
pub type Act = usize;

/// Names a version: a rectangle, or bytes that came with it.
pub type Number = u32;

/// The objects of a whole tree by their ids: rectangles, and the versions that their
/// bytes name.
pub type Whole = BTreeMap<u64, (Rect, Number)>;

/// The part of an object to which a version belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ObjectPart {
    /// Whether it is there, and where.
    Rect,
    /// The bytes that it carries.
    Data,
}

/// One object's part: tree, id, part.
type Register = (u32, u64, ObjectPart);

/// When a change was made.
#[derive(Clone, Copy, Debug)]
struct Span {
    asked_ns: u64,
    /// `u64::MAX` as long as its effect is unknown.
    done_ns: u64,
    /// It has no effect after this.
    bound_ns: u64,
    is_refused: bool,
    is_restart: bool,
}

/// A rectangle that was written.
#[derive(Clone, Copy, Debug)]
struct Version {
    rect: Rect,
    act: Act,
}

/// The result of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// The objects in a window.
    Window {
        /// The window.
        window: Rect,
        /// The relation of an object to it.
        predicate: Predicate,
        /// Ids and rectangles.
        found: Vec<(u64, Rect)>,
    },
    /// The objects whose geometries meet a window.
    Refined {
        /// The window.
        window: Rect,
        /// Ids and rectangles.
        found: Vec<(u64, Rect)>,
    },
    /// How many are in a window.
    Count {
        /// The window.
        window: Rect,
        /// The relation of an object to it.
        predicate: Predicate,
        /// Their number.
        count: u64,
    },
    /// The objects nearest to a point.
    Nearest {
        /// The point.
        point: (f64, f64),
        /// How many were wanted.
        wanted: usize,
        /// Ids and rectangles, in order.
        found: Vec<(u64, Rect)>,
    },
    /// One object.
    Object {
        /// Its id.
        id: u64,
        /// Its rectangle, and the version that its bytes name.
        found: Option<(Rect, Option<Number>)>,
    },
    /// A change found the object there, or not.
    Changed {
        /// The change.
        act: Act,
        /// The object.
        id: u64,
        /// Whether it was there before.
        was_there: bool,
    },
}

/// A call that has shown something.
#[derive(Clone, Debug)]
struct Look {
    tree: u32,
    from_ns: u64,
    to_ns: u64,
    seen: Seen,
}

/// All that happened to the trees of a world.
#[derive(Default)]
pub struct Places {
    spans: Vec<Span>,
    versions: Vec<Version>,
    /// The changes of each object and their results.
    changes: BTreeMap<Register, Vec<(Act, Option<Number>)>>,
    /// Changes that make a tree another one at once, by the trees.
    whole: BTreeMap<u32, Vec<Act>>,
    /// Changes that leave nothing in a tree, or in any.
    clears: Vec<(Act, Option<u32>)>,
    looks: Vec<Look>,
}

impl Places {
    fn begin(&mut self, asked_ns: u64) -> Act {
        let (done_ns, bound_ns) = (u64::MAX, u64::MAX);
        self.spans.push(Span { asked_ns, done_ns, bound_ns, is_refused: false, is_restart: false });
        self.spans.len() - 1
    }

    fn write(&mut self, act: Act, of: Register, makes: Option<Number>) {
        self.changes.entry(of).or_default().push((act, makes));
    }

    /// The number that the next rectangle has. Rectangles of different numbers
    /// are to differ.
    pub fn next_number(&self) -> Number {
        self.versions.len() as Number
    }

    /// Puts objects into a tree, all at once. With bytes that name the version, without any from
    /// now on, or `None`: with their present bytes.
    pub fn put(
        &mut self,
        tree: u32,
        objects: &[(u64, Rect)],
        with_data: Option<bool>,
        asked_ns: u64,
    ) -> Act {
        let act = self.begin(asked_ns);
        for &(id, rect) in objects {
            let number = self.next_number();
            self.versions.push(Version { rect, act });
            self.write(act, (tree, id, ObjectPart::Rect), Some(number));
            if let Some(with_data) = with_data {
                self.write(act, (tree, id, ObjectPart::Data), with_data.then_some(number));
            }
        }
        act
    }

    /// An object is removed, and its bytes.
    pub fn remove(&mut self, tree: u32, id: u64, asked_ns: u64) -> Act {
        let act = self.begin(asked_ns);
        self.write(act, (tree, id, ObjectPart::Rect), None);
        self.write(act, (tree, id, ObjectPart::Data), None);
        act
    }

    /// A tree is replaced at once: another one moves to its key, or it is removed. All objects of
    /// both have ids below `ids`.
    pub fn becomes(&mut self, tree: u32, objects: &Whole, ids: u64, asked_ns: u64) -> Act {
        let act = self.begin(asked_ns);
        for id in 0..ids {
            let object = objects.get(&id);
            let number = object.map(|&(rect, _)| {
                self.versions.push(Version { rect, act });
                self.next_number() - 1
            });
            self.write(act, (tree, id, ObjectPart::Rect), number);
            self.write(act, (tree, id, ObjectPart::Data), object.map(|&(_, number)| number));
        }
        self.whole.entry(tree).or_default().push(act);
        act
    }

    /// A tree is removed, or all of them.
    pub fn clear(&mut self, tree: Option<u32>, asked_ns: u64) -> Act {
        let act = self.begin(asked_ns);
        self.clears.push((act, tree));
        act
    }

    /// The server has removed a tree by itself, between these times; or any one at any
    /// time from the first on, if `tree` is not known.
    pub fn removed(&mut self, tree: Option<u32>, (from_ns, to_ns): (u64, u64)) {
        let act = self.clear(tree, from_ns);
        if tree.is_some() {
            self.done(act, to_ns);
        }
    }

    /// The server started again without data, between these times. Earlier requests have no effect
    /// afterwards.
    pub fn restart(&mut self, from_ns: u64, to_ns: u64) {
        let act = self.clear(None, from_ns);
        self.spans[act].done_ns = to_ns;
        self.spans[act].is_restart = true;
    }

    /// The change has taken effect.
    pub fn done(&mut self, act: Act, now_ns: u64) {
        self.spans[act].done_ns = now_ns;
    }

    /// The change was refused: it has no effect.
    pub fn refused(&mut self, act: Act) {
        self.spans[act].is_refused = true;
    }

    /// The change has no effect from now on, if it had none before.
    pub fn bound(&mut self, act: Act, now_ns: u64) {
        self.spans[act].bound_ns = now_ns;
    }

    /// A call has shown something of a tree.
    pub fn look(&mut self, tree: u32, from_ns: u64, to_ns: u64, seen: Seen) {
        self.looks.push(Look { tree, from_ns, to_ns, seen });
    }

    /// Calls that have shown something.
    pub fn looks(&self) -> u64 {
        self.looks.len() as u64
    }

    /// The version that a rectangle is of; `None` if it was never written there.
    fn version_of(&self, tree: u32, id: u64, rect: &Rect) -> Option<Number> {
        let of_object = self.changes.get(&(tree, id, ObjectPart::Rect))?;
        of_object
            .iter()
            .filter_map(|&(_, number)| number)
            .find(|&number| self.versions[number as usize].rect == *rect)
    }
}
