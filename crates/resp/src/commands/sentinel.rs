//! What clients of Sentinel ask. Every server of a cluster answers it: a group is a master with its
//! replicas, and every other server is another Sentinel.

use crate::cluster::{ClusterFacts, GroupFacts, NodeFacts};
use crate::error::CommandError;
use crate::request::{Request, SentinelQuestion};
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind, help};
use crate::wire::{RespVersion, encode};

/// What the subcommands have in common.
const ASKS: CommandSpec = CommandSpec {
    arity: 2,
    flags: &[Flag::Admin, Flag::Loading, Flag::Stale],
    categories: &[],
    since: "2.8.4",
    group: Group::SENTINEL,
    complexity: "O(N) where N is the number of servers",
    ..CommandSpec::PLAIN
};

/// What those have in common that name a master.
const ASKS_OF_ONE: CommandSpec =
    CommandSpec { arity: 3, arguments: &[Argument::new("master-name", Kind::String)], ..ASKS };

const SENTINEL: CommandSpec = CommandSpec {
    name: "sentinel",
    arity: -2,
    summary: "Holds the commands of Sentinel.",
    complexity: "Depends on the subcommand.",
    subcommands: &[
        CKQUORUM,
        GET_MASTER_ADDR_BY_NAME,
        HELP,
        MASTER,
        MASTERS,
        MYID,
        REPLICAS,
        SENTINELS,
        SLAVES,
    ],
    ..ASKS
};

const CKQUORUM: CommandSpec = CommandSpec {
    name: "sentinel|ckquorum",
    summary: "Tells whether a primary that is gone would be replaced.",
    notes: "It would, if this server reaches the coordinator. Servers do not vote.",
    parse: |words, _| Ok(Request::Sentinel(SentinelQuestion::CheckQuorum(words.get(2)))),
    ..ASKS_OF_ONE
};

const GET_MASTER_ADDR_BY_NAME: CommandSpec = CommandSpec {
    name: "sentinel|get-master-addr-by-name",
    summary: "Returns host and port of the primary of the group with this name, or null.",
    parse: |words, _| Ok(Request::Sentinel(SentinelQuestion::MasterAddress(words.get(2)))),
    ..ASKS_OF_ONE
};

const HELP: CommandSpec = CommandSpec {
    name: "sentinel|help",
    since: "6.2.0",
    summary: "Lists the subcommands.",
    parse: help,
    ..ASKS
};

const MASTER: CommandSpec = CommandSpec {
    name: "sentinel|master",
    summary: "Tells about the primary of the group with this name.",
    notes: "The fields are Redis's, without those about pings: servers of a cluster send each other \
none.",
    parse: |words, _| Ok(Request::Sentinel(SentinelQuestion::Master(words.get(2)))),
    ..ASKS_OF_ONE
};

const MASTERS: CommandSpec = CommandSpec {
    name: "sentinel|masters",
    summary: "Tells about the primary of each group.",
    parse: |_, _| Ok(Request::Sentinel(SentinelQuestion::Masters)),
    ..ASKS
};

const MYID: CommandSpec = CommandSpec {
    name: "sentinel|myid",
    since: "6.2.0",
    summary: "Returns the id of this server.",
    complexity: "O(1)",
    parse: |_, _| Ok(Request::Sentinel(SentinelQuestion::MyId)),
    ..ASKS
};

const REPLICAS: CommandSpec = CommandSpec {
    name: "sentinel|replicas",
    since: "5.0.0",
    summary: "Tells about the replicas of the group with this name.",
    parse: |words, _| Ok(Request::Sentinel(SentinelQuestion::Replicas(words.get(2)))),
    ..ASKS_OF_ONE
};

const SENTINELS: CommandSpec = CommandSpec {
    name: "sentinel|sentinels",
    summary: "Tells about the other servers, each of which answers SENTINEL.",
    parse: |words, _| Ok(Request::Sentinel(SentinelQuestion::Sentinels(words.get(2)))),
    ..ASKS_OF_ONE
};

const SLAVES: CommandSpec = CommandSpec {
    name: "sentinel|slaves",
    since: "2.8.0",
    summary: "Is the old name of SENTINEL REPLICAS.",
    ..REPLICAS
};

/// Writes the reply to SENTINEL; `facts` are `None` at a server of no cluster.
pub fn answer(
    out: &mut Vec<u8>,
    version: RespVersion,
    facts: Option<&ClusterFacts>,
    question: SentinelQuestion<'_>,
) {
    let result = facts
        .ok_or(CommandError::NoCluster)
        .and_then(|facts| answer_of(out, version, facts, question));
    if let Err(error) = result {
        error.write(out);
    }
}

fn answer_of(
    out: &mut Vec<u8>,
    version: RespVersion,
    facts: &ClusterFacts,
    question: SentinelQuestion<'_>,
) -> Result<(), CommandError> {
    let group = |name| facts.named(name).ok_or(CommandError::NoMaster);
    match question {
        SentinelQuestion::MyId => encode::bulk(out, facts.own.to_string().as_bytes()),
        SentinelQuestion::MasterAddress(name) => {
            match facts.named(name).and_then(GroupFacts::primary) {
                None => encode::null_array(out, version),
                Some(node) => {
                    encode::array(out, 2);
                    encode::bulk(out, node.host.as_bytes());
                    encode::bulk(out, node.port.to_string().as_bytes());
                }
            }
        }
        SentinelQuestion::Master(name) => {
            let group = group(name)?;
            let primary = group.primary().ok_or(CommandError::NoMaster)?;
            write_master(out, version, facts, (group, primary));
        }
        SentinelQuestion::Masters => {
            let all = facts.groups.iter();
            let with_primary = all.filter_map(|group| Some((group, group.primary()?)));
            encode::array(out, with_primary.clone().count());
            with_primary.for_each(|of| write_master(out, version, facts, of));
        }
        SentinelQuestion::Replicas(name) => {
            let group = group(name)?;
            encode::array(out, group.replicas().count());
            group.replicas().for_each(|node| write_replica(out, version, (group, node)));
        }
        SentinelQuestion::Sentinels(name) => {
            group(name)?;
            let others = || facts.nodes().filter(|node| node.id != facts.own);
            encode::array(out, others().count());
            others().for_each(|node| write_sentinel(out, version, node));
        }
        SentinelQuestion::CheckQuorum(name) => {
            group(name)?;
            check_quorum(out, facts);
        }
    }
    Ok(())
}

fn check_quorum(out: &mut Vec<u8>, facts: &ClusterFacts) {
    let usable = facts.nodes().filter(|node| node.is_healthy).count();
    match facts.has_coordinator {
        true => encode::simple(
            out,
            &format!(
                "OK {usable} usable Sentinels. Quorum and failover authorization can be reached"
            ),
        ),
        false => encode::error(
            out,
            &format!(
                "NOQUORUM {usable} usable Sentinels. This server does not reach the coordinator"
            ),
        ),
    }
}

fn write_fields(out: &mut Vec<u8>, version: RespVersion, fields: &[(&str, String)]) {
    encode::map(out, version, fields.len());
    for (name, value) in fields {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
}

/// The fields that every server has, the first of its flags being `kind`.
fn fields(kind: &str, name: String, node: &NodeFacts) -> Vec<(&'static str, String)> {
    let down = match (node.is_healthy, node.is_primary) {
        (true, _) => "",
        (false, true) => ",s_down,o_down",
        (false, false) => ",s_down,disconnected",
    };
    vec![
        ("name", name),
        ("ip", node.host.clone()),
        ("port", node.port.to_string()),
        ("runid", node.id.to_string()),
        ("flags", format!("{kind}{down}")),
    ]
}

fn write_master(
    out: &mut Vec<u8>,
    version: RespVersion,
    facts: &ClusterFacts,
    (group, node): (&GroupFacts, &NodeFacts),
) {
    let mut fields = fields("master", group.name.clone(), node);
    fields.extend([
        ("role-reported", "master".into()),
        ("config-epoch", group.epoch.to_string()),
        ("num-slaves", group.replicas().count().to_string()),
        ("num-other-sentinels", facts.nodes().count().saturating_sub(1).to_string()),
        // The coordinator decides, and one server asks it to.
        ("quorum", "1".into()),
    ]);
    write_fields(out, version, &fields);
}

fn write_replica(
    out: &mut Vec<u8>,
    version: RespVersion,
    (group, node): (&GroupFacts, &NodeFacts),
) {
    let leader = group.leader();
    let status = if leader.is_some() && node.is_healthy { "ok" } else { "err" };
    let (host, port) = group.primary().map_or(("?", 0), |of| (of.host.as_str(), of.port));
    let mut fields = fields("slave", node.address(), node);
    fields.extend([
        ("role-reported", "slave".into()),
        ("master-link-status", status.into()),
        ("master-host", host.into()),
        ("master-port", port.to_string()),
        ("slave-priority", "100".into()),
        ("slave-repl-offset", node.offset.to_string()),
        ("replica-announced", "1".into()),
    ]);
    write_fields(out, version, &fields);
}

fn write_sentinel(out: &mut Vec<u8>, version: RespVersion, node: &NodeFacts) {
    let down = if node.is_healthy { "" } else { ",s_down,disconnected" };
    let fields = [
        ("name", node.id.to_string()),
        ("ip", node.host.clone()),
        ("port", node.port.to_string()),
        ("runid", node.id.to_string()),
        ("flags", format!("sentinel{down}")),
    ];
    write_fields(out, version, &fields);
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[SENTINEL];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::facts;

    fn reply(facts: &ClusterFacts, version: RespVersion, question: SentinelQuestion<'_>) -> String {
        let mut out = Vec::new();
        answer(&mut out, version, Some(facts), question);
        String::from_utf8(out).unwrap()
    }

    const TWO: RespVersion = RespVersion::Resp2;

    /// The bytes are those that Redis 7.0.15 has sent, with other values.
    #[test]
    fn an_address_is_told_as_sentinel_tells_it() {
        let (facts, ask) = (facts(), SentinelQuestion::MasterAddress);
        assert_eq!(reply(&facts, TWO, ask(b"two")), "*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7003\r\n");
        assert_eq!(reply(&facts, TWO, ask(b"x")), "*-1\r\n");
        assert_eq!(reply(&facts, RespVersion::Resp3, ask(b"x")), "_\r\n");
    }

    #[test]
    fn a_master_has_its_fields_in_the_order_of_sentinel() {
        let facts = facts();
        let begin = "$4\r\nname\r\n$3\r\none\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n$4\r\n7001\r\n\
             $5\r\nrunid\r\n$40\r\n00000000000000a1000000000000000000000001\r\n$5\r\nflags\r\n$6\r\n\
             master\r\n$13\r\nrole-reported\r\n$6\r\nmaster\r\n$12\r\nconfig-epoch\r\n$1\r\n3\r\n\
             $10\r\nnum-slaves\r\n$1\r\n1\r\n$19\r\nnum-other-sentinels\r\n$1\r\n3\r\n\
             $6\r\nquorum\r\n$1\r\n1\r\n";
        let master = SentinelQuestion::Master(b"one");
        assert_eq!(reply(&facts, TWO, master), format!("*20\r\n{begin}"));
        assert_eq!(reply(&facts, RespVersion::Resp3, master), format!("%10\r\n{begin}"));
        let all = reply(&facts, TWO, SentinelQuestion::Masters);
        assert!(all.starts_with(&format!("*2\r\n*20\r\n{begin}*20\r\n")), "{all}");
    }

    #[test]
    fn servers_that_are_gone_have_flags_that_say_so() {
        let mut facts = facts();
        facts.groups[0].nodes.iter_mut().for_each(|node| node.is_healthy = false);
        let master = reply(&facts, TWO, SentinelQuestion::Master(b"one"));
        assert!(master.contains("\r\nmaster,s_down,o_down\r\n"), "{master}");
        let replicas = reply(&facts, TWO, SentinelQuestion::Replicas(b"one"));
        assert!(replicas.contains("\r\nslave,s_down,disconnected\r\n"), "{replicas}");
        assert!(replicas.contains("master-link-status\r\n$3\r\nerr\r\n"), "{replicas}");
        let others = reply(&facts, TWO, SentinelQuestion::Sentinels(b"two"));
        assert!(others.starts_with("*3\r\n*10\r\n"), "{others}");
        assert_eq!(others.matches("sentinel,s_down,disconnected").count(), 1, "{others}");
        let ask = SentinelQuestion::CheckQuorum(b"one");
        assert!(reply(&facts, TWO, ask).starts_with("+OK 2 usable Sentinels. "));
        facts.has_coordinator = false;
        assert!(reply(&facts, TWO, ask).starts_with("-NOQUORUM "));
        // A group that nobody has led yet.
        facts.groups[0].nodes[1].is_primary = false;
        assert_eq!(
            reply(&facts, TWO, SentinelQuestion::Master(b"one")),
            "-ERR No such master with that name\r\n"
        );
        assert!(reply(&facts, TWO, SentinelQuestion::Masters).starts_with("*1\r\n"));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        let facts = facts();
        for ask in [
            SentinelQuestion::Master,
            SentinelQuestion::Replicas,
            SentinelQuestion::Sentinels,
            SentinelQuestion::CheckQuorum,
        ] {
            assert_eq!(reply(&facts, TWO, ask(b"x")), "-ERR No such master with that name\r\n");
        }
        let mut out = Vec::new();
        answer(&mut out, TWO, None, SentinelQuestion::Masters);
        assert_eq!(out, b"-ERR This instance has cluster support disabled\r\n");
    }
}
