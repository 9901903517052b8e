//! Whether a replica answers reads.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a replica answers to reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaReads {
    /// An error that names its primary.
    #[default]
    None,
    /// What it has, and how old that may be.
    Stale,
}

impl fmt::Display for ReplicaReads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(remora_server::ReplicaReads::from(*self).name())
    }
}

impl From<ReplicaReads> for remora_server::ReplicaReads {
    fn from(reads: ReplicaReads) -> Self {
        match reads {
            ReplicaReads::None => Self::None,
            ReplicaReads::Stale => Self::Stale,
        }
    }
}
