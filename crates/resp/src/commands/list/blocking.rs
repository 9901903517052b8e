//! Commands that wait until a list has elements.

use super::steps::{MoveAfterWait, MoveElement};
use super::{LEFT_OR_RIGHT, LIST, TAKES, popped_ends, side};
use crate::arguments::{KEY, wait_until};
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm, Shape};
use crate::keys::Keys;
use crate::request::{Blocking, HandOver, Request};
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::steps::Apart;
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::MAX_WAITED_KEYS;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::{Items, Request as On};

const TIMEOUT: Argument = Argument::new("timeout", Kind::Double);
const COUNT: Argument = Argument::new("count", Kind::Integer).after("COUNT").optional();
const WHERE: Argument = Argument::of("where", Kind::OneOf, LEFT_OR_RIGHT);

/// Commands that wait for elements of some keys.
const WAITS: CommandSpec = CommandSpec {
    arity: -3,
    flags: &[Flag::Write, Flag::NoScript, Flag::Blocking],
    since: "2.0.0",
    keys: KeyPlaces {
        first: 1,
        last: -2,
        step: 1,
        access: &["RW", "access", "delete"],
        ..KeyPlaces::NONE
    },
    arguments: &[KEY.multiple(), TIMEOUT],
    complexity: "O(N) where N is the number of keys",
    notes: "Returns the key and the element; null once the timeout, in seconds, is over; 0 waits \
without end. The keys are looked at in the order given, also over shards. Clients are served in the order in \
which they began to wait.",
    ..TAKES
};

/// Commands that wait for an element and move it.
const MOVES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom, Flag::NoScript, Flag::Blocking],
    keys: KeyPlaces::two(&["RW", "access", "delete"], &["RW", "insert"]),
    complexity: "O(1)",
    ..LIST
};

/// What is waited for: elements from this end.
const fn pop(side: Side, count: u64) -> On<'static> {
    On::List(ListCommand::Pop { side, count, fits_frame: false })
}

/// The two items of an answer: the key, and the elements.
fn key_and_elements(answer: ShardAnswer<'_>) -> Option<(&[u8], Items<'_>)> {
    let (key, rest) = Items::split(answer.value?)?;
    let (elements, _) = Items::split(rest)?;
    Some((key?, Items::parse(elements?)?))
}

/// The key and the element.
fn write_pair(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let found = key_and_elements(answer).filter(|_| answer.status == Status::Ok);
    let Some((key, elements)) = found else { return encode::null_array(out, version) };
    encode::array(out, 2);
    encode::bulk(out, key);
    encode::bulk_or_null(out, version, elements.iter().next().flatten());
}

/// The key and the elements.
fn write_some(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let found = key_and_elements(answer).filter(|_| answer.status == Status::Ok);
    let Some((key, elements)) = found else { return encode::null_array(out, version) };
    encode::array(out, 2);
    encode::bulk(out, key);
    encode::array(out, elements.iter().count());
    elements.iter().for_each(|element| encode::bulk_or_null(out, version, element));
}

/// The element, which was moved in steps.
fn write_moved(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.value.filter(|_| answer.status == Status::Ok) {
        Some(element) => encode::bulk(out, element),
        None => encode::null_array(out, version),
    }
}

/// The element, which was moved at once.
fn write_moved_at_once(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    if answer.status != Status::Ok {
        return encode::null_array(out, version);
    }
    let items = answer.value.and_then(Items::parse);
    let element = items.and_then(|items| items.iter().nth(1)).flatten();
    encode::bulk_or_null(out, version, element);
}

/// The keys of a command, which a shard looks at in one step.
fn keys(words: Words<'_>, from: usize, end: usize) -> Result<Keys<'_>, CommandError> {
    match end - from > MAX_WAITED_KEYS {
        true => Err(CommandError::TooManyWaitedKeys),
        false => Keys::within(words, from, end),
    }
}

fn waits<'a>(
    words: Words<'a>,
    now_ms: u64,
    side: Side,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let last = words.len() - 1;
    let until_ms = wait_until(words.get(last), now_ms)?;
    let (keys, form) = (keys(words, 1, last)?, ReplyForm::Object(reply));
    let request = pop(side, 1);
    Ok(Request::Block(Box::new(Blocking { keys, request, until_ms, form, hand_over: None })))
}

const BLPOP: CommandSpec = CommandSpec {
    name: "blpop",
    summary: "Removes the first element of the first of some lists that has one, or waits for it.",
    parse: |words, now_ms| waits(words, now_ms, Side::Left, &POPPED_LEFT),
    ..WAITS
};

static POPPED_LEFT: ObjectReply = ObjectReply::new("blpop", Shape::Own(write_pair));

const BRPOP: CommandSpec = CommandSpec {
    name: "brpop",
    summary: "Removes the last element of the first of some lists that has one, or waits for it.",
    parse: |words, now_ms| waits(words, now_ms, Side::Right, &POPPED_RIGHT),
    ..WAITS
};

static POPPED_RIGHT: ObjectReply = ObjectReply::new("brpop", Shape::Own(write_pair));

const BLMPOP: CommandSpec = CommandSpec {
    name: "blmpop",
    arity: -5,
    since: "7.0.0",
    flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
    keys: KeyPlaces::counted(2, WAITS.keys.access),
    summary: "Removes elements from one end of the first of some lists that has some, or waits for \
them.",
    complexity: "O(N+M) where N is the number of keys and M that of elements returned",
    arguments: &[TIMEOUT, Argument::new("numkeys", Kind::Integer), KEY.multiple(), WHERE, COUNT],
    parse: blmpop,
    ..WAITS
};

static POPPED_SOME: ObjectReply = ObjectReply::new("blmpop", Shape::Own(write_some));

fn blmpop(words: Words<'_>, now_ms: u64) -> ParseResult<'_> {
    let until_ms = wait_until(words.get(1), now_ms)?;
    let (end, side, most) = popped_ends(words, 2)?;
    let keys = keys(words, 3, end)?;
    let (request, form) = (pop(side, most), ReplyForm::Object(&POPPED_SOME));
    Ok(Request::Block(Box::new(Blocking { keys, request, until_ms, form, hand_over: None })))
}

const BLMOVE: CommandSpec = CommandSpec {
    name: "blmove",
    arity: 6,
    since: "6.2.0",
    summary: "Moves an element from one end of a list to one end of another, or waits for it.",
    notes: "Returns the element; null once the timeout, in seconds, is over; 0 waits without end. If the \
other key holds no list the reply is an error, and the element is put back.",
    arguments: &[
        Argument::new("source", Kind::Key),
        Argument::new("destination", Kind::Key),
        Argument::of("wherefrom", Kind::OneOf, LEFT_OR_RIGHT),
        Argument::of("whereto", Kind::OneOf, LEFT_OR_RIGHT),
        TIMEOUT,
    ],
    parse: |words, now_ms| {
        let (from, to) = (side(words, 3)?, side(words, 4)?);
        moves(words, (from, to), wait_until(words.get(5), now_ms)?, [&MOVED, &MOVED_AT_ONCE])
    },
    ..MOVES
};

static MOVED: ObjectReply = ObjectReply::new("blmove", Shape::Own(write_moved));
static MOVED_AT_ONCE: ObjectReply = ObjectReply::new("blmove", Shape::Own(write_moved_at_once));

const BRPOPLPUSH: CommandSpec = CommandSpec {
    name: "brpoplpush",
    arity: 4,
    since: "2.2.0",
    summary: "Moves the last element of a list to the front of another, or waits for it.",
    notes: "As BLMOVE with RIGHT and LEFT.",
    arguments: &[
        Argument::new("source", Kind::Key),
        Argument::new("destination", Kind::Key),
        TIMEOUT,
    ],
    parse: |words, now_ms| {
        let sides = (Side::Right, Side::Left);
        moves(
            words,
            sides,
            wait_until(words.get(3), now_ms)?,
            [&POPPED_PUSHED, &POPPED_PUSHED_AT_ONCE],
        )
    },
    ..MOVES
};

static POPPED_PUSHED: ObjectReply = ObjectReply::new("brpoplpush", Shape::Own(write_moved));
static POPPED_PUSHED_AT_ONCE: ObjectReply =
    ObjectReply::new("brpoplpush", Shape::Own(write_moved_at_once));

/// The parts of an operation on two keys that may wait; `None` if it is none.
pub fn apart(request: On<'_>) -> Option<Apart<'_>> {
    let On::List(ListCommand::Move { from, to: side, other }) = request else { return None };
    let after_wait = Box::new(MoveAfterWait(from, side));
    Some(Apart { look: MoveElement::look(from), to: other, after_wait })
}

fn moves<'a>(
    words: Words<'a>,
    (from, to): (Side, Side),
    until_ms: u64,
    [in_steps, at_once]: [&'static ObjectReply; 2],
) -> ParseResult<'a> {
    let other = crate::keys::key(words.get(2))?;
    let keys = Keys::within(words, 1, 2)?;
    let at_once = (ListCommand::Move { from, to, other }.request(), ReplyForm::Object(at_once));
    let after_wait = Box::new(MoveAfterWait(from, to));
    let hand_over = Some(HandOver { to: other, at_once, after_wait });
    let (request, form) = (MoveElement::look(from), ReplyForm::Object(in_steps));
    Ok(Request::Block(Box::new(Blocking { keys, request, until_ms, form, hand_over })))
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] = &[BLMOVE, BLMPOP, BLPOP, BRPOP, BRPOPLPUSH];
