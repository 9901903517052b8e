//! Why an operation took its route.

use super::decision::{Route, Why};
use super::policy::Policy;
use crate::path::ServedBy;
use std::fmt;

/// The expectation, the decision and the cost of an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The policy that decided.
    pub policy: Policy,
    /// The decided route.
    pub route: Route,
    /// The reason.
    pub why: Why,
    /// Expected time of asking, ns; `None` if unknown.
    pub ask_ns: Option<f64>,
    /// Expected time of reading, ns.
    pub read_ns: Option<f64>,
    /// Actual time, ns.
    pub actual_ns: u64,
    /// How the result was obtained.
    pub served_by: ServedBy,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, route, why, ask_ns, read_ns, actual_ns, served_by } = self;
        let route = match route {
            Route::Ask => "ask",
            Route::Read => "read",
        };
        write!(f, "{route}: {} (policy {})", why.text(), policy.name())?;
        for (name, expected) in [("ask", ask_ns), ("read", read_ns)] {
            match expected {
                Some(ns) => write!(f, "; {name} expected {:.2} us", ns / 1000.0)?,
                None => write!(f, "; {name} unknown")?,
            }
        }
        write!(f, "; took {:.2} us, ", *actual_ns as f64 / 1000.0)?;
        match served_by {
            ServedBy::Asked => f.write_str("asked"),
            ServedBy::Read => f.write_str("read"),
            ServedBy::ReadAfter(tries) => write!(f, "read after {tries} READs without a result"),
            ServedBy::AskedAfterRead => {
                f.write_str("asked after reading did not conclude: both count as reading")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_reads_as_a_sentence() {
        let explanation = Explanation {
            policy: Policy::Cost,
            route: Route::Read,
            why: Why::Cheaper,
            ask_ns: Some(4_400.0),
            read_ns: None,
            actual_ns: 2_915,
            served_by: ServedBy::ReadAfter(2),
        };
        assert_eq!(
            explanation.to_string(),
            "read: expected to take less time (policy cost); ask expected 4.40 us; read unknown; \
             took 2.92 us, read after 2 READs without a result"
        );
        let asked = Explanation { served_by: ServedBy::AskedAfterRead, ..explanation };
        let text = asked.to_string();
        let end = "took 2.92 us, asked after reading did not conclude: both count as reading";
        assert!(text.ends_with(end), "{text}");
    }
}
