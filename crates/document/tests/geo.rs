//! Geometries in filters: known answers, naive formulas, hostile arguments.

use bson::{Bson, Document, RawDocumentBuf, bson, doc};
use proptest::prelude::*;
use remora_document::Filter;

/// Metres, as in MongoDB.
const EARTH_RADIUS: f64 = 6_378_100.0;

fn raw(document: &Document) -> RawDocumentBuf {
    document.try_into().expect("a valid document")
}

fn parse(condition: &Bson) -> Result<Filter, (i32, String)> {
    Filter::parse(&raw(&doc! { "at": condition.clone() }))
        .map_err(|error| (error.code(), error.message().to_owned()))
}

fn filter(condition: Bson) -> Filter {
    parse(&condition).unwrap_or_else(|error| panic!("{condition}: {error:?}"))
}

fn check(condition: Bson, values: &[(Bson, bool)]) {
    let filter = filter(condition.clone());
    for (value, expected) in values {
        let found = filter.matches(&raw(&doc! { "at": value.clone() }));
        assert_eq!(found, *expected, "{condition} on {value}");
    }
}

fn geojson(kind: &str, coordinates: Bson) -> Bson {
    bson!({ "type": kind, "coordinates": coordinates })
}

fn within(geometry: Bson) -> Bson {
    bson!({ "$geoWithin": { "$geometry": geometry } })
}

fn intersects(geometry: Bson) -> Bson {
    bson!({ "$geoIntersects": { "$geometry": geometry } })
}

/// A closed ring around a rectangle.
fn ring(west: f64, south: f64, east: f64, north: f64) -> Bson {
    bson!([[west, south], [east, south], [east, north], [west, north], [west, south]])
}

fn square(from: f64, to: f64) -> Bson {
    geojson("Polygon", bson!([ring(from, from, to, to)]))
}

#[test]
fn shapes_of_the_plane() {
    check(
        bson!({ "$geoWithin": { "$box": [[10, 10], [0, 0]] } }),
        &[
            (bson!([5, 5]), true),
            (bson!([0, 10]), true),
            (bson!([10.001, 5]), false),
            (bson!({ "x": 1, "y": 2i64 }), true),
            (bson!([[50, 50], [5, 5]]), true),
            (bson!([{ "x": 50, "y": 50 }, { "lng": 5, "lat": 5 }]), true),
            (geojson("Point", bson!([5, 5])), true),
            (geojson("LineString", bson!([[1, 1], [2, 2]])), false),
            (bson!([5]), false),
            (bson!(["5", 5]), false),
            (bson!([f64::NAN, 5]), false),
            (Bson::Null, false),
            (bson!(5), false),
        ],
    );
    check(
        bson!({ "$geoWithin": { "$polygon": [[0, 0], [4, 0], [4, 4], [2, 2], [0, 4]] } }),
        &[
            (bson!([1, 1]), true),
            (bson!([2, 3]), false),
            (bson!([2, 2]), true),
            (bson!([4, 2]), true),
            (bson!([3, 3]), true),
            (bson!([0, 0]), true),
            (bson!([5, 0]), false),
        ],
    );
    check(
        bson!({ "$geoWithin": { "$center": [[0, 0], 5] } }),
        &[(bson!([3, 4]), true), (bson!([3.001, 4]), false), (bson!([500, 0]), false)],
    );
    let one = filter(bson!({ "$within": { "$box": { "a": { "x": 0, "y": 0 }, "b": [1, 1] } } }));
    assert!(one.matches(&raw(&doc! { "at": [1, 1] })));
    assert!(!one.matches(&raw(&doc! { "other": [1, 1] })));
}

#[test]
fn poles_and_the_180th_meridian() {
    let cap = geojson("Polygon", bson!([[[0, 80], [90, 80], [180, 80], [-90, 80], [0, 80]]]));
    check(
        within(cap),
        &[
            (bson!([0, 90]), true),
            (bson!([123, 90]), true),
            (bson!([45, 85]), true),
            (bson!([0, 80]), true),
            (bson!([0, 79.9]), false),
            (bson!([0, -90]), false),
            (bson!([200, 85]), false),
        ],
    );
    let across = geojson("Polygon", bson!([ring(170.0, -10.0, -170.0, 10.0)]));
    check(
        within(across.clone()),
        &[
            (bson!([180, 0]), true),
            (bson!([-180, 0]), true),
            (bson!([175, 5]), true),
            (bson!([-175, -5]), true),
            (bson!([0, 0]), false),
            (bson!([165, 0]), false),
        ],
    );
    check(
        intersects(across),
        &[
            (geojson("LineString", bson!([[165, 0], [-165, 0]])), true),
            (geojson("LineString", bson!([[-160, 0], [160, 40]])), false),
        ],
    );
    // The smaller part is inside, whichever way the ring goes.
    let backwards = geojson("Polygon", bson!([[[0, 0], [0, 10], [10, 10], [10, 0], [0, 0]]]));
    check(within(backwards), &[(bson!([5, 5]), true), (bson!([50, 50]), false)]);
}

#[test]
fn edges_are_arcs_and_belong_to_the_polygon() {
    check(
        within(geojson("Polygon", bson!([ring(0.0, 0.0, 60.0, 40.0)]))),
        &[
            (bson!([30, 0]), true),
            (bson!([0, 20]), true),
            (bson!([60, 40]), true),
            // The arc between two places at 40 degrees goes north of the parallel.
            (bson!([30, 42]), true),
            (bson!([30, 45]), false),
            (bson!([30, -0.00001]), false),
        ],
    );
}

#[test]
fn holes_and_several_polygons() {
    let holed = geojson("Polygon", bson!([ring(0.0, 0.0, 10.0, 10.0), ring(4.0, 4.0, 6.0, 6.0)]));
    check(
        within(holed.clone()),
        &[
            (bson!([5, 5]), false),
            (bson!([4, 5]), true),
            (bson!([2, 2]), true),
            (geojson("LineString", bson!([[1, 1], [9, 1]])), true),
            (geojson("LineString", bson!([[1, 5], [9, 5]])), false),
            (geojson("LineString", bson!([[1, 5], [1, 15]])), false),
            (geojson("Polygon", bson!([ring(1.0, 1.0, 3.0, 3.0)])), true),
            (geojson("Polygon", bson!([ring(3.0, 3.0, 7.0, 7.0)])), false),
            (geojson("Polygon", bson!([ring(4.0, 4.0, 6.0, 6.0)])), false),
            (holed.clone(), true),
            (geojson("MultiPoint", bson!([[1, 1], [2, 2]])), true),
            (geojson("MultiPoint", bson!([[1, 1], [5, 5]])), false),
        ],
    );
    check(
        intersects(holed),
        &[
            (geojson("Polygon", bson!([ring(4.5, 4.5, 5.5, 5.5)])), false),
            (geojson("Polygon", bson!([ring(4.5, 4.5, 7.0, 5.5)])), true),
            (square(-50.0, 50.0), true),
            (geojson("MultiPoint", bson!([[1, 1], [5, 5]])), true),
            (geojson("Point", bson!([5, 5])), false),
        ],
    );
    let several = bson!([[ring(0.0, 0.0, 1.0, 1.0)], [ring(2.0, 0.0, 3.0, 1.0)]]);
    check(
        within(geojson("MultiPolygon", several)),
        &[
            (geojson("MultiPoint", bson!([[0.5, 0.5], [2.5, 0.5]])), true),
            (geojson("LineString", bson!([[0.5, 0.5], [2.5, 0.5]])), false),
            (geojson("MultiLineString", bson!([[[0, 0], [1, 0]], [[2, 0], [3, 0]]])), true),
            (bson!([1.5, 0.5]), false),
        ],
    );
}

#[test]
fn kinds_of_geometries() {
    let collection = bson!({ "type": "GeometryCollection", "geometries": [
        geojson("Point", bson!([1, 1])),
        geojson("LineString", bson!([[2, 2], [3, 3]])),
    ] });
    check(
        intersects(square(0.0, 1.5)),
        &[
            (collection.clone(), true),
            (geojson("MultiPolygon", bson!([[ring(1.0, 1.0, 9.0, 9.0)]])), true),
            (geojson("Polygon", bson!([[[0, 0], [1, 1], [0, 0]]])), false),
            (geojson("Polygon", bson!([[[0, 0], [1, 1], [1, 0], [0, 0.5]]])), false),
            (geojson("Point", bson!([1, 91])), false),
            (geojson("LineString", bson!([[1, 1]])), false),
            (geojson("Circle", bson!([1, 1])), false),
            (bson!([geojson("Point", bson!([9, 9])), geojson("Point", bson!([1, 1]))]), true),
            (bson!([1, 1]), true),
        ],
    );
    check(within(square(0.0, 1.5)), &[(collection.clone(), false)]);
    check(within(square(0.0, 5.0)), &[(collection, true)]);
    check(intersects(geojson("Point", bson!([1, 0]))), &[(bson!([1, 0]), true)]);
    check(
        intersects(geojson("LineString", bson!([[0, 0], [10, 0]]))),
        &[
            (bson!([5, 0]), true),
            (bson!([5, 0.001]), false),
            (geojson("LineString", bson!([[5, -1], [5, 1]])), true),
            (geojson("LineString", bson!([[10, 0], [20, 0]])), true),
            (geojson("LineString", bson!([[11, 0], [20, 0]])), false),
        ],
    );
}

#[test]
fn circles_on_the_sphere() {
    check(
        bson!({ "$geoWithin": { "$centerSphere": [[0, 90], 0.1] } }),
        &[
            (bson!([17, 89]), true),
            (bson!([17, 84]), false),
            (geojson("LineString", bson!([[0, 85], [180, 85]])), true),
            (geojson("Polygon", bson!([[[0, 80], [120, 80], [-120, 80], [0, 80]]])), false),
            (geojson("Polygon", bson!([[[0, 86], [120, 86], [-120, 86], [0, 86]]])), true),
        ],
    );
    check(
        bson!({ "$geoIntersects": { "$centerSphere": [[0, 90], 0.1] } }),
        &[(geojson("LineString", bson!([[0, 80], [180, 80]])), true), (bson!([0, 80]), false)],
    );
    check(bson!({ "$geoWithin": { "$centerSphere": [[0, 0], 4] } }), &[(square(1.0, 2.0), true)]);
}

#[test]
fn wrong_arguments() {
    let lake = geojson("Polygon", bson!([[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]));
    let cases = [
        (bson!({ "$geoWithin": 1 }), "$geoWithin needs an object, found: 1"),
        (bson!({ "$geoWithin": {} }), "geo query doesn't have any geometry"),
        (bson!({ "$geoWithin": { "$foo": 1 } }), "unknown geo specifier: $foo"),
        (
            bson!({ "$geoWithin": { "$box": [[0, 0], [1, 1]], "b": 1 } }),
            "can't parse extra field: b",
        ),
        (bson!({ "$geoWithin": { "$box": [[0, 0]] } }), "$box needs two corners"),
        (bson!({ "$geoWithin": { "$polygon": [[0, 0], [1, 1]] } }), "Polygon must have at least 3"),
        (bson!({ "$geoWithin": { "$center": [[0, 0], -1] } }), "radius must be a non-negative"),
        (bson!({ "$geoWithin": { "$center": [["a", 0], 1] } }), "Point must begin with two finite"),
        (
            bson!({ "$geoWithin": { "$centerSphere": [[0, 91], 1] } }),
            "Longitude/latitude is out of",
        ),
        (bson!({ "$geoWithin": { "$geometry": 1 } }), "$geometry must be an object"),
        (
            within(geojson("Point", bson!([0, 0]))),
            "$geoWithin not supported with provided geometry",
        ),
        (within(geojson("Foo", bson!([0, 0]))), "unknown GeoJSON type: Foo"),
        (within(geojson("Polygon", bson!(1))), "Polygon coordinates must be an array"),
        (within(geojson("Polygon", bson!([]))), "Polygon has no loops"),
        (within(geojson("Polygon", bson!([[[0, 0], [1, 1], [1, 0]]]))), "Loop is not closed"),
        (
            within(geojson("Polygon", bson!([[[0, 0], [1, 1], [0, 0]]]))),
            "Loop must have at least 3",
        ),
        (within(lake), "Loop is not valid: edges 0 and 2 cross"),
        (intersects(geojson("LineString", bson!([[0, 0], [180, 0]]))), "an edge joins two places"),
        (intersects(geojson("Point", bson!([181, 0]))), "Longitude/latitude is out of bounds"),
        (bson!({ "$geoIntersects": { "$box": [[0, 0], [1, 1]] } }), "$geoIntersects not supported"),
        (bson!({ "$near": "a" }), "Point must be an array or object"),
        (bson!({ "$near": [0, 0], "$maxDistance": -1 }), "$maxDistance must be non-negative"),
        (bson!({ "$near": [0, 0], "$minDistance": "a" }), "$minDistance must be a number"),
        (
            bson!({ "$near": [0, 0], "$exists": true }),
            "invalid argument in geo near query: $exists",
        ),
        (bson!({ "$near": { "$geometry": square(0.0, 1.0) } }), "$near requires a point, given"),
        (bson!({ "$near": { "$geometry": geojson("Point", bson!([0])) } }), "invalid point in geo"),
        (bson!({ "$nearSphere": [0, 91] }), "Longitude/latitude is out of bounds"),
        (bson!({ "$maxDistance": 1 }), "a distance needs $near"),
        (bson!({ "$not": { "$near": [0, 0] } }), "geo $near must be top-level expr"),
    ];
    for (condition, expected) in cases {
        let (code, text) = parse(&condition).expect_err(&condition.to_string());
        assert_eq!(code, 2, "{text}");
        assert!(text.starts_with(expected), "{condition}: {text}");
    }
    let near = || doc! { "at": { "$near": [0, 0] } };
    let two = doc! { "a": { "$near": [0, 0] }, "b": { "$near": [0, 0] } };
    let any = doc! { "$or": [near(), { "a": 1 }] };
    for (filter, expected) in [(two, "Too many geoNear"), (any, "geo $near must be top-level")] {
        let error = Filter::parse(&raw(&filter)).expect_err("not allowed");
        assert!(error.message().starts_with(expected), "{error}");
    }
    assert!(Filter::parse(&raw(&doc! { "$and": [near(), { "a": 1 }] })).unwrap().near().is_some());
}

/// The distance of a value, and whether the filter says the same.
fn distance(condition: Bson, value: Bson) -> Option<f64> {
    let (filter, document) = (filter(condition), raw(&doc! { "at": value }));
    let distance = filter.near().expect("a near").distance(&document);
    assert_eq!(filter.matches(&document), distance.is_some());
    distance
}

#[test]
fn distances() {
    let flat = || bson!({ "$near": [0, 0], "$minDistance": 2, "$maxDistance": 5 });
    assert_eq!(distance(flat(), bson!([3, 4])), Some(5.0));
    assert_eq!(distance(flat(), bson!([[1, 0], [0, 4], [0, 3], [30, 40]])), Some(3.0));
    assert_eq!(distance(flat(), bson!([1, 0])), None);
    assert_eq!(distance(flat(), geojson("LineString", bson!([[3, 3], [3, 4]]))), None);
    assert_eq!(distance(bson!({ "$near": [0, 0, 5] }), bson!([6, 0])), None);

    let point = || geojson("Point", bson!([0, 0]));
    let sphere = |most: f64| bson!({ "$near": { "$geometry": point(), "$maxDistance": most } });
    let degree = EARTH_RADIUS.to_radians();
    let is_about = |found: Option<f64>, expected: f64| {
        assert!(found.is_some_and(|found| (found - expected).abs() < 1e-6), "{found:?} {expected}");
    };
    is_about(distance(sphere(1e9), bson!([1, 0])), degree);
    is_about(distance(sphere(1e9), bson!([180, 0])), 180.0 * degree);
    is_about(distance(sphere(1e9), geojson("LineString", bson!([[1, -5], [1, 5]]))), degree);
    is_about(distance(sphere(1e9), square(-1.0, 1.0)), 0.0);
    is_about(distance(sphere(1e9), geojson("MultiPoint", bson!([[3, 0], [0, 2]]))), 2.0 * degree);
    assert_eq!(distance(sphere(degree * 0.999), bson!([1, 0])), None);

    let radians = filter(bson!({ "$nearSphere": [0, 0], "$maxDistance": 0.5 }));
    let near = radians.near().expect("a near");
    assert_eq!((near.min(), near.max()), (0.0, Some(0.5 * EARTH_RADIUS)));
    assert!(near.is_spherical());
    is_about(
        near.distance(&raw(&doc! { "at": [1, 0] })).map(|of| near.in_unit(of)),
        1f64.to_radians(),
    );
}

#[test]
fn filters_with_geometries_have_no_bounds() {
    for condition in [
        within(square(0.0, 1.0)),
        intersects(square(0.0, 1.0)),
        bson!({ "$geoWithin": { "$box": [[0, 0], [1, 1]] } }),
        bson!({ "$near": [0, 0] }),
    ] {
        let with = filter(condition.clone());
        assert!(with.bounds("at").is_empty(), "{condition}");
        assert!(with.bounds("at.0").is_empty(), "{condition}");
        assert!(!with.implies(&with));
        assert!(with.implies(&Filter::parse(&raw(&doc! {})).unwrap()));
        assert!(with.equalities().unwrap().is_empty());
    }
}

fn place() -> impl Strategy<Value = (f64, f64)> {
    let longitude =
        prop_oneof![4 => -180.0..=180.0, 1 => (-6i32..=6).prop_map(|of| f64::from(of) * 30.0)];
    let latitude =
        prop_oneof![4 => -90.0..=90.0, 1 => (-3i32..=3).prop_map(|of| f64::from(of) * 30.0)];
    (longitude, latitude)
}

fn haversine(one: (f64, f64), other: (f64, f64)) -> f64 {
    let (from, to) = (one.1.to_radians(), other.1.to_radians());
    let height = ((to - from) / 2.0).sin();
    let width = ((other.0 - one.0).to_radians() / 2.0).sin();
    2.0 * (height * height + from.cos() * to.cos() * width * width).sqrt().min(1.0).asin()
}

type Vector = [f64; 3];

fn vector((longitude, latitude): (f64, f64)) -> Vector {
    let (longitude, latitude) = (longitude.to_radians(), latitude.to_radians());
    [latitude.cos() * longitude.cos(), latitude.cos() * longitude.sin(), latitude.sin()]
}

fn determinant(a: Vector, b: Vector, c: Vector) -> f64 {
    a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0])
        + a[2] * (b[0] * c[1] - b[1] * c[0])
}

fn pair(place: (f64, f64)) -> Bson {
    bson!([place.0, place.1])
}

/// Values that look like parts of arguments.
fn hostile() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        prop_oneof![Just(0.0), Just(90.0), Just(-180.0), Just(1e-300), Just(1e300), any::<f64>()]
            .prop_map(Bson::Double),
        (-200i32..200).prop_map(Bson::Int32),
        prop_oneof![Just("Point"), Just("Polygon"), Just("LineString"), Just("MultiPolygon")]
            .prop_map(|kind| Bson::String(kind.to_owned())),
        Just(Bson::Null),
        place().prop_map(pair),
        proptest::collection::vec(place().prop_map(pair), 0..6).prop_map(Bson::Array),
        proptest::collection::vec((-3i32..3, -3i32..3), 3..7).prop_map(|corners| {
            let mut ring: Vec<Bson> =
                corners.iter().map(|of| bson!([of.0 * 60, of.1 * 30])).collect();
            ring.push(ring[0].clone());
            geojson("Polygon", bson!([ring]))
        }),
    ];
    let names = prop::sample::select(vec![
        "type",
        "coordinates",
        "$geometry",
        "$box",
        "$polygon",
        "$center",
        "$centerSphere",
        "$near",
        "$nearSphere",
        "$maxDistance",
        "$minDistance",
        "$geoWithin",
        "$geoIntersects",
        "geometries",
    ]);
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Bson::Array),
            proptest::collection::vec((names.clone(), inner), 0..3).prop_map(|fields| {
                let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
                Bson::Document(fields.collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn distances_are_those_of_the_haversine_formula(one in place(), other in place()) {
        let near = filter(bson!({ "$nearSphere": pair(one) }));
        let found = near.near().unwrap().distance(&raw(&doc! { "at": pair(other) })).unwrap();
        // The formula is less precise for places that are nearly opposite.
        prop_assert!((found / EARTH_RADIUS - haversine(one, other)).abs() < 3e-8);
    }

    #[test]
    fn circles_are_those_of_the_haversine_formula(
        centre in place(), other in place(), radius in 0.0..3.2f64,
    ) {
        let expected = haversine(centre, other);
        prop_assume!((expected - radius).abs() > 1e-7);
        let circle = filter(bson!({ "$geoWithin": { "$centerSphere": [pair(centre), radius] } }));
        prop_assert_eq!(circle.matches(&raw(&doc! { "at": pair(other) })), expected < radius);
    }

    /// A place lies in a triangle if it is on one side of the three planes through its edges.
    #[test]
    fn triangles_are_those_of_three_planes(
        a in place(), b in place(), c in place(), other in place(),
    ) {
        let [u, v, w, p] = [a, b, c, other].map(vector);
        let sides = [determinant(u, v, p), determinant(v, w, p), determinant(w, u, p)];
        let whole = determinant(u, v, w);
        prop_assume!(whole.abs() > 1e-6 && sides.iter().all(|side| side.abs() > 1e-9));
        let expected = sides.iter().all(|side| side.signum() == whole.signum());
        let polygon = geojson("Polygon", bson!([[pair(a), pair(b), pair(c), pair(a)]]));
        let document = raw(&doc! { "at": pair(other) });
        prop_assert_eq!(filter(within(polygon.clone())).matches(&document), expected);
        prop_assert_eq!(filter(intersects(polygon.clone())).matches(&document), expected);
        let around = doc! { "at": polygon };
        prop_assert_eq!(filter(intersects(geojson("Point", pair(other)))).matches(&raw(&around)), expected);
        prop_assert!(filter(within(around.get("at").unwrap().clone())).matches(&raw(&around)));
    }

    #[test]
    fn hostile_arguments_do_no_harm(
        argument in hostile(), value in hostile(),
        name in prop::sample::select(vec!["$geoWithin", "$geoIntersects", "$near", "$nearSphere"]),
        kind in prop::sample::select(vec!["", "$geometry", "$box", "$polygon", "$center", "$centerSphere"]),
    ) {
        let argument = if kind.is_empty() { argument } else { bson!({ kind: argument }) };
        match parse(&bson!({ name: argument })) {
            Ok(filter) => {
                let document = raw(&doc! { "at": value });
                let matches = filter.matches(&document);
                let near = filter.near().map(|near| near.distance(&document));
                prop_assert!(near.is_none_or(|distance| distance.is_some() == matches));
            }
            Err((code, text)) => prop_assert!(code == 2 && !text.is_empty(), "{} {}", code, text),
        }
    }
}

/// A document whose geometries take too long beside the filter's is an error, and no document that does not match.
#[test]
fn a_comparison_that_takes_too_long_is_refused() {
    let circle = |points: usize| {
        let at = |number: usize| {
            let angle = number as f64 / points as f64 * std::f64::consts::TAU;
            bson!([10.0 * angle.cos(), 10.0 * angle.sin()])
        };
        (0..points).chain([0]).map(at).collect::<Vec<Bson>>()
    };
    let polygon = |points| doc! { "type": "Polygon", "coordinates": [circle(points)] };
    let filter = doc! { "a": { "$geoWithin": { "$geometry": polygon(1_000) } } };
    let filter = Filter::parse(&raw(&filter)).unwrap();
    let line = |points| doc! { "a": { "type": "LineString", "coordinates": circle(points) } };
    let many = doc! { "a": vec![bson!([50.0, 1.0]); 20_000] };
    // Each arc of the line touches each tooth of the comb that hangs above it.
    let teeth = (0..700).rev().flat_map(|at| {
        let x = f64::from(at) / 70.0;
        [bson!([x + 0.005, 0.5]), bson!([x, 0.0])]
    });
    let (from, to) = (bson!([-0.1, -1.0]), bson!([10.1, -1.0]));
    let ring: Vec<Bson> =
        [from.clone(), to].into_iter().chain(teeth).chain([bson!([-0.1, 0.5]), from]).collect();
    let polygon = doc! { "type": "Polygon", "coordinates": [ring] };
    let comb = doc! { "a": { "$geoWithin": { "$geometry": polygon } } };
    let comb = Filter::parse(&raw(&comb)).unwrap();
    let to_and_fro = |arcs: i32| {
        let ends = (0..=arcs).map(|at| bson!([if at % 2 == 0 { 0.0 } else { 9.9 }, 0.0]));
        raw(&doc! { "a": { "type": "LineString", "coordinates": ends.collect::<Vec<_>>() } })
    };
    assert_eq!(comb.try_matches(&to_and_fro(1)), Ok(true));
    assert_eq!(comb.try_matches(&to_and_fro(20)).unwrap_err().code(), 96);
    for document in [line(20_000), many] {
        let error = filter.try_matches(&raw(&document)).unwrap_err();
        assert_eq!(error.code(), 96, "{}", error.message());
        assert!(!filter.matches(&raw(&document)));
        // The next document begins anew.
        assert_eq!(filter.try_matches(&raw(&doc! { "a": [1.0, 1.0] })), Ok(true));
        assert_eq!(filter.try_matches(&raw(&doc! { "a": [50.0, 1.0] })), Ok(false));
    }
}
