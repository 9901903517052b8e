//! Schemes of the paper's comparison (C26).

use super::args::{PlacesPath, ReadIssue};
use crate::transport::Transport;
use crate::wake::Wake;
use std::str::FromStr;

/// A scheme: a preset of other flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// Asking over TCP.
    Tcp,
    /// Asking over rings that are polled.
    FastMessaging,
    /// Reading, one node at a time.
    Offload,
}

impl FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "fast-messaging" => Ok(Self::FastMessaging),
            "offload" => Ok(Self::Offload),
            "catfish" | "remora" => Err(format!(
                "{text} chooses between asking and reading by the server's load, which this \
                 version cannot yet; its sides are --wake event --path ask and \
                 --wake event --path read --issue multi"
            )),
            _ => Err("write tcp, fast-messaging or offload".into()),
        }
    }
}

/// What a scheme presets; what it leaves open goes by the other defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Preset {
    /// How windows are searched.
    pub path: Option<PlacesPath>,
    /// How nodes are read.
    pub issue: Option<ReadIssue>,
    /// What carries it.
    pub transport: Option<Transport>,
    /// How both sides wait.
    pub wake: Option<Wake>,
}

impl Scheme {
    /// What it presets.
    pub fn preset(self) -> Preset {
        let open = Preset::default();
        let (ask, read) = (Some(PlacesPath::Ask), Some(PlacesPath::Read));
        match self {
            Self::Tcp => Preset { path: ask, transport: Some(Transport::Tcp), ..open },
            Self::FastMessaging => Preset { path: ask, wake: Some(Wake::Poll), ..open },
            Self::Offload => Preset { path: read, issue: Some(ReadIssue::Single), ..open },
        }
    }
}
