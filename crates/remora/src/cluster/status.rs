//! `remora cluster status`: a picture of the cluster, or JSON.

use super::args::StatusArgs;
use super::lag::{Lags, lag_text, lags};
use super::session::CoordinatorSession;
use super::watching::watching;
use remora_cluster::topology::{Group, Instance, Member, MemberState, Topology};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;

/// Prints it.
pub fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let mut session = CoordinatorSession::open(&args.at)?;
    let topology = session.topology()?;
    let live = session.members().to_vec();
    let (waits, lags) = (waits(&topology, &live), lags(&topology, &live));
    let text = match args.json {
        true => format!("{}\n", as_json(&topology, &live, (&waits, &lags))),
        false => picture(&topology, &live, &lags) + &told(&waits),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// What groups without a primary wait for.
fn waits(topology: &Topology, live: &[Instance]) -> Vec<String> {
    let has_primary = |group: &Group| group.primary.is_some_and(|of| live.contains(&of));
    match topology.groups().iter().all(has_primary) {
        true => Vec::new(),
        false => watching(topology, live).waits,
    }
}

fn told(waits: &[String]) -> String {
    waits.iter().map(|text| format!("\nwaiting: {text}\n")).collect()
}

/// What a member is in its group, in a word.
fn role(group: &Group, member: &Member) -> &'static str {
    let instance = member.instance();
    match member.state {
        _ if group.primary == Some(instance) => "primary",
        _ if group.in_sync.contains(&instance) => "in sync",
        MemberState::Draining => "drained",
        MemberState::Replaced => "replaced",
        MemberState::Joining => "joining",
        MemberState::Serving => "behind",
    }
}

/// Whether it is to be taken away, and has a part still.
fn is_draining(group: &Group, member: &Member) -> bool {
    member.state == MemberState::Draining && group.has_all_acknowledged(member.instance())
}

fn slots_of(topology: &Topology, group: &Group) -> String {
    let own = topology.slots().iter().filter(|run| run.group == group.id);
    let text = |first: u16, slots: u16| match slots {
        1 => first.to_string(),
        _ => format!("{first}-{}", u32::from(first) + u32::from(slots) - 1),
    };
    let runs: Vec<_> = own.map(|run| text(run.first, run.slots)).collect();
    if runs.is_empty() { "none".into() } else { runs.join(",") }
}

fn picture(topology: &Topology, live: &[Instance], lags: &Lags) -> String {
    let (id, version) = (topology.cluster, topology.version);
    let mut out = format!("cluster {id:016x}, version {version} of its topology\n");
    for group in topology.groups() {
        let Group { name, epoch, min_replicas, .. } = group;
        let slots = slots_of(topology, group);
        let enough = group.in_sync.len() >= usize::from(*min_replicas) && group.primary.is_some();
        let state = match (group.primary, enough) {
            (None, _) => "no primary yet",
            (Some(primary), _) if !live.contains(&primary) => "its primary is gone",
            (_, false) => "too few replicas are in sync: no changes are taken",
            (_, true) => "takes changes",
        };
        // Writing to a String does not fail.
        let _ = writeln!(
            out,
            "\ngroup {name}   epoch {epoch}   slots {slots}   min replicas {min_replicas}   {state}"
        );
        let mut members: Vec<_> = topology.members_of(group.id).collect();
        members.sort_by_key(|of| (role(group, of) != "primary", of.id));
        for (at, member) in members.iter().enumerate() {
            let branch = if at + 1 == members.len() { "`--" } else { "|--" };
            let there = if live.contains(&member.instance()) { "" } else { "   GONE" };
            let drains = if is_draining(group, member) { "   DRAINING" } else { "" };
            let lag = lag_text(lags, member.id);
            let (resp, fabric) = (&member.resp_address, &member.fabric_address);
            let _ = writeln!(
                out,
                "  {branch} {:8} {}   RESP {resp}   fabric {fabric}{lag}{drains}{there}",
                role(group, member),
                member.id
            );
        }
        if members.is_empty() {
            let _ = writeln!(out, "  `-- no server yet");
        }
    }
    out
}

fn as_json(topology: &Topology, live: &[Instance], (waits, lags): (&[String], &Lags)) -> Value {
    let member = |group: &Group, of: &Member| {
        json!({
            "id": of.id.to_string(), "incarnation": format!("{:016x}", of.incarnation),
            "role": role(group, of), "present": live.contains(&of.instance()),
            "draining": of.state == MemberState::Draining,
            "lag_entries": lags.get(&of.id), "resp": of.resp_address, "fabric": of.fabric_address,
        })
    };
    let group = |of: &Group| {
        let members: Vec<_> = topology.members_of(of.id).map(|one| member(of, one)).collect();
        let in_sync: Vec<_> = of.in_sync.iter().map(|of| of.member.to_string()).collect();
        json!({
            "name": of.name, "epoch": of.epoch, "min_replicas": of.min_replicas,
            "primary": of.primary.map(|of| of.member.to_string()), "in_sync": in_sync,
            "slots": slots_of(topology, of), "members": members,
        })
    };
    let groups: Vec<_> = topology.groups().iter().map(group).collect();
    json!({
        "cluster": format!("{:016x}", topology.cluster), "version": topology.version,
        "groups": groups, "waits": waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_cluster::topology::change::{self, Joining, Promotion};
    use remora_cluster::topology::{GroupId, MemberId};

    fn instance(member: u64) -> Instance {
        Instance { member: MemberId(member), incarnation: 1 }
    }

    /// Member 1 leads and is being drained, member 2 is in sync, member 3 follows, member 4 is gone.
    fn cluster() -> (Topology, Vec<Instance>) {
        let group = GroupId(1);
        let mut topology = Topology::new(7, vec![(group, "g".into(), 1)]).unwrap();
        for member in 1..=4 {
            let joining = Joining {
                instance: instance(member),
                group,
                fabric_address: format!("f:{member}"),
                resp_address: format!("r:{member}"),
            };
            topology = change::join(&topology, joining).unwrap();
        }
        let first = Promotion { group, epoch: 0, to: instance(1), in_sync: Vec::new() };
        topology = change::promote(&topology, first).unwrap();
        let author = (instance(1), 1);
        topology = change::set_in_sync(&topology, group, author, vec![instance(2)]).unwrap();
        (change::drain(&topology, MemberId(1)).unwrap(), [1, 2, 3].map(instance).to_vec())
    }

    #[test]
    fn status_shows_roles_lag_and_who_is_being_drained() {
        let (topology, live) = cluster();
        let lags = Lags::from([(MemberId(2), 0), (MemberId(3), 1_234)]);
        let text = picture(&topology, &live, &lags);
        let line = |id: u64| {
            let id = MemberId(id).to_string();
            text.lines().find(|line| line.contains(&id)).unwrap().to_owned()
        };
        assert!(line(1).contains("primary") && line(1).contains("DRAINING"), "{text}");
        assert!(line(2).contains("in sync") && line(2).contains("lag 0"), "{text}");
        assert!(line(3).contains("joining") && line(3).contains("lag 1234"), "{text}");
        assert!(line(4).contains("GONE") && !line(4).contains("lag"), "{text}");
        let fields = as_json(&topology, &live, (&[], &lags));
        let group = &fields["groups"][0];
        assert_eq!((&group["name"], &group["epoch"]), (&json!("g"), &json!(1)));
        assert_eq!(group["in_sync"], json!([MemberId(2).to_string()]));
        let member = |at: usize| &group["members"][at];
        assert_eq!((&member(0)["role"], &member(0)["draining"]), (&json!("primary"), &json!(true)));
        assert_eq!(
            (&member(2)["lag_entries"], &member(2)["draining"]),
            (&json!(1_234), &json!(false))
        );
        assert_eq!(
            (&member(3)["lag_entries"], &member(3)["present"]),
            (&Value::Null, &json!(false))
        );
    }
}
