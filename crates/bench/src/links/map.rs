//! Map matching (KELI 6.2, figure 7; K21, K22): the road on which a noisy position lies.
//!
//! ```text
//! cell:4:7  0 | 1 | .. | next        segment:5   street | cell | a | b        street:3   name | segments
//!           |   +------------------------^         |              |   +---> node:8   lat | long
//!           +--> segment:2                         +-> street:3   +-------> node:7
//! ```
//! A position gives the key of its cell. The segments of the cell, their ends and the nearest one's
//! street are reached by links.

use super::chunks::{self, chunk_key};
use super::fetch::Fetcher;
use super::item::{NewItem, known};
use super::load::Loader;
use super::operations::Application;
use anyhow::Context;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client_core::Link;
use remora_command_line::usage;
use remora_geometry::geo_types::Geometry;
use remora_osm::{Filter, Limits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Coordinates are in 1e-7 degrees, as OpenStreetMap has them: latitude, longitude.
type Coordinate = [i32; 2];

/// Edge of a cell: 0.002 degrees, some 220 m of latitude.
const CELL: i32 = 20_000;
/// How far a position is off its road at most, in each direction: some 33 m of latitude.
const NOISE: i32 = 3_000;
/// A cell has all segments that come as near to it as this: so the nearest of a position is there.
const MARGIN: i32 = 2 * NOISE;
/// Bytes of a street's name that are kept.
const NAME_BYTES: usize = 60;
/// Bytes for what is kept of the file while it is read.
const KEPT_BYTES: usize = 1 << 30;

/// A piece of a road between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    street: u32,
    a: u32,
    b: u32,
}

/// A map of roads.
#[derive(Debug, Default)]
pub struct Map {
    /// The name of each street, empty if it has none, and its segments.
    streets: Vec<(String, Vec<u32>)>,
    nodes: Vec<Coordinate>,
    segments: Vec<Segment>,
    cells: BTreeMap<Coordinate, Vec<u32>>,
}

/// The nearest segment's number and the name of its street.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matched {
    segment: u32,
    street: String,
}

#[derive(Deserialize)]
struct Tags {
    #[serde(default)]
    name: String,
}

impl Map {
    /// Reads the roads of a PBF file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = std::fs::File::open(path)
            .map_err(|error| usage(format!("--map: cannot read {shown}: {error}")))?;
        let filter: Filter = "highway".parse().expect("a key");
        let mut roads = Vec::new();
        let limits = Limits { kept_bytes: KEPT_BYTES };
        remora_osm::read(std::io::BufReader::new(file), &[filter], limits, &mut |_, object| {
            if let Ok(object) = object
                && let Geometry::LineString(line) = object.shape.geometry()
            {
                let tags: Tags = serde_json::from_slice(object.tags)?;
                let place = |degrees: f64| (degrees * 1e7).round() as i32;
                let line = line.coords().map(|at| [place(at.y), place(at.x)]).collect();
                roads.push((tags.name, line));
            }
            Ok(())
        })
        .with_context(|| format!("reading {shown}"))?;
        match Self::of(&roads) {
            map if map.segments.is_empty() => Err(usage(format!("--map: {shown} has no roads"))),
            map => Ok(map),
        }
    }

    /// A map of these roads: a name, and a line each.
    fn of(roads: &[(String, Vec<Coordinate>)]) -> Self {
        let mut map = Self::default();
        let mut numbers = BTreeMap::new();
        for (name, line) in roads {
            let mut name = name.clone();
            while name.len() > NAME_BYTES {
                name.pop();
            }
            let street = map.streets.len() as u32;
            let mut number = |at: &Coordinate| {
                *numbers.entry(*at).or_insert_with(|| {
                    map.nodes.push(*at);
                    map.nodes.len() as u32 - 1
                })
            };
            let nodes: Vec<u32> = line.iter().map(&mut number).collect();
            let first = map.segments.len() as u32;
            let ends = nodes.windows(2).filter(|ends| ends[0] != ends[1]);
            map.segments.extend(ends.map(|ends| Segment { street, a: ends[0], b: ends[1] }));
            map.streets.push((name, (first..map.segments.len() as u32).collect()));
        }
        for (number, segment) in map.segments.iter().enumerate() {
            let (a, b) = (map.nodes[segment.a as usize], map.nodes[segment.b as usize]);
            let range = |axis: usize| {
                let (low, high) = (a[axis].min(b[axis]), a[axis].max(b[axis]));
                (low - MARGIN).div_euclid(CELL)..=(high + MARGIN).div_euclid(CELL)
            };
            for latitude in range(0) {
                for longitude in range(1) {
                    map.cells.entry([latitude, longitude]).or_default().push(number as u32);
                }
            }
        }
        map
    }

    fn street(&self, segment: u32) -> String {
        self.streets[self.segments[segment as usize].street as usize].0.clone()
    }
}

fn cell([latitude, longitude]: Coordinate) -> Coordinate {
    [latitude.div_euclid(CELL), longitude.div_euclid(CELL)]
}

fn cell_list([latitude, longitude]: Coordinate) -> String {
    format!("cell:{latitude}:{longitude}")
}

/// The square of a position's distance from a segment, on the plane that touches the earth there.
fn distance(at: Coordinate, a: Coordinate, b: Coordinate) -> f64 {
    let shrinks = (f64::from(at[0]) / 1e7).to_radians().cos();
    let from = |to: Coordinate| {
        let [latitude, longitude] = [0, 1].map(|axis| f64::from(to[axis]) - f64::from(at[axis]));
        [latitude, longitude * shrinks]
    };
    let (a, b) = (from(a), from(b));
    let along = [b[0] - a[0], b[1] - a[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let share = -(a[0] * along[0] + a[1] * along[1]) / length.max(1.0);
    let share = share.clamp(0.0, 1.0);
    let nearest = [a[0] + share * along[0], a[1] + share * along[1]];
    nearest[0] * nearest[0] + nearest[1] * nearest[1]
}

/// The nearest of some segments, by their numbers and ends; of equally near ones the first.
fn nearest(
    at: Coordinate,
    segments: impl Iterator<Item = (u32, Coordinate, Coordinate)>,
) -> Option<u32> {
    let mut best: Option<(f64, u32)> = None;
    for (number, a, b) in segments {
        let distance = distance(at, a, b);
        if best.is_none_or(|(nearest, _)| distance < nearest) {
            best = Some((distance, number));
        }
    }
    best.map(|(_, number)| number)
}

fn number(value: &[u8]) -> anyhow::Result<i32> {
    Ok(std::str::from_utf8(value)?.parse()?)
}

/// A segment that was fetched: its number, its street, and where its ends are among the fetched nodes.
#[derive(Clone, Default)]
struct Fetched {
    street: Option<Link>,
    ends: [usize; 2],
}

impl Application for Map {
    /// A position.
    type Question = Coordinate;
    type Answer = Matched;

    fn size(&self) -> (usize, usize) {
        let in_cells: usize = self.cells.values().map(Vec::len).sum();
        let items = self.streets.len() * 2 + self.nodes.len() + self.segments.len();
        let chunks = self.cells.len() + in_cells / chunks::CHUNK_LINKS;
        (items + chunks, 192 * (items + chunks) + 40 * (in_cells + self.segments.len()))
    }

    fn store(&self, loader: &mut Loader) -> anyhow::Result<()> {
        let mut item = NewItem::default();
        for (number, [latitude, longitude]) in self.nodes.iter().enumerate() {
            item.begin(&format!("node:{number}"));
            item.plain("lat", latitude.to_string().as_bytes());
            item.plain("long", longitude.to_string().as_bytes());
            loader.put(&item)?;
        }
        for (number, (name, segments)) in self.streets.iter().enumerate() {
            item.begin(&format!("street:{number}"));
            item.plain("name", name.as_bytes());
            if !segments.is_empty() {
                item.link("segments", &chunk_key(&format!("segments:{number}"), 0));
            }
            loader.put(&item)?;
        }
        for (number, Segment { street, a, b }) in self.segments.iter().enumerate() {
            item.begin(&format!("segment:{number}"));
            item.link("street", &format!("street:{street}"));
            let home = cell(self.nodes[*a as usize]);
            item.link("cell", &chunk_key(&cell_list(home), 0));
            item.link("a", &format!("node:{a}"));
            item.link("b", &format!("node:{b}"));
            loader.put(&item)?;
        }
        let target = |segment: &u32| format!("segment:{segment}");
        for (number, (_, segments)) in self.streets.iter().enumerate() {
            chunks::store(&format!("segments:{number}"), segments.iter(), target, loader)?;
        }
        for (at, segments) in &self.cells {
            chunks::store(&cell_list(*at), segments.iter(), target, loader)?;
        }
        Ok(())
    }

    /// A point of a segment, and noise.
    fn draw(&self, random: &mut ChaCha8Rng) -> Coordinate {
        let Segment { a, b, .. } = self.segments[random.random_range(0..self.segments.len())];
        let (a, b, share) =
            (self.nodes[a as usize], self.nodes[b as usize], random.random::<f64>());
        [0, 1].map(|axis| {
            let on_road = f64::from(a[axis]) + share * (f64::from(b[axis]) - f64::from(a[axis]));
            on_road as i32 + random.random_range(-NOISE..=NOISE)
        })
    }

    fn answer(&self, at: &Coordinate, fetcher: &mut Fetcher) -> anyhow::Result<Matched> {
        let cell = known(&chunk_key(&cell_list(cell(*at)), 0));
        let links = chunks::fetch(cell, usize::MAX, fetcher)?;
        let mut segments = vec![Fetched::default(); links.len()];
        // Segments of a road share nodes; each is fetched once.
        let (mut nodes, mut places) = (Vec::new(), BTreeMap::new());
        fetcher.follow(&links, &mut |at, item| {
            for field in item.fields() {
                let end = match field.name {
                    b"a" => 0,
                    b"b" => 1,
                    b"street" => {
                        segments[at].street = Some(field.link(&links[at].key));
                        continue;
                    }
                    _ => continue,
                };
                let next = nodes.len();
                segments[at].ends[end] = *places.entry(field.value.to_vec()).or_insert(next);
                if nodes.len() < places.len() {
                    nodes.push(field.link(&links[at].key));
                }
            }
            Ok(())
        })?;
        let mut coordinates = vec![[0, 0]; nodes.len()];
        fetcher.follow(&nodes, &mut |at, item| {
            let latitude = item.field(b"lat").context("a node without a latitude")?;
            let longitude = item.field(b"long").context("a node without a longitude")?;
            coordinates[at] = [number(latitude)?, number(longitude)?];
            Ok(())
        })?;
        let ends = segments.iter().map(|segment| segment.ends.map(|end| coordinates[end]));
        let all = (0..).zip(ends).map(|(number, [a, b])| (number, a, b));
        let best = nearest(*at, all).context("a cell without segments")? as usize;
        let mut street = String::new();
        let link = segments[best].street.take().context("a segment without a street")?;
        fetcher.follow(&[link], &mut |_, item| {
            let name = item.field(b"name").context("a street without a name")?;
            street = String::from_utf8(name.to_vec())?;
            Ok(())
        })?;
        let key = links[best].key.strip_prefix(b"segment:");
        Ok(Matched { segment: number(key.context("a link to something else")?)? as u32, street })
    }

    fn known(&self, at: &Coordinate) -> Matched {
        let near = self.cells.get(&cell(*at)).map_or(&[][..], Vec::as_slice);
        let all = near.iter().map(|number| {
            let Segment { a, b, .. } = self.segments[*number as usize];
            (*number, self.nodes[a as usize], self.nodes[b as usize])
        });
        let segment = nearest(*at, all).expect("a position is drawn on a road");
        Matched { segment, street: self.street(segment) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn crossing() -> Map {
        let main = (0..40).map(|step| [470_000_000, 95_000_000 + step * 7_000]).collect();
        let side = (0..30).map(|step| [469_900_000 + step * 9_000, 95_070_000]).collect();
        Map::of(&[("Main".into(), main), ("Side".into(), side), (String::new(), Vec::new())])
    }

    #[test]
    fn a_cell_has_the_segment_that_is_nearest_of_all() {
        let map = crossing();
        assert_eq!((map.streets.len(), map.segments.len()), (3, 39 + 29));
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..1_000 {
            let at = map.draw(&mut random);
            let all = (0..).zip(&map.segments).map(|(number, Segment { a, b, .. })| {
                (number, map.nodes[*a as usize], map.nodes[*b as usize])
            });
            assert_eq!(Some(map.known(&at).segment), nearest(at, all), "{at:?}");
        }
    }

    #[test]
    fn distances_are_those_of_the_nearest_point_of_a_segment() {
        let (a, b) = ([0, 0], [0, 1_000]);
        assert_eq!(distance([30, 500], a, b), 900.0);
        assert!((distance([30, 1_040], a, b).sqrt() - 50.0).abs() < 1e-3);
        assert_eq!(distance([3, 4], [3, 4], [3, 4]), 0.0);
        // A degree of longitude is half as long at 60 degrees.
        let north = 600_000_000;
        assert!((distance([north, 100], [north, 0], [north + 1, 0]).sqrt() - 50.0).abs() < 1e-3);
    }
}
