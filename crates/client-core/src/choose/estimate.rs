//! The estimates of a session: times of operations, how clear it is which route is better, and
//! recent observations.

use super::decision::Route;

/// Share of all time that trying the worse route may cost.
pub const PROBES: f32 = 0.01;
/// After so long, ns, the last measurement of waiting and of slow READs counts for a third.
const FADES_NS: f32 = 20e6;

/// A mean of recent measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub mean: f32,
    measured: u8,
}

impl Estimate {
    /// Nothing measured.
    pub const NONE: Self = Self { mean: 0.0, measured: 0 };
    /// Approximate number of measurements in the mean.
    pub const MEMORY: u8 = 16;
    pub const FIRST: u8 = 4;

    /// The mean, if anything was measured.
    pub fn value(self) -> Option<f32> {
        (self.measured > 0).then_some(self.mean)
    }

    /// Whether it was measured more than a few times.
    pub fn is_settled(self) -> bool {
        self.measured >= Self::FIRST
    }

    /// Of the first few measurements the least counts: first times are often slow, and a route that
    /// seems too fast is soon tried again.
    pub fn learn(&mut self, measured: f32) {
        self.measured = (self.measured + 1).min(Self::MEMORY);
        match self.measured {
            1 => self.mean = measured,
            2..=Self::FIRST => self.mean = self.mean.min(measured),
            _ => self.mean += (measured - self.mean) / self.measured as f32,
        }
    }
}

/// How clear it is that asking (above 0) or reading (below) is better: the logarithm of the odds of
/// choosing asking.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    log_odds: f32,
    step: f32,
    rises: bool,
}

impl Score {
    /// Undecided.
    pub const NEW: Self = Self { log_odds: 0.0, step: Self::FIRST_STEP, rises: false };
    /// The first decision is nearly as clear as the measurement.
    pub const FIRST_STEP: f32 = 4.0;
    pub const LEAST_STEP: f32 = 1.0 / 64.0;
    pub const MOST_STEP: f32 = 1.0;
    /// A difference beyond so many times the cheaper route moves the score no faster.
    pub const MOST_DIFFERENCE: f32 = 2.0;
    /// The score after a turn: 7 of 8 runs take the tried route.
    pub const TURNED: f32 = 2.0;

    /// Applies `difference` so many times: by how much reading takes longer than asking, over the
    /// shorter of the two.
    pub fn take(&mut self, difference: f32, times: u32) {
        let bound = Self::bound(difference.abs());
        (0..times).for_each(|_| self.step_by(difference, bound));
    }

    fn step_by(&mut self, difference: f32, bound: f32) {
        let rises = difference > 0.0;
        let factor = if rises == self.rises { 1.3 } else { 0.5 };
        let by = difference.clamp(-Self::MOST_DIFFERENCE, Self::MOST_DIFFERENCE) * self.step;
        self.log_odds = (self.log_odds + by).clamp(-bound, bound);
        self.step = (self.step * factor).clamp(Self::LEAST_STEP, Self::MOST_STEP);
        self.rises = rises;
    }

    /// A long run has shown that the presumably worse route is the better one.
    pub fn turn(&mut self, difference: f32) {
        if (self.log_odds > 0.0) != (difference > 0.0) {
            self.log_odds = Self::TURNED * difference.signum();
        }
    }

    /// The score at which the worse route's share costs [`PROBES`] of the time.
    fn bound(difference: f32) -> f32 {
        (difference / PROBES).clamp(4.0, 4096.0).ln()
    }

    /// The presumably better route.
    pub fn favours(self) -> Route {
        if self.log_odds > 0.0 { Route::Ask } else { Route::Read }
    }

    /// The share of decisions that ask.
    pub fn asks(self) -> f32 {
        1.0 / (1.0 + (-self.log_odds).exp())
    }
}

/// A recent observation whose weight decays with time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fading {
    value: f32,
    at_ns: u64,
}

impl Fading {
    /// Share of a new measurement.
    pub const GAIN: f32 = 0.125;
    /// Share of the old ones that stays: a lasting effect becomes part of the class's own estimate.
    pub const STAYS: f32 = 1.0 - 1.0 / 32.0;

    /// Its decayed value now.
    pub fn at(self, now_ns: u64) -> f32 {
        self.value * (-(now_ns.saturating_sub(self.at_ns) as f32) / FADES_NS).exp()
    }

    /// Moves by a part of the unexpected value.
    pub fn correct(&mut self, unexpected: f32, now_ns: u64) {
        *self =
            Self { value: self.at(now_ns) * Self::STAYS + unexpected * Self::GAIN, at_ns: now_ns };
    }
}
