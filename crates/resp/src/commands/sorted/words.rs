//! Words that several commands about sorted sets take.

use crate::arguments::KEY;
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm};
use crate::keys::key;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::Words;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, MAX_REPLY_BYTES, MAX_SORTED_MEMBER_BYTES};
use remora_protocol::Items;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand};

pub(super) const MEMBER: Argument = Argument::new("member", Kind::String);
pub(super) const NUMBER_OF_KEYS: Argument = Argument::new("numkeys", Kind::Integer);
pub(super) const WITH_SCORES: Argument = Argument::word("withscores", "WITHSCORES").optional();

/// Commands that read a sorted set.
pub(super) const SORTED: CommandSpec = CommandSpec {
    categories: &["sortedset"],
    since: "1.2.0",
    group: Group::new("sorted-set", "Sorted sets"),
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    arguments: &[KEY, MEMBER],
    complexity: "O(log N) where N is the number of members",
    ..CommandSpec::PLAIN
};

/// Commands that change a sorted set.
pub(super) const WRITES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    ..SORTED
};

/// The errors where a result is too long for a reply.
pub(super) const TOO_LONG: &[(Status, &str)] = &[(
    Status::TooLarge,
    "ERR the result takes more than 64 MiB, or has more than 1048576 members that are to be sorted: ask \
for less",
)];
const _: () = assert!(MAX_REPLY_BYTES == 64 << 20);
const _: () = assert!(remora_layout::limits::MAX_SORT_ELEMENTS == 1_048_576);

/// The operation on the first argument's key.
pub(crate) fn request<'a>(
    words: Words<'a>,
    command: SortedCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (key, form) = (key(words.get(1))?, ReplyForm::Object(reply));
    Ok(Request::Object { key, request: command.request(), form })
}

/// Checks a member's length.
pub(crate) fn member(word: &[u8]) -> Result<&[u8], CommandError> {
    if word.len() > MAX_SORTED_MEMBER_BYTES { Err(CommandError::MemberTooLong) } else { Ok(word) }
}

/// The arguments from `from` up to `to`, as members.
pub(crate) fn members(words: Words<'_>, from: usize, to: usize) -> Result<Items<'_>, CommandError> {
    if to - from > MAX_COMMAND_MEMBERS {
        return Err(CommandError::TooManyMembers);
    }
    let mut list = Vec::new();
    for at in from..to {
        Items::push(&mut list, member(words.get(at))?);
    }
    Ok(crate::arguments::kept(words, list))
}

/// An encoded list of members with their scores, kept with the request.
pub(crate) fn kept(words: Words<'_>, list: Vec<u8>) -> Scored<'_> {
    Scored::parse(words.keep(list)).expect("it was just made")
}
