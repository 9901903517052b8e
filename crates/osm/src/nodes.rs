//! Where nodes are, as far as somebody wants to know: 16 bytes for each.

use remora_geometry::geo_types::Coord;

/// A part of a degree; OpenStreetMap has no finer ones.
const PER_DEGREE: f64 = 1e7;
/// Greatest longitude and latitude, in these parts.
const GREATEST: [i64; 2] = [1_800_000_000, 900_000_000];
const MISSING: [i32; 2] = [i32::MIN; 2];

/// A place, if it is on the globe: longitude and latitude in degrees.
pub fn on_globe(place: [i64; 2]) -> Option<[i32; 2]> {
    let is_good = place.iter().zip(GREATEST).all(|(part, most)| (-most..=most).contains(part));
    is_good.then(|| place.map(|part| part as i32))
}

/// A place from degrees, if it is on the globe: the nearest that there is.
pub fn place(Coord { x, y }: Coord<f64>) -> Option<[i32; 2]> {
    on_globe([x, y].map(|degrees| (degrees * PER_DEGREE).round() as i64))
}

/// A place in degrees.
pub fn degrees([x, y]: [i32; 2]) -> Coord<f64> {
    Coord { x: f64::from(x) / PER_DEGREE, y: f64::from(y) / PER_DEGREE }
}

/// Nodes that are wanted, by id, and where they are.
#[derive(Default)]
pub struct Nodes {
    /// Sorted, each once.
    ids: Vec<i64>,
    places: Vec<[i32; 2]>,
}

/// Bytes for a node.
pub const NODE_BYTES: usize = 16;

impl Nodes {
    /// A table for these, of which nothing is known yet.
    pub fn new(mut ids: Vec<i64>) -> Self {
        sort(&mut ids);
        let places = vec![MISSING; ids.len()];
        Self { ids, places }
    }

    /// Says where a node is, if it is wanted.
    pub fn set(&mut self, id: i64, place: [i32; 2]) {
        if let Ok(index) = self.ids.binary_search(&id) {
            self.places[index] = place;
        }
    }

    /// Where nodes are; `None` if one of them is not known.
    pub fn line(&self, ids: &[i64]) -> Option<Vec<Coord<f64>>> {
        let place = |id: &i64| {
            let place = self.places[self.ids.binary_search(id).ok()?];
            (place != MISSING).then(|| degrees(place))
        };
        ids.iter().map(place).collect()
    }
}

/// Each id once.
pub fn sort(ids: &mut Vec<i64>) {
    ids.sort_unstable();
    ids.dedup();
}
