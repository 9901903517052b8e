//! How large windows and inserted rectangles are (Catfish 5.2, W2, W3).

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use std::fmt;
use std::str::FromStr;

/// Exponent of the paper's power laws, negated.
const EXPONENT: f64 = 0.99;
/// Edges by the power law, in parts of the space: above the first, up to the second.
const POWER_EDGES: PowerLaw = PowerLaw { above: 1e-5, to: 1e-2 };

/// The scale of the requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scale {
    /// Each edge is drawn evenly from (0, F], in parts of the space.
    Uniform(f64),
    /// Squares whose edge t follows the density t^-0.99 on (1e-5, 1e-2]. The
    /// paper does not say whether t is the edge or its upper bound (W3); its
    /// published ratio of throughputs fits the edge.
    Power,
    /// Windows around objects that hit 50 to 150 of them, 100 on average (W6).
    Results,
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<f64>()) {
            ("power", _) => Ok(Self::Power),
            ("results", _) => Ok(Self::Results),
            (_, Ok(edge)) if edge > 0.0 && edge <= 1.0 => Ok(Self::Uniform(edge)),
            _ => Err("write a number above 0 up to 1, power or results".into()),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(edge) => edge.fmt(out),
            Self::Power => out.write_str("power"),
            Self::Results => out.write_str("results"),
        }
    }
}

impl Scale {
    /// Width and height of one rectangle, in parts of the space; none are
    /// drawn for windows that are found by their results.
    pub fn edges(self, rng: &mut ChaCha8Rng) -> (f64, f64) {
        match self {
            Self::Uniform(edge) => (edge * above_zero(rng), edge * above_zero(rng)),
            Self::Power => {
                let edge = POWER_EDGES.draw(rng);
                (edge, edge)
            }
            Self::Results => (0.0, 0.0),
        }
    }
}

/// A number in (0, 1].
pub fn above_zero(rng: &mut ChaCha8Rng) -> f64 {
    1.0 - rng.random::<f64>()
}

/// Numbers whose density is proportional to t^-0.99.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PowerLaw {
    /// All are greater than this.
    pub above: f64,
    /// None is greater than this.
    pub to: f64,
}

impl PowerLaw {
    /// Draws one number: the distribution function inverted.
    pub fn draw(self, rng: &mut ChaCha8Rng) -> f64 {
        const RISE: f64 = 1.0 - EXPONENT;
        let (from, to) = (self.above.powf(RISE), self.to.powf(RISE));
        let t = (from + above_zero(rng) * (to - from)).powf(1.0 / RISE);
        t.clamp(self.above, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// The mean of t^k under the power law, by its integral.
    fn moment(law: PowerLaw, k: f64) -> f64 {
        let integral = |e: f64| (law.to.powf(e) - law.above.powf(e)) / e;
        integral(1.0 - EXPONENT + k) / integral(1.0 - EXPONENT)
    }

    #[test]
    fn the_power_law_has_its_moments() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for law in [POWER_EDGES, PowerLaw { above: 0.5, to: 1.0 }] {
            let draws: Vec<f64> = (0..400_000).map(|_| law.draw(&mut rng)).collect();
            assert!(draws.iter().all(|t| (law.above..=law.to).contains(t)));
            for k in [1.0, 2.0] {
                let mean = draws.iter().map(|t| t.powf(k)).sum::<f64>() / draws.len() as f64;
                let expected = moment(law, k);
                assert!((mean / expected - 1.0).abs() < 0.01, "{k}: {mean} for {expected}");
            }
        }
    }

    #[test]
    fn scales_are_written_as_they_are_read() {
        for text in ["0.00001", "0.01", "1", "power", "results"] {
            assert_eq!(text.parse::<Scale>().unwrap().to_string(), text);
        }
        for text in ["0", "-1", "1.1", "NaN", "inf", "", "Power", "1e-400"] {
            assert!(text.parse::<Scale>().is_err(), "{text}");
        }
    }

    #[test]
    fn uniform_edges_fill_their_range() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (mut least, mut most) = (1.0f64, 0.0f64);
        for _ in 0..10_000 {
            let (width, height) = Scale::Uniform(0.01).edges(&mut rng);
            assert!(width > 0.0 && height > 0.0 && width <= 0.01 && height <= 0.01);
            (least, most) = (least.min(width), most.max(width));
        }
        assert!(least < 1e-5 && most > 0.0099);
    }
}
