//! What a connection is subscribed to, and what is sent to it: events of the cluster, on the channels
//! of Sentinel and in its words.

use crate::cluster::{ClusterFacts, GroupFacts, NodeFacts};
use crate::error::CommandError;
use crate::limits::{MAX_SUBSCRIBED_PATTERN_BYTES, MAX_SUBSCRIBED_PATTERNS};
use crate::request::SubscriptionChange;
use crate::wire::{RespVersion, encode};
use remora_protocol::glob::Glob;
use std::collections::BTreeMap;

/// Another server is the primary of a group: `name old-host old-port new-host new-port`.
const SWITCH: &str = "+switch-master";
/// A server is there that was not: a replica of its group.
const REPLICA: &str = "+slave";
/// A server is gone.
const DOWN: &str = "+sdown";
/// A server is back.
const UP: &str = "-sdown";

/// The channels on which this server sends something, and behind them others that Sentinel has or
/// clients subscribe to, on which it never does: a client that is refused one of its channels gets none.
const CHANNELS: &[&str] = &[
    SWITCH,
    REPLICA,
    DOWN,
    UP,
    "+odown",
    "-odown",
    "+reboot",
    "+reset-master",
    "+sentinel",
    "-dup-sentinel",
    "+new-epoch",
    "+try-failover",
    "+elected-leader",
    "+failover-detected",
    "+failover-state-reconf-slaves",
    "+failover-state-select-slave",
    "+failover-state-send-slaveof-noone",
    "+failover-end",
    "+failover-end-for-timeout",
    "+selected-slave",
    "+slave-reconf-sent",
    "+slave-reconf-inprog",
    "+slave-reconf-done",
    // go-redis's FailoverClient subscribes to this together with +switch-master.
    "+replica-reconf-done",
    "+promoted-slave",
    "+role-change",
    "-role-change",
    "+convert-to-slave",
    "+fix-slave-config",
    "+tilt",
    "-tilt",
    "+monitor",
    "-monitor",
    "+set",
    "+config-update-from",
    "+failover-takeover",
    "+vote-for-leader",
    "-failover-abort-not-elected",
    "-failover-abort-no-good-slave",
    "+redirect-to-master",
    "+sentinel-address-switch",
];

const _: () = assert!(CHANNELS.len() <= u64::BITS as usize);

/// What one connection is subscribed to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subscriptions {
    /// A bit for each of [`CHANNELS`].
    channels: u64,
    patterns: Vec<(Box<[u8]>, Glob)>,
}

impl Subscriptions {
    /// Channels and patterns together.
    pub fn count(&self) -> usize {
        self.channels.count_ones() as usize + self.patterns.len()
    }

    /// Carries out a change, and writes a reply for each name.
    ///
    /// # Errors
    /// A name that is no channel of Sentinel, or too many patterns: nothing has changed.
    pub fn change(
        &mut self,
        out: &mut Vec<u8>,
        version: RespVersion,
        change: &SubscriptionChange<'_>,
    ) -> Result<(), CommandError> {
        if change.begins {
            self.check(change)?;
        }
        let word = match (change.begins, change.is_pattern) {
            (true, false) => "subscribe",
            (true, true) => "psubscribe",
            (false, false) => "unsubscribe",
            (false, true) => "punsubscribe",
        };
        let mut reply = |own: &Self, name: Option<&[u8]>| {
            encode::push(out, version, 3);
            encode::bulk(out, word.as_bytes());
            encode::bulk_or_null(out, version, name);
            encode::integer(out, own.count() as i64);
        };
        if !change.begins && change.names.len() == 0 {
            let all = self.names(change.is_pattern);
            if all.is_empty() {
                reply(self, None);
            }
            for name in all {
                self.remove(&name, change.is_pattern);
                reply(self, Some(&name));
            }
            return Ok(());
        }
        for name in change.names.clone() {
            match change.begins {
                true => self.add(name, change.is_pattern)?,
                false => self.remove(name, change.is_pattern),
            }
            reply(self, Some(name));
        }
        Ok(())
    }

    fn check(&self, change: &SubscriptionChange<'_>) -> Result<(), CommandError> {
        let mut names = change.names.clone();
        if !change.is_pattern {
            let are_known = names.all(|name| channel(name).is_some());
            return if are_known { Ok(()) } else { Err(CommandError::NoChannel) };
        }
        let are_short = names.clone().all(|name| name.len() <= MAX_SUBSCRIBED_PATTERN_BYTES);
        let has = |name: &[u8]| self.patterns.iter().any(|(known, _)| **known == *name);
        let more = names.filter(|name| !has(name)).count();
        match are_short && self.patterns.len() + more <= MAX_SUBSCRIBED_PATTERNS {
            true => Ok(()),
            false => Err(CommandError::TooManySubscribed),
        }
    }

    fn add(&mut self, name: &[u8], is_pattern: bool) -> Result<(), CommandError> {
        if !is_pattern {
            self.channels |= channel(name).map_or(0, |at| 1 << at);
        } else if self.patterns.iter().all(|(known, _)| **known != *name) {
            let glob = Glob::new(name, false).ok_or(CommandError::PatternTooLong)?;
            self.patterns.push((name.into(), glob));
        }
        Ok(())
    }

    fn remove(&mut self, name: &[u8], is_pattern: bool) {
        match is_pattern {
            false => self.channels &= !channel(name).map_or(0, |at| 1 << at),
            true => self.patterns.retain(|(known, _)| **known != *name),
        }
    }

    fn names(&self, of_patterns: bool) -> Vec<Box<[u8]>> {
        if of_patterns {
            return self.patterns.iter().map(|(name, _)| name.clone()).collect();
        }
        let has = |at: &usize| self.channels & 1 << at != 0;
        (0..CHANNELS.len()).filter(has).map(|at| CHANNELS[at].as_bytes().into()).collect()
    }

    /// Writes what this connection is sent of an event: once for its channel, and once for each
    /// pattern that matches it, as Redis.
    pub fn write(&self, out: &mut Vec<u8>, version: RespVersion, event: &Event) {
        let Event { channel: name, text } = event;
        if channel(name.as_bytes()).is_some_and(|at| self.channels & 1 << at != 0) {
            encode::push(out, version, 3);
            encode::bulk(out, b"message");
            encode::bulk(out, name.as_bytes());
            encode::bulk(out, text.as_bytes());
        }
        for (pattern, _) in self.patterns.iter().filter(|(_, glob)| glob.matches(name.as_bytes())) {
            encode::push(out, version, 4);
            encode::bulk(out, b"pmessage");
            encode::bulk(out, pattern);
            encode::bulk(out, name.as_bytes());
            encode::bulk(out, text.as_bytes());
        }
    }
}

fn channel(name: &[u8]) -> Option<usize> {
    CHANNELS.iter().position(|known| known.as_bytes() == name)
}

/// Something that subscribers are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The channel.
    pub channel: &'static str,
    /// The message.
    pub text: String,
}

/// Finds the events between what was known of the cluster and what is known now.
#[derive(Default)]
pub struct Announcer {
    /// Each server that was known, by its address, and whether it was healthy.
    healthy: BTreeMap<String, bool>,
    /// Host and port of the last primary of each group, by its name.
    primaries: BTreeMap<String, (String, u16)>,
    /// It has seen a cluster: from then on servers are new.
    has_begun: bool,
}

impl Announcer {
    /// The events since the last call; none in the first one that sees a cluster.
    pub fn events(&mut self, facts: &ClusterFacts) -> Vec<Event> {
        let mut events = Vec::new();
        for group in &facts.groups {
            // The switch first: what follows names the new primary.
            events.extend(self.switch(group));
            events.extend(group.nodes.iter().filter_map(|node| self.change_of(group, node)));
        }
        let there = |address: &String| facts.nodes().any(|node| node.address() == *address);
        self.healthy.retain(|address, _| there(address));
        self.has_begun |= !facts.groups.is_empty();
        events
    }

    fn switch(&mut self, group: &GroupFacts) -> Option<Event> {
        let NodeFacts { host, port, .. } = group.primary()?;
        let (name, now) = (&group.name, (host.clone(), *port));
        let before = self.primaries.insert(name.clone(), now.clone()).filter(|old| *old != now)?;
        let text = format!("{name} {} {} {host} {port}", before.0, before.1);
        Some(Event { channel: SWITCH, text })
    }

    fn change_of(&mut self, group: &GroupFacts, node: &NodeFacts) -> Option<Event> {
        let channel = match self.healthy.insert(node.address(), node.is_healthy) {
            None if self.has_begun && !node.is_primary => REPLICA,
            Some(true) if !node.is_healthy => DOWN,
            Some(false) if node.is_healthy => UP,
            _ => return None,
        };
        Some(Event { channel, text: instance(group, node) })
    }
}

/// A server in the words of Sentinel.
fn instance(group: &GroupFacts, node: &NodeFacts) -> String {
    let (name, NodeFacts { host, port, .. }) = (&group.name, node);
    if node.is_primary {
        return format!("master {name} {host} {port}");
    }
    let of = group.primary().map(|of| format!(" @ {name} {} {}", of.host, of.port));
    format!("slave {host}:{port} {host} {port}{}", of.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::facts;
    use crate::keys::Keys;
    use crate::wire::{Args, Made, Parsed, Words, parse};

    /// Changes subscriptions as these words say; the replies, with spaces for line ends.
    fn change(of: &mut Subscriptions, version: RespVersion, words: &str) -> String {
        let (mut args, made) = (Args::default(), Made::default());
        let bytes = format!("{words}\r\n").into_bytes();
        assert!(matches!(parse(&bytes, &mut args), Ok(Parsed::Request { .. })));
        let words = Words::new(&args, &bytes, &made);
        let change = SubscriptionChange {
            begins: !words.get(0).contains(&b'u') || !words.get(0).contains(&b'n'),
            is_pattern: words.get(0)[0] == b'p',
            names: Keys::all(words, 1),
        };
        let mut out = Vec::new();
        match of.change(&mut out, version, &change) {
            Ok(()) => String::from_utf8(out).unwrap().replace("\r\n", " "),
            Err(error) => error.to_string(),
        }
    }

    fn events(of: &[Event]) -> Vec<String> {
        of.iter().map(|event| format!("{} {}", event.channel, event.text)).collect()
    }

    #[test]
    fn subscriptions_are_counted_as_redis_counts_them() {
        let (mut of, two) = (Subscriptions::default(), RespVersion::Resp2);
        let replies = [
            (
                "subscribe +switch-master +sdown",
                "*3 $9 subscribe $14 +switch-master :1 *3 $9 subscribe $6 +sdown :2 ",
            ),
            ("subscribe +sdown", "*3 $9 subscribe $6 +sdown :2 "),
            ("psubscribe *", "*3 $10 psubscribe $1 * :3 "),
            ("unsubscribe +sdown", "*3 $11 unsubscribe $6 +sdown :2 "),
            ("unsubscribe", "*3 $11 unsubscribe $14 +switch-master :1 "),
            ("unsubscribe", "*3 $11 unsubscribe $-1 :1 "),
            ("punsubscribe", "*3 $12 punsubscribe $1 * :0 "),
        ];
        for (words, reply) in replies {
            assert_eq!(change(&mut of, two, words), reply, "{words}");
        }
        let three = change(&mut of, RespVersion::Resp3, "unsubscribe");
        assert_eq!(three, ">3 $11 unsubscribe _ :0 ");
    }

    #[test]
    fn other_channels_and_too_many_patterns_change_nothing() {
        let (mut of, two) = (Subscriptions::default(), RespVersion::Resp2);
        let refused = change(&mut of, two, "subscribe +sdown news");
        assert!(refused.starts_with("ERR no such channel: "), "{refused}");
        assert_eq!(of.count(), 0);
        for at in 0..MAX_SUBSCRIBED_PATTERNS {
            change(&mut of, two, &format!("psubscribe p{at}"));
        }
        for words in ["psubscribe more".into(), format!("psubscribe {}", "x".repeat(129))] {
            assert!(change(&mut of, two, &words).starts_with("ERR a connection subscribes"));
        }
        assert_eq!(change(&mut of, two, "psubscribe p3"), "*3 $10 psubscribe $2 p3 :16 ");
    }

    /// go-redis's FailoverClient asks for both at once, and learns of no switch if one is refused.
    #[test]
    fn channels_of_client_libraries_are_all_accepted() {
        let mut of = Subscriptions::default();
        let reply =
            change(&mut of, RespVersion::Resp3, "subscribe +switch-master +replica-reconf-done");
        assert!(reply.ends_with("$20 +replica-reconf-done :2 "), "{reply}");
    }

    #[test]
    fn an_event_goes_to_its_channel_and_to_patterns_that_match() {
        let (mut of, two) = (Subscriptions::default(), RespVersion::Resp2);
        change(&mut of, two, "subscribe +switch-master");
        change(&mut of, two, "psubscribe +s* -*");
        let told = |version, channel| {
            let mut out = Vec::new();
            of.write(&mut out, version, &Event { channel, text: "a b".into() });
            String::from_utf8(out).unwrap().replace("\r\n", " ")
        };
        assert_eq!(
            told(two, SWITCH),
            "*3 $7 message $14 +switch-master $3 a b *4 $8 pmessage $3 +s* $14 +switch-master $3 a b "
        );
        assert_eq!(told(RespVersion::Resp3, UP), ">4 $8 pmessage $2 -* $6 -sdown $3 a b ");
        assert_eq!(told(two, "+tilt"), "");
    }

    #[test]
    fn what_changes_is_announced_once() {
        let (mut announcer, mut facts) = (Announcer::default(), facts());
        assert_eq!(announcer.events(&ClusterFacts::default()), []);
        assert_eq!(announcer.events(&facts), [], "the first cluster that it sees");
        facts.groups[0].nodes[1].is_healthy = false;
        assert_eq!(events(&announcer.events(&facts)), ["+sdown master one 127.0.0.1 7001"]);
        assert_eq!(announcer.events(&facts), []);
        // Nobody leads for a while.
        facts.groups[0].nodes[1].is_primary = false;
        assert_eq!(announcer.events(&facts), []);
        facts.groups[0].nodes[0].is_primary = true;
        assert_eq!(
            events(&announcer.events(&facts)),
            ["+switch-master one 127.0.0.1 7001 127.0.0.1 7002"]
        );
        facts.groups[0].nodes[1].is_healthy = true;
        assert_eq!(
            events(&announcer.events(&facts)),
            ["-sdown slave 127.0.0.1:7001 127.0.0.1 7001 @ one 127.0.0.1 7002"]
        );
        let mut third = facts.groups[0].nodes[1].clone();
        third.port = 7005;
        facts.groups[0].nodes.push(third);
        assert_eq!(
            events(&announcer.events(&facts)),
            ["+slave slave 127.0.0.1:7005 127.0.0.1 7005 @ one 127.0.0.1 7002"]
        );
    }
}
