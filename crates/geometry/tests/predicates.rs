//! Predicates: against each other, against plain rules, and against those of
//! the `geo` crate on geometries that it can take.

use geo::algorithm::{Area, Distance, Euclidean, Relate, Validation};
use proptest::prelude::*;
use remora_geometry::{Refine, Shape, geo_types};
use remora_layout::rect::Rect;

use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiPoint, MultiPolygon, Point, Polygon,
};

/// A coarse grid: edges meet, touch and lie on each other all the time.
fn coord() -> impl Strategy<Value = Coord<f64>> {
    (0..9_i8, 0..9_i8).prop_map(|(x, y)| Coord { x: x.into(), y: y.into() })
}

fn ring(coords: Vec<Coord<f64>>) -> LineString<f64> {
    let mut ring = coords;
    ring.push(ring[0]);
    LineString(ring)
}

/// A polygon that is seen whole from a point between its corners, with a hole
/// of the same form.
fn star(holes: usize) -> impl Strategy<Value = Polygon<f64>> {
    let corners = prop::collection::vec(1..5_u8, 3..9);
    (coord(), corners, 0..=holes).prop_map(|(centre, arms, holes)| {
        let of_size = |part: f64| {
            ring(
                arms.iter()
                    .enumerate()
                    .map(|(at, &arm)| {
                        let turn = at as f64 / arms.len() as f64 * std::f64::consts::TAU;
                        let arm = f64::from(arm) * part;
                        // On a grid again, so that polygons share corners.
                        let on_grid = |c: f64| (c * 4.0).round() / 4.0;
                        Coord {
                            x: on_grid(centre.x + arm * turn.cos()),
                            y: on_grid(centre.y + arm * turn.sin()),
                        }
                    })
                    .collect(),
            )
        };
        let holes = if holes == 1 { vec![of_size(0.5)] } else { Vec::new() };
        Polygon::new(of_size(1.0), holes)
    })
}

fn rectangle() -> impl Strategy<Value = Polygon<f64>> {
    (coord(), coord(), any::<bool>())
        .prop_filter("has an inside", |(a, b, _)| a.x != b.x && a.y != b.y)
        .prop_map(|(a, b, hole)| {
            let outer = geo_types::Rect::new(a, b);
            let at = |x: f64, y: f64| {
                let (least, most) = (outer.min(), outer.max());
                Coord { x: least.x + x * (most.x - least.x), y: least.y + y * (most.y - least.y) }
            };
            let inner = ring(vec![at(0.25, 0.25), at(0.75, 0.25), at(0.75, 0.75), at(0.25, 0.75)]);
            Polygon::new(
                outer.to_polygon().exterior().clone(),
                if hole { vec![inner] } else { vec![] },
            )
        })
}

fn polygon() -> impl Strategy<Value = Polygon<f64>> {
    let triangle =
        (coord(), coord(), coord()).prop_map(|(a, b, c)| Polygon::new(ring(vec![a, b, c]), vec![]));
    prop_oneof![triangle, rectangle(), star(1)]
}

fn is_good(geometry: &Geometry<f64>) -> bool {
    // Triangles without an inside pass for valid.
    let is_flat = |polygon: &Polygon<f64>| polygon.unsigned_area() == 0.0;
    let flat = match geometry {
        Geometry::Polygon(polygon) => is_flat(polygon),
        Geometry::MultiPolygon(all) => all.0.iter().any(is_flat),
        _ => false,
    };
    !flat && std::panic::catch_unwind(|| geometry.is_valid()).unwrap_or(false)
}

fn valid() -> impl Strategy<Value = Geometry<f64>> {
    prop_oneof![
        coord().prop_map(|coord| Geometry::Point(coord.into())),
        prop::collection::vec(coord(), 2..6).prop_map(|all| LineString(all).into()),
        polygon().prop_map(Geometry::from),
        polygon().prop_map(Geometry::from),
        polygon().prop_map(Geometry::from),
        prop::collection::vec(coord().prop_map(Point), 1..4).prop_map(|all| MultiPoint(all).into()),
        prop::collection::vec(polygon(), 2..4).prop_map(|all| MultiPolygon(all).into()),
    ]
    .prop_filter("valid", is_good)
}

/// Anything, valid or not.
fn any_shape() -> impl Strategy<Value = Geometry<f64>> {
    let scribble = prop::collection::vec(coord(), 3..9)
        .prop_map(|all| Geometry::from(Polygon::new(ring(all), vec![])));
    let holed = (polygon(), prop::collection::vec(prop::collection::vec(coord(), 3..6), 0..3))
        .prop_map(|(out, holes)| {
            let holes = holes.into_iter().map(ring).collect();
            Geometry::from(Polygon::new(out.into_inner().0, holes))
        });
    let one = prop_oneof![valid(), scribble, holed];
    one.prop_recursive(2, 6, 3, |inner| {
        prop::collection::vec(inner, 1..4)
            .prop_map(|all| Geometry::GeometryCollection(GeometryCollection(all)))
    })
}

fn shape(geometry: &Geometry<f64>) -> Shape {
    Shape::new(geometry.clone()).unwrap()
}

fn intersects(a: &Shape, b: &Shape) -> bool {
    Refine::Intersects(a.clone()).holds(b)
}

/// Whether `a` lies in `b`.
fn within(a: &Shape, b: &Shape) -> bool {
    Refine::Within(b.clone()).holds(a)
}

fn near(a: &Shape, b: &Shape, most: f64) -> bool {
    Refine::DistanceAtMost { from: a.clone(), most }.holds(b)
}

/// Whether a window search with what a predicate demands finds an object.
fn window_finds(refine: &Refine, object: &Rect) -> bool {
    match refine {
        Refine::Within(_) => refine.window().contains(object),
        Refine::Contains(_) => object.contains(&refine.window()),
        Refine::Intersects(_) | Refine::DistanceAtMost { .. } => refine.window().intersects(object),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn they_say_what_the_matrix_of_intersections_says(a in valid(), b in valid()) {
        // The other one gives up on some geometries with a panic.
        let matrix = std::panic::catch_unwind(|| a.relate(&b));
        prop_assume!(matrix.is_ok());
        let matrix = matrix.unwrap();
        let (a, b) = (shape(&a), shape(&b));
        prop_assert_eq!(intersects(&a, &b), matrix.is_intersects(), "intersects {:?}", matrix);
        prop_assert_eq!(within(&a, &b), matrix.is_coveredby(), "{} in {} {:?}", a.to_wkt(), b.to_wkt(), matrix);
        prop_assert_eq!(within(&b, &a), matrix.is_covers(), "{} in {} {:?}", b.to_wkt(), a.to_wkt(), matrix);
    }

    #[test]
    fn distance_is_that_of_the_nearest_points(a in valid(), b in valid()) {
        let distance = Euclidean.distance(&a, &b);
        let (a, b) = (shape(&a), shape(&b));
        prop_assert!(near(&a, &b, distance * (1.0 + 1e-12)));
        if distance > 0.0 {
            prop_assert!(!near(&a, &b, distance * (1.0 - 1e-12)));
        }
    }

    #[test]
    fn they_agree_with_each_other(a in any_shape(), b in any_shape(), c in any_shape(), most in 0..5_i8) {
        let (a, b, c) = (shape(&a), shape(&b), shape(&c));
        let most = f64::from(most);
        prop_assert!(intersects(&a, &a) && within(&a, &a), "{}", a.to_wkt());
        prop_assert_eq!(intersects(&a, &b), intersects(&b, &a));
        prop_assert_eq!(near(&a, &b, most), near(&b, &a, most));
        prop_assert_eq!(near(&a, &b, 0.0), intersects(&a, &b));
        prop_assert_eq!(within(&a, &b), Refine::Contains(a.clone()).holds(&b));
        if within(&a, &b) {
            prop_assert!(intersects(&a, &b));
            prop_assert!(!near(&a, &c, most) || near(&b, &c, most), "{}", c.to_wkt());
        }
        let asked = [
            Refine::Intersects(a.clone()),
            Refine::Within(a.clone()),
            Refine::Contains(a.clone()),
            Refine::DistanceAtMost { from: a.clone(), most },
        ];
        for refine in asked {
            prop_assert!(!refine.holds(&b) || window_finds(&refine, &b.bounds()), "{:?}", refine);
            prop_assert_eq!(Refine::from_bytes(&refine.to_bytes()), Ok(refine));
        }
    }

    #[test]
    fn any_bytes_are_no_panic(a in any_shape(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = Refine::Within(shape(&a)).to_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(refine) = Refine::from_bytes(&bytes) {
            refine.holds(&shape(&a));
            prop_assert_eq!(refine.to_bytes().len(), bytes.len());
        }
        prop_assert!(Refine::from_bytes(&bytes[..at]).is_err());
    }

    #[test]
    fn a_rectangle_is_what_its_polygon_is(a in (coord(), coord()), b in any_shape()) {
        let rect = geo_types::Rect::new(a.0, a.1);
        let (least, most) = (rect.min(), rect.max());
        let bounds = Rect::new(least.x, most.x, least.y, most.y).unwrap();
        let (of_rect, b) = (Shape::of_rect(&bounds), shape(&b));
        prop_assert_eq!(of_rect.bounds(), bounds);
        prop_assert_eq!(within(&b, &of_rect), bounds.contains(&b.bounds()));
        if b.is_point() {
            prop_assert_eq!(intersects(&b, &of_rect), bounds.intersects(&b.bounds()));
        }
        let other = Shape::of_rect(&b.bounds());
        prop_assert!(within(&b, &other), "{} in its bounds", b.to_wkt());
        prop_assert_eq!(intersects(&of_rect, &other), bounds.intersects(&b.bounds()));
    }
}

/// A plain ray, for points that are on no edge.
fn is_in_ring(point: (f64, f64), ring: &[(f64, f64)]) -> bool {
    let mut inside = false;
    for ends in ring.windows(2) {
        let ((ax, ay), (bx, by)) = (ends[0], ends[1]);
        if (ay > point.1) != (by > point.1) {
            inside ^= point.0 < (bx - ax) * (point.1 - ay) / (by - ay) + ax;
        }
    }
    inside
}

proptest! {
    #[test]
    fn points_are_in_large_polygons_where_a_ray_says(
        arms in prop::collection::vec(0.2..1.0_f64, 3..400),
        points in prop::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 50),
    ) {
        let corner = |at: usize| {
            let turn = at as f64 / arms.len() as f64 * std::f64::consts::TAU;
            (arms[at] * turn.cos(), arms[at] * turn.sin())
        };
        let mut ring: Vec<(f64, f64)> = (0..arms.len()).map(corner).collect();
        ring.push(ring[0]);
        let polygon = Shape::new(Polygon::new(ring.clone().into(), vec![]).into()).unwrap();
        for (x, y) in points {
            let point = Shape::new(Point::new(x, y).into()).unwrap();
            prop_assert_eq!(within(&point, &polygon), is_in_ring((x, y), &ring));
            prop_assert_eq!(intersects(&point, &polygon), is_in_ring((x, y), &ring));
        }
    }
}

#[test]
fn edges_and_holes() {
    let wkt = |text: &str| Shape::from_wkt(text).unwrap();
    let square = wkt("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0))");
    let ring = wkt("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0), (2 2, 6 2, 6 6, 2 6, 2 2))");
    let hole = wkt("POLYGON ((2 2, 6 2, 6 6, 2 6, 2 2))");
    let in_hole = wkt("POLYGON ((3 3, 5 3, 5 5, 3 5, 3 3))");
    let diamond = wkt("POLYGON ((4 2, 6 4, 4 6, 2 4, 4 2))");
    assert!(within(&ring, &square) && !within(&square, &ring));
    assert!(intersects(&hole, &ring) && !within(&hole, &ring), "they share edges only");
    assert!(!intersects(&in_hole, &ring) && near(&in_hole, &ring, 1.0));
    assert!(!near(&in_hole, &ring, 0.999));
    assert!(!within(&diamond, &ring) && within(&diamond, &hole));
    let edge = wkt("LINESTRING (2 3, 2 6, 5 6)");
    assert!(within(&edge, &ring) && within(&edge, &hole) && !intersects(&edge, &in_hole));
    assert!(!within(&wkt("LINESTRING (1 1, 7 7)"), &ring), "it crosses the hole at its corners");
    let touching = wkt("POLYGON ((8 0, 9 0, 9 8, 8 8, 8 0))");
    assert!(intersects(&touching, &square) && near(&touching, &square, 0.0));
    // A bow that crosses itself has two insides, and no point between.
    let bow = wkt("POLYGON ((0 0, 4 4, 4 0, 0 4, 0 0))");
    assert!(within(&wkt("POINT (0.5 2)"), &bow) && !within(&wkt("POINT (2 1)"), &bow));
    // The greatest coordinates.
    let vast =
        wkt("POLYGON ((-1e150 -1e150, 1e150 -1e150, 1e150 1e150, -1e150 1e150, -1e150 -1e150))");
    let all = Shape::of_rect(&Rect::new(f64::MIN, f64::MAX, f64::MIN, f64::MAX).unwrap());
    assert!(within(&square, &vast) && within(&vast, &all) && !within(&all, &vast));
    assert!(near(&vast, &square, f64::MAX));
}

#[test]
fn small_coordinates_are_no_zeros() {
    // Products of these are; found by the fuzz target `geometry`.
    let line = Shape::from_wkt("LINESTRING (0 1e-300, 3e-320 2e-160, 2 0)").unwrap();
    let bounds = Shape::of_rect(&line.bounds());
    assert!(within(&line, &bounds) && intersects(&line, &bounds) && !within(&bounds, &line));
    let low = Shape::from_wkt("LINESTRING (0 0, 1e-200 1e-200)").unwrap();
    let beside = Shape::from_wkt("LINESTRING (0 1e-201, 1e-201 1e-200)").unwrap();
    assert!(!intersects(&low, &beside) && intersects(&low, &low));
}
