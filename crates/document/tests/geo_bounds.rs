//! What an index has of geometries: no document that matches a condition lies beside its rectangles.

use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use proptest::prelude::*;
use remora_document::{Filter, GeoKind, Path};
use remora_layout::rect::Rect;

const FLAT: GeoKind = GeoKind::Plane { min: -400.0, max: 400.0 };

fn raw(document: &Document) -> RawDocumentBuf {
    document.try_into().expect("a valid document")
}

fn rect(kind: GeoKind, value: impl Into<Bson>) -> Result<Option<Rect>, i32> {
    let document = raw(&doc! { "at": value.into() });
    kind.rect(&Path::parse("at").unwrap(), &document).map_err(|error| error.code())
}

fn geojson(kind: &str, coordinates: Bson) -> Bson {
    bson!({ "type": kind, "coordinates": coordinates })
}

#[test]
fn what_an_index_cannot_have_is_an_error() {
    for kind in [GeoKind::Sphere, FLAT] {
        for nothing in [Bson::Null, bson!([])] {
            assert_eq!(rect(kind, nothing), Ok(None));
        }
        for wrong in [bson!("here"), bson!(1), bson!([1]), bson!([[1, 2], "x"]), bson!({ "a": 1 })]
        {
            assert_eq!(rect(kind, wrong.clone()), Err(16755), "{wrong}");
        }
        let missing = raw(&doc! { "b": 1 });
        assert_eq!(kind.rect(&Path::parse("at").unwrap(), &missing), Ok(None));
        let point = Ok(Some(Rect::point(3.0, 4.0).unwrap()));
        assert_eq!(rect(kind, bson!([3, 4])), point);
        assert_eq!(rect(kind, bson!({ "x": 3, "y": 4 })), point);
        assert_eq!(rect(kind, geojson("Point", bson!([3, 4]))), point);
    }
    let line = geojson("LineString", bson!([[0, 0], [1, 1]]));
    assert!(rect(GeoKind::Sphere, line.clone()).is_ok());
    assert_eq!(rect(FLAT, line), Err(16755));
    assert_eq!(rect(FLAT, bson!([401, 0])), Err(13027));
    assert_eq!(rect(GeoKind::Sphere, bson!([181, 0])), Err(16755));
}

#[test]
fn rectangles_on_the_sphere_are_no_larger_than_need_be() {
    let has = |value: Bson, expected: [f64; 4]| {
        let Rect { min_x, max_x, min_y, max_y } =
            rect(GeoKind::Sphere, value.clone()).unwrap().unwrap();
        for (found, wanted) in [min_x, max_x, min_y, max_y].into_iter().zip(expected) {
            assert!((found - wanted).abs() < 1e-3, "{value}: {found} {wanted}");
        }
    };
    has(geojson("LineString", bson!([[0, 0], [20, 10]])), [0.0, 20.0, 0.0, 10.0]);
    // The shortest way goes north of both ends.
    has(geojson("LineString", bson!([[0, 60], [90, 60]])), [0.0, 90.0, 60.0, 67.792]);
    has(geojson("LineString", bson!([[170, 0], [-170, 0]])), [-180.0, 180.0, 0.0, 0.0]);
    let around_pole = bson!([[[0, 80], [120, 80], [-120, 80], [0, 80]]]);
    has(geojson("Polygon", around_pole), [-180.0, 180.0, 80.0, 90.0]);
}

#[test]
fn a_circle_at_the_date_line_has_two_rectangles() {
    let circle = doc! { "at": { "$geoWithin": { "$centerSphere": [[179.5, 10], 0.02] } } };
    let windows = Filter::parse(&raw(&circle)).unwrap().windows("at").unwrap();
    let place = |x: f64| Rect::point(x, 10.0).unwrap();
    let has = |x: f64| windows.iter().any(|window| window.intersects(&place(x)));
    assert_eq!(windows.len(), 2);
    assert!(has(179.0) && has(-179.6) && !has(0.0) && !has(170.0) && !has(-170.0));
}

/// Places near each other, near a pole or the date line, or anywhere.
fn places(number: usize) -> impl Strategy<Value = Vec<[f64; 2]>> {
    let base = prop_oneof![
        Just([180.0, 0.0]),
        Just([-180.0, 60.0]),
        Just([0.0, 90.0]),
        Just([77.0, -90.0]),
        Just([0.0, 0.0]),
        (-180.0..180.0f64, -90.0..90.0f64).prop_map(|(x, y)| [x, y]),
    ];
    let spread = prop_oneof![Just(0.0), Just(1e-6), Just(1.0), Just(30.0), Just(180.0)];
    let offsets = proptest::collection::vec((-1.0..1.0f64, -1.0..1.0f64), number);
    (base, spread, offsets).prop_map(|(base, spread, offsets)| {
        let place = |(x, y): (f64, f64)| {
            let x = base[0] + x * spread;
            let x = if x > 180.0 { x - 360.0 } else { x };
            let x = if x < -180.0 { x + 360.0 } else { x };
            [x, (base[1] + y * spread / 2.0).clamp(-90.0, 90.0)]
        };
        offsets.into_iter().map(place).collect()
    })
}

fn pairs(places: &[[f64; 2]]) -> Vec<Bson> {
    places.iter().map(|place| bson!([place[0], place[1]])).collect()
}

fn closed(places: &[[f64; 2]]) -> Bson {
    let mut all = pairs(places);
    all.push(all[0].clone());
    bson!([all])
}

fn geometry() -> impl Strategy<Value = Bson> {
    (places(4), 0..7).prop_map(|(places, kind)| match kind {
        0 => pairs(&places)[0].clone(),
        // A pair in a pair, which a filter looks at, too.
        6 => bson!([places[0][0], places[0][1], pairs(&places)[1].clone()]),
        1 => Bson::Array(pairs(&places)),
        2 => geojson("LineString", Bson::Array(pairs(&places))),
        3 => geojson("MultiPoint", Bson::Array(pairs(&places))),
        4 => geojson("Polygon", closed(&places[..3])),
        _ => bson!({ "type": "GeometryCollection", "geometries": [
            geojson("Point", pairs(&places)[0].clone()),
            geojson("LineString", Bson::Array(pairs(&places[1..3]))),
        ] }),
    })
}

fn condition() -> impl Strategy<Value = Bson> {
    (places(4), 0..9, 0.0..2.0f64).prop_map(|(places, kind, radius)| {
        let all = pairs(&places);
        let metres = radius * radius * 1e7;
        match kind {
            0 => bson!({ "$geoWithin": { "$box": [all[0].clone(), all[1].clone()] } }),
            1 => bson!({ "$geoWithin": { "$polygon": all } }),
            2 => bson!({ "$geoWithin": { "$center": [all[0].clone(), radius * 60.0] } }),
            3 => bson!({ "$geoWithin": { "$centerSphere": [all[0].clone(), radius] } }),
            4 => {
                bson!({ "$geoWithin": { "$geometry": geojson("Polygon", closed(&places[..3])) } })
            }
            5 => bson!({ "$geoIntersects": { "$geometry":
                geojson("LineString", Bson::Array(all)) } }),
            6 => bson!({ "$geoIntersects": { "$geometry":
                geojson("Polygon", closed(&places[..3])) } }),
            7 => bson!({ "$near": { "$geometry": geojson("Point", all[0].clone()),
                "$maxDistance": metres } }),
            _ => bson!({ "$near": all[0].clone(), "$maxDistance": radius * 60.0 }),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn what_matches_shares_a_point_with_a_window(value in geometry(), condition in condition()) {
        let document = raw(&doc! { "at": value });
        let Ok(filter) = Filter::parse(&raw(&doc! { "at": condition })) else { return Ok(()) };
        if filter.matches(&document) {
            let near = |near: &remora_document::Near| near.windows(f64::INFINITY);
            let windows = filter.windows("at").or_else(|| filter.near().map(near)).unwrap();
            for kind in [GeoKind::Sphere, FLAT] {
                let Ok(Some(rect)) = kind.rect(&Path::parse("at").unwrap(), &document) else {
                    prop_assert_eq!(kind, FLAT, "it has a geometry");
                    continue;
                };
                let meets = windows.iter().any(|window| window.intersects(&rect));
                prop_assert!(meets, "{:?} {:?}", rect, windows);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_distance_lies_within_the_reach_of_the_rectangle(
        value in geometry(), centre in places(1), is_flat in any::<bool>(),
    ) {
        let document = raw(&doc! { "at": value });
        let name = if is_flat { "$near" } else { "$nearSphere" };
        let condition = doc! { "at": { name: pairs(&centre)[0].clone() } };
        let filter = Filter::parse(&raw(&condition)).unwrap();
        let (near, path) = (filter.near().unwrap(), Path::parse("at").unwrap());
        let rect = GeoKind::Sphere.rect(&path, &document);
        if let (Some(distance), Ok(Some(rect))) = (near.distance(&document), rect) {
            let (least, most) = near.reach(&rect);
            prop_assert!(least <= distance && distance <= most, "{least} {distance} {most} {rect:?}");
            let is_point = rect.min_x == rect.max_x && rect.min_y == rect.max_y;
            prop_assert!(!is_point || most - least < 1.0, "{least} {most}");
        }
    }
}
