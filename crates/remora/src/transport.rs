//! `transport` on command lines, in the environment and in files.

use crate::failure::unavailable;
use clap::ValueEnum;
use remora_client::Wanted;
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
    ///
    /// # Errors
    /// This build does not have it.
    pub fn wanted(self) -> anyhow::Result<Wanted> {
        match self {
            Self::Auto => Ok(Wanted::Auto),
            Self::Shm => Ok(Wanted::Shm),
            Self::Tcp => Ok(Wanted::Tcp),
            Self::Verbs => Err(unavailable("verbs: this build offers shm and tcp only")),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        out.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
