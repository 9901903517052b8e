//! How much longer the two routes take than their measurements count for.
//!
//! A measurement far beyond the expected value counts as little more than expected: in most cases
//! the thread lost its processor, on either route. But on a machine with fewer processors than
//! threads, asking waits again and again for the shard to get a processor, and reading does not.
//! Then most requests are fast, and most of the time goes into the few slow ones. So the session
//! sums up the actual times for each route, over all classes, beside the counted times.
//!
//! For a route that was hardly used lately the session assumes the best case: that it loses no
//! time. It then tries the route, and measures it within milliseconds.

use super::decision::Route;

/// Sums for both ways.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tails {
    routes: [Tail; 2],
}

/// Sums of one way.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    /// Actual time of its operations, ns.
    took: f32,
    /// Counted time of its operations, ns.
    counted: f32,
    at_ns: u64,
}

/// For a route the session assumes this much time without loss, ns.
const ASSUMED_NS: f32 = 2e6;
/// A route's sums look back over about this much of its own time, ns ...
const OWN_TIME_NS: f32 = 64e6;
/// ... and over this much of any time, ns: a route that was left because its threads lost time
/// slices is soon used again, whether the loss came from the route or from the machine.
const ANY_TIME_NS: f32 = 250e6;
/// A route counts as at most so many times longer than its measurements: if one route is that much
/// faster, time slices that any thread loses do not change the decision.
const MOST: f32 = 4.0;

impl Tail {
    fn kept(self, now_ns: u64) -> f32 {
        (-(now_ns.saturating_sub(self.at_ns) as f32) / ANY_TIME_NS).exp()
    }

    fn factor(self, now_ns: u64) -> f32 {
        let kept = self.kept(now_ns);
        let (took, counted) = (self.took * kept, self.counted * kept);
        ((took + ASSUMED_NS) / (counted + ASSUMED_NS)).clamp(1.0, MOST)
    }
}

impl Tails {
    /// How many times longer a route takes than it counts for, at least 1.
    pub fn of(&self, route: Route, now_ns: u64) -> f32 {
        let tail = self.routes[route as usize];
        // In most cases nothing was lost, and this is on the path of every decision.
        if tail.took <= tail.counted { 1.0 } else { tail.factor(now_ns) }
    }

    /// An operation took so long and counts as so much, ns.
    pub fn add(&mut self, route: Route, took: f32, counted: f32, now_ns: u64) {
        let tail = &mut self.routes[route as usize];
        let kept = tail.kept(now_ns) * (-counted / OWN_TIME_NS).exp();
        *tail = Tail {
            took: tail.took * kept + took,
            counted: tail.counted * kept + counted,
            at_ns: now_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One operation in so many takes so long, for so many operations of 3 us.
    fn tails(one_in: u64, slow: f32, operations: u64) -> (Tails, u64) {
        let (mut tails, mut now_ns) = (Tails::default(), 0);
        for at in 0..operations {
            let took = if at % one_in == 0 { slow } else { 3_000.0 };
            now_ns += took as u64;
            tails.add(Route::Ask, took, took.min(6_000.0), now_ns);
        }
        (tails, now_ns)
    }

    #[test]
    fn time_that_is_lost_again_and_again_counts() {
        let (tails, now_ns) = tails(1_000, 3e6, 20_000);
        let factor = tails.of(Route::Ask, now_ns);
        assert!((1.8..2.1).contains(&factor), "{factor}");
        assert_eq!(tails.of(Route::Read, now_ns), 1.0);
        let later = tails.of(Route::Ask, now_ns + 2_000_000_000);
        assert!(later < 1.2, "{later}: it is not believed for ever");
    }

    #[test]
    fn one_lost_slice_of_a_busy_way_hardly_counts() {
        let (tails, now_ns) = tails(30_000, 3e6, 30_000);
        let factor = tails.of(Route::Ask, now_ns);
        assert!((1.0..1.06).contains(&factor), "{factor}");
    }
}
