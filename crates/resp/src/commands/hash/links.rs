//! Links in fields of hashes: values that name keys. To all other commands they are their keys' texts.

use super::{FIELD, HASH, WRITES, request};
use crate::arguments::{KEY, kept};
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, PlanForm, Shape};
use crate::keys::{Keys, key};
use crate::request::{Request, Sections};
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::Words;
use remora_layout::limits::MAX_COMMAND_ITEMS;
use remora_layout::packed::Field;
use remora_plan::{Limits, Plan, Start, Step};
use remora_protocol::Items;
use remora_protocol::hash::HashCommand;

pub(in crate::commands) const TARGET: Argument = Argument::new("target", Kind::Key);
const PAIRS: Argument = Argument::of("data", Kind::Block, &[FIELD, TARGET]).multiple();
pub(in crate::commands) const GROUP: Group = Group::own("link", "Links");

const LINK_SET: CommandSpec = CommandSpec {
    name: "link.set",
    arity: -4,
    since: "0.1.0",
    group: GROUP,
    summary: "Sets fields to links; returns how many of them are new.",
    complexity: "O(N) where N is the number of fields to be set",
    notes: "A link names a key of the same database, which need not be there. HGET and all other \
commands see the key's name; HSET over it makes it plain. A client of Remora follows a link by one \
READ: beside it stands where the key's record lies. One change, as HSET.",
    arguments: &[KEY, PAIRS],
    parse: link_set,
    ..WRITES
};

static SET: ObjectReply = ObjectReply::new("link.set", Shape::Number);

fn link_set(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len() % 2 == 1 {
        return Err(CommandError::WrongArity("link.set"));
    }
    if words.len() - 2 > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let mut list = Vec::new();
    for at in 2..words.len() {
        // Both have the limits of keys.
        let field = Field { value: key(words.get(at))?, is_link: at % 2 == 1 };
        Items::push_field(&mut list, field);
    }
    request(words, HashCommand::Set { pairs: kept(words, list) }, &SET)
}

const LINK_GET: CommandSpec = CommandSpec {
    name: "link.get",
    arity: -3,
    since: "0.1.0",
    group: GROUP,
    summary: "Returns the keys that fields link to; null for a field that is not there or no link.",
    complexity: "O(N) where N is the number of fields that are asked for",
    arguments: &[KEY, FIELD.multiple()],
    parse: link_get,
    ..HASH
};

static GET: ObjectReply = super::list("link.get", ListForm::Links);

fn link_get(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let names = crate::arguments::items(words, 2, 1)?;
    request(words, HashCommand::GetMany { names }, &GET)
}

const LINK_DEL: CommandSpec = CommandSpec {
    name: "link.del",
    arity: -3,
    since: "0.1.0",
    group: GROUP,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes those of the fields that are links; returns how many there were.",
    complexity: "O(N) where N is the number of fields to be removed",
    notes: "The key is gone with its last field. The targets stay.",
    arguments: &[KEY, FIELD.multiple()],
    parse: |words, _| {
        let names = crate::arguments::items(words, 2, 1)?;
        request(words, HashCommand::RemoveLinks { names }, &REMOVED)
    },
    ..HASH
};

static REMOVED: ObjectReply = ObjectReply::new("link.del", Shape::Number);

const LINK_CHASE: CommandSpec = CommandSpec {
    name: "link.chase",
    arity: -3,
    since: "0.1.0",
    group: GROUP,
    flags: &[Flag::ReadOnly],
    summary: "Follows a link, or a path of several, and returns the item there; null if there is none.",
    complexity: "O(N+M) where N is the number of links and M that of the target's fields",
    notes: "The fields are followed one after the other: each names the link in the item to which the last \
one led. A hash is returned as HGETALL returns it, a string as GET does. Null if a field is missing or no link, if a \
target is gone, or if it is neither. The same as PLAN.RUN FROM KEYS 1 key FOLLOW field ... GETALL.",
    arguments: &[KEY, FIELD.multiple()],
    parse: link_chase,
    ..HASH
};

fn link_chase(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let start = Start::Keys(vec![key(words.get(1))?.into()]);
    let follow = |at| Ok(Step::Follow { field: key(words.get(at))?.into(), by_key: false });
    let steps: Result<Vec<Step>, CommandError> = (2..words.len()).map(follow).collect();
    let steps = steps?.into_iter().chain([Step::GetAll]).collect();
    match Plan::new(start, steps, Limits::default()) {
        Ok(plan) => Ok(Request::Plan(Box::new(plan), PlanForm::Only)),
        Err(bad) => Err(CommandError::Plan(Box::new(bad.into()))),
    }
}

const LINK_STATS: CommandSpec = CommandSpec {
    name: "link.stats",
    arity: 1,
    since: "0.1.0",
    group: GROUP,
    summary: "Returns how many hints of links were mended: the section `links` of INFO.",
    complexity: "O(N) where N is the number of shards",
    parse: |words, _| {
        Ok(Request::Info(Sections { words: Keys::all(words, 1), only: Some("links") }))
    },
    ..CommandSpec::PLAIN
};

/// The commands.
pub const COMMANDS: &[CommandSpec] = &[LINK_CHASE, LINK_DEL, LINK_GET, LINK_SET, LINK_STATS];
