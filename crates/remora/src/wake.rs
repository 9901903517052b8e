//! How to wait, as a word on the command line and in the file.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How shards and sessions wait for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wake {
    /// Polls without end: lowest latency, a core for each thread.
    Poll,
    /// Blocks in the kernel whenever there is nothing to do.
    Event,
    /// Polls for a short while, then blocks.
    #[default]
    Hybrid,
}

impl fmt::Display for Wake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(remora_client_core::Wake::from(*self).name())
    }
}

/// The server's and the client's are the same type.
impl From<Wake> for remora_client_core::Wake {
    fn from(wake: Wake) -> Self {
        match wake {
            Wake::Poll => Self::Poll,
            Wake::Event => Self::Event,
            Wake::Hybrid => Self::Hybrid,
        }
    }
}
