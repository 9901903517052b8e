//! How far the servers of a cluster are behind their primaries, as the primaries say.

use super::server::cluster_info;
use remora_cluster::topology::{Instance, Member, MemberId, Topology};
use std::collections::BTreeMap;

/// Entries that a member has not applied yet. A member that does not follow is missing, and so is each
/// member of a group whose primary does not answer.
pub type Lags = BTreeMap<MemberId, u64>;

/// Asks each primary that is present.
pub fn lags(topology: &Topology, live: &[Instance]) -> Lags {
    let primaries = topology.groups().iter().filter_map(|group| group.primary);
    let present = primaries.filter(|of| live.contains(of));
    let asked = present.filter_map(|of| ask(topology.member(of.member)?));
    asked.flat_map(|text| parsed(&text)).collect()
}

fn ask(primary: &Member) -> Option<String> {
    cluster_info(&primary.resp_address).ok()?.remove("cluster_lag")
}

/// `ID=ENTRIES,ID=ENTRIES`.
fn parsed(text: &str) -> Lags {
    let one = |part: &str| {
        let (id, entries) = part.split_once('=')?;
        Some((MemberId(u64::from_str_radix(id, 16).ok()?), entries.parse().ok()?))
    };
    text.split(',').filter_map(one).collect()
}

/// For the picture; nothing if it is not known.
pub fn lag_text(lags: &Lags, id: MemberId) -> String {
    lags.get(&id).map(|entries| format!("   lag {entries}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_tells_the_lag_of_each_that_follows_it() {
        let lags = parsed(&format!("{}=0,{}=17", MemberId(2), MemberId(0xabc)));
        assert_eq!(lags, Lags::from([(MemberId(2), 0), (MemberId(0xabc), 17)]));
        assert!(parsed("").is_empty() && parsed("x=1,2").is_empty());
    }
}
