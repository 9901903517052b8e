//! Geometries that cost as much to compare as their length allows: a server
//! takes them from anybody. Counted in steps, as times are a machine's.

use crate::orientation::{steps_taken, work_done};
use crate::{Refine, Shape};
use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiPoint, MultiPolygon, Polygon,
};
use remora_layout::limits::MAX_GEOMETRY_BYTES;
use remora_testing::Random;

/// Coordinates of the longest line, and a few less.
const MOST: usize = MAX_GEOMETRY_BYTES / 16 - 20;

type Coords = Vec<Coord<f64>>;

fn at(x: f64, y: f64) -> Coord<f64> {
    Coord { x, y }
}

/// The same numbers on every machine, from 0 to 1.
fn scatter(seed: u64) -> impl FnMut() -> f64 {
    let mut random = Random::new(seed);
    move || random.unit()
}

fn ring(mut coords: Coords) -> LineString<f64> {
    coords.push(coords[0]);
    LineString(coords)
}

fn polygon(coords: Coords) -> Polygon<f64> {
    Polygon::new(ring(coords), vec![])
}

fn square(least: f64, most: f64) -> Polygon<f64> {
    polygon(vec![at(least, least), at(most, least), at(most, most), at(least, most)])
}

fn shape(geometry: impl Into<Geometry<f64>>) -> Shape {
    Shape::new(geometry.into()).unwrap()
}

fn collection(polygons: Vec<Polygon<f64>>) -> Shape {
    let members = polygons.into_iter().map(Geometry::from).collect();
    shape(Geometry::GeometryCollection(GeometryCollection(members)))
}

/// Back and forth between two places, a little farther each time.
fn to_and_fro(count: usize, from: Coord<f64>, to: Coord<f64>, step: f64) -> Coords {
    let place = |n: usize| (if n.is_multiple_of(2) { from } else { to }) + at(n as f64 * step, 0.0);
    (0..count).map(place).collect()
}

fn scribble(n: usize, seed: u64) -> Coords {
    let mut number = scatter(seed);
    (0..n).map(|_| at(number(), number())).collect()
}

/// Between small numbers and large ones, all on a diagonal or a digit beside it.
fn diagonal(n: usize, seed: u64, small: f64, beside: impl Fn(f64) -> f64) -> Coords {
    let mut number = scatter(seed);
    let x = |i: usize, number: f64| {
        if i.is_multiple_of(2) { small * number } else { 0.4 + 0.1 * number }
    };
    (0..n).map(|i| x(i, number())).map(|x| at(x, beside(x))).collect()
}

/// Two lines of so many coordinates each, and what they are.
fn lines(n: usize) -> Vec<(&'static str, Coords, Coords)> {
    let wide = n as f64;
    let teeth = (3..n).map(|x| at((n - x) as f64, f64::from(x % 2 == 0)));
    let comb = [at(0.0, 0.0), at(0.0, -1.0), at(wide, -1.0)].into_iter().chain(teeth).collect();
    let fan = |tip: f64| to_and_fro(n, at(tip, tip), at(0.7, 0.6), 0.0);
    // All digits are needed to tell that its tip is on the line of diagonals.
    let exact = -std::f64::consts::PI * 1e-5;
    let up = |small| diagonal(n, 1, small, f64::next_up);
    let down = |small| diagonal(n, 2, small, f64::next_down);
    vec![
        ("to and fro under a comb", to_and_fro(n, at(0.5, 0.0), at(wide - 3.5, 0.0), 0.0), comb),
        ("scribbles", scribble(n, 1), scribble(n, 2)),
        (
            "bundles side by side",
            to_and_fro(n, at(0.0, 0.0), at(1.0, 1.0), 1e-3 / wide),
            to_and_fro(n, at(0.1, 0.0), at(1.1, 1.0), 1e-3 / wide),
        ),
        (
            "bundles crossing",
            to_and_fro(n, at(0.0, 0.0), at(1.0, 1.0), 1e-3 / wide),
            to_and_fro(n, at(0.0, 1.0), at(1.0, 0.0), 1e-3 / wide),
        ),
        ("a fan, diagonals", fan(exact), diagonal(n, 3, 1e-3, |x| x)),
        ("a fan near diagonals", fan(exact), diagonal(n, 3, 1e-3, f64::next_up)),
        ("diagonals a digit apart", up(1e-6), down(1e-6)),
        ("diagonals less apart", up(1e-25), down(1e-25)),
        ("on one diagonal", diagonal(n, 5, 1e-3, |x| x), diagonal(n, 6, 1e-3, |x| x)),
    ]
}

/// Points in the gaps of a comb, which all of its teeth are beside.
fn points(n: usize) -> (Shape, Shape) {
    let teeth = (0..n - 1).map(|x| at(x as f64, f64::from(x % 2 == 0) * n as f64));
    let count = n * 16 / 21;
    let points = (0..count).map(|i| at(1.0, 1.0 + i as f64)).chain([at(-1.0, 0.0)]);
    (shape(MultiPoint(points.map(Into::into).collect())), shape(polygon(teeth.collect())))
}

/// Triangles, and squares with a hole that is in the triangle.
fn holes(n: usize) -> (Shape, Shape) {
    let triangle = |size: f64| vec![at(0.0, 0.0), at(size, 0.0), at(0.0, size)];
    let hole = triangle(0.5).into_iter().map(|corner| corner + at(0.1, 0.1)).collect();
    let holed = Polygon::new(square(-1.0, 2.0).into_inner().0, vec![ring(hole)]);
    (
        shape(MultiPolygon(vec![polygon(triangle(1.0)); n / 5])),
        shape(MultiPolygon(vec![holed; n / 11])),
    )
}

/// A comb whose base is many edges, each with all teeth on it, and squares on
/// that base.
fn base(n: usize) -> (Shape, Shape) {
    let teeth = (0..n / 2).map(|i| at(1.0 - 2.0 * i as f64 / n as f64, f64::from(i % 2 == 1)));
    let base = to_and_fro(n / 2, at(0.0, 0.0), at(1.0, 0.0), 0.0).into_iter();
    let comb = polygon(base.chain(teeth).collect());
    (shape(comb), shape(MultiPolygon(vec![square(0.0, 1.0); n / 6])))
}

/// A ring twice, which has no inside; its edges lie in two halves, in none
/// alone.
fn hollow(n: usize, half: Coords) -> (Shape, Shape) {
    let half: Coords = half.into_iter().take(n / 2).collect();
    let halves = [-1.0, 0.25]
        .map(|x| polygon(vec![at(x, -2.0), at(x + 1.25, -2.0), at(x + 1.25, 2.0), at(x, 2.0)]));
    (shape(Polygon::new(ring(half.clone()), vec![ring(half)])), collection(halves.into()))
}

/// Pairs of geometries of so many coordinates each.
fn pairs(n: usize) -> Vec<(String, Shape, Shape)> {
    let mut pairs = Vec::new();
    for (name, one, two) in lines(n) {
        let (a, b) = (shape(LineString(one.clone())), shape(LineString(two.clone())));
        let vast = square(-1.0, 2.0 * n as f64);
        let both = collection(vec![vast.clone(), polygon(two.clone())]);
        pairs.push((format!("{name}, in a square"), a.clone(), both));
        pairs.push((format!("{name}, lines"), a, b));
        for (which, coords) in [("one", &one), ("two", &two)] {
            let twin = shape(polygon(coords.clone()));
            pairs.push((format!("{name}, {which} in itself"), twin.clone(), twin));
            let (hollow, halves) = hollow(n, coords.clone());
            pairs.push((format!("{name}, {which} hollow"), hollow, halves));
        }
    }
    let ((a, b), (c, d), (e, f)) = (points(n), holes(n), base(n));
    pairs.push(("points beside a comb".into(), a, b));
    pairs.push(("triangles and holes".into(), c, d));
    pairs.push(("a comb's base in squares".into(), e, f));
    pairs
}

fn refines(shape: &Shape) -> [(&'static str, Refine); 5] {
    let near = |most| Refine::DistanceAtMost { from: shape.clone(), most };
    [
        ("INTERSECTS", Refine::Intersects(shape.clone())),
        ("WITHIN", Refine::Within(shape.clone())),
        ("CONTAINS", Refine::Contains(shape.clone())),
        ("DWITHIN", near(1e-19)),
        ("DWITHIN", near(0.07)),
    ]
}

/// Nanoseconds that this thread has computed, where the system tells.
fn computed_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

/// What each comparison of two geometries is, and cost.
fn all(n: usize, mut each: impl FnMut(String, u64, u64)) {
    for (name, a, b) in pairs(n) {
        for (shape, object) in [(&a, &b), (&b, &a)] {
            for (predicate, refine) in refines(shape) {
                let (before, begun) = (steps_taken(), computed_ns());
                let holds = refine.holds(object);
                let ns = computed_ns() - begun;
                each(format!("{name}: {predicate} {holds}"), steps_taken() - before, ns);
            }
        }
    }
}

/// Steps of the worst comparison, and what it is.
fn worst(n: usize) -> (u64, String) {
    let mut worst = (0, String::new());
    all(n, |name, steps, _| worst = std::mem::take(&mut worst).max((steps, name)));
    worst
}

/// With `REMORA_HOSTILE_TIMES=1` it prints what the worst pairs of 64 KiB take;
/// that is minutes.
#[test]
fn twice_as_long_costs_four_times_as_much() {
    if std::env::var_os("REMORA_HOSTILE_TIMES").is_some() {
        print_times();
    }
    for n in [100, 200] {
        let (steps, name) = worst(n);
        let most = 16 * (n * n) as u64;
        assert!(steps <= most, "{name}: {steps} steps for {n} coordinates each");
        assert!(steps > most / 4, "{name}: the shapes are no longer bad ones");
    }
}

#[test]
fn a_comparison_pauses_after_one_more_segment_and_comes_to_the_same() {
    const WORK: u64 = 300;
    let n = 150;
    for (name, a, b) in pairs(n) {
        for (shape, object) in [(&a, &b), (&b, &a)] {
            for (predicate, refine) in refines(shape) {
                let mut comparison = refine.compare(object.clone());
                let (whole, mut turns) = (work_done(), 0);
                let holds = loop {
                    let before = work_done();
                    let holds = comparison.turn(&refine, WORK);
                    turns += 1;
                    let work = work_done() - before;
                    // A segment beside all of both, a small number of times.
                    let most = WORK + 24 * n as u64;
                    assert!(work <= most, "{name}: {predicate} did {work} in one turn");
                    if let Some(holds) = holds {
                        break holds;
                    }
                };
                let whole = work_done() - whole;
                assert!(turns >= whole / (WORK + 24 * n as u64), "{name}: {predicate}");
                assert!(turns <= whole / WORK + 1, "{name}: {predicate} paused too early");
                assert_eq!(holds, refine.holds(object), "{name}: {predicate}");
            }
        }
    }
}

fn print_times() {
    all(MOST, |name, steps, ns| {
        if ns > 300_000_000 {
            println!("{name:60} {:6} ms {:4} M steps", ns / 1_000_000, steps / 1_000_000);
        }
    });
}
