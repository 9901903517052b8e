//! OpenStreetMap's PBF files; the writing itself is `remora-osm`'s.

use super::properties::properties;
use crate::import::boxes::box_ring;
use crate::refusals::{Refusal, Refusals};
use anyhow::Context;
use remora_client_core::{ObjectId, Rect};
use remora_geometry::Shape;
use remora_geometry::geo_types::{Geometry, LineString, Point, Polygon};
use remora_osm::{Unwritable, WriteError, Writer};
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// Writes objects as elements, and counts those that cannot be any.
pub struct Pbf<W> {
    writer: Writer<W>,
    refusals: Refusals,
    /// Objects seen, those left out too.
    objects: u64,
}

impl<W: Write> Pbf<W> {
    /// Begins a file of objects with ids of at most `greatest`; parts of it wait in nameless files
    /// in the directory `spool`.
    pub fn begin(out: W, greatest: u64, spool: &Path) -> anyhow::Result<Self> {
        let writer = Writer::begin(out, greatest, || tempfile::tempfile_in(spool))
            .context("beginning a PBF file")?;
        Ok(Self { writer, refusals: Refusals::default(), objects: 0 })
    }

    /// Writes one object.
    pub fn object(
        &mut self,
        id: ObjectId<'_>,
        rect: &Rect,
        shape: Option<Shape>,
        data: Option<&[u8]>,
    ) -> anyhow::Result<()> {
        self.objects += 1;
        let ObjectId::Number(id) = id else {
            let refusal = Refusal::new("its id is no integer", id.to_string());
            self.refusals.add(self.objects, refusal);
            return Ok(());
        };
        let tags = data.filter(|data| !data.is_empty()).map(properties).unwrap_or_default();
        let tags: Vec<(String, String)> =
            tags.into_iter().map(|(key, value)| (key, text(value))).collect();
        let tags: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let shape = shape.map_or_else(|| of_box(rect), Ok);
        // A box beyond the limits of geometries is beyond the globe.
        let written = match &shape {
            Ok(shape) => self.writer.object(id, shape, &tags),
            Err(why) => Err((*why).into()),
        };
        match written {
            Err(WriteError::Unwritable(why)) => {
                self.refusals.add(id, Refusal::new(why.reason(), ""));
                Ok(())
            }
            other => other.context("writing elements"),
        }
    }

    /// Writes the rest; returns the objects that were left out.
    pub fn end(self) -> anyhow::Result<Refusals> {
        self.writer.end().context("writing the last elements")?;
        Ok(self.refusals)
    }
}

/// A bounding box as a geometry: one without extent is a point.
fn of_box(rect: &Rect) -> Result<Shape, Unwritable> {
    let geometry = if rect.min_x == rect.max_x && rect.min_y == rect.max_y {
        Geometry::Point(Point::new(rect.min_x, rect.min_y))
    } else {
        Geometry::Polygon(Polygon::new(LineString::from(box_ring(rect).to_vec()), Vec::new()))
    };
    Shape::new(geometry).map_err(|_| Unwritable::OffGlobe)
}

/// A tag's value: a text as it is, anything else as JSON.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
