//! Predicates against plain ones in fractions: on a small grid every place is
//! told without rounding, so nothing is too flat, too thin or too entangled.

use proptest::prelude::*;
use remora_geometry::{Refine, Shape, geo_types};
use std::cmp::Ordering;

use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPolygon, Point, Polygon,
};

/// A numerator and a positive denominator.
#[derive(Clone, Copy, Debug)]
struct Fraction(i128, i128);

impl Fraction {
    fn of(above: i128, below: i128) -> Self {
        if below < 0 { Self(-above, -below) } else { Self(above, below) }
    }

    fn cmp(self, other: Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }

    fn middle(self, other: Self) -> Self {
        Self(self.0 * other.1 + other.0 * self.1, 2 * self.1 * other.1)
    }
}

type Point2 = (i128, i128);
type Edge = (Point2, Point2);

/// A place whose coordinates are both over one denominator.
#[derive(Clone, Copy)]
struct Place {
    x: i128,
    y: i128,
    below: i128,
}

fn cross(a: Point2, b: Point2) -> i128 {
    a.0 * b.1 - a.1 * b.0
}

fn minus(a: Point2, b: Point2) -> Point2 {
    (a.0 - b.0, a.1 - b.1)
}

fn side((a, b): Edge, place: Place) -> i128 {
    let from_a = (place.x - a.0 * place.below, place.y - a.1 * place.below);
    cross(minus(b, a), from_a).signum()
}

/// A part of a geometry: points and lines, or a polygon's edges.
#[derive(Clone)]
enum Component {
    Edges(Vec<Edge>),
    Polygon(Vec<Edge>),
}

impl Component {
    fn edges(&self) -> &[Edge] {
        match self {
            Self::Edges(edges) | Self::Polygon(edges) => edges,
        }
    }

    fn is_on_edge(&self, at: Place) -> bool {
        let between = |at: i128, a: i128, b: i128, below: i128| {
            a.min(b) * below <= at && at <= a.max(b) * below
        };
        self.edges().iter().any(|&(a, b)| {
            side((a, b), at) == 0
                && between(at.x, a.0, b.0, at.below)
                && between(at.y, a.1, b.1, at.below)
        })
    }

    /// Whether an odd number of a polygon's edges is on one side.
    fn is_odd(&self, at: Place) -> bool {
        let Self::Polygon(edges) = self else { return false };
        let crossed = edges.iter().filter(|&&(a, b)| {
            let (low, high) = if a.1 < b.1 { (a, b) } else { (b, a) };
            low.1 * at.below <= at.y && at.y < high.1 * at.below && side((low, high), at) > 0
        });
        crossed.count() % 2 == 1
    }

    fn has(&self, at: Place) -> bool {
        self.is_on_edge(at) || self.is_odd(at)
    }
}

fn parts(geometry: &Geometry<f64>) -> Vec<Component> {
    let whole = |coord: &Coord<f64>| (coord.x as i128, coord.y as i128);
    let edges = |line: &LineString<f64>| -> Vec<Edge> {
        line.0.windows(2).map(|ends| (whole(&ends[0]), whole(&ends[1]))).collect()
    };
    let polygon = |polygon: &Polygon<f64>| {
        let rings = std::iter::once(polygon.exterior()).chain(polygon.interiors());
        Component::Polygon(rings.flat_map(edges).collect())
    };
    match geometry {
        Geometry::Point(point) => vec![Component::Edges(vec![(whole(&point.0), whole(&point.0))])],
        Geometry::LineString(line) => vec![Component::Edges(edges(line))],
        Geometry::MultiLineString(all) => {
            all.0.iter().map(|line| Component::Edges(edges(line))).collect()
        }
        Geometry::Polygon(one) => vec![polygon(one)],
        Geometry::MultiPolygon(all) => all.0.iter().map(polygon).collect(),
        Geometry::GeometryCollection(all) => all.0.iter().flat_map(parts).collect(),
        _ => unreachable!("not made here"),
    }
}

/// The middles of the pieces into which edges cut one of them, or its point.
fn middles((p, q): Edge, cutters: &[Edge]) -> Vec<Place> {
    let along = minus(q, p);
    if along == (0, 0) {
        return vec![Place { x: p.0, y: p.1, below: 1 }];
    }
    let length = along.0 * along.0 + along.1 * along.1;
    let place_of = |point: Point2| {
        let from = minus(point, p);
        Fraction(from.0 * along.0 + from.1 * along.1, length)
    };
    let mut cuts = vec![Fraction(0, 1), Fraction(1, 1)];
    for &(a, b) in cutters {
        let way = minus(b, a);
        match cross(along, way) {
            0 if cross(along, minus(a, p)) == 0 => cuts.extend([place_of(a), place_of(b)]),
            0 => {}
            below => cuts.push(Fraction::of(cross(minus(a, p), way), below)),
        }
    }
    cuts.retain(|cut| cut.0 >= 0 && cut.0 <= cut.1);
    cuts.sort_by(|one, two| one.cmp(*two));
    cuts.dedup_by(|one, two| one.cmp(*two) == Ordering::Equal);
    let place = |t: Fraction| Place {
        x: p.0 * t.1 + along.0 * t.0,
        y: p.1 * t.1 + along.1 * t.0,
        below: t.1,
    };
    cuts.windows(2).map(|ends| place(ends[0].middle(ends[1]))).collect()
}

/// A place so little left of another one, as seen along an edge, that no line
/// through points of the grid is between.
fn beside((p, q): Edge, at: Place, left: i128) -> Place {
    const LITTLE: i128 = 1 << 40;
    let (x, y) = minus(q, p);
    Place { x: at.x * LITTLE - left * y, y: at.y * LITTLE + left * x, below: at.below * LITTLE }
}

fn all_edges(of: &[Component]) -> Vec<Edge> {
    of.iter().flat_map(|part| part.edges().iter().copied()).collect()
}

fn intersects(a: &[Component], b: &[Component]) -> bool {
    let meets = |(p, q): Edge, (a, b): Edge| {
        let at = |point: Point2| Place { x: point.0, y: point.1, below: 1 };
        let on = |edge: Edge, point: Point2| Component::Edges(vec![edge]).is_on_edge(at(point));
        let crosses = side((p, q), at(a)) * side((p, q), at(b)) < 0
            && side((a, b), at(p)) * side((a, b), at(q)) < 0;
        crosses || on((p, q), a) || on((p, q), b) || on((a, b), p) || on((a, b), q)
    };
    let has_start = |of: &[Component], among: &[Component]| {
        of.iter().any(|part| {
            let (x, y) = part.edges()[0].0;
            among.iter().any(|other| other.has(Place { x, y, below: 1 }))
        })
    };
    let edges = all_edges(b);
    all_edges(a).iter().any(|&one| edges.iter().any(|&two| meets(one, two)))
        || has_start(a, b)
        || has_start(b, a)
}

fn covers(outer: &[Component], inner: &[Component]) -> bool {
    let cutters = all_edges(outer);
    let in_any = |edges: &[Edge]| {
        let mut places = edges.iter().flat_map(|&edge| middles(edge, &cutters));
        places.all(|at| outer.iter().any(|part| part.has(at)))
    };
    inner.iter().all(|part| {
        if matches!(part, Component::Edges(_)) {
            return in_any(part.edges());
        }
        let has_inside = part.edges().iter().any(|&edge| {
            edge.0 != edge.1
                && middles(edge, part.edges())
                    .into_iter()
                    .any(|at| part.is_odd(beside(edge, at, 1)) || part.is_odd(beside(edge, at, -1)))
        });
        (!has_inside && in_any(part.edges()))
            || outer.iter().any(|way| matches!(way, Component::Polygon(_)) && is_in(way, part))
    })
}

/// Whether all of a polygon, what is beside its edges too, lies in another one,
/// and no edge of that goes through it.
fn is_in(way: &Component, part: &Component) -> bool {
    let cutters: Vec<Edge> = [way.edges(), part.edges()].concat();
    let holds = part.edges().iter().all(|&edge| {
        middles(edge, &cutters).into_iter().all(|at| {
            let both = [1, -1].into_iter().all(|left| {
                let beside = beside(edge, at, left);
                edge.0 == edge.1 || !part.is_odd(beside) || way.is_odd(beside)
            });
            both && way.has(at)
        })
    });
    holds
        && way.edges().iter().all(|&edge| {
            let mut places = middles(edge, &cutters).into_iter();
            places.all(|at| part.is_on_edge(at) || !part.is_odd(at))
        })
}

fn coord(most: i8) -> impl Strategy<Value = Coord<f64>> {
    (0..=most, 0..=most).prop_map(|(x, y)| Coord { x: x.into(), y: y.into() })
}

fn line(most: i8, points: std::ops::Range<usize>) -> impl Strategy<Value = LineString<f64>> {
    let scribble = prop::collection::vec(coord(most), points);
    // To and fro over the same places.
    (scribble, 1..3_usize).prop_map(|(coords, times)| {
        let back = coords.iter().rev().skip(1).copied().collect::<Vec<_>>();
        let mut all = coords;
        if times == 2 {
            all.extend(back);
        }
        LineString(all)
    })
}

fn ring(most: i8) -> impl Strategy<Value = LineString<f64>> {
    prop::collection::vec(coord(most), 3..7).prop_map(|mut ring| {
        ring.push(ring[0]);
        LineString(ring)
    })
}

fn block(most: i8) -> impl Strategy<Value = LineString<f64>> {
    (coord(most), coord(most))
        .prop_map(|(a, b)| geo_types::Rect::new(a, b).to_polygon().into_inner().0)
}

fn polygon(most: i8) -> impl Strategy<Value = Polygon<f64>> {
    let any_ring = move || prop_oneof![ring(most), block(most), block(most)];
    // A hole may be what is around it, or a part of that.
    let holed = (any_ring(), prop::collection::vec(any_ring(), 0..3))
        .prop_map(|(out, holes)| Polygon::new(out, holes));
    let twice = any_ring().prop_map(|out| Polygon::new(out.clone(), vec![out]));
    prop_oneof![6 => holed, 1 => twice]
}

fn geometry(most: i8) -> impl Strategy<Value = Geometry<f64>> {
    let member = move || {
        prop_oneof![
            coord(most).prop_map(|coord| Geometry::from(Point(coord))),
            line(most, 2..5).prop_map(Geometry::from),
            polygon(most).prop_map(Geometry::from),
        ]
    };
    prop_oneof![
        2 => member(),
        1 => prop::collection::vec(line(most, 2..4), 1..4).prop_map(|all| MultiLineString(all).into()),
        2 => prop::collection::vec(polygon(most), 1..4).prop_map(|all| MultiPolygon(all).into()),
        2 => prop::collection::vec(member(), 1..5)
            .prop_map(|all| Geometry::GeometryCollection(GeometryCollection(all))),
    ]
}

fn rings(of: &Geometry<f64>) -> Vec<LineString<f64>> {
    match of {
        Geometry::Polygon(one) => {
            std::iter::once(one.exterior()).chain(one.interiors()).cloned().collect()
        }
        Geometry::MultiPolygon(all) => {
            all.0.iter().flat_map(|one| rings(&one.clone().into())).collect()
        }
        Geometry::GeometryCollection(all) => all.0.iter().flat_map(rings).collect(),
        _ => Vec::new(),
    }
}

/// What has two rings after each other as one, in the other direction if that
/// is wanted: what a hole is, or what two are.
fn of_rings(
    of: &Geometry<f64>,
    which: prop::sample::Index,
    is_turned: bool,
) -> Option<Geometry<f64>> {
    let rings = rings(of);
    let at = which.index(rings.len().max(1));
    let (one, two) = (rings.get(at)?, &rings[(at + 1) % rings.len()]);
    let mut coords = one.0.clone();
    if one.0[0] == two.0[0] {
        coords.extend(two.0.iter().rev().skip(1));
    }
    if is_turned {
        coords.reverse();
    }
    Some(Polygon::new(LineString(coords), vec![]).into())
}

/// Two on one grid; now and then the second is in the first, or a ring of it.
fn pair() -> impl Strategy<Value = (Geometry<f64>, Geometry<f64>)> {
    let pair = |most| {
        (geometry(most), geometry(most), 0..5_u8, any::<prop::sample::Index>(), any::<bool>())
    };
    prop_oneof![Just(2_i8), Just(3), Just(5), Just(9)].prop_flat_map(pair).prop_map(
        |(a, b, which, ring, is_turned)| {
            let all = |members| Geometry::GeometryCollection(GeometryCollection(members));
            match which {
                0 => (all(vec![a.clone(), b.clone()]), b),
                1 => (all(vec![a, b.clone()]), all(vec![b.clone(), b])),
                2 => match of_rings(&a, ring, is_turned) {
                    Some(of_a) => (a, of_a),
                    None => (a, b),
                },
                _ => (a, b),
            }
        },
    )
}

/// The same with all coordinates times powers of two.
fn scaled(geometry: &Geometry<f64>, x: i32, y: i32) -> Shape {
    use geo_types::Geometry as G;
    fn change(geometry: &mut G<f64>, to: &impl Fn(&mut Coord<f64>)) {
        let line = |line: &mut LineString<f64>| line.0.iter_mut().for_each(to);
        let polygon = |polygon: &mut Polygon<f64>| {
            polygon.exterior_mut(line);
            polygon.interiors_mut(|all| all.iter_mut().for_each(line));
        };
        match geometry {
            G::Point(point) => to(&mut point.0),
            G::LineString(one) => line(one),
            G::MultiLineString(all) => all.0.iter_mut().for_each(line),
            G::Polygon(one) => polygon(one),
            G::MultiPolygon(all) => all.0.iter_mut().for_each(polygon),
            G::GeometryCollection(all) => all.0.iter_mut().for_each(|one| change(one, to)),
            _ => unreachable!("not made here"),
        }
    }
    let mut changed = geometry.clone();
    change(&mut changed, &|coord| {
        *coord = Coord { x: coord.x * f64::from(x).exp2(), y: coord.y * f64::from(y).exp2() }
    });
    Shape::new(changed).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn they_say_what_fractions_say((a, b) in pair(), x in -1_070..480_i32, y in -1_070..480_i32) {
        let (one, two) = (parts(&a), parts(&b));
        let intersects = intersects(&one, &two);
        let (covers, covered) = (covers(&one, &two), covers(&two, &one));
        for (x, y) in [(0, 0), (x, y)] {
            let (a, b) = (scaled(&a, x, y), scaled(&b, x, y));
            let texts = || format!("{} | {}", a.to_wkt(), b.to_wkt());
            prop_assert_eq!(Refine::Intersects(a.clone()).holds(&b), intersects, "intersects {}", texts());
            prop_assert_eq!(Refine::Within(a.clone()).holds(&b), covers, "covers {}", texts());
            prop_assert_eq!(Refine::Contains(a.clone()).holds(&b), covered, "is covered by {}", texts());
        }
    }
}
