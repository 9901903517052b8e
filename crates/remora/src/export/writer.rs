//! Objects as they stand in a file.

use super::format::ExportFormat;
use super::pbf::Pbf;
use super::properties::properties;
use crate::import::boxes::box_ring;
use crate::refusals::{Refusal, Refusals};
use anyhow::Context;
use remora_client_core::{ObjectId, Rect};
use remora_geometry::Shape;
use serde_json::{Value, json};
use std::io::Write;

/// Writes objects, one after the other.
pub enum Writer<'a, W: Write> {
    /// Rows.
    Csv {
        /// Their destination.
        rows: Box<csv::Writer<&'a mut W>>,
        /// Whether there is a column for geometries.
        has_geometries: bool,
    },
    /// Features, and whether they stand in a collection.
    Features {
        /// Their destination.
        out: &'a mut W,
        /// Whether they stand in a collection.
        in_collection: bool,
        /// Whether this will be the first.
        is_first: bool,
        /// Objects seen, those left out too.
        objects: u64,
        /// Those left out.
        refusals: Refusals,
    },
    /// Elements.
    Pbf(Box<Pbf<&'a mut W>>),
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes the part before the first object, for all formats but PBF; rows have a column for
    /// geometries only if there are any.
    pub fn begin(
        format: ExportFormat,
        has_geometries: bool,
        out: &'a mut W,
    ) -> anyhow::Result<Self> {
        if format == ExportFormat::Csv {
            let mut rows = csv::Writer::from_writer(out);
            let columns = ["id", "min_x", "min_y", "max_x", "max_y", "data", "wkt"];
            rows.write_record(&columns[..columns.len() - usize::from(!has_geometries)])?;
            return Ok(Self::Csv { rows: Box::new(rows), has_geometries });
        }
        let in_collection = format == ExportFormat::Geojson;
        if in_collection {
            out.write_all(b"{\"type\":\"FeatureCollection\",\"features\":[\n")?;
        }
        let refusals = Refusals::default();
        Ok(Self::Features { out, in_collection, is_first: true, objects: 0, refusals })
    }

    /// Writes one object, with its geometry in WKB if it has one.
    pub fn object(
        &mut self,
        id: ObjectId<'_>,
        rect: &Rect,
        geometry: Option<&[u8]>,
        data: Option<&[u8]>,
    ) -> anyhow::Result<()> {
        let shape =
            geometry.map(Shape::from_wkb).transpose().context("a geometry from the server")?;
        match self {
            Self::Csv { rows, has_geometries } => {
                id.with_text(|text| rows.write_field(text))?;
                for edge in [rect.min_x, rect.min_y, rect.max_x, rect.max_y] {
                    // Both ways of writing a number are exact; this is the short one.
                    rows.write_field(format!("{edge:?}"))?;
                }
                rows.write_field(data.unwrap_or_default())?;
                if *has_geometries {
                    rows.write_field(shape.map(|shape| shape.to_wkt()).unwrap_or_default())?;
                }
                rows.write_record(None::<&[u8]>)?;
            }
            Self::Features { out, in_collection, is_first, refusals, objects } => {
                *objects += 1;
                let id = match id {
                    ObjectId::Number(number) => Value::from(number),
                    ObjectId::Name(name) => match std::str::from_utf8(name) {
                        Ok(text) => text.into(),
                        Err(_) => {
                            refusals
                                .add(*objects, Refusal::new("its id is no text", id.to_string()));
                            return Ok(());
                        }
                    },
                };
                if *in_collection && !*is_first {
                    out.write_all(b",\n")?;
                }
                *is_first = false;
                let geometry = match &shape {
                    Some(shape) => serde_json::to_value(shape.to_geojson())?,
                    None => of_box(rect),
                };
                let feature = json!({
                    "type": "Feature",
                    "id": id,
                    "geometry": geometry,
                    "properties": data.map(properties),
                });
                serde_json::to_writer(&mut **out, &feature)?;
                if !*in_collection {
                    out.write_all(b"\n")?;
                }
            }
            Self::Pbf(pbf) => pbf.object(id, rect, shape, data)?,
        }
        Ok(())
    }

    /// Writes the part behind the last object; returns the objects that were left out.
    pub fn end(self) -> anyhow::Result<Refusals> {
        match self {
            Self::Csv { mut rows, .. } => rows.flush().context("writing the last rows")?,
            Self::Features { out, in_collection, refusals, .. } => {
                if in_collection {
                    out.write_all(b"\n]}\n")?;
                }
                return Ok(refusals);
            }
            Self::Pbf(pbf) => return pbf.end(),
        }
        Ok(Refusals::default())
    }
}

/// A bounding box as a geometry: one without extent is a point.
fn of_box(rect: &Rect) -> Value {
    if rect.min_x == rect.max_x && rect.min_y == rect.max_y {
        return json!({ "type": "Point", "coordinates": [rect.min_x, rect.min_y] });
    }
    json!({ "type": "Polygon", "coordinates": [box_ring(rect)] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::geojson::{read_document, read_lines};
    use crate::import::intake::tests::{Kept, taken_with_shapes};
    use crate::import::osm::read as read_elements;
    use crate::import::table::{Wanted, read as read_table};
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use std::io::Cursor;

    /// Geometries in WKB, by their objects' ids.
    type Shapes = std::collections::BTreeMap<u64, Vec<u8>>;

    fn written_with(format: ExportFormat, objects: &Kept, shapes: &Shapes) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::begin(format, !shapes.is_empty(), &mut out).unwrap();
        for (id, (rect, data)) in objects {
            let geometry = shapes.get(id).map(Vec::as_slice);
            writer.object((*id).into(), rect, geometry, data.as_deref()).unwrap();
        }
        writer.end().unwrap();
        out
    }

    fn written(format: ExportFormat, objects: &Kept) -> Vec<u8> {
        written_with(format, objects, &Shapes::new())
    }

    fn read_with(format: ExportFormat, boxes: bool, bytes: &[u8]) -> (Kept, Shapes) {
        let (keeper, summary, result) = taken_with_shapes(|intake| match format {
            ExportFormat::Csv => read_table(bytes, Wanted { boxes, ..Wanted::default() }, intake),
            ExportFormat::Geojson => read_document(bytes, boxes, intake),
            ExportFormat::Geojsonl => read_lines(bytes, boxes, intake),
            ExportFormat::Pbf => read_elements(Cursor::new(bytes), &[], boxes, intake),
        });
        result.unwrap();
        assert_eq!(summary.refused(), 0, "{summary:?}");
        (keeper.kept, keeper.shapes)
    }

    fn read(format: ExportFormat, bytes: &[u8]) -> Kept {
        let (kept, shapes) = read_with(format, false, bytes);
        assert!(shapes.is_empty(), "a box and a point need no geometry");
        kept
    }

    /// Objects with coordinates that use every bit, and bytes of several kinds.
    fn objects(data: impl Fn(&mut ChaCha8Rng) -> Option<Vec<u8>>) -> Kept {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let coordinate = |rng: &mut ChaCha8Rng| loop {
            let any = f64::from_bits(rng.random());
            let plain = (rng.random::<f64>() - 0.5) * 360.0;
            let chosen = if rng.random() { any } else { plain };
            if chosen.is_finite() {
                return chosen;
            }
        };
        let mut objects = Kept::new();
        for _ in 0..2000 {
            let [a, b, c, d] = std::array::from_fn(|_| coordinate(&mut rng));
            let rect = if rng.random() {
                Rect::new(a.min(b), a.max(b), c.min(d), c.max(d)).unwrap()
            } else {
                Rect::point(a, c).unwrap()
            };
            let data = data(&mut rng);
            objects.insert(rng.random::<u64>() >> 1, (rect, data));
        }
        objects
            .insert(i64::MAX as u64, (Rect::point(-0.0, f64::MIN_POSITIVE / 2.0).unwrap(), None));
        objects.insert(0, (Rect::new(f64::MIN, f64::MAX, -5.0, 5.0).unwrap(), None));
        objects
    }

    #[test]
    fn rows_bring_back_every_bit_and_byte() {
        let objects = objects(|rng| {
            let length = rng.random_range(0..40);
            (length > 0).then(|| (0..length).map(|_| rng.random_range(0..=255)).collect())
        });
        assert_eq!(read(ExportFormat::Csv, &written(ExportFormat::Csv, &objects)), objects);
    }

    #[test]
    fn features_bring_back_every_bit_and_property() {
        let objects = objects(|rng| match rng.random_range(0..4) {
            0 => None,
            1 => Some(b"{}".to_vec()),
            _ => {
                let text: String = (0..9).map(|_| rng.random::<char>()).collect();
                let value = json!({ "name": text, "nested": { "n": [rng.random::<f64>(), null] } });
                Some(serde_json::to_vec(&value).unwrap())
            }
        });
        for format in [ExportFormat::Geojson, ExportFormat::Geojsonl] {
            let bytes = written(format, &objects);
            assert_eq!(read(format, &bytes), objects);
            assert_eq!(written(format, &read(format, &bytes)), bytes);
        }
        let empty = Kept::new();
        for format in [ExportFormat::Csv, ExportFormat::Geojson, ExportFormat::Geojsonl] {
            assert_eq!(read(format, &written(format, &empty)), empty);
        }
    }

    #[test]
    fn geometries_of_every_kind_come_back() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let (mut objects, mut shapes) = (Kept::new(), Shapes::new());
        for id in 0..500 {
            let at = |rng: &mut ChaCha8Rng| {
                format!("{:?} {:?}", rng.random::<f64>() * 1e3, -rng.random::<f64>() / 7.0)
            };
            let [a, b, c, d, e, f] = std::array::from_fn(|_| at(&mut rng));
            let (ring, hole) = (format!("({a},{b},{c},{a})"), format!("({d},{e},{f},{d})"));
            let wkt = match id % 8 {
                0 => format!("LINESTRING({a},{b},{c},{d})"),
                1 => format!("POLYGON({ring},{hole})"),
                2 => format!("MULTIPOINT({a},{b})"),
                3 => format!("MULTILINESTRING(({a},{b}),({c},{d},{e}))"),
                4 => format!("MULTIPOLYGON(({ring}),({hole}))"),
                5 => format!("GEOMETRYCOLLECTION(POINT({a}),GEOMETRYCOLLECTION(POLYGON({ring})))"),
                6 => format!("POLYGON({ring})"),
                _ => format!("POINT({a})"),
            };
            let shape = Shape::from_wkt(&wkt).unwrap();
            objects.insert(id, (shape.bounds(), Some(b"{\"a\":1}".to_vec())));
            if id % 8 < 7 {
                shapes.insert(id, shape.to_wkb());
            }
        }
        for format in [ExportFormat::Csv, ExportFormat::Geojson, ExportFormat::Geojsonl] {
            let bytes = written_with(format, &objects, &shapes);
            let back = read_with(format, false, &bytes);
            assert!(back == (objects.clone(), shapes.clone()), "{format:?}");
            assert!(written_with(format, &back.0, &back.1) == bytes, "{format:?}");
            let boxes = read_with(format, true, &bytes);
            assert!(boxes == (objects.clone(), Shapes::new()), "{format:?}");
        }
    }

    #[test]
    fn ids_that_are_no_integers_come_back() {
        for format in [ExportFormat::Csv, ExportFormat::Geojson, ExportFormat::Geojsonl] {
            let mut out = Vec::new();
            let mut writer = Writer::begin(format, false, &mut out).unwrap();
            let rect = Rect::point(1.0, 2.0).unwrap();
            for id in [&b"bike:7"[..], b"a,\"b\"", b"-1", b"no \xff text"] {
                writer.object(id.into(), &rect, None, None).unwrap();
            }
            let left_out = writer.end().unwrap().count();
            let (keeper, summary, _) = taken_with_shapes(|intake| match format {
                ExportFormat::Csv => read_table(&out[..], Wanted::default(), intake),
                ExportFormat::Geojson => read_document(&out[..], false, intake),
                _ => read_lines(&out[..], false, intake),
            });
            assert_eq!(keeper.names, [&b"bike:7"[..], b"a,\"b\"", b"-1"], "{format:?}");
            // A table contains any bytes; its readers want text.
            assert_eq!(left_out + summary.refused(), 1, "{format:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_properties_become_one() {
        let of = |data: &[u8]| Value::Object(properties(data));
        assert_eq!(of(b"plain \"text\""), json!({ "data": "plain \"text\"" }));
        assert_eq!(of(b"[1]"), json!({ "data": "[1]" }));
        assert_eq!(of(b"\xff\x00"), json!({ "data_hex": "ff00" }));
        assert_eq!(of(b""), json!({ "data": "" }));
    }
}
