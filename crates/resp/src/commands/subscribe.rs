//! The channels of Sentinel.

use crate::keys::Keys;
use crate::request::{Request, SubscriptionChange};
use crate::spec::{Argument, CommandSpec, Flag, Group, Kind};
use crate::wire::{Words, encode};

const PLAIN: CommandSpec = CommandSpec {
    flags: &[Flag::PubSub, Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &["pubsub"],
    since: "2.0.0",
    group: Group::PUBSUB,
    complexity: "O(N) where N is the number of names",
    ..CommandSpec::PLAIN
};

const CHANNEL: Argument = Argument::new("channel", Kind::String).multiple();
const PATTERN: Argument = Argument::new("pattern", Kind::Pattern).multiple();

const SUBSCRIBE: CommandSpec = CommandSpec {
    name: "subscribe",
    arity: -2,
    summary: "Subscribes to channels of Sentinel.",
    notes: "At a server of a cluster only, and to no other channels. Messages come on \
`+switch-master` (`name old-host old-port new-host new-port`: another primary), `+sdown` and `-sdown` (a \
server is gone, or back) and `+slave` (a server is new). Afterwards a connection of RESP2 may only send \
SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, PING and QUIT. A connection that does not read its \
messages is closed.",
    arguments: &[CHANNEL],
    parse: |words, _| Ok(change(words, true, false)),
    ..PLAIN
};

const PSUBSCRIBE: CommandSpec = CommandSpec {
    name: "psubscribe",
    arity: -2,
    summary: "Subscribes to the channels of Sentinel that match patterns.",
    notes: "At most 16 patterns of at most 128 bytes. See SUBSCRIBE.",
    arguments: &[PATTERN],
    parse: |words, _| Ok(change(words, true, true)),
    ..PLAIN
};

const UNSUBSCRIBE: CommandSpec = CommandSpec {
    name: "unsubscribe",
    arity: -1,
    summary: "Ends the subscription to channels, or to all.",
    arguments: &[CHANNEL.optional()],
    parse: |words, _| Ok(change(words, false, false)),
    ..PLAIN
};

const PUNSUBSCRIBE: CommandSpec = CommandSpec {
    name: "punsubscribe",
    arity: -1,
    summary: "Ends the subscription to patterns, or to all.",
    arguments: &[PATTERN.optional()],
    parse: |words, _| Ok(change(words, false, true)),
    ..PLAIN
};

fn change(words: Words<'_>, begins: bool, is_pattern: bool) -> Request<'_> {
    Request::Subscribe(SubscriptionChange { begins, is_pattern, names: Keys::all(words, 1) })
}

/// The reply to PING of a connection of RESP2 that is subscribed.
pub fn write_pong(out: &mut Vec<u8>, text: &[u8]) {
    encode::array(out, 2);
    encode::bulk(out, b"pong");
    encode::bulk(out, text);
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[PSUBSCRIBE, PUNSUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE];
