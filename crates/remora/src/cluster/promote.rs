//! `remora cluster promote`, without a loss: the watcher is asked, and asked again if it has forgotten.
//!
//! The watcher refuses a promotion while the member is not in the in-sync set, or another failover is under way; and
//! it gives up a hand-over that takes too long, so that the primary leads on. All of that passes by itself on a
//! machine that is busy for a moment. So the command waits on as long as something happens, and says what.

use super::say;
use super::session::CoordinatorSession;
use super::watching::{Watching, watching};
use anyhow::bail;
use remora_cluster::topology::{GroupId, MemberId, Topology};
use std::time::{Duration, Instant};

/// Between two looks at what the watcher does.
const LOOK: Duration = Duration::from_millis(500);
/// It waits so many times the timeout, whatever happens meanwhile.
const MOST_TIMEOUTS: u32 = 12;

/// Waits until a member leads its group.
///
/// # Errors
/// Nothing that would help has happened for as long as the timeout: what it waits for.
pub fn until_it_leads(
    session: &mut CoordinatorSession,
    (group, member): (GroupId, MemberId),
) -> anyhow::Result<()> {
    let (began, timeout) = (Instant::now(), session.timeout());
    let (mut changed, mut told) = (began, String::new());
    let mut before = None;
    session.ask_watcher_to_promote(member)?;
    // Bounded by the timeouts.
    loop {
        let leads = |topology: &Topology| {
            let primary = topology.group(group).and_then(|of| of.primary);
            primary.is_some_and(|of| of.member == member)
        };
        if session.is_so_within(LOOK, leads)? {
            return Ok(());
        }
        let topology = session.topology()?;
        let is_in_sync =
            topology.group(group).is_some_and(|of| of.in_sync.iter().any(|of| of.member == member));
        let now = watching(&topology, session.members());
        let waits = waits_for(&now, is_in_sync);
        if waits != told {
            say(&format!("waiting: {waits}"));
            told = waits;
        }
        let state = (topology.version, now.clone());
        if before.as_ref() != Some(&state) {
            (before, changed) = (Some(state), Instant::now());
        }
        if changed.elapsed() > timeout || began.elapsed() > timeout * MOST_TIMEOUTS {
            bail!("it does not lead yet, and nothing has happened for {timeout:?}: {told}");
        }
        if is_in_sync && now.failovers.is_empty() {
            session.ask_watcher_to_promote(member)?;
        }
    }
}

fn waits_for(now: &Watching, is_in_sync: bool) -> String {
    match (now.failovers.first(), now.refusals.first()) {
        (Some(failover), _) => failover.clone(),
        (None, _) if !is_in_sync => {
            "that server is not in the in-sync set at present: until it has everything".into()
        }
        (None, Some(refusal)) => refusal.clone(),
        (None, None) => "the watcher has not begun".into(),
    }
}
