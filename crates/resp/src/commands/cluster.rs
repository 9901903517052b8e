//! The cluster, as clients of Redis Cluster ask for it.

use crate::cluster::{ClusterFacts, GroupFacts, NodeFacts};
use crate::error::CommandError;
use crate::request::{ClusterQuestion, Request};
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind, ParseResult, help};
use crate::wire::{RespVersion, Words, encode};
use std::fmt::Write;

/// What the subcommands have in common.
const ASKS: CommandSpec = CommandSpec {
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[],
    since: "3.0.0",
    group: Group::CLUSTER,
    ..CommandSpec::PLAIN
};

const CLUSTER: CommandSpec = CommandSpec {
    name: "cluster",
    arity: -2,
    flags: &[],
    summary: "Holds the commands about the cluster and its slots.",
    complexity: "Depends on the subcommand.",
    subcommands: &[
        CLUSTER_HELP,
        CLUSTER_INFO,
        CLUSTER_KEYSLOT,
        CLUSTER_MYID,
        CLUSTER_NODES,
        CLUSTER_SHARDS,
        CLUSTER_SLOTS,
    ],
    ..ASKS
};

const CLUSTER_HELP: CommandSpec = CommandSpec {
    name: "cluster|help",
    since: "5.0.0",
    summary: "Lists the subcommands.",
    parse: help,
    ..ASKS
};

const CLUSTER_INFO: CommandSpec = CommandSpec {
    name: "cluster|info",
    summary: "Tells whether every slot is served, and how many servers there are.",
    notes: "`cluster_state` is `ok` if every slot has a healthy primary and this server reaches the \
coordinator. A server of no cluster says `cluster_enabled:0` and nothing else.",
    parse: |_, _| Ok(Request::Cluster(ClusterQuestion::Info)),
    ..ASKS
};

const CLUSTER_KEYSLOT: CommandSpec = CommandSpec {
    name: "cluster|keyslot",
    arity: 3,
    flags: &[Flag::Stale],
    summary: "Returns the slot of a key, 0 to 16383.",
    notes: "Redis answers this in cluster mode only.",
    arguments: &[Argument::new("key", Kind::String)],
    parse: keyslot,
    ..ASKS
};

fn keyslot(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::KeySlot(words.get(2)))
}

const CLUSTER_MYID: CommandSpec = CommandSpec {
    name: "cluster|myid",
    summary: "Returns the id of this server.",
    notes: "Another one after each start.",
    parse: |_, _| Ok(Request::Cluster(ClusterQuestion::MyId)),
    ..ASKS
};

const CLUSTER_NODES: CommandSpec = CommandSpec {
    name: "cluster|nodes",
    summary: "Returns the servers of the cluster, one on each line.",
    complexity: "O(N) where N is the number of servers",
    notes: "The fields are those of Redis. Servers have no bus of their own: its port is 0, and so are \
the times of pings. The epoch is that of the server's group.",
    parse: |_, _| Ok(Request::Cluster(ClusterQuestion::Nodes)),
    ..ASKS
};

const CLUSTER_SHARDS: CommandSpec = CommandSpec {
    name: "cluster|shards",
    since: "7.0.0",
    summary: "Returns the groups of servers with their slots.",
    complexity: "O(N) where N is the number of servers",
    parse: |_, _| Ok(Request::Cluster(ClusterQuestion::Shards)),
    ..ASKS
};

const CLUSTER_SLOTS: CommandSpec = CommandSpec {
    name: "cluster|slots",
    summary: "Returns the ranges of slots with their servers.",
    complexity: "O(N) where N is the number of servers",
    notes: "Replicas that are not healthy are left out. The first server of a range is its recorded \
primary, also if it is gone. If that was started again and no other one leads yet, it is another server of the \
group: it answers CLUSTERDOWN until one leads, and MOVED then.",
    parse: |_, _| Ok(Request::Cluster(ClusterQuestion::Slots)),
    ..ASKS
};

/// What READONLY and READWRITE have in common.
const MODE: CommandSpec = CommandSpec {
    arity: 1,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    categories: &["connection"],
    since: "3.0.0",
    group: Group::CLUSTER,
    ..CommandSpec::PLAIN
};

const READONLY: CommandSpec = CommandSpec {
    name: "readonly",
    summary: "Lets a replica answer the reads of this connection.",
    notes: "If the replica answers reads at all (`--replica-reads stale`): otherwise it sends them to \
the primary, as before.",
    parse: |_, _| Ok(Request::ReplicaReads(true)),
    ..MODE
};

const READWRITE: CommandSpec = CommandSpec {
    name: "readwrite",
    summary: "Ends what READONLY began.",
    parse: |_, _| Ok(Request::ReplicaReads(false)),
    ..MODE
};

const ASKING: CommandSpec = CommandSpec {
    name: "asking",
    flags: &[Flag::Fast],
    summary: "Is refused: no slot of a cluster is ever on its way, so no reply is an ASK.",
    parse: |_, _| Err(CommandError::NoAsking),
    ..MODE
};

/// Writes the reply to CLUSTER; `facts` are `None` at a server of no cluster.
pub fn answer(
    out: &mut Vec<u8>,
    version: RespVersion,
    facts: Option<&ClusterFacts>,
    question: ClusterQuestion,
) {
    let Some(facts) = facts else {
        return match question {
            ClusterQuestion::Info => {
                encode::verbatim(out, version, "txt", b"cluster_enabled:0\r\n");
            }
            _ => CommandError::NoCluster.write(out),
        };
    };
    match question {
        ClusterQuestion::Info => encode::verbatim(out, version, "txt", info(facts).as_bytes()),
        ClusterQuestion::MyId => encode::bulk(out, facts.own.to_string().as_bytes()),
        ClusterQuestion::Nodes => encode::verbatim(out, version, "txt", nodes(facts).as_bytes()),
        ClusterQuestion::Shards => shards(out, version, facts),
        ClusterQuestion::Slots => slots(out, version, facts),
    }
}

fn info(facts: &ClusterFacts) -> String {
    let counts = facts.counts();
    let with_slots = (0..facts.groups.len()).filter(|at| facts.slots_of(*at).next().is_some());
    let lines = [
        ("cluster_enabled", "1".into()),
        ("cluster_state", if facts.is_ok() { "ok" } else { "fail" }.into()),
        ("cluster_slots_assigned", counts.assigned.to_string()),
        ("cluster_slots_ok", counts.served.to_string()),
        ("cluster_slots_pfail", "0".into()),
        ("cluster_slots_fail", (counts.assigned - counts.served).to_string()),
        ("cluster_known_nodes", facts.nodes().count().to_string()),
        ("cluster_size", with_slots.count().to_string()),
        ("cluster_current_epoch", facts.epoch.to_string()),
        ("cluster_my_epoch", facts.own_group().map_or(0, |group| group.epoch).to_string()),
    ];
    lines.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{name}:{value}\r\n");
        text
    })
}

fn nodes(facts: &ClusterFacts) -> String {
    let mut text = String::new();
    for (at, group) in facts.groups.iter().enumerate() {
        let primary = group.primary().map_or_else(|| "-".into(), |node| node.id.to_string());
        for node in &group.nodes {
            let myself = if node.id == facts.own { "myself," } else { "" };
            let role = if node.is_primary { "master" } else { "slave" };
            let (fail, link) =
                if node.is_healthy { ("", "connected") } else { (",fail", "disconnected") };
            let of = if node.is_primary { "-" } else { &primary };
            let NodeFacts { id, host, port, .. } = node;
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "{id} {host}:{port}@0 {myself}{role}{fail} {of} 0 0 {} {link}",
                group.epoch
            );
            for run in facts.slots_of(at).filter(|_| node.is_primary) {
                let _ = match run.first == run.last {
                    true => write!(text, " {}", run.first),
                    false => write!(text, " {}-{}", run.first, run.last),
                };
            }
            text.push('\n');
        }
    }
    text
}

/// The servers of a group, its primary first.
fn primary_first(group: &GroupFacts) -> impl Iterator<Item = &NodeFacts> {
    group.primary().into_iter().chain(group.replicas())
}

fn shards(out: &mut Vec<u8>, version: RespVersion, facts: &ClusterFacts) {
    encode::array(out, facts.groups.len());
    for (at, group) in facts.groups.iter().enumerate() {
        encode::map(out, version, 2);
        encode::bulk(out, b"slots");
        encode::array(out, 2 * facts.slots_of(at).count());
        for run in facts.slots_of(at) {
            encode::integer(out, run.first.into());
            encode::integer(out, run.last.into());
        }
        encode::bulk(out, b"nodes");
        encode::array(out, group.nodes.len());
        for node in primary_first(group) {
            encode::map(out, version, 7);
            text(out, "id", &node.id.to_string());
            encode::bulk(out, b"port");
            encode::integer(out, node.port.into());
            text(out, "ip", &node.host);
            text(out, "endpoint", &node.host);
            text(out, "role", if node.is_primary { "master" } else { "replica" });
            encode::bulk(out, b"replication-offset");
            encode::integer(out, node.offset as i64);
            text(out, "health", if node.is_healthy { "online" } else { "fail" });
        }
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    encode::bulk(out, name.as_bytes());
    encode::bulk(out, value.as_bytes());
}

fn slots(out: &mut Vec<u8>, version: RespVersion, facts: &ClusterFacts) {
    let runs = || {
        facts.slots.iter().filter_map(|run| {
            let group = facts.groups.get(run.group)?;
            group.named_first().map(|first| (run, group, first))
        })
    };
    encode::array(out, runs().count());
    for (run, group, first) in runs() {
        let replicas = || group.replicas().filter(|node| node.is_healthy && node.id != first.id);
        encode::array(out, 3 + replicas().count());
        encode::integer(out, run.first.into());
        encode::integer(out, run.last.into());
        for node in std::iter::once(first).chain(replicas()) {
            encode::array(out, 4);
            encode::bulk(out, node.host.as_bytes());
            encode::integer(out, node.port.into());
            encode::bulk(out, node.id.to_string().as_bytes());
            encode::map(out, version, 0);
        }
    }
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[ASKING, CLUSTER, READONLY, READWRITE];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::facts;

    fn reply(version: RespVersion, question: ClusterQuestion) -> String {
        let mut out = Vec::new();
        answer(&mut out, version, Some(&facts()), question);
        String::from_utf8(out).unwrap()
    }
    const ONE: &str = "00000000000000a1000000000000000000000001";
    const TWO: &str = "00000000000000a2000000000000000000000001";

    /// The bytes between are those that Redis 7.0.15 has sent, with other values.
    #[test]
    fn shards_are_told_as_redis_tells_them() {
        let nodes = |map: &str| {
            [(ONE, 7001, "$6\r\nmaster"), (TWO, 7002, "$7\r\nreplica")]
                .map(|(id, port, role)| {
                    format!(
                        "{map}$2\r\nid\r\n$40\r\n{id}\r\n$4\r\nport\r\n:{port}\r\n$2\r\nip\r\n$9\r\n\
                         127.0.0.1\r\n$8\r\nendpoint\r\n$9\r\n127.0.0.1\r\n$4\r\nrole\r\n{role}\r\n\
                         $18\r\nreplication-offset\r\n:42\r\n$6\r\nhealth\r\n$6\r\nonline\r\n"
                    )
                })
                .concat()
        };
        let begin = |map: &str| {
            format!("*2\r\n{map}$5\r\nslots\r\n*2\r\n:0\r\n:8191\r\n$5\r\nnodes\r\n*2\r\n")
        };
        let resp2 = reply(RespVersion::Resp2, ClusterQuestion::Shards);
        assert!(resp2.starts_with(&(begin("*4\r\n") + &nodes("*14\r\n"))), "{resp2}");
        let resp3 = reply(RespVersion::Resp3, ClusterQuestion::Shards);
        assert!(resp3.starts_with(&(begin("%2\r\n") + &nodes("%7\r\n"))), "{resp3}");
    }

    #[test]
    fn slots_are_told_as_redis_tells_them() {
        let begin = |map: &str| {
            format!(
                "*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$9\r\n127.0.0.1\r\n:7001\r\n$40\r\n{ONE}\r\n{map}\
                 *4\r\n$9\r\n127.0.0.1\r\n:7002\r\n$40\r\n{TWO}\r\n{map}*4\r\n:8192\r\n:16383\r\n"
            )
        };
        let resp2 = reply(RespVersion::Resp2, ClusterQuestion::Slots);
        assert!(resp2.starts_with(&begin("*0\r\n")), "{resp2}");
        let resp3 = reply(RespVersion::Resp3, ClusterQuestion::Slots);
        assert!(resp3.starts_with(&begin("%0\r\n")), "{resp3}");
    }

    /// redis-py asks no server for the slots that it has not found in a map, and raises an error if it
    /// finds no primary at all.
    #[test]
    fn slots_of_a_group_without_a_primary_are_told_too() {
        let mut facts = facts();
        facts.groups.iter_mut().flat_map(|of| &mut of.nodes).for_each(|of| of.is_primary = false);
        let mut out = Vec::new();
        answer(&mut out, RespVersion::Resp2, Some(&facts), ClusterQuestion::Slots);
        let told = String::from_utf8(out).unwrap();
        let begin = "*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$9\r\n127.0.0.1\r\n:7002\r\n";
        assert!(told.starts_with(begin), "the first range names a server: {told}");
        assert_eq!(told.matches(":7002\r\n").count(), 1, "{told}");
        assert_eq!(told.matches(":7001\r\n").count(), 1, "{told}");
    }

    #[test]
    fn nodes_are_told_as_redis_tells_them() {
        let mut facts = facts();
        facts.groups[1].nodes[1].is_healthy = false;
        facts.slots[1].last = 8192;
        let text = nodes(&facts);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], format!("{TWO} 127.0.0.1:7002@0 slave {ONE} 0 0 3 connected"));
        assert_eq!(
            lines[1],
            format!("{ONE} 127.0.0.1:7001@0 myself,master - 0 0 3 connected 0-8191")
        );
        assert!(lines[2].ends_with(":7003@0 master - 0 0 5 connected 8192"), "{}", lines[2]);
        assert!(lines[3].contains(":7004@0 slave,fail 00000000000000b1"), "{}", lines[3]);
        assert!(lines[3].ends_with(" 0 0 5 disconnected"), "{}", lines[3]);
        let told = reply(RespVersion::Resp3, ClusterQuestion::Nodes);
        assert!(told.starts_with('=') && told.contains("txt:00000000000000a2"), "{told}");
    }

    #[test]
    fn info_counts_slots_and_servers() {
        let text = reply(RespVersion::Resp2, ClusterQuestion::Info);
        for line in [
            "cluster_enabled:1",
            "cluster_state:ok",
            "cluster_slots_assigned:16384",
            "cluster_slots_ok:16384",
            "cluster_slots_fail:0",
            "cluster_known_nodes:4",
            "cluster_size:2",
            "cluster_current_epoch:7",
            "cluster_my_epoch:3",
        ] {
            assert!(text.contains(&format!("{line}\r\n")), "{line} in {text}");
        }
    }

    #[test]
    fn without_a_cluster_only_info_is_answered() {
        let told = |question| {
            let mut out = Vec::new();
            answer(&mut out, RespVersion::Resp2, None, question);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(told(ClusterQuestion::Info), "$19\r\ncluster_enabled:0\r\n\r\n");
        for question in [
            ClusterQuestion::MyId,
            ClusterQuestion::Nodes,
            ClusterQuestion::Shards,
            ClusterQuestion::Slots,
        ] {
            assert_eq!(told(question), "-ERR This instance has cluster support disabled\r\n");
        }
    }
}
