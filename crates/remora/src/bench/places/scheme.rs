//! Schemes of the paper's comparison (C26). Its clients have a connection each, and keep
//! no nodes: all that they read they read anew.

use super::args::{Connections, PlacesPath, ReadIssue};
use crate::bench::choice::{BenchPolicy, Walks};
use crate::transport::Transport;
use crate::wake::Wake;
use std::str::FromStr;

/// Walks at a time in the paper (4.4, C24).
const PAPERS_WALKS: usize = 3;

/// A scheme: a preset of other flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Asking over TCP.
    Tcp,
    /// Asking over rings that are polled.
    FastMessaging,
    /// Reading, one node at a time.
    Offload,
    /// Events, all nodes at once, three walks at a time, and algorithm 1 as
    /// its text describes it.
    Catfish,
    /// All that Remora has by default.
    Remora,
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "fast-messaging" => Ok(Self::FastMessaging),
            "offload" => Ok(Self::Offload),
            "catfish" => Ok(Self::Catfish),
            "remora" => Ok(Self::Remora),
            _ => Err("write tcp, fast-messaging, offload, catfish or remora".into()),
        }
    }
}

/// What a scheme presets; what it leaves open goes by the other defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Preset {
    /// How windows are searched.
    pub path: Option<PlacesPath>,
    /// How it is chosen.
    pub policy: Option<BenchPolicy>,
    /// How nodes are read.
    pub issue: Option<ReadIssue>,
    /// How many walk at a time.
    pub coordination: Option<Walks>,
    /// What carries it.
    pub transport: Option<Transport>,
    /// How both sides wait.
    pub wake: Option<Wake>,
    /// Whose connection each client has.
    pub connections: Option<Connections>,
    /// Bytes of each client's cache of inner nodes.
    pub cache_bytes: Option<usize>,
}

impl Scheme {
    /// What it presets.
    pub fn preset(self) -> Preset {
        let (connections, cache_bytes) = (Some(Connections::Own), Some(0));
        let papers = Preset { connections, cache_bytes, ..Preset::default() };
        let alone = Preset { coordination: Some(Walks::Off), ..papers };
        let ask = Preset { path: Some(PlacesPath::Ask), ..alone };
        match self {
            Self::Tcp => Preset { transport: Some(Transport::Tcp), ..ask },
            Self::FastMessaging => Preset { wake: Some(Wake::Poll), ..ask },
            Self::Offload => {
                let (path, issue) = (Some(PlacesPath::Read), Some(ReadIssue::Single));
                Preset { path, issue, ..alone }
            }
            Self::Catfish => Preset {
                path: Some(PlacesPath::Choose),
                policy: Some(BenchPolicy::CatfishKeep),
                coordination: Some(Walks::AtMost(PAPERS_WALKS)),
                wake: Some(Wake::Event),
                ..papers
            },
            Self::Remora => Preset { path: Some(PlacesPath::Choose), ..Preset::default() },
        }
    }
}
