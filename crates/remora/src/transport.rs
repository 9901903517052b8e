//! `transport` on command lines, in the environment and in files.

use clap::ValueEnum;
use remora_client_core::Wanted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What carries a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// The best that both sides have.
    #[default]
    Auto,
    /// Shared memory, on this machine.
    Shm,
    /// TCP.
    Tcp,
    /// RDMA.
    Verbs,
}

impl Transport {
    /// The same, for a session.
    pub fn wanted(self) -> Wanted {
        match self {
            Self::Auto => Wanted::Auto,
            Self::Shm => Wanted::Shm,
            Self::Tcp => Wanted::Tcp,
            Self::Verbs => Wanted::Verbs,
        }
    }

    /// Whether its sessions begin at a TCP address.
    pub fn is_far(self) -> bool {
        matches!(self, Self::Tcp | Self::Verbs)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        out.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
