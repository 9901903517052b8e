//! When a change is durable, as a word on the command line and in the file.

use clap::ValueEnum;
use remora_server::Promise;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a reply to a change promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: the log is written a little later.
    Memory,
    /// The change is written: it survives the end of the process, and a power cut a second or two
    /// later.
    #[default]
    Everysec,
    /// The change is on the disk: it survives a power cut.
    Fsync,
}

impl fmt::Display for Durability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(Promise::from(*self).name())
    }
}

impl From<Durability> for Promise {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Memory => Self::Memory,
            Durability::Everysec => Self::Written,
            Durability::Fsync => Self::Synced,
        }
    }
}
