//! Ordered trees: keys in order with values. Their commands are Remora's own.

use crate::arguments::KEY;
use crate::error::{CommandError, KEYS_ARE_INTEGERS};
use crate::form::{ListForm, ObjectReply, ReplyForm, Shape};
use crate::keys::key;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::btree::{
    KeyForm, LEVEL_INFO_WORDS, LevelInfo, NodeInfo, ORDERED_INFO_WORDS, OrderedInfo,
};
use remora_layout::limits::{
    MAX_FAN_OUT, MAX_LISTED_NODES, MAX_ORDERED_KEY_BYTES, MAX_ORDERED_LONG_BYTES,
    MAX_ORDERED_VALUE_BYTES, MAX_TREE_HEIGHT, MIN_FAN_OUT, WORD_BYTES,
};
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange, OrderedSettings, node_infos_of};
use remora_protocol::{Items, integer};
use std::ops::Bound;
use zerocopy::FromBytes;

const TREE_KEY: Argument = Argument::new("treekey", Kind::String);
const VALUE: Argument = Argument::new("value", Kind::String);
const MIN: Argument = Argument::new("min", Kind::String);
const MAX: Argument = Argument::new("max", Kind::String);
const LIMIT: Argument = Argument::new("limit", Kind::Integer).after("LIMIT").optional();

/// Commands that read a tree.
const READS: CommandSpec = CommandSpec {
    categories: &["btree"],
    since: "0.1.0",
    group: Group::own("btree", "Ordered trees"),
    complexity: "O(log N) where N is the number of keys",
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    arguments: &[KEY],
    ..CommandSpec::PLAIN
};

/// Commands that change a tree.
const WRITES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    ..READS
};

const ERRORS: &[(Status, &str)] = &[
    (Status::NotAnInteger, KEYS_ARE_INTEGERS),
    (
        Status::TooLarge,
        "ERR the key or the value is longer than this tree allows, which BTREE.INFO tells, or the reply is \
longer than 64 MiB",
    ),
];

const fn reply(command: &'static str, shape: Shape) -> ObjectReply {
    ObjectReply { command, shape, errors: ERRORS }
}

fn request<'a>(
    words: Words<'a>,
    command: OrderedCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (key, form) = (key(words.get(1))?, ReplyForm::Object(reply));
    Ok(Request::Object { key, request: command.request(), form })
}

/// A key of a tree.
fn tree_key(word: &[u8]) -> Result<&[u8], CommandError> {
    match word.len() <= MAX_ORDERED_KEY_BYTES {
        true => Ok(word),
        false => Err(CommandError::TreePartTooLong("key", MAX_ORDERED_KEY_BYTES)),
    }
}

/// An end of a range.
fn bound(word: &[u8]) -> Result<Bound<&[u8]>, CommandError> {
    Ok(match word {
        b"-" | b"+" => Bound::Unbounded,
        [b'(', rest @ ..] => Bound::Excluded(tree_key(rest)?),
        [b'[', rest @ ..] => Bound::Included(tree_key(rest)?),
        word => Bound::Included(tree_key(word)?),
    })
}

fn range<'a>(words: Words<'a>, from: usize, to: usize) -> Result<OrderedRange<'a>, CommandError> {
    let (from, to) = (words.get(from), words.get(to));
    // The one before all keys, and the one behind them, at the other end: nothing lies between.
    let is_empty = from == b"+" || to == b"-";
    if is_empty {
        return Ok(OrderedRange { from: Bound::Excluded(b"0"), to: Bound::Excluded(b"0") });
    }
    Ok(OrderedRange { from: bound(from)?, to: bound(to)? })
}

fn number(
    word: &[u8],
    name: &'static str,
    (from, to): (usize, usize),
) -> Result<usize, CommandError> {
    let number = integer::parse(word).and_then(|number| usize::try_from(number).ok());
    let (least, most) = (from as i64, to as i64);
    let fits = number.filter(|number| (from..=to).contains(number));
    fits.ok_or(CommandError::NotInRange { name, from: least, to: most })
}

const BTREE_CREATE: CommandSpec = CommandSpec {
    name: "btree.create",
    arity: -2,
    summary: "Makes an empty ordered tree; an error if the key is there.",
    complexity: "O(1)",
    notes: "BYTES, the default: keys are byte strings of up to KEYBYTES, in the order of their bytes. INTEGERS: \
keys are integers from 0 to 18446744073709551615, in decimal. Keys and values lie in the tree's nodes: a node has \
FANOUT entries, 4 to 256 (32); a key up to KEYBYTES, 1 to 1024 (1024); a value up to VALUEBYTES, 0 to 1024 (256); \
longer ones, up to 65536 bytes, lie in records of their own. A client reads whole nodes, so smaller limits make it read less. A tree lies in one shard. It stays when its last \
key goes: DEL removes it.",
    arguments: &[
        KEY,
        Argument::of(
            "keys",
            Kind::OneOf,
            &[Argument::word("bytes", "BYTES"), Argument::word("integers", "INTEGERS")],
        )
        .optional(),
        Argument::new("fanout", Kind::Integer).after("FANOUT").optional(),
        Argument::new("keybytes", Kind::Integer).after("KEYBYTES").optional(),
        Argument::new("valuebytes", Kind::Integer).after("VALUEBYTES").optional(),
    ],
    parse: btree_create,
    ..WRITES
};

static CREATED: ObjectReply = ObjectReply {
    command: "btree.create",
    shape: Shape::Ok,
    errors: &[(Status::NotDone, "ERR the tree exists already: DEL removes it")],
};

fn btree_create(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (mut keys, mut fan_out, mut key_bytes, mut value_bytes) = (None, None, None, None);
    let mut at = 2;
    while at < words.len() {
        let word = words.get(at);
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let mut next = |name, limits| {
            at += 1;
            if at == words.len() {
                return Err(CommandError::Syntax);
            }
            number(words.get(at), name, limits)
        };
        let is_twice = if is("INTEGERS") {
            keys.replace(KeyForm::Integers).is_some()
        } else if is("BYTES") {
            keys.replace(KeyForm::Bytes).is_some()
        } else if is("FANOUT") {
            fan_out.replace(next("FANOUT", (MIN_FAN_OUT, MAX_FAN_OUT))?).is_some()
        } else if is("KEYBYTES") {
            key_bytes.replace(next("KEYBYTES", (1, MAX_ORDERED_KEY_BYTES))?).is_some()
        } else if is("VALUEBYTES") {
            value_bytes.replace(next("VALUEBYTES", (0, MAX_ORDERED_VALUE_BYTES))?).is_some()
        } else {
            return Err(CommandError::Syntax);
        };
        if is_twice {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let keys = keys.unwrap_or(KeyForm::Bytes);
    let usual = OrderedSettings::of(keys);
    let settings = OrderedSettings {
        keys,
        fan_out: fan_out.unwrap_or(usual.fan_out),
        key_bytes: key_bytes.unwrap_or(usual.key_bytes),
        value_bytes: value_bytes.unwrap_or(usual.value_bytes),
    };
    let usual = usual.key_bytes;
    if keys == KeyForm::Integers && settings.key_bytes != usual {
        return Err(CommandError::IntegerKeyBytes(usual));
    }
    request(words, OrderedCommand::Create(settings), &CREATED)
}

const BTREE_SET: CommandSpec = CommandSpec {
    name: "btree.set",
    arity: -4,
    summary: "Gives a key of a tree a value; returns 1 if the key is new, else 0.",
    notes: "A tree that is not there is made, as BTREE.CREATE makes it without options. LINK: the value is the \
name of a key, which plans follow.",
    arguments: &[KEY, TREE_KEY, VALUE, Argument::word("link", "LINK").optional()],
    parse: btree_set,
    ..WRITES
};

static SET: ObjectReply = reply("btree.set", Shape::Number);

fn btree_set(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let is_link = match words.len() {
        4 => false,
        5 if words.get(4).eq_ignore_ascii_case(b"LINK") => true,
        _ => return Err(CommandError::Syntax),
    };
    let value = words.get(3);
    if value.len() > MAX_ORDERED_LONG_BYTES {
        return Err(CommandError::TreePartTooLong("value", MAX_ORDERED_LONG_BYTES));
    }
    let (key, value) = (tree_key(words.get(2))?, Field { value, is_link });
    request(words, OrderedCommand::Set { key, value }, &SET)
}

const BTREE_GET: CommandSpec = CommandSpec {
    name: "btree.get",
    arity: 3,
    summary: "Returns the value of a key of a tree, or null.",
    arguments: &[KEY, TREE_KEY],
    parse: |words, _| request(words, OrderedCommand::Get { key: tree_key(words.get(2))? }, &GOT),
    ..READS
};

static GOT: ObjectReply = reply("btree.get", Shape::Value);

const BTREE_DEL: CommandSpec = CommandSpec {
    name: "btree.del",
    arity: 3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes a key of a tree; returns 1 if it was there, else 0.",
    notes: "The tree stays, also without keys: DEL removes it.",
    arguments: &[KEY, TREE_KEY],
    parse: |words, _| {
        request(words, OrderedCommand::Delete { key: tree_key(words.get(2))? }, &DELETED)
    },
    ..WRITES
};

static DELETED: ObjectReply = reply("btree.del", Shape::Number);

/// Commands that read ranges.
const RANGES: CommandSpec = CommandSpec {
    arity: -4,
    flags: &[Flag::ReadOnly],
    complexity: "O(log N + M) where N is the number of keys and M that of those returned",
    notes: "Keys and values. min and max are keys that belong to the range, or do not if a ( stands before them; \
- and + are the ends. A key that begins with ( or [, or is - or +, is written behind a [. A long range is read in \
turns, each behind the last key that was found: a key that is there all the time is returned, one that comes or goes \
meanwhile may be.",
    arguments: &[KEY, MIN, MAX, LIMIT],
    ..READS
};

const BTREE_RANGE: CommandSpec = CommandSpec {
    name: "btree.range",
    summary: "Returns the keys from min to max, and their values, in order.",
    parse: |words, _| {
        let range = range(words, 2, 3)?;
        let limit = limit(words, "LIMIT")?.unwrap_or(i64::MAX as u64);
        request(words, OrderedCommand::Range { range, is_reverse: false, limit }, &RANGE)
    },
    ..RANGES
};

static RANGE: ObjectReply = reply("btree.range", Shape::List(ListForm::Pairs));

const BTREE_REVRANGE: CommandSpec = CommandSpec {
    name: "btree.revrange",
    summary: "Returns the keys from max down to min, and their values.",
    arguments: &[KEY, MAX, MIN, LIMIT],
    parse: |words, _| {
        let range = range(words, 3, 2)?;
        let limit = limit(words, "LIMIT")?.unwrap_or(i64::MAX as u64);
        request(words, OrderedCommand::Range { range, is_reverse: true, limit }, &REVERSE_RANGE)
    },
    ..RANGES
};

static REVERSE_RANGE: ObjectReply = reply("btree.revrange", Shape::List(ListForm::Pairs));

/// What stands behind a word at the end.
fn limit(words: Words<'_>, name: &'static str) -> Result<Option<u64>, CommandError> {
    let at = words.len().saturating_sub(2);
    match words.len() {
        len if len == if name == "LIMIT" { 4 } else { 3 } => Ok(None),
        len if len == if name == "LIMIT" { 6 } else { 5 }
            && words.get(at).eq_ignore_ascii_case(name.as_bytes()) =>
        {
            let number = integer::parse(words.get(at + 1)).and_then(|of| u64::try_from(of).ok());
            number.map(Some).ok_or(CommandError::NotPositive)
        }
        _ => Err(CommandError::Syntax),
    }
}

const BTREE_COUNT: CommandSpec = CommandSpec {
    name: "btree.count",
    arity: 4,
    summary: "Returns how many keys there are from min to max.",
    notes: "min and max as in BTREE.RANGE.",
    arguments: &[KEY, MIN, MAX],
    parse: |words, _| {
        request(words, OrderedCommand::Count { range: range(words, 2, 3)? }, &COUNTED)
    },
    ..READS
};

static COUNTED: ObjectReply = reply("btree.count", Shape::Number);

const BTREE_FIRST: CommandSpec = CommandSpec {
    name: "btree.first",
    arity: 2,
    summary: "Returns the smallest key and its value, or null.",
    parse: |words, _| request(words, OrderedCommand::Select { rank: 0 }, &FIRST),
    ..READS
};

static FIRST: ObjectReply = reply("btree.first", Shape::Own(write_pair));

const BTREE_LAST: CommandSpec = CommandSpec {
    name: "btree.last",
    arity: 2,
    summary: "Returns the greatest key and its value, or null.",
    parse: |words, _| request(words, OrderedCommand::Select { rank: -1 }, &LAST),
    ..READS
};

static LAST: ObjectReply = reply("btree.last", Shape::Own(write_pair));

const BTREE_SELECT: CommandSpec = CommandSpec {
    name: "btree.select",
    arity: 3,
    summary: "Returns the key with so many keys before it, and its value, or null.",
    notes: "-1 is the greatest key, -2 the one before it.",
    arguments: &[KEY, Argument::new("rank", Kind::Integer)],
    parse: |words, _| {
        let rank = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
        request(words, OrderedCommand::Select { rank }, &SELECTED)
    },
    ..READS
};

static SELECTED: ObjectReply = reply("btree.select", Shape::Own(write_pair));

fn write_pair(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let items = answer.value.and_then(Items::parse);
    let Some(items) = items.filter(|_| answer.status == Status::Ok) else {
        return encode::null(out, version);
    };
    encode::array(out, items.iter().count());
    items.iter().for_each(|item| encode::bulk_or_null(out, version, item));
}

const BTREE_RANK: CommandSpec = CommandSpec {
    name: "btree.rank",
    arity: 3,
    summary: "Returns how many keys stand before a key of a tree; null if it is not there.",
    arguments: &[KEY, TREE_KEY],
    parse: |words, _| {
        request(words, OrderedCommand::Rank { key: tree_key(words.get(2))? }, &RANKED)
    },
    ..READS
};

static RANKED: ObjectReply = reply("btree.rank", Shape::Own(write_rank));

fn write_rank(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.status {
        Status::Ok => encode::integer(out, answer.number),
        _ => encode::null(out, version),
    }
}

const BTREE_SCAN: CommandSpec = CommandSpec {
    name: "btree.scan",
    arity: -3,
    flags: &[Flag::ReadOnly],
    summary: "Returns a cursor with which to go on, and some keys and their values, in order.",
    complexity: "O(log N + COUNT) where N is the number of keys",
    notes: "The cursor 0 begins, and comes back at the end. Another one is a ( and the last key. COUNT keys are \
returned at most (10). A key that is there all the time is returned once.",
    arguments: &[
        KEY,
        Argument::new("cursor", Kind::String),
        Argument::new("count", Kind::Integer).after("COUNT").optional(),
    ],
    parse: btree_scan,
    ..READS
};

static SCAN: ObjectReply = reply("btree.scan", Shape::Own(write_scan));

fn btree_scan(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let from = match words.get(2) {
        b"0" => Bound::Unbounded,
        [b'(', rest @ ..] => Bound::Excluded(tree_key(rest)?),
        _ => return Err(CommandError::Cursor),
    };
    let limit = limit(words, "COUNT")?.unwrap_or(10);
    if limit == 0 {
        return Err(CommandError::Syntax);
    }
    let range = OrderedRange { from, ..OrderedRange::ALL };
    request(words, OrderedCommand::Range { range, is_reverse: false, limit }, &SCAN)
}

fn write_scan(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let items = answer.value.and_then(Items::parse);
    let all: Vec<&[u8]> = items.into_iter().flat_map(|items| items.iter().flatten()).collect();
    encode::array(out, 2);
    match all.iter().rev().nth(1) {
        None => encode::bulk(out, b"0"),
        Some(last) => encode::bulk(out, &[b"(", *last].concat()),
    }
    encode::array(out, all.len());
    all.iter().for_each(|item| encode::bulk_or_null(out, version, Some(item)));
}

const BTREE_INFO: CommandSpec = CommandSpec {
    name: "btree.info",
    arity: 2,
    summary: "Returns what a tree is, and its sizes; null if there is none.",
    complexity: "O(1)",
    notes: "The reply is a map (an array in RESP2): keys_are, bytes or integers; fanout; keybytes; valuebytes; \
keys; height, in levels; nodes; node_bytes, the length of each; bytes, what they take of the arena; long_values, \
those that lie in records as they are longer than valuebytes; long_bytes, what these take.",
    parse: |words, _| request(words, OrderedCommand::Info, &FACTS),
    ..READS
};

static FACTS: ObjectReply = reply("btree.info", Shape::Own(write_info));

fn write_info(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let value = answer.value.filter(|_| answer.status == Status::Ok);
    let words = value.and_then(|value| <[u64; ORDERED_INFO_WORDS]>::read_from_bytes(value).ok());
    let Some(info) = words.and_then(|words| OrderedInfo::from_words(&words)) else {
        return encode::null(out, version);
    };
    let numbers = [
        ("fanout", info.fan_out),
        ("keybytes", info.key_bytes),
        ("valuebytes", info.value_bytes),
        ("keys", info.keys),
        ("height", info.height),
        ("nodes", info.nodes),
        ("node_bytes", info.node_bytes),
        ("bytes", info.bytes),
        ("long_values", info.long_values),
        ("long_bytes", info.long_bytes),
    ];
    encode::map(out, version, 1 + numbers.len());
    encode::bulk(out, b"keys_are");
    let keys_are: &[u8] = match info.keys_are {
        KeyForm::Integers => b"integers",
        KeyForm::Bytes => b"bytes",
    };
    encode::bulk(out, keys_are);
    for (name, number) in numbers {
        encode::bulk(out, name.as_bytes());
        encode::integer(out, number as i64);
    }
}

const BTREE_LEVELS: CommandSpec = CommandSpec {
    name: "btree.levels",
    arity: -2,
    flags: &[Flag::ReadOnly],
    summary: "Returns what each level of a tree holds, from the root down; or the nodes of a level.",
    complexity: "O(N) where N is the number of levels, and at most 4096 nodes whose lookups are counted; with NODES \
O(N + M) where N is the number of nodes above the level, and M that of the nodes returned",
    notes: "Of each level: its nodes, their entries, how many of the nodes are deep (their children are of the \
same level, as others held their addresses when they were divided), and lookups that came to them. With NODES: the \
nodes of a level in the order of their keys, of leaves with 0; of each its offset in the shard's memory, its \
generation, whether it is deep, the keys below it, and the lookups. LIMIT nodes are returned at most, 1 to 1024 (64). \
Lookups are those of keys that the server answered, and ranges and BTREE.COUNT by the key at which they begin, \
estimated from one in 256, later ones more than earlier ones; of leaves they are not counted, and neither are ranks, \
BTREE.SELECT, changes, and what clients read by themselves.",
    arguments: &[
        KEY,
        Argument::of("nodes", Kind::Block, &[Argument::new("level", Kind::Integer), LIMIT])
            .after("NODES")
            .optional(),
    ],
    parse: btree_levels,
    ..READS
};

/// Nodes of a level that are returned unless told otherwise.
const LISTED_NODES: u64 = 64;

fn btree_levels(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len() == 2 {
        return request(words, OrderedCommand::Levels, &LEVELS);
    }
    let is = |at: usize, name: &str| words.get(at).eq_ignore_ascii_case(name.as_bytes());
    let limit = match words.len() {
        4 if is(2, "NODES") => LISTED_NODES,
        6 if is(2, "NODES") && is(4, "LIMIT") => {
            number(words.get(5), "LIMIT", (1, MAX_LISTED_NODES))? as u64
        }
        _ => return Err(CommandError::Syntax),
    };
    let level = number(words.get(3), "NODES", (0, MAX_TREE_HEIGHT as usize - 1))? as u8;
    request(words, OrderedCommand::Nodes { level, limit }, &NODES)
}

static NODES: ObjectReply = reply("btree.levels", Shape::Own(write_nodes));

fn write_nodes(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    let value = answer.value.filter(|_| answer.status == Status::Ok).unwrap_or_default();
    let nodes = node_infos_of(value);
    encode::array(out, nodes.len());
    for NodeInfo { at, is_deep, keys, accesses, .. } in nodes {
        let numbers = [at.offset() as u64, at.generation.into(), is_deep.into(), keys, accesses];
        encode::array(out, numbers.len());
        numbers.iter().for_each(|number| encode::integer(out, *number as i64));
    }
}

static LEVELS: ObjectReply = reply("btree.levels", Shape::Own(write_levels));

fn write_levels(out: &mut Vec<u8>, _: RespVersion, answer: ShardAnswer<'_>) {
    let value = answer.value.filter(|_| answer.status == Status::Ok).unwrap_or_default();
    let levels = value.chunks_exact(LEVEL_INFO_WORDS * WORD_BYTES);
    encode::array(out, levels.len());
    for level in levels {
        let words = <[u64; LEVEL_INFO_WORDS]>::read_from_bytes(level).expect("of this length");
        let LevelInfo { nodes, entries, deep, accesses } = LevelInfo::from_words(&words);
        let numbers = [nodes, entries, deep, accesses];
        encode::array(out, numbers.len());
        numbers.iter().for_each(|number| encode::integer(out, *number as i64));
    }
}

/// The commands.
pub const COMMANDS: &[CommandSpec] = &[
    BTREE_COUNT,
    BTREE_CREATE,
    BTREE_DEL,
    BTREE_FIRST,
    BTREE_GET,
    BTREE_INFO,
    BTREE_LAST,
    BTREE_LEVELS,
    BTREE_RANGE,
    BTREE_RANK,
    BTREE_REVRANGE,
    BTREE_SCAN,
    BTREE_SELECT,
    BTREE_SET,
];
