//! Objects of trees that plans start from.

use super::views::PlanTrees;
use crate::core::Core;
use crate::error::Error;
use crate::path::Path;
use crate::trees::TreeSearcher;
use remora_index::rtree::Query;
use remora_layout::limits::MAX_NEAREST;
use remora_layout::rect::Predicate;
use remora_plan::limits::MAX_WINDOW_OBJECTS;
use remora_plan::{Area, Given, Object, Want};
use remora_protocol::message::Status;

/// Searches a tree by READs. `None`: ask for the whole plan, because objects have fields that the plan
/// tests, or the key holds no such tree.
pub(super) fn search(
    core: &mut Core,
    (open, trees): (&mut PlanTrees, &mut TreeSearcher),
    want: &Want,
) -> Result<Option<Given>, Error> {
    let Want::Objects { tree, area, fields, count, next } = want else { return Ok(None) };
    if !fields.is_empty() {
        return Ok(None);
    }
    if !open.places.has(tree) {
        let view = match trees.open_tree(core, tree) {
            Err(Error::Refused(_)) => return Ok(None),
            view => view?,
        };
        let Some(view) = view else { return Ok(None) };
        open.places.keep(tree.clone(), view);
    }
    let view = open.places.get_mut(tree).expect("it was just put there");
    let skip =
        next.as_ref().and_then(|next| (**next).try_into().ok()).map_or(0, u64::from_le_bytes);
    if skip as usize >= MAX_NEAREST {
        return Ok(Some(Given::NoMoreNearest));
    }
    let wanted = (skip as usize).saturating_add(*count as usize).min(MAX_NEAREST);
    let query = match *area {
        Area::Window(window) => Query::Window { window, predicate: Predicate::Intersects },
        Area::Nearest(x, y) => Query::Nearest { x, y, wanted },
    };
    let found = match trees.search(core, view, &query, Path::Read) {
        Err(Error::Refused(Status::NoTree | Status::WrongType)) => {
            open.places.forget(tree);
            return Ok(None);
        }
        found => found?,
    };
    let ids = found.iter().map(|(id, _)| {
        let mut text = Vec::new();
        id.with_text(|id| text.extend_from_slice(id));
        Object { id: text.into(), fields: Vec::new() }
    });
    let objects: Vec<Object> = match area {
        // One more than allowed: the run sees that there are too many.
        Area::Window(_) => ids.take(MAX_WINDOW_OBJECTS + 1).collect(),
        Area::Nearest(..) => ids.skip(skip as usize).collect(),
    };
    let is_nearest = matches!(area, Area::Nearest(..));
    let goes_on = is_nearest && found.objects.len() >= wanted;
    let next = goes_on.then(|| (wanted as u64).to_le_bytes()[..].into());
    Ok(Some(Given::Objects { objects, next }))
}
