//! Results of searches of trees.

use remora_client_core as core;
use remora_layout::rect::Rect;
use remora_protocol::tree::ObjectId;

/// An object that a search has found.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct TreeHit<'s> {
    /// Its id.
    pub id: ObjectId<'s>,
    /// Where it is.
    pub rect: Rect,
}

/// The result of a search, how it was served, and its cost.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TreeFound<'s> {
    found: Found<'s>,
    /// How the search was served.
    pub served_by: core::ServedBy,
    /// What it cost. `nodes` are those that crossed the fabric.
    pub counts: core::Counts,
    /// Nodes examined, cached ones included; of an asked window, those that the server visited.
    pub nodes_visited: u64,
    /// Objects whose rectangles fitted, so that their geometries were compared; `None` for a
    /// search by rectangles alone.
    pub candidates: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Found<'s> {
    ByRects(core::TreeFound<'s>),
    ByShapes(core::RefinedFound<'s>),
}

impl<'s> TreeFound<'s> {
    pub(super) fn of(found: core::TreeFound<'s>) -> Self {
        Self {
            served_by: found.served_by,
            counts: found.counts,
            nodes_visited: found.nodes_visited,
            candidates: None,
            found: Found::ByRects(found),
        }
    }

    pub(super) fn refined(found: core::RefinedFound<'s>) -> Self {
        Self {
            served_by: found.served_by,
            counts: found.counts,
            nodes_visited: found.nodes_visited,
            candidates: Some(found.candidates),
            found: Found::ByShapes(found),
        }
    }

    /// Number of objects.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// assert!(session.tree(b"couriers")?.nearest(2.35, 48.86, 5)?.len() <= 5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        match &self.found {
            Found::ByRects(found) => found.objects.len(),
            Found::ByShapes(found) => found.objects.len(),
        }
    }

    /// Whether nothing was found.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let no_courier = session.tree(b"couriers")?.nearest(2.35, 48.86, 1)?.is_empty();
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects: of a window in no order, else the nearest first.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for courier in session.tree(b"couriers")?.nearest(2.35, 48.86, 5)?.iter() {
    ///     println!("{}: {:?}", courier.id, courier.rect);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = TreeHit<'s>> {
        let found = self.found;
        let objects = match found {
            Found::ByRects(found) => found.objects,
            Found::ByShapes(found) => found.objects,
        };
        objects.iter().map(move |object| {
            let id = match found {
                Found::ByRects(found) => found.id(object),
                Found::ByShapes(found) => found.id(object),
            };
            TreeHit { id, rect: object.rect }
        })
    }
}

/// How many objects a search by shapes counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TreeCount {
    /// The objects that fit.
    pub objects: u64,
    /// How the search was served.
    pub served_by: core::ServedBy,
    /// What it cost.
    pub counts: core::Counts,
}

impl TreeCount {
    pub(super) fn of(counted: core::RefinedCount) -> Self {
        let core::RefinedCount { objects, served_by, counts, .. } = counted;
        Self { objects, served_by, counts }
    }
}
