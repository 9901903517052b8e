//! The sum of a tree's content: its settings, and its objects with their payload. Staged objects
//! are not part of the tree yet.

use super::record::{carried_in, expires_at_ms};
use super::trees::Trees;
use crate::store::Store;
use crate::types::content::Content;
use remora_arena::Journal;
use remora_index::rtree::{Cursor, Object};
use remora_layout::limits::SEARCH_TURN_NODES;
use remora_layout::object::is_surrogate;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::tree::ObjectId;
use zerocopy::IntoBytes;

/// Every rectangle lies in it.
const EVERYWHERE: Rect =
    Rect { min_x: f64::MIN, max_x: f64::MAX, min_y: f64::MIN, max_y: f64::MAX };

impl Trees {
    pub(super) fn digest_tree<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        content: &mut Content,
    ) -> bool {
        let named = self.named(root);
        let mut cursor = match content.at.take().map(|at| at.downcast::<Cursor>()) {
            Some(Ok(cursor)) => cursor,
            _ => {
                let header = named.tree.header();
                let settings = [header.kind as u64, header.capacity.into()];
                content.add(&[settings.as_bytes(), header.bounds.as_bytes()]);
                Box::new(Cursor::new(EVERYWHERE, Predicate::Intersects))
            }
        };
        let mut objects: Vec<Object> = Vec::new();
        let ended =
            named.tree.search_some(&store.owner, &mut cursor, SEARCH_TURN_NODES, |object| {
                objects.push(*object);
            });
        debug_assert_eq!(cursor.restarts(), 0, "nothing is changed meanwhile");
        for object in objects {
            let slot = named.record(store, object.word);
            let payload = slot.map(|slot| carried_in(store, slot)).unwrap_or_default();
            let expires = slot.map_or(0, |slot| expires_at_ms(store, slot)).to_le_bytes();
            let rect = object.rect.as_bytes();
            let mut add = |id: &[u8]| {
                content.add(&[id, rect, payload.geometry, payload.fields, payload.data, &expires]);
            };
            // A surrogate says nothing outside this shard.
            match is_surrogate(object.word) {
                true => add(payload.id),
                false => ObjectId::Number(object.word).with_text(add),
            }
        }
        content.at = Some(cursor);
        ended
    }
}
