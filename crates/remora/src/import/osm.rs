//! OpenStreetMap's PBF files; the reading itself is `remora-osm`'s.

use super::intake::{Intake, Refusal, Row, Sink};
use anyhow::anyhow;
use remora_osm::{Element, Error, Filter, Limits, Object, Unusable, read as read_file};
use std::io::{Read, Seek};

/// Most bytes that are kept of a file while it is read: the places of 256
/// million nodes.
const LIMITS: Limits = Limits { kept_bytes: 4 << 30 };

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
                // A point is its bounding box.
                let has_geometry = !boxes && !shape.is_point();
                if has_geometry {
                    wkb = shape.to_wkb();
                }
                let geometry = has_geometry.then_some(&wkb[..]);
                Ok(Row { id: Some(*id), rect: shape.bounds(), geometry, data: Some(tags) })
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
