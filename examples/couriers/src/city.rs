//! The city as it really is: where every courier is, and whether he is free.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Edge of the city, in metres.
pub const EDGE: f64 = 20_000.0;
/// Metres that a courier rides in a second.
const SPEED: f64 = 6.0;
/// Share of all couriers that become free or busy in a second.
const CHANGING: f64 = 1.0 / 60.0;

/// One courier.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Courier {
    /// Metres from the city's corner.
    pub at: (f64, f64),
    /// Whether he can be sent.
    pub is_free: bool,
}

/// All couriers; a courier's id is his index.
#[derive(Debug)]
pub struct City {
    /// As they are now.
    pub couriers: Vec<Courier>,
    rng: ChaCha8Rng,
}

impl City {
    /// A city with so many couriers. Two of three are free.
    pub fn new(couriers: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let couriers = (0..couriers)
            .map(|_| Courier { at: place(&mut rng), is_free: rng.random_range(0..3) > 0 })
            .collect();
        Self { couriers, rng }
    }

    /// A second in the incarnation of a courier; whether he has become free or busy.
    pub fn ride(&mut self, courier: usize) -> bool {
        let angle = self.rng.random_range(0.0..std::f64::consts::TAU);
        let one = &mut self.couriers[courier];
        let onward = |from: f64, by: f64| (from + SPEED * by).clamp(0.0, EDGE);
        one.at = (onward(one.at.0, angle.cos()), onward(one.at.1, angle.sin()));
        let changes = self.rng.random::<f64>() < CHANGING;
        one.is_free ^= changes;
        changes
    }

    /// Distances to the free couriers nearest to a place, the nearest first.
    pub fn nearest(&self, at: (f64, f64), wanted: usize) -> Vec<f64> {
        let free = self.couriers.iter().filter(|courier| courier.is_free);
        let mut all: Vec<f64> = free.map(|courier| distance(courier.at, at)).collect();
        all.sort_by(f64::total_cmp);
        all.truncate(wanted);
        all
    }
}

/// Somewhere in the city, more often near its middle.
pub fn place(rng: &mut ChaCha8Rng) -> (f64, f64) {
    let mut coordinate = || EDGE * (rng.random::<f64>() + rng.random::<f64>()) / 2.0;
    (coordinate(), coordinate())
}

/// Metres between two places.
pub fn distance(from: (f64, f64), to: (f64, f64)) -> f64 {
    (from.0 - to.0).hypot(from.1 - to.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn couriers_ride_and_change_their_state() {
        let mut city = City::new(600, 1);
        let before = city.couriers.clone();
        let changed: Vec<bool> = (0..600).map(|courier| city.ride(courier)).collect();
        let pairs = before.iter().zip(&city.couriers);
        for ((before, after), changed) in pairs.zip(changed) {
            assert_eq!(before.is_free != after.is_free, changed);
            let rode = distance(before.at, after.at);
            assert!(rode <= SPEED * 1.0001 && (0.0..=EDGE).contains(&after.at.0), "{rode}");
        }
        let at = (EDGE / 2.0, EDGE / 2.0);
        let nearest = city.nearest(at, 5);
        assert!(nearest.len() == 5 && nearest.is_sorted());
        let closer = city.couriers.iter().filter(|c| c.is_free && distance(c.at, at) < nearest[4]);
        assert_eq!(closer.count(), 4);
    }
}
