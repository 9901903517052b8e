//! Links in lists: elements that name keys. To all other commands they are their keys' texts.

use super::{ADDS, LIST, RANGE_NOTES, START, STOP, number, request};
use crate::arguments::{KEY, kept};
use crate::commands::hash::links::{GROUP, TARGET};
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, Shape};
use crate::keys::key;
use crate::spec::{CommandSpec, ParseResult};
use crate::wire::Words;
use remora_layout::limits::MAX_COMMAND_ITEMS;
use remora_layout::packed::Field;
use remora_protocol::Items;
use remora_protocol::list::{ListCommand, Side};

const LINK_PUSH: CommandSpec = CommandSpec {
    name: "link.push",
    since: "0.1.0",
    group: GROUP,
    summary: "Adds links behind the last element of a list; returns its length.",
    notes: "A link names a key of the same database, which need not be there. LRANGE and all other \
commands see the key's name; LSET over it makes it plain. LMOVE moves a link as a link. A client of Remora \
follows a link by one READ.",
    arguments: &[KEY, TARGET.multiple()],
    parse: link_push,
    ..ADDS
};

static PUSHED: ObjectReply = ObjectReply::new("link.push", Shape::Number);

fn link_push(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len() - 2 > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let mut list = Vec::new();
    for at in 2..words.len() {
        Items::push_field(&mut list, Field { value: key(words.get(at))?, is_link: true });
    }
    let items = kept(words, list);
    request(words, ListCommand::Push { side: Side::Right, if_there: false, items }, &PUSHED)
}

const LINK_RANGE: CommandSpec = CommandSpec {
    name: "link.range",
    arity: 4,
    since: "0.1.0",
    group: GROUP,
    summary: "Returns the keys that the elements of a range link to; null for one that is no link.",
    complexity: "O(N) where N is the number of elements to be returned",
    notes: RANGE_NOTES,
    arguments: &[KEY, START, STOP],
    parse: |words, _| {
        let (start, stop) = (number(words.get(2))?, number(words.get(3))?);
        request(words, ListCommand::Range { start, stop }, &RANGE)
    },
    ..LIST
};

static RANGE: ObjectReply = ObjectReply::new("link.range", Shape::List(ListForm::Links));

/// The commands.
pub(in crate::commands) const COMMANDS: &[CommandSpec] = &[LINK_PUSH, LINK_RANGE];
