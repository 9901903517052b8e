//! Positions on the globe as Redis keeps and compares them: 26 bits of
//! longitude and 26 of latitude, interleaved, as the score of a member; the
//! centre of that cell as its position; distances on a sphere. The arithmetic
//! is that of Redis 7, operation by operation, so that answers have the same
//! digits.

use remora_layout::rect::Rect;

/// Greatest latitude of a position, degrees: that of the Mercator square.
pub const MAX_LATITUDE: f64 = 85.05112878;
/// Greatest longitude, degrees.
pub const MAX_LONGITUDE: f64 = 180.0;

/// Bits of one coordinate.
const COORDINATE_BITS: u32 = 26;
/// Radius of the sphere on which distances are measured, metres.
const EARTH_RADIUS: f64 = 6372797.560856;
/// Margin of windows around their shapes, degrees: a tenth of a millimetre, a thousand times the
/// rounding error.
const MARGIN: f64 = 1e-9;
/// Digits of a geohash's text.
const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// A position, degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Position {
    /// East of Greenwich, -180 to 180.
    pub longitude: f64,
    /// North of the equator, -85.05112878 to 85.05112878.
    pub latitude: f64,
}

/// An offset from 0 to 1 along each coordinate as interleaved bits; latitude
/// has the even ones.
fn interleave(longitude: f64, latitude: f64) -> u64 {
    let cells = (1u64 << COORDINATE_BITS) as f64;
    spread((latitude * cells) as u32) | spread((longitude * cells) as u32) << 1
}

/// A number's bits at the even places of a longer one.
fn spread(number: u32) -> u64 {
    [(16, 0x0000_ffff_0000_ffff), (8, 0x00ff_00ff_00ff_00ff), (4, 0x0f0f_0f0f_0f0f_0f0f)]
        .into_iter()
        .chain([(2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555)])
        .fold(number as u64, |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// The bits at the even places.
fn gather(bits: u64) -> u32 {
    [(1, 0x3333_3333_3333_3333), (2, 0x0f0f_0f0f_0f0f_0f0f), (4, 0x00ff_00ff_00ff_00ff)]
        .into_iter()
        .chain([(8, 0x0000_ffff_0000_ffff), (16, 0x0000_0000_ffff_ffff)])
        .fold(bits & 0x5555_5555_5555_5555, |bits, (shift, mask)| (bits | bits >> shift) & mask)
        as u32
}

/// Centre of a cell of a coordinate that goes from `-most` to `most`.
fn centre(cell: u32, most: f64) -> f64 {
    let cells = (1u64 << COORDINATE_BITS) as f64;
    let scale = most - -most;
    let from = -most + (cell as f64 / cells) * scale;
    let to = -most + (cell.wrapping_add(1) as f64 / cells) * scale;
    ((from + to) / 2.0).clamp(-most, most)
}

impl Position {
    /// A position, if the numbers make one.
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        let fits = (-MAX_LONGITUDE..=MAX_LONGITUDE).contains(&longitude)
            && (-MAX_LATITUDE..=MAX_LATITUDE).contains(&latitude);
        fits.then_some(Self { longitude, latitude })
    }

    /// The score of a member at this position. (At the greatest coordinates
    /// it has more than 52 bits, as in Redis.)
    pub fn score(self) -> f64 {
        let longitude = (self.longitude + MAX_LONGITUDE) / (MAX_LONGITUDE + MAX_LONGITUDE);
        let latitude = (self.latitude + MAX_LATITUDE) / (MAX_LATITUDE + MAX_LATITUDE);
        interleave(longitude, latitude) as f64
    }

    /// The position of a member with this score, which may be any number.
    pub fn of_score(score: f64) -> Self {
        let bits = score as u64;
        Self {
            longitude: centre(gather(bits >> 1), MAX_LONGITUDE),
            latitude: centre(gather(bits), MAX_LATITUDE),
        }
    }

    /// The point of a tree: x is the longitude.
    pub fn point(self) -> Rect {
        let Self { longitude, latitude } = self;
        Rect { min_x: longitude, max_x: longitude, min_y: latitude, max_y: latitude }
    }

    /// The position of a tree's point.
    pub fn of_point(point: &Rect) -> Self {
        Self { longitude: point.min_x, latitude: point.min_y }
    }

    /// Metres between two positions, by the haversine formula.
    pub fn distance(self, other: Self) -> f64 {
        let sine = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if sine == 0.0 {
            return self.distance_of_latitudes(other);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let height = ((to - from) / 2.0).sin();
        let sum = height * height + from.cos() * to.cos() * sine * sine;
        2.0 * EARTH_RADIUS * sum.sqrt().asin()
    }

    fn distance_of_latitudes(self, other: Self) -> f64 {
        EARTH_RADIUS * (radians(other.latitude) - radians(self.latitude)).abs()
    }

    /// The standard geohash of eleven digits; its last digit is always 0.
    pub fn geohash(self) -> [u8; 11] {
        let bits = interleave((self.longitude + 180.0) / 360.0, (self.latitude + 90.0) / 180.0);
        std::array::from_fn(|at| match at {
            10 => ALPHABET[0],
            _ => ALPHABET[(bits >> (52 - (at + 1) * 5)) as usize & 31],
        })
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

/// The shape of a search around its centre. Metres, not negative, not NaN.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// All within so far.
    Circle {
        /// How far.
        radius: f64,
    },
    /// All that lie half a height north or south at most, and half a width
    /// east or west at most, measured along their own parallel.
    Box {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
}

impl Shape {
    /// The distance from the centre to a position, if that lies within.
    pub fn distance_within(self, centre: Position, to: Position) -> Option<f64> {
        match self {
            Self::Circle { radius } => {
                let distance = centre.distance(to);
                // NaN, as between antipodes, counts as no more than any number.
                let is_out = distance > radius;
                (!is_out).then_some(distance)
            }
            Self::Box { width, height } => {
                let beside = Position { longitude: centre.longitude, latitude: to.latitude };
                let is_out = to.distance_of_latitudes(centre) > height / 2.0
                    || to.distance(beside) > width / 2.0;
                (!is_out).then(|| centre.distance(to))
            }
        }
    }

    /// One window, or two that do not meet, in which every position within
    /// lies: longitudes are cut where they pass the antimeridian, and all of
    /// them are taken where a pole is within.
    pub fn windows(self, centre: Position) -> (Rect, Option<Rect>) {
        let (up, aside) = match self {
            Self::Circle { radius } => (radius / EARTH_RADIUS, radius / EARTH_RADIUS),
            Self::Box { width, height } => {
                (height / 2.0 / EARTH_RADIUS, width / 2.0 / EARTH_RADIUS)
            }
        };
        let up = degrees(up) + MARGIN;
        let min_y = (centre.latitude - up).max(-MAX_LATITUDE);
        let max_y = (centre.latitude + up).min(MAX_LATITUDE);
        let half = match self {
            // The meridian that touches the circle: a right angle there.
            Self::Circle { .. } if centre.latitude.abs() + up >= 90.0 => f64::INFINITY,
            Self::Circle { .. } => arc_sine(aside.sin() / radians(centre.latitude).cos()),
            // The parallel on which this many metres are the most degrees.
            Self::Box { .. } if aside >= std::f64::consts::PI => f64::INFINITY,
            Self::Box { .. } => {
                let latitude = min_y.abs().max(max_y.abs());
                2.0 * arc_sine((aside / 2.0).sin() / radians(latitude).cos())
            }
        };
        let half = degrees(half) + MARGIN;
        let (west, east) = (centre.longitude - half, centre.longitude + half);
        let window = |min_x, max_x| Rect { min_x, max_x, min_y, max_y };
        if half >= MAX_LONGITUDE {
            (window(-MAX_LONGITUDE, MAX_LONGITUDE), None)
        } else if west < -MAX_LONGITUDE {
            let rest = window(west + 360.0, MAX_LONGITUDE);
            (window(-MAX_LONGITUDE, east), Some(rest))
        } else if east > MAX_LONGITUDE {
            let rest = window(-MAX_LONGITUDE, east - 360.0);
            (window(west, MAX_LONGITUDE), Some(rest))
        } else {
            (window(west, east), None)
        }
    }
}

/// A shape around its centre, made ready for the test of many positions.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    shape: Shape,
    centre: Position,
    /// Positions in this window are within the shape, by more than the rounding error.
    sure: Option<Rect>,
}

impl Area {
    /// The area that a shape takes in.
    pub fn new(shape: Shape, centre: Position) -> Self {
        Self { shape, centre, sure: sure_part(shape, centre) }
    }

    /// Whether a position lies within: as [`Shape::distance_within`] has it.
    pub fn holds(&self, to: Position) -> bool {
        self.sure.is_some_and(|sure| sure.intersects(&to.point()))
            || self.shape.distance_within(self.centre, to).is_some()
    }
}

/// For a box: its width in degrees on the parallel nearest to the equator, where the width has the
/// fewest degrees.
fn sure_part(shape: Shape, centre: Position) -> Option<Rect> {
    let Shape::Box { width, height } = shape else { return None };
    let Position { longitude, latitude } = centre;
    let up = degrees(height / 2.0 / EARTH_RADIUS) - MARGIN;
    let (min_y, max_y) = (latitude - up, latitude + up);
    let lowest = if min_y <= 0.0 && max_y >= 0.0 { 0.0 } else { min_y.abs().min(max_y.abs()) };
    let aside = width / 2.0 / EARTH_RADIUS;
    let half = degrees(2.0 * arc_sine((aside / 2.0).sin() / radians(lowest).cos())) - MARGIN;
    let fits = up >= 0.0 && (0.0..MAX_LONGITUDE).contains(&half) && aside < std::f64::consts::PI;
    let sure = Rect { min_x: longitude - half, max_x: longitude + half, min_y, max_y };
    fits.then_some(sure)
}

/// Radians; all the way round if there is none, or where rounding weighs more
/// than the margin.
fn arc_sine(sine: f64) -> f64 {
    if sine < 1.0 - MARGIN { sine.asin() } else { f64::INFINITY }
}

/// The position of a member of a sorted set, if its score is that of one.
///
/// ```
/// use remora_protocol::geo::{Position, position_of};
///
/// let score = Position::new(13.4, 52.5).unwrap().score();
/// assert!(position_of(score).is_some());
/// assert!([-1.0, 1e300, f64::INFINITY].iter().all(|of| position_of(*of).is_none()));
/// ```
pub fn position_of(score: f64) -> Option<Position> {
    /// Scores of positions have 52 bits, and two more at the eastern and the northern edge.
    const END: f64 = (1u64 << 54) as f64;
    (0.0..END).contains(&score).then(|| Position::of_score(score))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;

    /// Some positions, from a fixed sequence; a third at the edges.
    fn positions(count: usize) -> Vec<Position> {
        let mut random = Random::new(7);
        let mut next = || random.unit();
        let one = |_| {
            let (x, y, edge) = (next(), next(), next());
            let longitude = match edge {
                ..0.1 => 180.0 - x * 1e-6,
                ..0.2 => -180.0 + x,
                _ => x * 360.0 - 180.0,
            };
            let latitude = match edge {
                0.15..0.25 => MAX_LATITUDE - y * 1e-3,
                0.25..0.35 => y - MAX_LATITUDE,
                _ => (y * 2.0 - 1.0) * MAX_LATITUDE,
            };
            Position::new(longitude, latitude).unwrap()
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn what_redis_documents() {
        let palermo = Position::new(13.361389, 38.115556).unwrap();
        let catania = Position::new(15.087269, 37.502669).unwrap();
        assert_eq!((palermo.score(), catania.score()), (3479099956230698.0, 3479447370796909.0));
        let (palermo, catania) =
            (Position::of_score(palermo.score()), Position::of_score(catania.score()));
        assert_eq!(format!("{:.4}", palermo.distance(catania)), "166274.1516");
        assert_eq!(&palermo.geohash(), b"sqc8b49rny0");
        assert_eq!(&catania.geohash(), b"sqdtr74hyu0");
        assert_eq!(palermo.longitude.to_string(), "13.361389338970184");
    }

    #[test]
    fn only_what_lies_on_the_map_is_a_position() {
        assert!(Position::new(180.0, -MAX_LATITUDE).is_some());
        for (longitude, latitude) in
            [(180.1, 0.0), (0.0, 85.06), (f64::NAN, 0.0), (0.0, f64::INFINITY)]
        {
            assert!(Position::new(longitude, latitude).is_none(), "{longitude} {latitude}");
        }
        for score in [f64::NAN, -1.0, f64::INFINITY, 1e300, 0.5] {
            let Position { longitude, latitude } = Position::of_score(score);
            let position = Position::new(longitude, latitude).unwrap();
            assert_eq!(Position::of_score(position.score()), position, "{score}");
        }
    }

    #[test]
    fn a_cell_s_centre_is_in_the_cell() {
        for position in positions(20_000) {
            let kept = Position::of_score(position.score());
            let (east, north) =
                (position.longitude - kept.longitude, position.latitude - kept.latitude);
            assert_eq!(Position::of_score(kept.score()), kept);
            assert!(east.abs() < 3e-6 && north.abs() < 2e-6, "{position:?} {kept:?}");
            if position.longitude < 180.0 - 6e-6 && position.latitude < MAX_LATITUDE - 3e-6 {
                assert_eq!(kept.score(), position.score(), "{position:?}");
            }
        }
    }

    /// Boxes of all sizes: the answer without arithmetic equals the computed one.
    #[test]
    fn an_area_holds_what_lies_within() {
        let all = positions(3_000);
        let (mut sure, mut held) = (0, 0);
        for (at, &centre) in all.iter().enumerate().step_by(5) {
            let sizes = [0.0, 1e-4, 1.0, 2e4, 3e6, 9e6, 1.8e7, 2.01e7, 4.1e7, f64::INFINITY];
            let shape = Shape::Box { width: sizes[at % 10], height: sizes[at / 10 % 10] };
            let area = Area::new(shape, centre);
            // The edges of the part that is sure, and a little on either side.
            let edges = area.sure.iter().flat_map(|sure| {
                let near = |edge: f64| [-1e-8, -2e-9, 0.0, 2e-9, 1e-8].map(|by| edge + by);
                let xs = [near(sure.min_x), near(sure.max_x)].concat();
                let ys = [near(sure.min_y), near(sure.max_y)].concat();
                xs.into_iter().flat_map(move |x| ys.clone().into_iter().map(move |y| (x, y)))
            });
            let edges = edges.filter_map(|(x, y)| Position::new(x, y));
            for to in all.iter().copied().chain([centre]).chain(edges) {
                let is_held = shape.distance_within(centre, to).is_some();
                assert_eq!(area.holds(to), is_held, "{shape:?} {centre:?} {to:?}");
                held += is_held as u32;
                sure += area.sure.is_some_and(|sure| sure.intersects(&to.point())) as u32;
            }
        }
        assert!(sure > 10_000 && held > sure, "{sure} of {held}");
    }

    /// Every position that the exact rule takes in lies in a window, and in
    /// one only; windows of small searches are small.
    #[test]
    fn windows_hold_all_that_lies_within() {
        let all = positions(4_000);
        let sizes = [0.0, 1.0, 5e3, 3e5, 1.2e6, 5e6, 9e6, 1.4e7, 2.002e7, 4e7, f64::INFINITY];
        let mut within = [0; 2];
        for (at, &centre) in all.iter().enumerate().step_by(7) {
            let (one, other) = (sizes[at % 11], sizes[at / 11 % 11]);
            let shapes = [Shape::Circle { radius: one }, Shape::Box { width: one, height: other }];
            for (kind, shape) in shapes.into_iter().enumerate() {
                let (first, second) = shape.windows(centre);
                assert!(first.checked().is_ok() && second.is_none_or(|w| w.checked().is_ok()));
                for &to in all.iter().chain([&centre]) {
                    let point = to.point();
                    let held = first.intersects(&point) as u32
                        + second.is_some_and(|window| window.intersects(&point)) as u32;
                    assert!(held < 2, "{shape:?} {centre:?} {to:?}");
                    if shape.distance_within(centre, to).is_some() {
                        within[kind] += 1;
                        assert_eq!(held, 1, "{shape:?} {centre:?} {to:?}: {first:?} {second:?}");
                    }
                }
            }
        }
        assert!(within.iter().all(|&count| count > 100_000), "{within:?}");
        let berlin = Position::new(13.4, 52.5).unwrap();
        let (window, second) = Shape::Circle { radius: 1000.0 }.windows(berlin);
        assert!(second.is_none() && window.max_x - window.min_x < 0.03);
        assert!(window.max_y - window.min_y < 0.019);
    }
}
