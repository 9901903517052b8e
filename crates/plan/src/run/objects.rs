//! The objects of a search in a tree of places, and the keys that they name.

use super::row::{Item, Row, refusal};
use super::rows::{Fetch, Next, Output, Taken, skip};
use crate::limits::{LEAST_AHEAD, MAX_NEAREST, MAX_WINDOW_OBJECTS, OBJECTS_AT_ONCE};
use crate::outcome::{Explain, Limit, Skipped};
use crate::plan::{self, Bytes, Condition};
use crate::want::{Area, Given, Object, Want};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A search for objects.
#[derive(Debug)]
pub(super) struct Search {
    objects: plan::Objects,
    area: Area,
    fields: Arc<[Bytes]>,
    /// Objects that may still be handed on.
    left: u64,
    /// Objects that were given, and are next.
    here: VecDeque<Object>,
    /// Ids of all objects that a search for the nearest was given.
    met: BTreeSet<Bytes>,
    /// Objects of the window so far, by their ids.
    window: BTreeMap<Bytes, Object>,
    progress: Progress,
}

/// How far the tree's search is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Progress {
    /// It goes on with this.
    Next(Option<Bytes>),
    Ended,
}

impl Search {
    /// All objects of an area, or of a search for the nearest at most `count` that meet the
    /// conditions.
    pub fn new(objects: plan::Objects, area: Area, count: Option<u32>) -> Self {
        let fields = objects.conditions.iter().map(|condition| condition.field.clone());
        let fields: BTreeSet<_> = fields.collect();
        Self {
            objects,
            area,
            fields: fields.into_iter().collect(),
            left: count.map_or(u64::MAX, u64::from),
            here: VecDeque::new(),
            met: BTreeSet::new(),
            window: BTreeMap::new(),
            progress: Progress::Next(None),
        }
    }

    pub fn take(&mut self, row: Row, fetch: &mut Fetch, out: &mut dyn Output) -> Taken {
        match std::mem::take(fetch) {
            Fetch::Here(Given::Objects { objects, next }) => self.read(objects, next),
            Fetch::Here(Given::NoMoreNearest) if matches!(self.area, Area::Nearest(..)) => {
                out.push(Next::End(Limit::Nearest));
                return Taken::Stop;
            }
            Fetch::Here(other) => {
                out.charge(&refusal(&other));
                return Taken::Stop;
            }
            Fetch::Idle | Fetch::Wanted(_) => {}
        }
        if self.window.len() > MAX_WINDOW_OBJECTS {
            out.push(Next::End(Limit::Window));
            return Taken::Stop;
        }
        let mut moved = false;
        while out.has_room() && self.left > 0 {
            let Some(object) = self.here.pop_front() else { break };
            self.hand_on(&object, out);
            moved = true;
        }
        let is_over = self.here.is_empty() && self.progress == Progress::Ended;
        if self.left == 0 || is_over { Taken::Stop } else { Taken::Back { row, moved } }
    }

    /// Takes a piece of the tree's answer.
    fn read(&mut self, objects: Vec<Object>, next: Option<Bytes>) {
        self.progress = match next {
            Some(next) if !objects.is_empty() => Progress::Next(Some(next)),
            _ => Progress::Ended,
        };
        if let Area::Nearest(..) = self.area {
            let new = objects.into_iter().filter(|object| self.met.insert(object.id.clone()));
            self.here.extend(new);
            return;
        }
        self.window.extend(objects.into_iter().map(|object| (object.id.clone(), object)));
        if self.progress == Progress::Ended && self.window.len() <= MAX_WINDOW_OBJECTS {
            self.here = std::mem::take(&mut self.window).into_values().collect();
        }
    }

    /// Tests an object, and hands on the key that it names.
    fn hand_on(&mut self, object: &Object, out: &mut dyn Output) {
        out.charge(&Explain { objects: 1, ..Explain::default() });
        let value = |name: &Bytes| {
            let field = object.fields.iter().find(|(other, _)| other == name);
            field.map(|(_, value)| &**value)
        };
        let holds = |condition: &Condition| condition.holds(value(&condition.field));
        if !self.objects.conditions.iter().all(holds) {
            return skip(out, Skipped { filtered: 1, ..Skipped::default() });
        }
        self.left -= 1;
        let key = [&*self.objects.prefix, &*object.id].concat();
        match Item::of_key(key.into()) {
            Some(item) => out.push(Next::Row(Row::at(item))),
            None => skip(out, Skipped { not_a_key: 1, ..Skipped::default() }),
        }
    }

    pub fn want(&self) -> Option<Want> {
        let Progress::Next(next) = &self.progress else { return None };
        self.here.is_empty().then(|| Want::Objects {
            tree: self.objects.tree.clone(),
            area: self.area,
            fields: self.fields.clone(),
            count: self.count(),
            next: next.clone(),
        })
    }

    /// How many objects to want: those that are left, and as many again if some will not do.
    fn count(&self) -> u32 {
        let left = self.left.min(MAX_NEAREST.into()) as u32;
        let is_filtered = !self.objects.conditions.is_empty();
        let count = if is_filtered { (2 * left).max(LEAST_AHEAD as u32) } else { left };
        count.min(OBJECTS_AT_ONCE)
    }
}
