//! Searching trees: in turns of the shard, or to the end.

use super::named::Named;
use super::refine::Refining;
use super::trees::Trees;
use crate::store::{Now, Store};
use crate::types::object::Turn;
use remora_arena::{Journal, Slot, slot_of};
use remora_index::rtree::{Cursor, Nearest, NearestTurn, Object};
use remora_layout::limits::{
    MAX_NEAREST, NEAREST_TURN_WORK, RESOLVE_TURN_WORDS, SEARCH_TURN_BYTES, SEARCH_TURN_NODES,
};
use remora_layout::node::{NodeRef, node_bytes};
use remora_layout::object::is_surrogate;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{ReadObjects, TreeCommand};
use remora_protocol::{Items, Reply};

/// A search that is answered in turns.
pub(super) struct Searching {
    /// The root record of the tree; generation 0 until it is known.
    root: Slot,
    /// The header of the tree, if the request names one: the key may have another tree since the
    /// client read it.
    only: Option<NodeRef>,
    cursor: Cursor,
    /// Objects that are counted, not given.
    count: Option<u64>,
    /// The geometry to compare with.
    refining: Option<Box<Refining>>,
    /// The search, if it is not one of a window.
    other: Option<Other>,
}

/// A search that is not one of a window.
enum Other {
    /// The objects nearest to a point.
    Nearest(Box<Nearest>),
    /// The ids of these objects.
    Resolve { words: Vec<u64>, resolved: usize },
}

impl Searching {
    /// The search of a command.
    pub fn new(command: &TreeCommand<'_>) -> Result<Self, Status> {
        let mut only = None;
        let (window, predicate, count, refining) = match *command {
            TreeCommand::Search { window, predicate } => (window, predicate, None, None),
            TreeCommand::Count { window, predicate } => (window, predicate, Some(0), None),
            TreeCommand::Refine { refine, of } => {
                only = of.map(|objects| objects.tree);
                let refining = Refining::new(refine, of.map(|objects| objects.words))?;
                (refining.window(), refining.predicate(), None, Some(Box::new(refining)))
            }
            TreeCommand::CountRefined { refine } => {
                let refining = Refining::new(refine, None)?;
                (refining.window(), refining.predicate(), Some(0), Some(Box::new(refining)))
            }
            TreeCommand::Nearest { wanted, .. } if wanted as usize > MAX_NEAREST => {
                return Err(Status::TooLarge);
            }
            TreeCommand::Nearest { x, y, wanted } => {
                let nearest = Nearest::new((x, y), wanted as usize);
                return Ok(Self::other(Other::Nearest(Box::new(nearest)), None));
            }
            TreeCommand::Resolve(ReadObjects { tree, words }) => {
                let words = words.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
                let resolve = Other::Resolve { words: words.collect(), resolved: 0 };
                return Ok(Self::other(resolve, Some(tree)));
            }
            _ => return Err(Status::Malformed),
        };
        let root = Slot { slot: 0, generation: 0, class: 0 };
        let (cursor, other) = (Cursor::new(window, predicate), None);
        Ok(Self { root, only, cursor, count, refining, other })
    }

    fn other(other: Other, only: Option<NodeRef>) -> Self {
        let root = Slot { slot: 0, generation: 0, class: 0 };
        let cursor = Cursor::new(Rect::default(), Predicate::default());
        Self { root, only, cursor, count: None, refining: None, other: Some(other) }
    }

    /// It is to search this tree.
    pub fn enter(&mut self, root: Slot) {
        self.root = root;
    }

    /// The reply's number: objects counted, or nodes visited.
    fn number(&self) -> i64 {
        let nodes = self.cursor.nodes();
        match (self.count, &self.refining) {
            (Some(count), _) => count as i64,
            (None, Some(refining)) => refining.number(nodes),
            (None, None) => nodes as i64,
        }
    }
}

impl Trees {
    /// One turn of a search that is not one of a window.
    fn other_turn<J: Journal>(
        store: &Store<J>,
        named: &Named,
        other: &mut Other,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status> {
        let whole = |number| Turn { ended: true, number, gives_value: true, ..Turn::default() };
        match other {
            Other::Nearest(search) => {
                search.look_again(|word| {
                    let (word, rect) = named.present(store, word)?;
                    named.is_given(store, word, now).then_some(Object { rect, word })
                });
                let may_expire = named.with.expiry > 0;
                let counts =
                    |object: &Object| !may_expire || named.is_given(store, object.word, now);
                match named.tree.nearest_some(&store.owner, search, NEAREST_TURN_WORK, counts) {
                    NearestTurn::Paused => Ok(Turn::default()),
                    NearestTurn::GaveUp => Err(Status::Outrun),
                    NearestTurn::Ended => {
                        let nearest = search.found();
                        for object in &nearest {
                            named.give(store, object, now, found);
                        }
                        Ok(whole(nearest.len() as i64))
                    }
                }
            }
            Other::Resolve { words, resolved } => {
                let some = words[*resolved..].iter().take(RESOLVE_TURN_WORDS);
                for &word in some.clone() {
                    match named.text_of(store, word, now) {
                        Some(text) if is_surrogate(word) => Items::push(found, text),
                        _ => Items::push_none(found),
                    }
                }
                *resolved += some.len();
                Ok(Turn { ended: *resolved == words.len(), ..whole(*resolved as i64) })
            }
        }
    }

    /// Continues a search for one turn of the shard; appends the objects that it finds to `found`,
    /// or verdicts on them.
    ///
    /// # Errors
    /// `NoTree`: the tree was removed meanwhile, or the key has another one than the client read.
    /// `Outrun`: it changes too much for a search for the nearest.
    pub(super) fn search_turn<J: Journal>(
        &self,
        store: &Store<J>,
        search: &mut Searching,
        found: &mut Vec<u8>,
        now: Now,
    ) -> Result<Turn, Status> {
        let named = self.by_root.get(&search.root.slot).filter(|named| {
            named.root.generation == search.root.generation
                && store.is_live(named.root)
                && search.only.is_none_or(|only| only == named.tree.at())
        });
        let named = named.ok_or(Status::NoTree)?;
        if let Some(other) = &mut search.other {
            return Self::other_turn(store, named, other, found, now);
        }
        let node = node_bytes(named.tree.header().capacity as usize);
        let step = (SEARCH_TURN_BYTES / node).max(1) as u64;
        let last = search.cursor.nodes() + SEARCH_TURN_NODES;
        let Searching { cursor, count, refining, .. } = search;
        let before = found.len();
        let ended = match refining {
            Some(refining) => {
                self.refine_turn(store, named, cursor, refining, (found, count.as_mut()), now)
            }
            // Bounded: each step visits a node, or ends.
            None => loop {
                let ended = match count {
                    Some(count) => Self::count_some(store, named, (cursor, step), count, now),
                    None => named.tree.search_some(&store.owner, cursor, step, |object| {
                        named.give(store, object, now, found);
                    }),
                };
                let is_full = found.len() - before >= SEARCH_TURN_BYTES || cursor.nodes() >= last;
                if ended || is_full {
                    break ended;
                }
            },
        };
        Ok(Turn {
            ended,
            number: search.number(),
            gives_value: search.count.is_none(),
            has_doubles: search.cursor.restarts() > 0,
            is_counted: false,
        })
    }

    /// Continues a count.
    fn count_some<J: Journal>(
        store: &Store<J>,
        named: &Named,
        (cursor, step): (&mut Cursor, u64),
        count: &mut u64,
        now: Now,
    ) -> bool {
        let restarts = cursor.restarts();
        let mut met = 0;
        let ended = named.tree.search_some(&store.owner, cursor, step, |object| {
            met += u64::from(named.is_given(store, object.word, now));
        });
        // Counted anew where the search began again.
        *count = if cursor.restarts() == restarts { *count + met } else { met };
        ended
    }

    /// A search to its end, for a caller that cannot take it in turns.
    pub(super) fn whole_search<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        root: u32,
        command: &TreeCommand<'_>,
        now: Now,
    ) -> Reply<'s> {
        let mut searching = match Searching::new(command) {
            Ok(searching) => searching,
            Err(status) => return Reply::status(status),
        };
        searching.enter(slot_of(&store.owner, root));
        let mut found = std::mem::take(&mut self.scratch);
        found.clear();
        // Bounded by the tree: nothing changes meanwhile.
        let turn = loop {
            match self.search_turn(store, &mut searching, &mut found, now) {
                Ok(Turn { ended: false, .. }) => {}
                turn => break turn,
            }
        };
        self.scratch = found;
        match turn {
            Ok(Turn { number, gives_value, .. }) => {
                Reply { value: gives_value.then_some(&self.scratch[..]), ..Reply::number(number) }
            }
            Err(status) => Reply::status(status),
        }
    }
}
