//! Lists, in the words and with the errors of Redis 7.

pub(super) mod blocking;
pub(super) mod links;
mod steps;

use crate::arguments::KEY;
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, ReplyForm, Shape};
use crate::keys::{Keys, key, value};
use crate::request::{Request, Stored};
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_REPLY_BYTES};
use remora_protocol::list::{ListCommand, Search, Side, begin_piece};
use remora_protocol::message::Status;
use remora_protocol::{Items, integer};
use steps::{MoveElement, PopFirst};

/// How a result becomes a list.
pub(super) const STORED: Stored = Stored {
    kind: remora_layout::kind::Kind::LIST,
    at_once: |items| ListCommand::Store { items }.request(),
    begin_piece,
};

const ELEMENT: Argument = Argument::new("element", Kind::String);
const INDEX: Argument = Argument::new("index", Kind::Integer);
const START: Argument = Argument::new("start", Kind::Integer);
const STOP: Argument = Argument::new("stop", Kind::Integer);

/// Commands that read a list.
const LIST: CommandSpec = CommandSpec {
    categories: &["list"],
    group: Group::new("list", "Lists"),
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    arguments: &[KEY],
    ..CommandSpec::PLAIN
};

/// Commands that add to a list.
const ADDS: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "insert"]),
    arguments: &[KEY, ELEMENT.multiple()],
    arity: -3,
    complexity: "O(N) where N is the number of elements to be added",
    ..LIST
};

/// Commands that remove elements from the ends of a list.
const TAKES: CommandSpec = CommandSpec {
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "delete"]),
    arguments: &[KEY, Argument::new("count", Kind::Integer).optional()],
    arity: -2,
    complexity: "O(N) where N is the number of elements to be returned",
    notes: "Without COUNT the element, or null; with it an array, or null without a list. The key \
is gone with its last element.",
    ..LIST
};

fn request<'a>(
    words: Words<'a>,
    command: ListCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (key, form) = (key(words.get(1))?, ReplyForm::Object(reply));
    Ok(Request::Object { key, request: command.request(), form })
}

/// The arguments from `from` on, as elements.
fn items(words: Words<'_>, from: usize) -> Result<Items<'_>, CommandError> {
    if words.len() - from > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let bytes = (from..words.len()).map(|at| Items::bytes_of(words.get(at).len())).sum();
    let mut list = Vec::with_capacity(bytes);
    for at in from..words.len() {
        Items::push(&mut list, value(words.get(at))?);
    }
    Ok(Items::parse(words.keep(list)).expect("it was just made"))
}

/// An integer from 0 on, in the words of the commands that take a count.
fn count(word: &[u8]) -> Result<u64, CommandError> {
    let count = integer::parse(word).and_then(|count| u64::try_from(count).ok());
    count.ok_or(CommandError::NotPositive)
}

fn number(word: &[u8]) -> Result<i64, CommandError> {
    integer::parse(word).ok_or(CommandError::NotAnInteger)
}

fn push<'a>(
    words: Words<'a>,
    (side, if_there): (Side, bool),
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    request(words, ListCommand::Push { side, if_there, items: items(words, 2)? }, reply)
}

const LPUSH: CommandSpec = CommandSpec {
    name: "lpush",
    summary: "Adds elements before the first one; returns the length of the list.",
    notes: "One change: others see all elements, or none. A small list, of up to 128 elements and \
1 KiB, lies whole in one record; a larger one has chunks of up to 100 elements, and stays so.",
    parse: |words, _| push(words, (Side::Left, false), &PUSHED_LEFT),
    ..ADDS
};

static PUSHED_LEFT: ObjectReply = ObjectReply::new("lpush", Shape::Number);

const RPUSH: CommandSpec = CommandSpec {
    name: "rpush",
    summary: "Adds elements behind the last one; returns the length of the list.",
    parse: |words, _| push(words, (Side::Right, false), &PUSHED_RIGHT),
    ..ADDS
};

static PUSHED_RIGHT: ObjectReply = ObjectReply::new("rpush", Shape::Number);

const LPUSHX: CommandSpec = CommandSpec {
    name: "lpushx",
    since: "2.2.0",
    summary: "As LPUSH, if there is a list; returns its length, 0 without one.",
    parse: |words, _| push(words, (Side::Left, true), &PUSHED_LEFT_X),
    ..ADDS
};

static PUSHED_LEFT_X: ObjectReply = ObjectReply::new("lpushx", Shape::Number);

const RPUSHX: CommandSpec = CommandSpec {
    name: "rpushx",
    since: "2.2.0",
    summary: "As RPUSH, if there is a list; returns its length, 0 without one.",
    parse: |words, _| push(words, (Side::Right, true), &PUSHED_RIGHT_X),
    ..ADDS
};

static PUSHED_RIGHT_X: ObjectReply = ObjectReply::new("rpushx", Shape::Number);

/// The elements, or a null array where there is no list.
fn write_popped(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let ShardAnswer { status, number, value } = answer;
    if status == Status::NotFound {
        return encode::null_array(out, version);
    }
    encode::array(out, number as usize);
    let items = value.and_then(Items::parse);
    for item in items.into_iter().flat_map(Items::iter) {
        encode::bulk_or_null(out, version, item);
    }
}

/// The error where all elements are too long for a reply.
const TOO_LONG: &[(Status, &str)] =
    &[(Status::TooLarge, "ERR the reply is longer than 64 MiB: ask for fewer elements")];
const _: () = assert!(MAX_REPLY_BYTES == 64 << 20);

const fn some_popped(command: &'static str) -> ObjectReply {
    ObjectReply { command, shape: Shape::Own(write_popped), errors: TOO_LONG }
}

fn pop<'a>(
    words: Words<'a>,
    side: Side,
    [one, some]: [&'static ObjectReply; 2],
) -> ParseResult<'a> {
    match words.len() {
        2 => request(words, ListCommand::Pop { side, count: 1, fits_frame: false }, one),
        3 => request(
            words,
            ListCommand::Pop { side, count: count(words.get(2))?, fits_frame: false },
            some,
        ),
        _ => Err(CommandError::WrongArity(one.command)),
    }
}

const LPOP: CommandSpec = CommandSpec {
    name: "lpop",
    summary: "Removes the first element, or the first ones, and returns them.",
    parse: |words, _| pop(words, Side::Left, [&POPPED_LEFT, &POPPED_LEFT_SOME]),
    ..TAKES
};

static POPPED_LEFT: ObjectReply = ObjectReply::new("lpop", Shape::OneItem);
static POPPED_LEFT_SOME: ObjectReply = some_popped("lpop");

const RPOP: CommandSpec = CommandSpec {
    name: "rpop",
    summary: "Removes the last element, or the last ones, and returns them, the last one first.",
    parse: |words, _| pop(words, Side::Right, [&POPPED_RIGHT, &POPPED_RIGHT_SOME]),
    ..TAKES
};

static POPPED_RIGHT: ObjectReply = ObjectReply::new("rpop", Shape::OneItem);
static POPPED_RIGHT_SOME: ObjectReply = some_popped("rpop");

const LLEN: CommandSpec = CommandSpec {
    name: "llen",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO"]),
    summary: "Returns the number of elements.",
    parse: |words, _| request(words, ListCommand::Length, &LENGTH),
    ..LIST
};

static LENGTH: ObjectReply = ObjectReply::new("llen", Shape::Number);

const RANGE_NOTES: &str = "Returns the list as it is when the command begins. A long range is read in \
turns, between which the shard does other work; what is changed meanwhile does not show. A client that \
reads so slowly that an eighth of the shard's memory is taken by what is changed and still to be \
sent loses its connection.";

const LRANGE: CommandSpec = CommandSpec {
    name: "lrange",
    arity: 4,
    summary: "Returns the elements of a range.",
    complexity: "O(N) where N is the number of elements to be returned",
    notes: RANGE_NOTES,
    arguments: &[KEY, START, STOP],
    parse: |words, _| {
        let (start, stop) = (number(words.get(2))?, number(words.get(3))?);
        request(words, ListCommand::Range { start, stop }, &RANGE)
    },
    ..LIST
};

static RANGE: ObjectReply = ObjectReply::new("lrange", Shape::List(ListForm::Array));

const LINDEX: CommandSpec = CommandSpec {
    name: "lindex",
    arity: 3,
    summary: "Returns the element of an index, or null.",
    complexity: "O(N) where N is the number of chunks of 25,600 elements before it, or behind it",
    arguments: &[KEY, INDEX],
    parse: |words, _| match integer::parse(words.get(2)) {
        Some(index) => request(words, ListCommand::Index { index }, &INDEXED),
        None => request(words, ListCommand::Length, &INDEXED_BY_NONE),
    },
    ..LIST
};

static INDEXED: ObjectReply = ObjectReply::new("lindex", Shape::Value);
static INDEXED_BY_NONE: ObjectReply = ObjectReply::new("lindex", Shape::Own(write_no_index));

/// An index that is none is an error only if there is a list: so it is in Redis.
fn write_no_index(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.number {
        0 => encode::null(out, version),
        _ => CommandError::NotAnInteger.write(out),
    }
}

/// The same of LSET, which needs a list.
fn write_not_set(out: &mut Vec<u8>, _version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.number {
        0 => encode::error(out, NO_SUCH_KEY),
        _ => CommandError::NotAnInteger.write(out),
    }
}

const NO_SUCH_KEY: &str = "ERR no such key";

const LSET: CommandSpec = CommandSpec {
    name: "lset",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "update"]),
    summary: "Replaces the element of an index.",
    complexity: LINDEX.complexity,
    arguments: &[KEY, INDEX, ELEMENT],
    parse: |words, _| {
        let value = value(words.get(3))?;
        match integer::parse(words.get(2)) {
            Some(index) => request(words, ListCommand::SetAt { index, value }, &SET),
            None => request(words, ListCommand::Length, &SET_NOWHERE),
        }
    },
    ..LIST
};

static SET_NOWHERE: ObjectReply = ObjectReply::new("lset", Shape::Own(write_not_set));

static SET: ObjectReply = ObjectReply {
    command: "lset",
    shape: Shape::Ok,
    errors: &[(Status::NotFound, NO_SUCH_KEY), (Status::NotDone, "ERR index out of range")],
};

const LINSERT: CommandSpec = CommandSpec {
    name: "linsert",
    arity: 5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "insert"]),
    since: "2.2.0",
    summary: "Adds an element before or behind the first one that equals the pivot.",
    complexity: "O(N) where N is the number of elements before the pivot",
    notes: "Returns the length of the list, -1 without the pivot, 0 without the list.",
    arguments: &[
        KEY,
        Argument::of(
            "where",
            Kind::OneOf,
            &[Argument::word("before", "BEFORE"), Argument::word("after", "AFTER")],
        ),
        Argument::new("pivot", Kind::String),
        ELEMENT,
    ],
    parse: linsert,
    ..LIST
};

static INSERTED: ObjectReply = ObjectReply::new("linsert", Shape::Number);

fn linsert(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let after = match () {
        () if words.is(2, "after") => true,
        () if words.is(2, "before") => false,
        () => return Err(CommandError::Syntax),
    };
    let pivot_and_value = items(words, 3)?;
    request(words, ListCommand::Insert { after, pivot_and_value }, &INSERTED)
}

const LREM: CommandSpec = CommandSpec {
    name: "lrem",
    arity: 4,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes elements that equal a value; returns how many.",
    complexity: "O(N) where N is the number of elements",
    notes: "COUNT above 0: so many at most, from the first one on; below 0: from the last one on; \
0: all. They are looked for in turns, and removed as one change.",
    arguments: &[KEY, Argument::new("count", Kind::Integer), ELEMENT],
    parse: |words, _| {
        let (count, value) = (number(words.get(2))?, value(words.get(3))?);
        request(words, ListCommand::Remove { count, value }, &REMOVED)
    },
    ..LIST
};

static REMOVED: ObjectReply = ObjectReply::new("lrem", Shape::Number);

const LTRIM: CommandSpec = CommandSpec {
    name: "ltrim",
    arity: 4,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Leaves the elements of a range.",
    complexity: "O(N) where N is the number of chunks of 25,600 elements that go",
    notes: "The memory of the elements comes back in turns.",
    arguments: &[KEY, START, STOP],
    parse: |words, _| {
        let (start, stop) = (number(words.get(2))?, number(words.get(3))?);
        request(words, ListCommand::Trim { start, stop }, &TRIMMED)
    },
    ..LIST
};

static TRIMMED: ObjectReply = ObjectReply::new("ltrim", Shape::Ok);

const LPOS: CommandSpec = CommandSpec {
    name: "lpos",
    arity: -3,
    since: "6.0.6",
    summary: "Returns the index of an element that equals a value, or of several.",
    complexity: "O(N) where N is the number of elements",
    notes: "RANK: the number of the first match that counts, below 0 from the end. COUNT: so many \
at most, 0 all; the reply is an array then. MAXLEN: so many elements are compared at most.",
    arguments: &[
        KEY,
        ELEMENT,
        Argument::new("rank", Kind::Integer).after("RANK").optional(),
        Argument::new("num-matches", Kind::Integer).after("COUNT").optional(),
        Argument::new("len", Kind::Integer).after("MAXLEN").optional(),
    ],
    parse: lpos,
    ..LIST
};

static FOUND: ObjectReply = ObjectReply::new("lpos", Shape::Own(write_index));
static FOUND_SOME: ObjectReply = ObjectReply::new("lpos", Shape::Own(write_indexes));

fn indexes(answer: ShardAnswer<'_>) -> impl Iterator<Item = i64> + Clone + '_ {
    let items = answer.value.and_then(Items::parse);
    items.into_iter().flat_map(Items::iter).flatten().filter_map(integer::parse)
}

fn write_index(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match indexes(answer).next() {
        Some(index) => encode::integer(out, index),
        None => encode::null(out, version),
    }
}

fn write_indexes(out: &mut Vec<u8>, _version: RespVersion, answer: ShardAnswer<'_>) {
    let all = indexes(answer);
    encode::array(out, all.clone().count());
    all.for_each(|index| encode::integer(out, index));
}

fn lpos(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let mut how = Search { rank: 1, count: 1, most: 0 };
    let mut form = &FOUND;
    for at in (3..words.len()).step_by(2) {
        let is_option = |name| at + 1 < words.len() && words.is(at, name);
        let number = || number(words.get(at + 1));
        if is_option("rank") {
            how.rank = match number()? {
                // It cannot be negated: to Redis it is the first match from the end.
                i64::MIN => -1,
                0 => return Err(CommandError::ZeroRank),
                rank => rank,
            };
        } else if is_option("count") {
            how.count = count(words.get(at + 1)).map_err(|_| CommandError::NegativeCount)?;
            form = &FOUND_SOME;
        } else if is_option("maxlen") {
            how.most = count(words.get(at + 1)).map_err(|_| CommandError::NegativeMaxLength)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    request(words, ListCommand::Position { value: value(words.get(2))?, how }, form)
}

const LEFT_OR_RIGHT: &[Argument] =
    &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")];

const LMOVE: CommandSpec = CommandSpec {
    name: "lmove",
    arity: 5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::two(&["RW", "access", "delete"], &["RW", "insert"]),
    since: "6.2.0",
    summary: "Moves an element from an end of a list to an end of another one, and returns it.",
    notes: "Null without the first list. Both keys may be the same. Where the keys are of one \
shard, as with a common hash tag, it is one step; otherwise the element is in neither list for a \
moment.",
    arguments: &[
        Argument::new("source", Kind::Key),
        Argument::new("destination", Kind::Key),
        Argument::of("wherefrom", Kind::OneOf, LEFT_OR_RIGHT),
        Argument::of("whereto", Kind::OneOf, LEFT_OR_RIGHT),
    ],
    parse: |words, _| {
        let sides = (side(words, 3)?, side(words, 4)?);
        move_element(words, sides, &MOVED)
    },
    ..LIST
};

static MOVED: ObjectReply = ObjectReply::new("lmove", Shape::Value);

fn side(words: Words<'_>, at: usize) -> Result<Side, CommandError> {
    match () {
        () if words.is(at, "left") => Ok(Side::Left),
        () if words.is(at, "right") => Ok(Side::Right),
        () => Err(CommandError::Syntax),
    }
}

fn move_element<'a>(
    words: Words<'a>,
    sides: (Side, Side),
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (keys, steps) = (Keys::within(words, 1, 3)?, Box::new(MoveElement::new(sides)));
    Ok(Request::Steps { keys, steps, form: ReplyForm::Object(reply) })
}

const RPOPLPUSH: CommandSpec = CommandSpec {
    name: "rpoplpush",
    arity: 3,
    since: "1.2.0",
    summary: "Moves the last element of a list to the front of another one, and returns it.",
    arguments: &[Argument::new("source", Kind::Key), Argument::new("destination", Kind::Key)],
    parse: |words, _| move_element(words, (Side::Right, Side::Left), &MOVED_RIGHT_TO_LEFT),
    ..LMOVE
};

static MOVED_RIGHT_TO_LEFT: ObjectReply = ObjectReply::new("rpoplpush", Shape::Value);

const LMPOP: CommandSpec = CommandSpec {
    name: "lmpop",
    arity: -4,
    flags: &[Flag::Write, Flag::MovableKeys],
    keys: KeyPlaces::counted(1, &["RW", "access", "delete"]),
    since: "7.0.0",
    summary: "Removes elements from the first of several keys that has a list.",
    complexity: "O(N + M) where N is the number of keys and M that of the elements to be returned",
    notes: "Returns the key and the elements, or a null array if none has a list. The keys are looked at \
one after the other.",
    arguments: &[
        Argument::new("numkeys", Kind::Integer),
        KEY.multiple(),
        Argument::of("where", Kind::OneOf, LEFT_OR_RIGHT),
        Argument::new("count", Kind::Integer).after("COUNT").optional(),
    ],
    parse: lmpop,
    ..LIST
};

static POPPED_FIRST: ObjectReply =
    ObjectReply { command: "lmpop", shape: Shape::Own(write_popped_first), errors: TOO_LONG };

fn write_popped_first(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let Some((Some(key), _)) = answer.value.and_then(Items::split) else {
        return encode::null_array(out, version);
    };
    encode::array(out, 2);
    encode::bulk(out, key);
    encode::array(out, answer.number as usize - 1);
    let items = answer.value.and_then(Items::parse);
    for item in items.into_iter().flat_map(Items::iter).skip(1) {
        encode::bulk_or_null(out, version, item);
    }
}

/// A number from 1 on, and otherwise this error.
fn from_one(word: &[u8], error: CommandError) -> Result<u64, CommandError> {
    let number = integer::parse(word).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(error)
}

fn lmpop(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (where_at, side, count) = popped_ends(words, 1)?;
    if where_at > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let (keys, steps) =
        (Keys::within(words, 2, where_at)?, Box::new(PopFirst { side, count, at: 0 }));
    Ok(Request::Steps { keys, steps, form: ReplyForm::Object(&POPPED_FIRST) })
}

/// What LMPOP and BLMPOP have from the number of keys on, which is at `number_at`: the place behind
/// the keys, the end of the lists, and how many elements.
fn popped_ends(words: Words<'_>, number_at: usize) -> Result<(usize, Side, u64), CommandError> {
    let keys = from_one(words.get(number_at), CommandError::KeyCount)?;
    let where_at = usize::try_from(keys).ok().and_then(|keys| keys.checked_add(number_at + 1));
    let where_at = where_at.filter(|at| *at < words.len()).ok_or(CommandError::Syntax)?;
    let side = side(words, where_at)?;
    let count = match words.len() - where_at {
        1 => 1,
        2 => return Err(CommandError::Syntax),
        more if words.is(where_at + 1, "count") => {
            let count = from_one(words.get(where_at + 2), CommandError::PopCount)?;
            if more > 3 {
                return Err(CommandError::Syntax);
            }
            count
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok((where_at, side, count))
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[
    LINDEX, LINSERT, LLEN, LMOVE, LMPOP, LPOP, LPOS, LPUSH, LPUSHX, LRANGE, LREM, LSET, LTRIM,
    RPOP, RPOPLPUSH, RPUSH, RPUSHX,
];
