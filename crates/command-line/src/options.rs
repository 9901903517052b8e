//! Options of clients and servers as words on command lines, in the
//! environment and in files.

use clap::ValueEnum;
use remora_client_core::Wanted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Writes a value of these types as its word on the command line.
#[macro_export]
macro_rules! show_by_name {
    ($($kind:ty),*) => {$(
        impl std::fmt::Display for $kind {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = clap::ValueEnum::to_possible_value(self);
                out.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )*};
}

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
    pub fn is_remote(self) -> bool {
        matches!(self, Self::Tcp | Self::Verbs)
    }
}

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

/// How a client decides between asking and reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Policy {
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

impl From<Policy> for remora_client_core::Policy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Ask => Self::Ask,
            Policy::Read => Self::Read,
            Policy::CatfishLiteral => Self::CatfishLiteral,
            Policy::CatfishKeep => Self::CatfishKeep,
            Policy::Pointer => Self::Pointer,
            Policy::Cost => Self::Cost,
        }
    }
}

/// How a tree of places is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum TreeKind {
    /// Guttman's, split by quadratic cost.
    Guttman,
    /// The R*-tree.
    #[default]
    #[value(name = "rstar")]
    RStar,
    /// The Hilbert R-tree.
    Hilbert,
}

impl From<TreeKind> for remora_client_core::TreeKind {
    fn from(kind: TreeKind) -> Self {
        match kind {
            TreeKind::Guttman => Self::Guttman,
            TreeKind::RStar => Self::RStar,
            TreeKind::Hilbert => Self::Hilbert,
        }
    }
}

show_by_name!(Transport, Policy, TreeKind);
