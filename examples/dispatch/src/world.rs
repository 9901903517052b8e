//! The couriers: where they are, which are free, and what the question's answer is.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Zones of the city.
pub const ZONES: usize = 200;
/// The city's edge, in degrees. It lies at the equator, where a degree is as long to the north as to the
/// east, so that both servers measure alike.
const EDGE: f64 = 0.2;
/// Metres of a degree, as Redis has them.
const DEGREE: f64 = 111_226.3;

/// A courier.
pub struct Courier {
    /// Longitude and latitude.
    pub at: (f64, f64),
    pub is_free: bool,
    pub zone: usize,
}

/// All of them, by number.
pub struct World {
    pub couriers: Vec<Courier>,
}

impl World {
    /// So many couriers, a third of them free.
    pub fn new(couriers: usize, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let courier = |_| Courier {
            at: place(&mut random),
            is_free: random.random_range(0..3) == 0,
            zone: random.random_range(0..ZONES),
        };
        Self { couriers: (0..couriers).map(courier).collect() }
    }

    /// Metres from a place to a courier, about.
    pub fn metres(&self, (x, y): (f64, f64), courier: usize) -> f64 {
        let (east, north) = self.couriers[courier].at;
        (east - x).hypot(north - y) * DEGREE
    }

    /// The distances of the nearest free couriers, in order.
    pub fn nearest(&self, from: (f64, f64), count: usize) -> Vec<f64> {
        let free = (0..self.couriers.len()).filter(|at| self.couriers[*at].is_free);
        let mut metres: Vec<f64> = free.map(|at| self.metres(from, at)).collect();
        metres.sort_by(f64::total_cmp);
        metres.truncate(count);
        metres
    }
}

/// A place in the city.
pub fn place(random: &mut ChaCha8Rng) -> (f64, f64) {
    (random.random_range(0.0..EDGE), random.random_range(0.0..EDGE))
}
