//! Objects as a file that [`crate::read`] reads as the same objects, and that
//! other programs read: nodes, then ways, then relations, each sorted by their
//! ids.

mod block;
mod error;
mod plan;

pub use error::{Unwritable, WriteError};

use crate::element::{Element, ElementKind, ID_TAG};
use block::{Section, write_header};
use plan::{Plan, with_type};
use remora_geometry::Shape;
use std::fs::File;
use std::io::{self, Seek, Write};

/// Longest key or value of a tag, in characters: OpenStreetMap's limit, and
/// that of programs that read such files.
const MAX_TEXT: usize = 255;

/// Greatest id of an element that is kept: a hundred times what OpenStreetMap
/// has given out. Programs keep tables that are as long as the greatest id.
const GREATEST_ID: i64 = 1 << 40;

/// Writes a file.
///
/// A point is a node, a line a way, a polygon a closed way if its tags say that
/// it is an area, else a relation of type `multipolygon`, as are several
/// polygons. Coordinates become multiples of 1e-7 degrees.
///
/// An object whose id names the kind of its element, see
/// [`Element::object_id`], is the element of that id, up to 2^40. All other
/// elements have ids beyond those, and the tag [`ID_TAG`] says which object they are. An
/// object without tags gets it too: an element without any is none.
///
/// It keeps a block of each section in memory, some MiB in all. Sections but
/// the first wait in files of their own.
pub struct Writer<W> {
    /// Nodes whose ids are those of their objects.
    first: Section<W>,
    /// Other nodes, then ways and relations in the same manner.
    others: [Section<File>; 5],
    /// The ids that elements get next, by their kinds.
    free: [i64; 3],
}

impl<W: Write> Writer<W> {
    /// Begins a file for objects whose ids are `greatest` at most. `spool`
    /// gives files that are empty, can be read, and go away by themselves.
    ///
    /// # Errors
    /// If a file cannot be made or written.
    pub fn begin(
        mut out: W,
        greatest: u64,
        mut spool: impl FnMut() -> io::Result<File>,
    ) -> io::Result<Self> {
        write_header(&mut out)?;
        let mut others = || Ok::<_, io::Error>(Section::new(spool()?));
        let others = [others()?, others()?, others()?, others()?, others()?];
        let free = GREATEST_ID.min((greatest / 4) as i64) + 1;
        Ok(Self { first: Section::new(out), others, free: [free; 3] })
    }

    /// Writes one object; objects come in the order of their ids, each once.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn object(
        &mut self,
        id: u64,
        shape: &Shape,
        tags: &[(&str, &str)],
    ) -> Result<(), WriteError> {
        check_tags(tags)?;
        let plan = Plan::of(shape.geometry(), tags)?;
        let element = Element { kind: plan.kind, id: (id / 4) as i64 };
        let is_kept = element.object_id() == Some(id) && (1..=GREATEST_ID).contains(&element.id);
        let element = if is_kept { element.id } else { self.take_ids(plan.kind, 1) };
        let mut tags = with_type(tags, &plan);
        let own_id = id.to_string();
        if !is_kept || tags.is_empty() {
            tags.push((ID_TAG, &own_id));
        }
        match plan.kind {
            ElementKind::Node if is_kept => self.first.node(element, plan.places[0], &tags)?,
            ElementKind::Node => self.others[0].node(element, plan.places[0], &tags)?,
            ElementKind::Way => {
                let nodes = self.corners(&plan)?;
                let ids = plan.lines[0].ids(nodes);
                self.others[2 - usize::from(is_kept)].way(element, &ids, &tags)?;
            }
            ElementKind::Relation => {
                let nodes = self.corners(&plan)?;
                let mut members = Vec::new();
                for line in &plan.lines {
                    let way = self.take_ids(ElementKind::Way, 1);
                    self.others[2].way(way, &line.ids(nodes), &[])?;
                    members.push((way, if line.is_inner { "inner" } else { "outer" }));
                }
                self.others[4 - usize::from(is_kept)].relation(element, &members, &tags)?;
            }
        }
        Ok(())
    }

    /// Writes the nodes that lines go over; gives the first one's id.
    fn corners(&mut self, plan: &Plan) -> io::Result<i64> {
        let first = self.take_ids(ElementKind::Node, plan.places.len() as i64);
        for (id, place) in (first..).zip(&plan.places) {
            self.others[0].node(id, *place, &[])?;
        }
        Ok(first)
    }

    fn take_ids(&mut self, kind: ElementKind, count: i64) -> i64 {
        let free = &mut self.free[kind as usize];
        *free += count;
        *free - count
    }

    /// Writes what is left, one section after the other.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn end(self) -> io::Result<()> {
        let mut out = self.first.end()?;
        for section in self.others {
            let mut spool = section.end()?;
            spool.rewind()?;
            io::copy(&mut spool, &mut out)?;
        }
        out.flush()
    }
}

fn check_tags(tags: &[(&str, &str)]) -> Result<(), Unwritable> {
    // This writer adds two at most.
    if tags.len() > crate::block::MAX_TAGS - 2 {
        return Err(Unwritable::Tags);
    }
    for (key, value) in tags {
        let is_bad = |text: &str| text.contains('\0') || text.chars().count() > MAX_TEXT;
        if is_bad(key) || is_bad(value) {
            return Err(Unwritable::Text);
        }
        if *key == ID_TAG {
            return Err(Unwritable::IdTag);
        }
    }
    Ok(())
}
