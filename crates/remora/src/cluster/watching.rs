//! What the watcher does, as its INFO says.

use super::server::cluster_info;
use remora_cluster::topology::{Instance, Topology};

/// See the module's text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Watching {
    /// What groups without a primary wait for.
    pub waits: Vec<String>,
    /// The failovers under way.
    pub failovers: Vec<String>,
    /// The last promotions that operators have asked for, and that were refused.
    pub refusals: Vec<String>,
}

/// Asks each server that is present: only the watcher has something to say.
pub fn watching(topology: &Topology, live: &[Instance]) -> Watching {
    let mut all = Watching::default();
    for member in topology.members().iter().filter(|of| live.contains(&of.instance())) {
        let Ok(info) = cluster_info(&member.resp_address) else { continue };
        let parts = |name: &str| {
            let text = info.get(name).map_or("", String::as_str);
            let parts = text.split(" | ").filter(|text| !text.is_empty());
            parts.map(str::to_owned).collect::<Vec<_>>()
        };
        all.waits.extend(parts("cluster_waits"));
        all.failovers.extend(parts("cluster_failovers"));
        all.refusals.extend(parts("cluster_refusals"));
    }
    all
}
