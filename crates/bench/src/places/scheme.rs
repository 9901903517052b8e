//! How windows are searched, and the schemes of the paper's comparison, which are presets
//! of that (C26). The paper's clients have a connection each, and keep no nodes: all that
//! they read they read anew.

use clap::ValueEnum;
use remora_client_core::{self as client, Admission, Issue, Path, TreeRead};
use remora_command_line::{Policy, Transport, Wake, show_by_name};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Walks at a time in the paper (4.4, C24).
const PAPERS_WALKS: usize = 3;

/// How windows are searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum PlacesPath {
    /// By message over the rings.
    Ask,
    /// By READs of the tree's nodes.
    #[default]
    Read,
    /// As --policy says.
    Choose,
    /// By RESP over TCP.
    Resp,
}

/// How nodes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum ReadIssue {
    /// One after the other.
    Single,
    /// All that are known to be wanted, at once.
    #[default]
    Multi,
}

/// Whose connection a client has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Connections {
    /// The process's, with a session of its own.
    #[default]
    Shared,
    /// One of its own, as if it were a process.
    Own,
}

show_by_name!(PlacesPath, ReadIssue, Connections);

/// How many client threads walk a tree at a time by READs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConcurrencyLimit {
    /// All.
    Off,
    /// As many as keep the network busy.
    #[default]
    Auto,
    /// At most so many.
    AtMost(usize),
}

impl From<ConcurrencyLimit> for client::ConcurrencyLimit {
    fn from(limit: ConcurrencyLimit) -> Self {
        match limit {
            ConcurrencyLimit::Off => Self::Off,
            ConcurrencyLimit::Auto => Self::Auto,
            ConcurrencyLimit::AtMost(most) => Self::AtMost(most),
        }
    }
}

impl ConcurrencyLimit {
    /// The same for clients that have a connection each.
    pub fn over_connections(self) -> client::ConcurrencyLimit {
        match self {
            Self::Off => client::ConcurrencyLimit::Off,
            Self::Auto => client::ConcurrencyLimit::With(Arc::new(Admission::auto())),
            Self::AtMost(most) => {
                client::ConcurrencyLimit::With(Arc::new(Admission::at_most(most)))
            }
        }
    }
}

impl FromStr for ConcurrencyLimit {
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

impl fmt::Display for ConcurrencyLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => out.write_str("off"),
            Self::Auto => out.write_str("auto"),
            Self::AtMost(most) => write!(out, "{most}"),
        }
    }
}

/// How requests go, with the scheme's preset taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchOptions {
    /// How windows are searched.
    pub path: PlacesPath,
    /// How it is chosen.
    pub policy: Policy,
    /// How nodes are read.
    pub issue: ReadIssue,
    /// How many walk at a time.
    pub coordination: ConcurrencyLimit,
    /// What carries it.
    pub transport: Transport,
    /// How both sides wait.
    pub wake: Wake,
    /// Whose connection each client has.
    pub connections: Connections,
    /// Bytes of each client's cache of inner nodes.
    pub cache_bytes: usize,
}

impl SearchOptions {
    /// How the client's searches go.
    pub fn of_session(&self) -> (Path, TreeRead) {
        let issue = match self.issue {
            ReadIssue::Single => Issue::Single,
            ReadIssue::Multi => Issue::Multi,
        };
        let path = match self.path {
            PlacesPath::Read => Path::Read,
            PlacesPath::Choose => Path::Choose,
            PlacesPath::Ask | PlacesPath::Resp => Path::Ask,
        };
        (path, TreeRead { issue, cache_bytes: self.cache_bytes })
    }
}

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
    pub policy: Option<Policy>,
    /// How nodes are read.
    pub issue: Option<ReadIssue>,
    /// How many walk at a time.
    pub coordination: Option<ConcurrencyLimit>,
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
        let alone = Preset { coordination: Some(ConcurrencyLimit::Off), ..papers };
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
                policy: Some(Policy::CatfishKeep),
                coordination: Some(ConcurrencyLimit::AtMost(PAPERS_WALKS)),
                wake: Some(Wake::Event),
                ..papers
            },
            Self::Remora => Preset { path: Some(PlacesPath::Choose), ..Preset::default() },
        }
    }
}
