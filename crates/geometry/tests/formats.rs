//! Formats: what goes out comes back, and what is no geometry is refused.

use proptest::prelude::*;
use remora_geometry::{Shape, ShapeError, geo_types};
use remora_layout::limits::{MAX_GEOMETRY_BYTES, MAX_GEOMETRY_COORDINATE, MAX_GEOMETRY_DEPTH};

use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPoint, MultiPolygon,
    Point, Polygon,
};

fn coordinate() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-1000_i32..1000).prop_map(|n| f64::from(n) / 8.0),
        any::<f64>().prop_map(|c| if c.abs() <= MAX_GEOMETRY_COORDINATE { c } else { 0.5 }),
    ]
}

fn coord() -> impl Strategy<Value = Coord<f64>> {
    (coordinate(), coordinate()).prop_map(|(x, y)| Coord { x, y })
}

fn line() -> impl Strategy<Value = LineString<f64>> {
    prop::collection::vec(coord(), 2..6).prop_map(LineString)
}

fn ring() -> impl Strategy<Value = LineString<f64>> {
    prop::collection::vec(coord(), 3..6).prop_map(|mut ring| {
        ring.push(ring[0]);
        LineString(ring)
    })
}

fn polygon() -> impl Strategy<Value = Polygon<f64>> {
    (ring(), prop::collection::vec(ring(), 0..3)).prop_map(|(out, holes)| Polygon::new(out, holes))
}

fn geometry() -> impl Strategy<Value = Geometry<f64>> {
    let some = 1..4;
    let one = prop_oneof![
        coord().prop_map(|coord| Geometry::Point(coord.into())),
        line().prop_map(Geometry::from),
        polygon().prop_map(Geometry::from),
        prop::collection::vec(coord().prop_map(Point), some.clone())
            .prop_map(|all| MultiPoint(all).into()),
        prop::collection::vec(line(), some.clone()).prop_map(|all| MultiLineString(all).into()),
        prop::collection::vec(polygon(), some.clone()).prop_map(|all| MultiPolygon(all).into()),
    ];
    one.prop_recursive(3, 16, 3, |inner| {
        prop::collection::vec(inner, 1..4)
            .prop_map(|all| Geometry::GeometryCollection(GeometryCollection(all)))
    })
}

/// The same WKB in big endian: heads, counts and numbers turned.
fn big_endian(wkb: &[u8]) -> Vec<u8> {
    fn turn(bytes: &mut &[u8], length: usize, out: &mut Vec<u8>) -> u32 {
        let (word, rest) = bytes.split_at(length);
        out.extend(word.iter().rev());
        *bytes = rest;
        u32::from_le_bytes(word[..4].try_into().unwrap())
    }
    fn coords(bytes: &mut &[u8], count: u32, out: &mut Vec<u8>) {
        for _ in 0..2 * count {
            turn(bytes, 8, out);
        }
    }
    fn geometry(bytes: &mut &[u8], out: &mut Vec<u8>) {
        out.push(0);
        *bytes = &bytes[1..];
        match turn(bytes, 4, out) {
            1 => coords(bytes, 1, out),
            2 => {
                let count = turn(bytes, 4, out);
                coords(bytes, count, out);
            }
            3 => {
                for _ in 0..turn(bytes, 4, out) {
                    let count = turn(bytes, 4, out);
                    coords(bytes, count, out);
                }
            }
            _ => (0..turn(bytes, 4, out)).for_each(|_| geometry(bytes, out)),
        }
    }
    let (mut rest, mut out) = (wkb, Vec::new());
    geometry(&mut rest, &mut out);
    out
}

proptest! {
    #[test]
    fn every_format_gives_back_what_it_was_given(geometry in geometry()) {
        let shape = Shape::new(geometry).unwrap();
        let wkb = shape.to_wkb();
        prop_assert_eq!(&Shape::from_wkb(&wkb).unwrap(), &shape);
        prop_assert_eq!(&Shape::from_wkb(&big_endian(&wkb)).unwrap(), &shape);
        let json = shape.to_geojson();
        prop_assert_eq!(&Shape::from_geojson(&json).unwrap(), &shape);
        // Numbers of 300 digits make texts that are too long.
        for (text, least) in [(json.to_string(), "{"), (shape.to_wkt(), "")] {
            match Shape::from_text(&text) {
                Ok(read) => prop_assert_eq!(&read, &shape, "{}", text),
                Err(error) => {
                    prop_assert_eq!(error, ShapeError::TooLong);
                    prop_assert!(text.starts_with(least));
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_changed_are_a_geometry_or_an_error(
        geometry in geometry(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut wkb = Shape::new(geometry).unwrap().to_wkb();
        for (at, byte) in changes {
            let at = at.index(wkb.len());
            wkb[at] = byte;
        }
        for bytes in [&wkb[..], &wkb[..keep.index(wkb.len())]] {
            if let Ok(shape) = Shape::from_wkb(bytes) {
                prop_assert_eq!(shape.to_wkb().len(), bytes.len());
                prop_assert!(shape.bounds().checked().is_ok());
            }
        }
    }

    #[test]
    fn any_bytes_and_texts_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[A-Z(), .0-9eE{}\\[\\]\":a-z-]{0,80}") {
        let _ = Shape::from_wkb(&bytes);
        let _ = Shape::from_text(&text);
    }
}

fn refused(wkt: &str) -> ShapeError {
    Shape::from_wkt(wkt).expect_err(wkt)
}

#[test]
fn what_is_no_geometry_is_refused_with_its_reason() {
    use ShapeError::{Empty, NotFinite, OpenRing, ShortLine, ShortRing, TooFar};
    assert_eq!(refused("POINT EMPTY"), Empty);
    assert_eq!(refused("MULTIPOINT EMPTY"), Empty);
    assert_eq!(refused("GEOMETRYCOLLECTION EMPTY"), Empty);
    assert_eq!(refused("POLYGON EMPTY"), Empty);
    assert_eq!(refused("LINESTRING (1 1)"), ShortLine);
    assert_eq!(refused("POLYGON ((0 0, 1 0, 0 0))"), ShortRing);
    assert_eq!(refused("POLYGON ((0 0, 1 0, 1 1, 0 1))"), OpenRing);
    assert_eq!(refused("POLYGON ((0 0, 1 0, 1 1, 0 0), (0 0, 1 0, 1 1, 2 2))"), OpenRing);
    assert_eq!(refused("POINT (1e999 0)"), NotFinite);
    for word in ["nan", "NaN", "-nan", "inf", "-Infinity", "+INF"] {
        assert_eq!(refused(&format!("POINT ({word} 0)")), NotFinite);
        assert_eq!(refused(&format!("LINESTRING(0 0,1 {word})")), NotFinite);
    }
    assert!(NotFinite.to_string().contains("give a finite number"));
    assert!(matches!(refused("POINT (nano 0)"), ShapeError::Text(_)));
    assert_eq!(Shape::from_wkt("point(1e-3 -25E+2)"), Shape::from_wkt(" POINT ( 0.001 -2500 ) "));
    assert_eq!(refused("POINT (1e151 0)"), TooFar);
    assert!(matches!(refused("POINT (1)"), ShapeError::Text(_)));
    assert_eq!(refused("POINT (1 2) POINT (1 2)"), ShapeError::Trailing);
    for json in [
        r#"{"type":"Point","coordinates":[1]}"#,
        r#"{"type":"Point","coordinates":[]}"#,
        r#"{"type":"Point"}"#,
        r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}"#,
        r#"{"type":"Polygon","coordinates":[]}"#,
        r#"{"type":"MultiPolygon","coordinates":[[]]}"#,
        r#"{"type":"GeometryCollection","geometries":[]}"#,
        "{",
    ] {
        assert!(Shape::from_text(json).is_err(), "{json}");
    }
    let high = Shape::from_text(r#"{"type":"Point","coordinates":[1,2,900.5]}"#).unwrap();
    assert_eq!(high, Shape::from_wkt("POINT Z (1 2 3)").unwrap(), "in the plane");
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| {
        let open = "GEOMETRYCOLLECTION (".repeat(depth);
        format!("{open}POINT (1 2){}", ")".repeat(depth))
    };
    assert!(Shape::from_wkt(&nested(MAX_GEOMETRY_DEPTH)).is_ok());
    assert_eq!(refused(&nested(MAX_GEOMETRY_DEPTH + 1)), ShapeError::TooDeep);
    assert_eq!(refused(&nested(10_000)), ShapeError::TooDeep);
    assert_eq!(refused(&"(".repeat(200_000)), ShapeError::TooDeep);
    let mut wkb = [1, 7, 0, 0, 0, 1, 0, 0, 0].repeat(MAX_GEOMETRY_DEPTH + 1);
    wkb.extend(Shape::from_wkt("POINT (1 2)").unwrap().to_wkb());
    assert_eq!(Shape::from_wkb(&wkb), Err(ShapeError::TooDeep));
    assert!(Shape::from_wkb(&wkb[9..]).is_ok());

    let line = |points: usize| {
        let coords = (0..points).map(|x| Coord { x: x as f64, y: 0.0 });
        Shape::new(Geometry::LineString(coords.collect()))
    };
    let most = (MAX_GEOMETRY_BYTES - 9) / 16;
    let longest = line(most).unwrap().to_wkb();
    assert!(longest.len() <= MAX_GEOMETRY_BYTES && Shape::from_wkb(&longest).is_ok());
    assert_eq!(line(most + 1), Err(ShapeError::TooLong));
    // A count that lies: refused before anything is allocated.
    for kind in 2..8_u8 {
        let lies = [1, kind, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0];
        assert_eq!(Shape::from_wkb(&lies), Err(ShapeError::Short), "{kind}");
    }
    assert_eq!(Shape::from_wkb(&[1, 0xe9, 3, 0, 0]), Err(ShapeError::Kind(1001)), "of Z");
    assert_eq!(Shape::from_wkb(&[2]), Err(ShapeError::ByteOrder));
}
