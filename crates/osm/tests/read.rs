//! Files as objects: the kinds of elements, filters, what cannot be used.

use crate::write::{Block, file, town};
use remora_osm::{Element, Error, Filter, Limits, read};
use std::collections::BTreeMap;
use std::io::Cursor;

const LIMITS: Limits = Limits { kept_bytes: 1 << 20 };

type Found = BTreeMap<String, Result<(u64, String, String), String>>;

fn found(bytes: &[u8], filters: &[&str], limits: Limits) -> (Found, Result<(), Error>) {
    let filters: Vec<Filter> = filters.iter().map(|filter| filter.parse().unwrap()).collect();
    let mut found = Found::new();
    let mut each = |element: Element, object: Result<remora_osm::Object<'_>, _>| {
        let object = object.map(|object| {
            let tags = String::from_utf8(object.tags.to_vec()).unwrap();
            (object.id, object.shape.to_wkt(), tags)
        });
        let before = found.insert(
            element.to_string(),
            object.map_err(|why: remora_osm::Unusable| why.to_string()),
        );
        assert_eq!(before, None, "an element comes once");
        Ok(())
    };
    let result = read(Cursor::new(bytes), &filters, limits, &mut each);
    (found, result)
}

#[test]
fn a_town_has_points_lines_and_areas() {
    let (found, result) = found(&town(), &[], LIMITS);
    result.unwrap();
    let wkt = |name: &str| found[name].clone().unwrap().1;
    assert_eq!(
        found["node 1"].clone().unwrap(),
        (4, "POINT(11.5 48.1)".into(), r#"{"amenity":"cafe","name":"Zum Dichter & Söhne"}"#.into())
    );
    assert_eq!(wkt("node 3"), "POINT(11.5031415 48.1027182)");
    assert_eq!(found["way 33"].clone().unwrap().0, 4 * 33 + 1);
    assert_eq!(wkt("way 33"), "LINESTRING(11.5 48.1,11.501 48.101,11.502 48.102,11.504 48.104)");
    assert!(wkt("way 32").starts_with("POLYGON((11.501 48.101,"), "a closed building");
    assert!(wkt("way 34").starts_with("LINESTRING("), "a closed path is no area");
    let park = found["relation 40"].clone().unwrap();
    assert_eq!(park.0, 4 * 40 + 2);
    assert_eq!(
        park.1,
        "POLYGON((11.5 48.1,11.504 48.1,11.504 48.104,11.5 48.104,11.5 48.1),\
         (11.501 48.101,11.502 48.101,11.502 48.102,11.501 48.102,11.501 48.101))"
    );
    for (element, why) in [
        ("way 35", "nodes are not in the file"),
        ("relation 41", "ways are not in the file"),
        ("relation 42", "no closed rings"),
    ] {
        let told = found[element].clone().unwrap_err();
        assert!(told.contains(why), "{element}: {told}");
    }
    // No object: corners, ways without tags, a route.
    assert_eq!(found.len(), 10, "{found:?}");
}

#[test]
fn filters_keep_what_has_the_key_or_the_value() {
    let names = |filters: &[&str]| {
        let (found, result) = found(&town(), filters, LIMITS);
        result.unwrap();
        found.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(names(&["amenity"]), ["node 1", "node 2"]);
    assert_eq!(names(&["amenity=cafe"]), ["node 1"]);
    assert_eq!(names(&["highway=residential", "natural=tree"]), ["node 3", "way 33"]);
    assert_eq!(names(&["leisure=park"]), ["relation 40", "relation 41", "relation 42"]);
    assert!(names(&["amenity=caf"]).is_empty());
    assert!("=x".parse::<Filter>().is_err() && "".parse::<Filter>().is_err());
}

#[test]
fn strange_ids_and_places_are_told() {
    let tags = [("a", "b")];
    let block = Block::default()
        .node(-5, 1.0, 1.0, &tags)
        .node(i64::MAX, 1.0, 1.0, &tags)
        .node(6, 181.0, 1.0, &tags)
        .node(7, 180.0, -90.0, &tags)
        .way(8, &[], &tags)
        .way(9, &[7], &tags)
        .way(10, &[7, 6], &tags);
    let (found, result) = found(&file(&[block]), &[], LIMITS);
    result.unwrap();
    let why = |name: &str| found[name].clone().unwrap_err();
    assert!(
        why("node -5").contains("negative") && why("node 9223372036854775807").contains("large")
    );
    assert!(why("node 6").contains("globe"));
    assert_eq!(found["node 7"].clone().unwrap().1, "POINT(180 -90)");
    assert!(why("way 8").contains("geometry") && why("way 9").contains("two points"));
    assert!(why("way 10").contains("nodes are not in the file"));
}

#[test]
fn what_is_kept_is_bounded() {
    let ids: Vec<i64> = (0..5000).map(|id| id * 7).collect();
    let file = file(&[Block::default().way(1, &ids, &[("highway", "x")])]);
    let (_, result) = found(&file, &[], Limits { kept_bytes: 16 * 5000 });
    result.unwrap();
    let (_, result) = found(&file, &[], Limits { kept_bytes: 16 * 4999 });
    assert!(matches!(result, Err(Error::TooMuch(_))));
    // Nodes that come again and again are kept once.
    let again: Vec<i64> = (0..50_000).map(|id| id % 5000).collect();
    let again = crate::write::file(&[Block::default().way(1, &again, &[("highway", "x")])]);
    let (_, result) = found(&again, &[], Limits { kept_bytes: 16 * 5000 });
    result.unwrap();
    // Nothing is kept for what is not wanted.
    let (_, result) = found(&file, &["amenity"], Limits { kept_bytes: 0 });
    result.unwrap();
}

#[test]
fn the_fixture_is_the_town() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/town.osm.pbf");
    if std::env::var_os("REMORA_WRITE_FIXTURES").is_some() {
        std::fs::write(path, town()).unwrap();
    }
    // Packed bytes may differ from one packer to the next; what they hold not.
    let of = |bytes: &[u8]| found(bytes, &[], LIMITS).0;
    assert_eq!(of(&std::fs::read(path).unwrap()), of(&town()));
}
