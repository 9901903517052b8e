//! `remora cluster status`: a picture of the cluster, or JSON.

use super::args::StatusArgs;
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
    let waits = waits(&topology, &live);
    let text = match args.json {
        true => format!("{}\n", as_json(&topology, &live, &waits)),
        false => picture(&topology, &live) + &told(&waits),
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

fn slots_of(topology: &Topology, group: &Group) -> String {
    let own = topology.slots().iter().filter(|run| run.group == group.id);
    let text = |first: u16, slots: u16| match slots {
        1 => first.to_string(),
        _ => format!("{first}-{}", u32::from(first) + u32::from(slots) - 1),
    };
    let runs: Vec<_> = own.map(|run| text(run.first, run.slots)).collect();
    if runs.is_empty() { "none".into() } else { runs.join(",") }
}

fn picture(topology: &Topology, live: &[Instance]) -> String {
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
            let (resp, fabric) = (&member.resp_address, &member.fabric_address);
            let _ = writeln!(
                out,
                "  {branch} {:8} {}   RESP {resp}   fabric {fabric}{there}",
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

fn as_json(topology: &Topology, live: &[Instance], waits: &[String]) -> Value {
    let member = |group: &Group, of: &Member| {
        json!({
            "id": of.id.to_string(), "incarnation": format!("{:016x}", of.incarnation),
            "role": role(group, of), "present": live.contains(&of.instance()),
            "resp": of.resp_address, "fabric": of.fabric_address,
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
