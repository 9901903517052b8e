//! Why an operation went the way it did.

use super::Policy;
use crate::api::Via;
use std::fmt;

/// One of the two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By message.
    Ask,
    /// By READs.
    Read,
}

impl Way {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Ask => Self::Read,
            Self::Read => Self::Ask,
        }
    }
}

/// Why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The caller said which way.
    Given,
    /// The policy knows one way only.
    Policy,
    /// Catfish: a heartbeat said that the server is busy.
    ServerBusy,
    /// Catfish: none said so lately.
    ServerNotBusy,
    /// It is expected to take less time.
    Cheaper,
    /// This way has not been tried yet.
    Untried,
    /// It is expected to take longer; it is tried now and then, so that what
    /// is known of it does not grow old.
    Probe,
    /// As the operation before it: a few go the same way together.
    SameRun,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::Given => "the path was given",
            Self::Policy => "the policy has one way only",
            Self::ServerBusy => "a heartbeat said that the server is busy",
            Self::ServerNotBusy => "no heartbeat lately said that the server is busy",
            Self::Cheaper => "expected to take less time",
            Self::Untried => "not tried yet",
            Self::Probe => "tried now and then, to know what it costs",
            Self::SameRun => "as the operation before it",
        }
    }
}

/// What was expected of an operation, what was done and what it took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Explanation {
    /// What decided.
    pub policy: Policy,
    /// Which way it was to go.
    pub way: Way,
    /// Why.
    pub why: Why,
    /// What asking was expected to take, ns; `None` if nothing is known.
    pub ask_ns: Option<f64>,
    /// What reading was expected to take, ns.
    pub read_ns: Option<f64>,
    /// What it took, ns.
    pub actual_ns: u64,
    /// How the result was come by in the end.
    pub via: Via,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, way, why, ask_ns, read_ns, actual_ns, via } = self;
        let way = match way {
            Way::Ask => "ask",
            Way::Read => "read",
        };
        write!(f, "{way}: {} (policy {})", why.text(), policy.name())?;
        for (name, expected) in [("ask", ask_ns), ("read", read_ns)] {
            match expected {
                Some(ns) => write!(f, "; {name} expected {:.2} us", ns / 1000.0)?,
                None => write!(f, "; {name} unknown")?,
            }
        }
        write!(f, "; took {:.2} us, ", *actual_ns as f64 / 1000.0)?;
        match via {
            Via::Asked => f.write_str("asked"),
            Via::Read => f.write_str("read"),
            Via::ReadAfter(tries) => write!(f, "read after {tries} READs in vain"),
            Via::AskedAfterRead => {
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
            way: Way::Read,
            why: Why::Cheaper,
            ask_ns: Some(4_400.0),
            read_ns: None,
            actual_ns: 2_915,
            via: Via::ReadAfter(2),
        };
        assert_eq!(
            explanation.to_string(),
            "read: expected to take less time (policy cost); ask expected 4.40 us; read unknown; \
             took 2.92 us, read after 2 READs in vain"
        );
        let asked = Explanation { via: Via::AskedAfterRead, ..explanation };
        let text = asked.to_string();
        let end = "took 2.92 us, asked after reading did not conclude: both count as reading";
        assert!(text.ends_with(end), "{text}");
    }
}
