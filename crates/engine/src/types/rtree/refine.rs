//! Refined searches: the shard compares the geometries of the objects found in a window, in turns
//! bounded by the geometries' bytes (C10).

use super::named::Named;
use super::record::{carried_in, record_pointer};
use super::trees::Trees;
use crate::store::{Now, Store};
use remora_arena::Journal;
use remora_geometry::{Comparison, Refine, ShapeError, work_done};
use remora_index::rtree::{Cursor, Object};
use remora_layout::limits::{
    REFINE_LEAST_BYTES, REFINE_TURN_BYTES, REFINE_TURN_WORK, SEARCH_TURN_BYTES, SEARCH_TURN_NODES,
};
use remora_layout::node::node_bytes;
use remora_layout::object::Verdict;
use remora_layout::pointer::RemotePointer;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{Refined, window_predicate};
use zerocopy::IntoBytes;

/// The geometry of a search, and the objects that it has yet to compare with it.
#[derive(Debug)]
pub(super) struct Refining {
    refine: Refine,
    /// The objects found in the window, each with the change of the shard as of which it was found.
    waiting: Vec<(Object, Option<u64>)>,
    /// The object whose comparison has paused, as it was when the comparison began.
    paused: Option<Comparing>,
    /// Whether the caller named the objects, and wants a verdict on each.
    gives_verdicts: bool,
    candidates: u64,
}

/// An object that is compared, and where its record was.
#[derive(Debug)]
struct Comparing {
    object: Object,
    pointer: RemotePointer,
    comparison: Comparison,
}

impl Refining {
    pub fn new(refine: &[u8], ids: Option<&[u8]>) -> Result<Self, Status> {
        let refine = Refine::from_bytes(refine).map_err(|error| match error {
            ShapeError::TooLong => Status::TooLarge,
            _ => Status::BadGeometry,
        })?;
        let ids_of = |ids: &[u8]| -> Vec<(Object, Option<u64>)> {
            let ids = ids.as_chunks::<8>().0.iter().rev();
            let object =
                |id: &[u8; 8]| Object { rect: Rect::default(), word: u64::from_le_bytes(*id) };
            ids.map(|id| (object(id), None)).collect()
        };
        let waiting = ids.map(ids_of);
        let gives_verdicts = waiting.is_some();
        let (waiting, paused) = (waiting.unwrap_or_default(), None);
        Ok(Self { refine, waiting, paused, gives_verdicts, candidates: 0 })
    }

    pub fn window(&self) -> Rect {
        self.refine.window()
    }

    pub fn predicate(&self) -> Predicate {
        window_predicate(&self.refine)
    }

    /// Whether an object is compared, or waits for that.
    fn is_comparing(&self) -> bool {
        self.paused.is_some() || !self.waiting.is_empty()
    }

    /// Continues the comparison that has paused. At its end it returns the object, the place of its
    /// record when the comparison began, and whether the relation holds.
    fn go_on(&mut self, work: u64) -> Option<(Object, RemotePointer, bool)> {
        let paused = self.paused.as_mut()?;
        let holds = paused.comparison.turn(&self.refine, work)?;
        let Comparing { object, pointer, .. } = self.paused.take()?;
        Some((object, pointer, holds))
    }

    pub fn number(&self, nodes: u64) -> i64 {
        let least = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Refined { nodes: least(nodes), candidates: least(self.candidates) }.to_number()
    }
}

impl Trees {
    /// One turn of a refined search. Objects are counted, or appended to
    /// `found`. True at its end.
    pub(super) fn refine_turn<J: Journal>(
        &self,
        store: &Store<J>,
        named: &Named,
        cursor: &mut Cursor,
        refining: &mut Refining,
        (found, mut count): (&mut Vec<u8>, Option<&mut u64>),
        time: Now,
    ) -> bool {
        let node = node_bytes(named.tree.header().capacity as usize);
        let step = (SEARCH_TURN_BYTES / node).max(1) as u64;
        let (last, before) = (cursor.nodes() + SEARCH_TURN_NODES, found.len());
        let (now, mut compared) = (store.last_sequence(), 0);
        let work_ends = work_done() + REFINE_TURN_WORK;
        let mut ended = refining.gives_verdicts;
        // Bounded: each round compares an object, visits a node, or ends.
        loop {
            while refining.is_comparing() {
                if refining.paused.is_none()
                    && let Some((object, seen)) = refining.waiting.pop()
                {
                    compared += begin(store, named, (object, seen == Some(now)), refining, time);
                }
                if let Some((object, pointer, holds)) =
                    refining.go_on(work_ends.saturating_sub(work_done()))
                {
                    if refining.gives_verdicts {
                        let verdict = Verdict::new(object, pointer, holds);
                        found.extend_from_slice(verdict.as_bytes());
                    } else if holds {
                        named.give(store, &object, time, found);
                    }
                }
                if let Some(count) = &mut count {
                    **count += u64::from(found.len() > before);
                    found.truncate(before);
                }
                let is_long = compared >= REFINE_TURN_BYTES || work_done() >= work_ends;
                if is_long || found.len() - before >= SEARCH_TURN_BYTES {
                    return ended && !refining.is_comparing();
                }
            }
            if ended || cursor.nodes() >= last {
                return ended;
            }
            let (waiting, restarts) = (&mut refining.waiting, cursor.restarts());
            ended = named.tree.search_some(&store.owner, cursor, step, |object| {
                waiting.push((*object, Some(now)));
            });
            if let Some(count) = &mut count
                && cursor.restarts() != restarts
            {
                // Objects that were counted come again.
                **count = 0;
            }
        }
    }
}

/// Begins to compare one object; gives how many bytes that is. `is_fresh`: nothing
/// has changed since it was found.
fn begin<J: Journal>(
    store: &Store<J>,
    named: &Named,
    (mut object, is_fresh): (Object, bool),
    refining: &mut Refining,
    now: Now,
) -> usize {
    let mut word = object.word;
    if !is_fresh {
        let Some((now_word, rect)) = named.present(store, word) else {
            return REFINE_LEAST_BYTES;
        };
        (word, object.rect) = (now_word, rect);
        // A request about an integer continues with it.
        if !refining.gives_verdicts {
            object.word = word;
        }
    }
    if !named.is_given(store, word, now) {
        return REFINE_LEAST_BYTES;
    }
    refining.candidates += 1;
    let record = named.record(store, word);
    let payload = record.map(|slot| carried_in(store, slot)).unwrap_or_default();
    let comparison = refining.refine.compare_with(&object.rect, payload.geometry);
    let pointer = record.map_or(RemotePointer::NONE, |slot| record_pointer(store, slot));
    refining.paused = Some(Comparing { object, pointer, comparison });
    payload.geometry.len().max(REFINE_LEAST_BYTES)
}
