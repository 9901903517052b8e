//! GeoJSON (RFC 7946): a document of many features, read one after the other,
//! or a feature on each line. An object has the feature's geometry; one that
//! crosses the antimeridian is to be cut there, as the standard says. Its
//! bytes are the feature's properties, as JSON.

use super::boxes::{NO_FEATURE, bounding_box, is_box};
use super::intake::{Intake, Row, Sink};
use crate::refusals::Refusal;
use anyhow::anyhow;
use geojson::Feature;
use geojson::feature::Id;
use remora_client_core::ObjectId;
use remora_geometry::Shape;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read};

/// Longest line: more than any border that is known, and no whole file.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// A text sequence (RFC 8142) begins its lines with this.
const RECORD_SEPARATOR: u8 = 0x1e;

/// Reads a document: a FeatureCollection, whose features are taken as they come, or one Feature.
/// Invalid JSON ends it. With `boxes` only the bounding boxes of geometries are kept.
pub fn read_document<S: Sink>(
    input: impl Read,
    boxes: bool,
    intake: &mut Intake<'_, S>,
) -> anyhow::Result<()> {
    let mut features = Features { intake, boxes, taken: 0, failure: None };
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = Document(&mut features).deserialize(&mut json).and_then(|()| json.end());
    let Features { taken, failure, .. } = features;
    if let Some(failure) = failure {
        return Err(failure);
    }
    read.map_err(|error| anyhow!("after {taken} features: {error}"))
}

/// Reads lines. One that is no feature is refused.
pub fn read_lines<S: Sink>(
    mut input: impl BufRead,
    boxes: bool,
    intake: &mut Intake<'_, S>,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            intake.take(number, Err(Refusal::new("the line is too long", "")))?;
            continue;
        }
        let text = line.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(&line).trim_ascii();
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(value) => take(intake, boxes, number, value)?,
            Err(error) => {
                intake.take(number, Err(Refusal::new("the line is no JSON", error.to_string())))?;
            }
        }
    }
    Ok(())
}

fn take<S: Sink>(
    intake: &mut Intake<'_, S>,
    boxes: bool,
    at: u64,
    value: Value,
) -> anyhow::Result<()> {
    let feature = match serde_json::from_value::<Feature>(value) {
        Ok(feature) => feature,
        Err(error) => return intake.take(at, Err(Refusal::new(NO_FEATURE, error.to_string()))),
    };
    let data = feature.properties.as_ref().map(serde_json::to_vec).transpose()?;
    let mut wkb = None;
    let id = id(feature.id.as_ref());
    let row = id.as_ref().map_err(Clone::clone).and_then(|id| {
        let id = id.as_deref().map(ObjectId::from);
        let geometry = feature.geometry.as_ref().ok_or(Refusal::new("it has no geometry", ""))?;
        let rect = bounding_box(&geometry.value)?;
        if !boxes && !is_box(&geometry.value, &rect) {
            let shape = Shape::from_geojson(geometry);
            wkb = Some(shape.map_err(|why| Refusal::of_shape(&why, "the feature"))?.to_wkb());
        }
        Ok(Row { id, rect, geometry: wkb.as_deref(), data: data.as_deref() })
    });
    intake.take(at, row)
}

/// A feature's id as a text. A number has to be an unsigned integer: others have no
/// text of their own.
fn id(id: Option<&Id>) -> Result<Option<Cow<'_, str>>, Refusal> {
    match id {
        None => Ok(None),
        Some(Id::String(text)) => Ok(Some(text.into())),
        Some(Id::Number(number)) if number.is_u64() => Ok(Some(number.to_string().into())),
        Some(Id::Number(number)) => {
            Err(Refusal::new("its id is a number that is no unsigned integer", number.to_string()))
        }
    }
}

/// The destination of features.
struct Features<'i, 'a, S> {
    intake: &'i mut Intake<'a, S>,
    boxes: bool,
    taken: u64,
    /// An error of the intake: no fault of the document.
    failure: Option<anyhow::Error>,
}

impl<S: Sink> Features<'_, '_, S> {
    fn take<E: Error>(&mut self, value: Value) -> Result<(), E> {
        self.taken += 1;
        take(self.intake, self.boxes, self.taken, value).map_err(|failure| {
            self.failure = Some(failure);
            E::custom("the server refused")
        })
    }
}

/// The outermost object.
struct Document<'f, 'i, 'a, S>(&'f mut Features<'i, 'a, S>);

impl<'de, S: Sink> DeserializeSeed<'de> for Document<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Document<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a GeoJSON FeatureCollection or Feature")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // The members of a single feature.
        let mut feature = Map::new();
        let mut has_features = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "features" => {
                    has_features = true;
                    map.next_value_seed(List(&mut *self.0))?;
                }
                "type" | "id" | "geometry" | "properties" => {
                    feature.insert(key, map.next_value()?);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match feature.get("type").and_then(Value::as_str) {
            Some("FeatureCollection") if has_features => Ok(()),
            Some("Feature") if !has_features => self.0.take(Value::Object(feature)),
            _ => Err(A::Error::custom("the document is no FeatureCollection and no Feature")),
        }
    }
}

/// The features of a collection.
struct List<'f, 'i, 'a, S>(&'f mut Features<'i, 'a, S>);

impl<'de, S: Sink> DeserializeSeed<'de> for List<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for List<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of features")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(value) = list.next_element::<Value>()? {
            self.0.take(value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::intake::Summary;
    use super::super::intake::tests::{Kept, refused, taken, taken_with_shapes};
    use super::*;
    use remora_client_core::Rect;

    fn document(text: &str) -> (Kept, Summary, anyhow::Result<()>) {
        taken(|intake| read_document(text.as_bytes(), false, intake))
    }

    fn lines(text: &[u8]) -> (Kept, Summary) {
        let (kept, summary, result) = taken(|intake| read_lines(text, false, intake));
        result.unwrap();
        (kept, summary)
    }

    fn feature(id: u64, geometry: &str, properties: &str) -> String {
        format!(r#"{{"type":"Feature","id":{id},"geometry":{geometry},"properties":{properties}}}"#)
    }

    fn point(id: u64) -> String {
        feature(id, r#"{"type":"Point","coordinates":[1,2]}"#, "null")
    }

    #[test]
    fn every_geometry_has_its_bounding_box() {
        let rings = "[[[0,0],[4,1],[2,-3],[0,0]],[[1,0],[1,1],[2,0],[1,0]]]";
        for (kind, coordinates, wanted) in [
            ("Point", "[1.5,-2,99]", (1.5, 1.5, -2.0, -2.0)),
            ("MultiPoint", "[[1,5],[3,2]]", (1.0, 3.0, 2.0, 5.0)),
            ("LineString", "[[3,2],[1,5],[2,9]]", (1.0, 3.0, 2.0, 9.0)),
            ("MultiLineString", "[[[3,2],[1,5]],[[7,7],[8,8]]]", (1.0, 8.0, 2.0, 8.0)),
            ("Polygon", rings, (0.0, 4.0, -3.0, 1.0)),
            (
                "MultiPolygon",
                &format!("[{rings},[[[9,9],[9,9],[9,9],[9,9]]]]"),
                (0.0, 9.0, -3.0, 9.0),
            ),
        ] {
            let geometry = format!(r#"{{"type":"{kind}","coordinates":{coordinates}}}"#);
            let collection =
                format!(r#"{{"type":"GeometryCollection","geometries":[{geometry}]}}"#);
            let (min_x, max_x, min_y, max_y) = wanted;
            let wanted = Rect::new(min_x, max_x, min_y, max_y).unwrap();
            for geometry in [geometry, collection] {
                let (kept, summary) =
                    lines(feature(5, &geometry, r#"{"b":[1],"a":"x"}"#).as_bytes());
                assert_eq!(summary.refused(), 0, "{geometry}: {summary:?}");
                assert_eq!(kept[&5], (wanted, Some(br#"{"b":[1],"a":"x"}"#.to_vec())));
            }
        }
    }

    #[test]
    fn a_collection_may_say_what_it_is_at_its_end() {
        let text = format!(
            r#"{{"bbox":[[1]],"features":[{},{}],"name":{{"features":[7]}},"type":"FeatureCollection"}}"#,
            point(3),
            point(9)
        );
        let (kept, summary, result) = document(&text);
        result.unwrap();
        assert!(kept.keys().eq(&[3, 9]) && summary.refused() == 0);
        let (kept, _, result) = document(&point(8));
        result.unwrap();
        assert!(kept.keys().eq(&[8]));
        let (kept, _, result) = document(r#"{"type":"FeatureCollection","features":[]}"#);
        assert!(result.is_ok() && kept.is_empty());
    }

    #[test]
    fn geometries_that_are_too_long_are_refused_but_not_their_boxes() {
        let line: Vec<String> = (0..5000).map(|x| format!("[{x},{}]", x % 7)).collect();
        let line = format!(r#"{{"type":"LineString","coordinates":[{}]}}"#, line.join(","));
        let text = feature(1, &line, "null");
        let (kept, summary) = lines(text.as_bytes());
        assert!(kept.is_empty());
        assert_eq!(refused(&summary, "too long").0, 1);
        let (kept, summary, result) = taken(|intake| read_lines(text.as_bytes(), true, intake));
        result.unwrap();
        assert_eq!((kept.len(), summary.refused()), (1, 0));
    }

    #[test]
    fn bad_features_take_no_other_with_them() {
        let bad = [
            r#"7"#,
            r#"{"type":"Point","coordinates":[1,2]}"#,
            r#"{"type":"Feature","id":1,"geometry":null,"properties":null}"#,
            &feature(1, r#"{"type":"Point","coordinates":[1]}"#, "null"),
            &feature(1, r#"{"type":"Point","coordinates":["1","2"]}"#, "null"),
            &feature(1, r#"{"type":"MultiPoint","coordinates":[]}"#, "null"),
            &feature(1, r#"{"type":"LineString","coordinates":[[1,2]]}"#, "null"),
            &feature(1, r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,2]]]}"#, "null"),
            &feature(1, r#"{"type":"Circle","coordinates":[1,2]}"#, "null"),
            &feature(1, r#"{"type":"Point","coordinates":[1,2]}"#, "[]"),
            r#"{"type":"Feature","id":-1,"geometry":{"type":"Point","coordinates":[1,2]}}"#,
            r#"{"type":"Feature","id":1.5,"geometry":{"type":"Point","coordinates":[1,2]}}"#,
            r#"{"type":"Feature","id":"","geometry":{"type":"Point","coordinates":[1,2]}}"#,
        ];
        let middle = bad.join(",");
        let text = format!(
            r#"{{"type":"FeatureCollection","features":[{},{middle},{}]}}"#,
            point(1),
            point(2)
        );
        let (kept, summary, result) = document(&text);
        result.unwrap();
        assert!(kept.keys().eq(&[1, 2]));
        assert_eq!(summary.refused(), bad.len() as u64, "{summary:?}");
        let (count, first_at, _) = refused(&summary, "no GeoJSON");
        assert_eq!((count, first_at), (6, 2));
        assert_eq!(refused(&summary, "no geometry").1, 4);
        assert_eq!(refused(&summary, "no position").1, 7);
        assert_eq!(refused(&summary, "not a good one").0, 2, "a short line, an open ring");
        assert_eq!(refused(&summary, "id is a number"), (2, 12, "-1".into()));
        assert_eq!(refused(&summary, "id is empty").1, 14);
        // The same as lines, some of which are not even JSON.
        let mut text = [&[point(1)], &bad.map(str::to_owned)[..], &[point(2)]].concat().join("\n");
        text += &format!("\n\r\n{{\"type\":\n\u{1e}{}\r\n\"\\ud800\"\n1e999\n", point(3));
        let (kept, summary) = lines(text.as_bytes());
        assert!(kept.keys().eq(&[1, 2, 3]));
        assert_eq!(refused(&summary, "no JSON").0, 3);
        assert_eq!(refused(&summary, "no JSON").1, 17);
    }

    #[test]
    fn a_document_that_breaks_off_keeps_what_was_before() {
        let text =
            format!(r#"{{"type":"FeatureCollection","features":[{},{}]}}"#, point(1), point(2));
        for cut in 0..text.len() {
            let (kept, _, result) = document(&text[..cut]);
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with(&format!("after {} features: ", kept.len())), "{error}");
        }
        for text in
            ["[]", "7", "{}", r#"{"type":"Point","coordinates":[1,2]}"#, r#"{"features":[]}"#]
        {
            assert!(document(text).2.is_err(), "{text}");
        }
        assert!(document(&format!("{text}{text}")).2.is_err(), "something behind the end");
        assert!(document(&text.replace("[1,2]", "[1e999,2]")).2.is_err());
        // Depth that would overflow a stack.
        assert!(document(&"[".repeat(100_000)).2.is_err());
        let deep = format!(r#"{{"type":"FeatureCollection","features":{}"#, "[".repeat(100_000));
        assert!(document(&deep).2.is_err());
    }

    #[test]
    fn any_text_is_an_id_and_one_of_digits_an_integer() {
        let text = point(17).replace("17", "\"9223372036854775807\"");
        let (kept, _) = lines(text.as_bytes());
        assert!(kept.keys().eq(&[i64::MAX as u64]));
        let ids = ["\"x y\"", "\"-1\"", "18446744073709551615"];
        let texts: Vec<String> = ids.iter().map(|id| point(17).replace("17", id)).collect();
        let (keeper, summary, _) =
            taken_with_shapes(|intake| read_lines(texts.join("\n").as_bytes(), false, intake));
        assert_eq!(summary.refused(), 0);
        assert_eq!(keeper.names, [&b"x y"[..], b"-1", b"18446744073709551615"]);
        // The length of a line is bounded.
        let long = vec![b' '; MAX_LINE_BYTES as usize + 5];
        let (kept, summary) = lines(&[&long[..], b"\n", point(1).as_bytes()].concat());
        assert_eq!(refused(&summary, "too long"), (1, 1, String::new()));
        assert!(kept.keys().eq(&[1]));
    }
}
