//! The behaviour at the limit of memory, as a word on the command line and in the file.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a server does when its memory is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
pub enum Eviction {
    /// Refuses what needs memory, with a clear error.
    #[default]
    #[serde(rename = "none")]
    None,
    /// Removes records that were not asked for lately.
    #[value(name = "s3-fifo")]
    #[serde(rename = "s3-fifo")]
    S3Fifo,
}

impl fmt::Display for Eviction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(remora_server::Eviction::from(*self).name())
    }
}

impl From<Eviction> for remora_server::Eviction {
    fn from(eviction: Eviction) -> Self {
        match eviction {
            Eviction::None => Self::None,
            Eviction::S3Fifo => Self::S3Fifo,
        }
    }
}
