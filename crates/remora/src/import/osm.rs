//! OpenStreetMap's PBF files; the reading itself is `remora-osm`'s.

use super::boxes::box_ring;
use super::intake::{Intake, Row, Sink};
use crate::refusals::Refusal;
use anyhow::anyhow;
use remora_geometry::Shape;
use remora_geometry::geo_types::Geometry;
use remora_osm::{Element, Error, Filter, Limits, Object, Unusable, read as read_file};
use std::io::{Read, Seek};

/// Most bytes that are kept of a file while it is read: the places of 256
/// million nodes.
const LIMITS: Limits = Limits { kept_bytes: 4 << 30 };

/// An object that has nothing but an id.
const NO_TAGS: &[u8] = b"{}";

/// Whether a geometry is its bounding box, or a point: an export writes an
/// object without a geometry so.
fn is_box(shape: &Shape) -> bool {
    match shape.geometry() {
        Geometry::Point(_) => true,
        Geometry::Polygon(polygon) => {
            let ring = polygon.exterior().0.iter().map(|at| [at.x, at.y]);
            polygon.interiors().is_empty() && ring.eq(box_ring(&shape.bounds()))
        }
        _ => false,
    }
}

/// Reads a file's objects that one of the filters keeps, or all without one;
/// with `boxes` only their bounding boxes.
pub fn read<S: Sink>(
    input: impl Read + Seek,
    filters: &[Filter],
    boxes: bool,
    intake: &mut Intake<'_, S>,
) -> anyhow::Result<()> {
    let mut number = 0;
    let mut take = |element: Element, object: Result<Object<'_>, Unusable>| {
        number += 1;
        let mut wkb = Vec::new();
        let row = match &object {
            Ok(Object { id, shape, tags }) => {
                let has_geometry = !boxes && !is_box(shape);
                if has_geometry {
                    wkb = shape.to_wkb();
                }
                let geometry = has_geometry.then_some(&wkb[..]);
                let data = (*tags != NO_TAGS).then_some(*tags);
                Ok(Row { id: Some((*id).into()), rect: shape.bounds(), geometry, data })
            }
            Err(why) => Err(refusal(element, why)),
        };
        Ok(intake.take(number, row)?)
    };
    read_file(input, filters, LIMITS, &mut take).map_err(|error| match error {
        Error::Sink(error) => anyhow!(error),
        other => other.into(),
    })
}

fn refusal(element: Element, why: &Unusable) -> Refusal {
    let reason = match why {
        Unusable::Id => "its id is negative or too large",
        Unusable::OffGlobe => "its place is not on the globe",
        Unusable::NodesMissing => "some of its nodes are not in the file",
        Unusable::WaysMissing => "some of its ways are not in the file",
        Unusable::Open => "its ways make no closed rings",
        Unusable::NoOuter => "it has no outer ring",
        Unusable::LostHole => "an inner ring of it lies in no outer one",
        Unusable::Shape(why) => return Refusal::of_shape(why, element),
    };
    Refusal::new(reason, element.to_string())
}
