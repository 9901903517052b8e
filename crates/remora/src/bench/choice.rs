//! Flags of the choice between asking and reading.

use clap::ValueEnum;
use remora_client_core::{ConcurrencyLimit, Policy};
use std::fmt;
use std::str::FromStr;

/// How `--path choose` is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum BenchPolicy {
    /// Always asks.
    Ask,
    /// Always reads.
    Read,
    /// Catfish's algorithm 1 as it is printed.
    CatfishLiteral,
    /// Algorithm 1 as its text describes it.
    CatfishKeep,
    /// A known pointer is read, all else is asked (HydraDB).
    Pointer,
    /// The way that costs less time.
    #[default]
    Cost,
}
super::args::show_by_name!(BenchPolicy);

impl From<BenchPolicy> for Policy {
    fn from(policy: BenchPolicy) -> Self {
        match policy {
            BenchPolicy::Ask => Self::Ask,
            BenchPolicy::Read => Self::Read,
            BenchPolicy::CatfishLiteral => Self::CatfishLiteral,
            BenchPolicy::CatfishKeep => Self::CatfishKeep,
            BenchPolicy::Pointer => Self::Pointer,
            BenchPolicy::Cost => Self::Cost,
        }
    }
}

/// How many client threads walk a tree at a time by READs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Walks {
    /// All.
    Off,
    /// As many as keep the network busy.
    #[default]
    Auto,
    /// At most so many.
    AtMost(usize),
}

impl From<Walks> for ConcurrencyLimit {
    fn from(walks: Walks) -> Self {
        match walks {
            Walks::Off => Self::Off,
            Walks::Auto => Self::Auto,
            Walks::AtMost(most) => Self::AtMost(most),
        }
    }
}

impl FromStr for Walks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(most) if most > 0 => Ok(Self::AtMost(most)),
                _ => Err("write off, auto, or a number of threads from 1 up".into()),
            },
        }
    }
}

impl fmt::Display for Walks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => out.write_str("off"),
            Self::Auto => out.write_str("auto"),
            Self::AtMost(most) => write!(out, "{most}"),
        }
    }
}
