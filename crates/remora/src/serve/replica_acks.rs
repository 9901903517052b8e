//! When a replica has stored a change, as a word on the command line and in the file.

use clap::ValueEnum;
use remora_server::AskFor;
use serde::{Deserialize, Serialize};
use std::fmt;

/// When a change counts as stored by a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaAcks {
    /// Once the WRITE that carries it has completed.
    #[default]
    Relaxed,
    /// Once the replica's thread has said so.
    Strict,
}

impl fmt::Display for ReplicaAcks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(AskFor::from(*self).name())
    }
}

impl From<ReplicaAcks> for AskFor {
    fn from(acks: ReplicaAcks) -> Self {
        match acks {
            ReplicaAcks::Relaxed => Self::Some,
            ReplicaAcks::Strict => Self::Each,
        }
    }
}
