//! The search of a plan: its shard gives more objects than the run wants at once, and the rest is kept here.

use remora_plan::limits::MAX_WINDOW_OBJECTS;
use remora_plan::{Area, Given, Object, Want};
use std::collections::VecDeque;

/// By how much more objects are asked for each time.
const GROWTH: u32 = 4;

/// A plan has one search at most: that of its start.
#[derive(Default)]
pub struct Search {
    /// Objects that were found, and not wanted yet.
    kept: VecDeque<Object>,
    /// What the shard goes on behind, if there is more than that.
    next: Option<remora_plan::Bytes>,
    /// How many were asked for last, and how many of them the run wants at once.
    asked: u32,
    wanted: u32,
}

impl Search {
    /// What is given for a want without asking.
    pub fn at_hand(&mut self, want: &Want) -> Option<Given> {
        let Want::Objects { count, .. } = want else { return None };
        (!self.kept.is_empty()).then(|| self.first(*count))
    }

    /// What the shard is asked for.
    pub fn widened(&mut self, want: &Want) -> Want {
        let Want::Objects { tree, area, fields, count, .. } = want else { return want.clone() };
        self.wanted = *count;
        self.asked = match area {
            // The whole window at once: what moves meanwhile is found or not, but not twice.
            Area::Window(_) => MAX_WINDOW_OBJECTS as u32 + 1,
            Area::Nearest(..) => (*count).max(self.asked.saturating_mul(GROWTH)),
        };
        let (tree, area, fields) = (tree.clone(), *area, fields.clone());
        Want::Objects { tree, area, fields, count: self.asked, next: self.next.clone() }
    }

    /// Takes an answer. What is given to the run; none if the shard has more behind what it has found,
    /// and all of that has gone.
    pub fn take(&mut self, given: Given) -> Option<Given> {
        let Given::Objects { objects, next } = given else { return Some(given) };
        (self.kept, self.next) = (objects.into(), next);
        let is_over = self.kept.is_empty() && self.next.is_some();
        (!is_over).then(|| self.first(self.wanted))
    }

    /// The first objects that are kept.
    fn first(&mut self, count: u32) -> Given {
        let objects = self.kept.drain(..self.kept.len().min(count as usize)).collect();
        let goes_on = !self.kept.is_empty() || self.next.is_some();
        let next = goes_on.then(|| self.next.clone().unwrap_or_default());
        Given::Objects { objects, next }
    }
}
