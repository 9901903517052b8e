//! `remora cluster drain`: takes a server's part from it, and waits until it has none.

use super::args::DrainArgs;
use super::changing::{change_member, name_of, say};
use remora_cluster::topology::change;
use remora_cluster::topology::{GroupRole, Instance, Member, MemberId, Topology};
use std::time::{Duration, Instant};

/// Does it.
///
/// # Errors
/// It is refused, or the server has a part still when the time is up.
pub fn run(args: &DrainArgs) -> anyhow::Result<()> {
    let will = |of: &Member| {
        format!("{} will lead no more, and leave the in-sync set of its group", name_of(of))
    };
    let Some((mut session, id)) = change_member(&args.change, will, change::drain)? else {
        return Ok(());
    };
    if args.no_wait {
        return Ok(());
    }
    let until = Instant::now() + Duration::from_secs(args.wait_s);
    let mut said = String::new();
    while let Some(waits) = waits_for(&*session.topology()?, session.members(), id) {
        if waits != said {
            say(&waits);
            said = waits;
        }
        if Instant::now() >= until {
            anyhow::bail!(
                "it has a part still after {} s. The cluster goes on with it: say drain again to wait for longer",
                args.wait_s
            );
        }
        session.look()?;
    }
    say("done: it has no part any more. Stop it, and then: remora cluster leave");
    Ok(())
}

/// What a drain waits for; `None` once the server has no part.
fn waits_for(topology: &Topology, live: &[Instance], id: MemberId) -> Option<String> {
    let member = topology.member(id)?;
    let group = topology.group(member.group)?;
    let named = group.primary.iter().chain(&group.in_sync).find(|of| of.member == id)?;
    let (name, least) = (&group.name, group.min_replicas);
    let may_lead = |of: &Instance| topology.member(of.member).is_some_and(Member::may_lead);
    let others = topology.eligible(group, live).filter(may_lead).count();
    Some(match topology.role(*named) {
        Some(GroupRole::Primary) if others == 0 => format!(
            "waiting: it leads group {name}, and no other server that is present is in sync: start one, or wait until one is"
        ),
        Some(GroupRole::Primary) => {
            format!("waiting: another server takes group {name} over")
        }
        Some(GroupRole::InSync) if others < usize::from(least) => format!(
            "waiting: group {name} needs {least} replica(s) in sync, and has {others} without it: start another server, or wait until one is in sync"
        ),
        _ if group.primary.is_some_and(|of| !live.contains(&of)) => {
            format!(
                "waiting: the primary of group {name} is gone, and another one has to lead first"
            )
        }
        _ => format!("waiting: the primary of group {name} leaves it out"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cluster::topology::GroupId;
    use remora_cluster::topology::change::{Joining, Promotion};

    fn instance(member: u64) -> Instance {
        Instance { member: MemberId(member), incarnation: 1 }
    }

    /// Three servers; the first leads, and these are in sync.
    fn topology(in_sync: &[u64]) -> Topology {
        let group = GroupId(1);
        let mut topology = Topology::new(7, vec![(group, "g".into(), 1)]).unwrap();
        for member in 1..=3 {
            let joining = Joining {
                instance: instance(member),
                group,
                fabric_address: format!("f:{member}"),
                resp_address: format!("r:{member}"),
            };
            topology = change::join(&topology, joining).unwrap();
        }
        let first = Promotion { group, epoch: 0, to: instance(1), in_sync: Vec::new() };
        let led = change::promote(&topology, first).unwrap();
        let set = in_sync.iter().map(|of| instance(*of)).collect();
        change::set_in_sync(&led, group, (instance(1), 1), set).unwrap()
    }

    #[test]
    fn a_drain_says_what_it_waits_for() {
        let waits = |in_sync: &[u64], live: &[u64], id| {
            let live: Vec<_> = live.iter().map(|of| instance(*of)).collect();
            let topology = change::drain(&topology(in_sync), MemberId(id)).unwrap();
            waits_for(&topology, &live, MemberId(id)).unwrap_or_default()
        };
        let all = [1, 2, 3];
        assert!(waits(&[2], &all, 1).contains("takes group g over"));
        assert!(waits(&[], &all, 1).contains("no other server that is present is in sync"));
        assert!(waits(&[2], &[1, 3], 1).contains("no other server that is present is in sync"));
        assert!(waits(&[2, 3], &all, 2).contains("leaves it out"));
        assert!(waits(&[2], &all, 2).contains("needs 1 replica(s) in sync, and has 0 without it"));
        assert!(waits(&[2, 3], &[2, 3], 2).contains("is gone"));
        assert_eq!(waits(&[2], &all, 3), "", "it has no part");
    }
}
