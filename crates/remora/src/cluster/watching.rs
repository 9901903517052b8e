//! What the watcher does, by its own word: INFO of whichever server it is.

use remora_cluster::topology::{Instance, Topology};
use remora_command_line::Connection;
use remora_resp::Value;
use std::time::Duration;

/// A server that takes longer to answer says nothing.
const INFO_LIMIT: Duration = Duration::from_secs(2);

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Watching {
    /// What groups without a primary wait for.
    pub waits: Vec<String>,
    /// The failovers under way.
    pub failovers: Vec<String>,
    /// The last wishes of operators that were not fulfilled.
    pub refusals: Vec<String>,
}

/// What those that are present say. All but the watcher say nothing.
pub fn watching(topology: &Topology, live: &[Instance]) -> Watching {
    let mut all = Watching::default();
    for member in topology.members().iter().filter(|of| live.contains(&of.instance())) {
        let Some(info) = info_of(&member.resp_address) else { continue };
        let parts = |name: &str| {
            let text = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let parts = text.unwrap_or_default().split(" | ").filter(|text| !text.is_empty());
            parts.map(str::to_owned).collect::<Vec<_>>()
        };
        all.waits.extend(parts("cluster_waits"));
        all.failovers.extend(parts("cluster_failovers"));
        all.refusals.extend(parts("cluster_refusals"));
    }
    all
}

fn info_of(address: &str) -> Option<String> {
    let mut link = Connection::connect(address).ok()?;
    link.limit_waiting(INFO_LIMIT).ok()?;
    link.push(&[b"INFO", b"cluster"]);
    link.flush().ok()?;
    match link.reply().ok()? {
        Value::Bulk(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}
