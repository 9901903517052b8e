//! Searches of trees of places for plans: one read each, and the fields of what it finds.

use crate::types::sought::{Area, Met, Seek, Sought};
use remora_layout::limits::MAX_NEAREST;
use remora_layout::node::ENTRY_BYTES;
use remora_layout::rect::Predicate;
use remora_protocol::tree::{FoundObjects, ObjectId, TreeCommand};
use remora_protocol::{Items, Request};

struct SeekObjects {
    area: Area,
    skip: usize,
    count: usize,
}

/// The search for objects.
pub(super) fn seek(sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
    let Sought::Objects { area, skip, count } = *sought else { return None };
    Some(Box::new(SeekObjects { area, skip, count }))
}

impl SeekObjects {
    /// Objects that a search for the nearest asks for: those that were given before come again.
    fn asked(&self) -> usize {
        self.skip.saturating_add(self.count).min(MAX_NEAREST)
    }
}

impl Seek for SeekObjects {
    fn request(&mut self) -> Option<Request<'_>> {
        let search = match self.area {
            Area::Nearest(x, y) => TreeCommand::Nearest { x, y, wanted: self.asked() as u32 },
            Area::Window(window) => {
                TreeCommand::Search { window, predicate: Predicate::Intersects }
            }
        };
        Some(search.request())
    }

    fn is_enough(&self, found: &[u8]) -> bool {
        // No part is shorter than an entry.
        matches!(self.area, Area::Window(_)) && found.len() > self.count * ENTRY_BYTES
    }

    fn take(&mut self, found: &[u8]) -> Option<Met> {
        let ids = FoundObjects::of(found).iter().map(|(_, id)| id.with_text(|text| text.into()));
        if let Area::Window(_) = self.area {
            return Some(Met::Objects { ids: ids.take(self.count).collect(), next: 0 });
        }
        let (all, asked): (Vec<Box<[u8]>>, _) = (ids.collect(), self.asked());
        let next = if all.len() == asked { asked as u64 } else { 0 };
        Some(Met::Objects { ids: all.into_iter().skip(self.skip).collect(), next })
    }

    fn fields<'s>(&self, id: &'s [u8], names: Items<'s>) -> Option<Request<'s>> {
        Some(TreeCommand::GetFields { id: ObjectId::of_text(id), names }.request())
    }
}
