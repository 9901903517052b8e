//! The settings of a server of a cluster.

use remora_cluster::coordinator::Coordinator;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// Opens a session at the coordinator. The error is for people.
pub type Connect = Arc<dyn Fn() -> Result<Box<dyn Coordinator + Send>, String> + Send + Sync>;

/// See the module's text.
#[derive(Clone)]
pub struct ClusterSettings {
    /// The name of its group.
    pub group: String,
    /// `HOST:PORT` where Redis clients reach it; `None`: where it listens.
    pub announced_resp: Option<String>,
    /// The host at which Remora's clients and other members reach it, at the port where it listens;
    /// `None`: where it listens.
    pub announced_host: Option<String>,
    /// Where the coordinator is, for people.
    pub coordinator: String,
    /// Opens a session there.
    pub connect: Connect,
}

impl Debug for ClusterSettings {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSettings")
            .field("group", &self.group)
            .field("announced_resp", &self.announced_resp)
            .field("announced_host", &self.announced_host)
            .field("coordinator", &self.coordinator)
            .finish_non_exhaustive()
    }
}
