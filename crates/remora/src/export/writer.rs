//! Objects as they stand in a file.

use super::ExportFormat;
use anyhow::Context;
use remora_client::Rect;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write;

/// Writes objects, one after the other.
pub enum Writer<'a, W: Write> {
    /// Rows.
    Csv(Box<csv::Writer<&'a mut W>>),
    /// Features, and whether they stand in a collection.
    Features {
        /// Where they go.
        out: &'a mut W,
        /// Whether they stand in a collection.
        in_collection: bool,
        /// Whether this will be the first.
        is_first: bool,
    },
}

impl<'a, W: Write> Writer<'a, W> {
    /// Writes what stands before the first object.
    pub fn begin(format: ExportFormat, out: &'a mut W) -> anyhow::Result<Self> {
        if format == ExportFormat::Csv {
            let mut rows = csv::Writer::from_writer(out);
            rows.write_record(["id", "min_x", "min_y", "max_x", "max_y", "data"])?;
            return Ok(Self::Csv(Box::new(rows)));
        }
        let in_collection = format == ExportFormat::Geojson;
        if in_collection {
            out.write_all(b"{\"type\":\"FeatureCollection\",\"features\":[\n")?;
        }
        Ok(Self::Features { out, in_collection, is_first: true })
    }

    /// Writes one object.
    pub fn object(&mut self, id: u64, rect: &Rect, data: Option<&[u8]>) -> anyhow::Result<()> {
        match self {
            Self::Csv(rows) => {
                rows.write_field(id.to_string())?;
                for edge in [rect.min_x, rect.min_y, rect.max_x, rect.max_y] {
                    // Both ways of writing a number are exact; this is the short one.
                    rows.write_field(format!("{edge:?}"))?;
                }
                rows.write_field(data.unwrap_or_default())?;
                rows.write_record(None::<&[u8]>)?;
            }
            Self::Features { out, in_collection, is_first } => {
                if *in_collection && !*is_first {
                    out.write_all(b",\n")?;
                }
                *is_first = false;
                let feature = json!({
                    "type": "Feature",
                    "id": id,
                    "geometry": geometry(rect),
                    "properties": data.map(properties),
                });
                serde_json::to_writer(&mut **out, &feature)?;
                if !*in_collection {
                    out.write_all(b"\n")?;
                }
            }
        }
        Ok(())
    }

    /// Writes what stands behind the last object.
    pub fn end(self) -> anyhow::Result<()> {
        match self {
            Self::Csv(mut rows) => rows.flush().context("writing the last rows")?,
            Self::Features { out, in_collection: true, .. } => out.write_all(b"\n]}\n")?,
            Self::Features { .. } => {}
        }
        Ok(())
    }
}

/// A bounding box as a geometry: one without extent is a point.
fn geometry(rect: &Rect) -> Value {
    let Rect { min_x, max_x, min_y, max_y } = *rect;
    if min_x == max_x && min_y == max_y {
        return json!({ "type": "Point", "coordinates": [min_x, min_y] });
    }
    let ring = [[min_x, min_y], [max_x, min_y], [max_x, max_y], [min_x, max_y], [min_x, min_y]];
    json!({ "type": "Polygon", "coordinates": [ring] })
}

/// An object's bytes as properties: a JSON object is they; another text is the
/// property `data`, other bytes are `data_hex`.
fn properties(data: &[u8]) -> Value {
    if let Ok(properties) = serde_json::from_slice::<Map<String, Value>>(data) {
        return Value::Object(properties);
    }
    match std::str::from_utf8(data) {
        Ok(text) => json!({ "data": text }),
        Err(_) => {
            let hex = data.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            json!({ "data_hex": hex })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::reading::{Kept, Wanted, read_document, read_lines, read_table, taken};
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};

    fn written(format: ExportFormat, objects: &Kept) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::begin(format, &mut out).unwrap();
        for (id, (rect, data)) in objects {
            writer.object(*id, rect, data.as_deref()).unwrap();
        }
        writer.end().unwrap();
        out
    }

    fn read(format: ExportFormat, bytes: &[u8]) -> Kept {
        let (kept, summary, result) = taken(|intake| match format {
            ExportFormat::Csv => read_table(bytes, Wanted::default(), intake),
            ExportFormat::Geojson => read_document(bytes, intake),
            ExportFormat::Geojsonl => read_lines(bytes, intake),
        });
        result.unwrap();
        assert_eq!(summary.refused(), 0, "{summary:?}");
        kept
    }

    /// Objects whose coordinates use every bit, with bytes of several kinds.
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
            objects.insert(rng.random(), (rect, data));
        }
        objects.insert(u64::MAX, (Rect::point(-0.0, f64::MIN_POSITIVE / 2.0).unwrap(), None));
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
    fn bytes_that_are_no_properties_become_one() {
        assert_eq!(properties(b"plain \"text\""), json!({ "data": "plain \"text\"" }));
        assert_eq!(properties(b"[1]"), json!({ "data": "[1]" }));
        assert_eq!(properties(b"\xff\x00"), json!({ "data_hex": "ff00" }));
        assert_eq!(properties(b""), json!({ "data": "" }));
    }
}
