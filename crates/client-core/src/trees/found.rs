//! What searches of trees find.

use super::names::Names;
use crate::counts::Counts;
use crate::path::ServedBy;
use remora_index::rtree::Object;
use remora_layout::rect::Rect;
use remora_protocol::tree::{Fields, ObjectId};

/// What a search found.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TreeFound<'s> {
    /// The objects: of a window in no order, otherwise the nearest first. Valid until the session
    /// is used again. An object's word is its id, if that is an integer and the object never had an
    /// expiry; [`TreeFound::id`] returns the id of any object.
    pub objects: &'s [Object],
    pub(super) names: &'s Names,
    /// How it was fetched.
    pub served_by: ServedBy,
    /// What it cost. `nodes` are those that crossed the fabric.
    pub counts: Counts,
    /// Nodes examined, cached ones included; for an asked window those that the server visited.
    pub nodes_visited: u64,
}

impl<'s> TreeFound<'s> {
    /// The id of one of the objects.
    pub fn id(&self, object: &Object) -> ObjectId<'s> {
        self.names.id_of(object)
    }

    /// Ids and rectangles, in the order of the objects.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId<'s>, Rect)> {
        self.objects.iter().map(|object| (self.names.id_of(object), object.rect))
    }
}

/// What a refined search found.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RefinedFound<'s> {
    /// The objects, in no order, as in [`crate::TreeFound`]. Valid until the
    /// session is used again.
    pub objects: &'s [Object],
    pub(super) names: &'s Names,
    /// How they were fetched. A search that read, and asked about some of the objects, is
    /// [`ServedBy::AskedAfterRead`].
    pub served_by: ServedBy,
    /// What it cost. `nodes` are those of the tree, and records, that crossed.
    pub counts: Counts,
    /// Nodes examined, as in [`crate::TreeFound`].
    pub nodes_visited: u64,
    /// Objects whose rectangles fitted, so that their geometries were compared.
    pub candidates: u64,
}

impl<'s> RefinedFound<'s> {
    /// The id of one of the objects.
    pub fn id(&self, object: &Object) -> ObjectId<'s> {
        self.names.id_of(object)
    }
}

/// How many objects a refined search counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RefinedCount {
    /// The objects that fit.
    pub objects: u64,
    /// How it was fetched, as in [`RefinedFound`].
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// An object: where it is, and what it carries.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct TreeObject<'s> {
    /// Where it is.
    pub rect: Rect,
    /// Its bytes, if it carries any. Valid until the session is used again.
    pub data: Option<&'s [u8]>,
    /// Its geometry in WKB, if it has one; valid as long.
    pub geometry: Option<&'s [u8]>,
    /// Its fields; valid as long.
    pub fields: Fields<'s>,
    /// When it expires, in Unix ms.
    pub expires_at_ms: Option<u64>,
}
