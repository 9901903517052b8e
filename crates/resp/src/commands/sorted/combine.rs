//! Several sorted sets become one: ZUNION, ZINTER, ZDIFF and their kin. Sets count as sorted sets whose
//! scores are 1.

use super::steps::Combine;
use super::words::{NUMBER_OF_KEYS, SORTED, TOO_LONG, WITH_SCORES};
use crate::arguments::KEY;
use crate::error::CommandError;
use crate::form::{ObjectReply, ReplyForm, ScoredForm, Shape};
use crate::keys::Keys;
use crate::numbers::float;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::wire::{Words, encode};
use remora_layout::limits::MAX_COMMAND_ITEMS;
use remora_protocol::integer;
use remora_protocol::sorted::{Aggregate, Combination};

const WEIGHTS: Argument =
    Argument::new("weight", Kind::Double).multiple().after("WEIGHTS").optional();

const AGGREGATE: Argument = Argument::of(
    "aggregate",
    Kind::OneOf,
    &[Argument::word("sum", "SUM"), Argument::word("min", "MIN"), Argument::word("max", "MAX")],
)
.after("AGGREGATE")
.optional();

/// Commands that return what they combine.
const COMBINES: CommandSpec = CommandSpec {
    arity: -3,
    flags: &[Flag::ReadOnly, Flag::MovableKeys],
    keys: KeyPlaces::counted(1, &["RO", "access"]),
    since: "6.2.0",
    complexity: "O(N + M log M) where N is the number of members of all sets and M that of the result",
    notes: "The sets of one shard are as they are when the command begins, whatever is changed \
meanwhile. Sets of several shards are not read at one moment: the shards are asked one after the other, and \
each set is as it was at one moment during the call. With {tags} keys are of one shard. Sets without \
scores count as if each had the score 1. A score that is not a number is 0. A result of more than 64 \
MiB, or of more than 1,048,576 members, is an error: the members are sorted in turns.",
    arguments: &[NUMBER_OF_KEYS, KEY.multiple(), WEIGHTS, AGGREGATE, WITH_SCORES],
    ..SORTED
};

/// Commands that store what they combine.
const STORES: CommandSpec = CommandSpec {
    arity: -4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::MovableKeys],
    keys: KeyPlaces {
        first: 1,
        last: 1,
        step: 1,
        first_access: Some(&["OW", "update"]),
        ..KeyPlaces::counted(2, &["RO", "access"])
    },
    since: "2.0.0",
    notes: "The sets are read as by ZUNION; then the key gets the result as one change, in the place of \
what it held. Without members it is removed.",
    arguments: &[
        Argument::new("destination", Kind::Key),
        NUMBER_OF_KEYS,
        KEY.multiple(),
        WEIGHTS,
        AGGREGATE,
    ],
    ..COMBINES
};

/// What a command does with the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Returned,
    Counted,
    Stored,
}

/// The options of a command.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    count_to: u64,
}

/// An error in the options. As in Redis that a key holds something else comes first.
enum Refused {
    Syntax,
    Weight,
    Limit,
}

static REFUSED_SYNTAX: ObjectReply = ObjectReply::new(
    "zunion",
    Shape::Own(|out, _, _| encode::error(out, &CommandError::Syntax.to_string())),
);
static REFUSED_WEIGHT: ObjectReply = ObjectReply::new(
    "zunion",
    Shape::Own(|out, _, _| encode::error(out, "ERR weight value is not a float")),
);
static REFUSED_LIMIT: ObjectReply = ObjectReply::new(
    "zunion",
    Shape::Own(|out, _, _| encode::error(out, &CommandError::NegativeLimit.to_string())),
);

impl Options {
    /// The options behind the keys, from word `at` on.
    fn parse(
        words: Words<'_>,
        mut at: usize,
        (how, of, keys): (Combination, Use, usize),
    ) -> Result<Self, Refused> {
        let (weights, aggregate) = (vec![1.0; keys], Aggregate::Sum);
        let mut options = Self { weights, aggregate, with_scores: false, count_to: 0 };
        let has_scores = how != Combination::Diff && of != Use::Counted;
        while at < words.len() {
            let left = words.len() - at;
            if has_scores && left > keys && words.is(at, "weights") {
                for (weight, at) in options.weights.iter_mut().zip(at + 1..) {
                    *weight = float(words.get(at)).ok_or(Refused::Weight)?;
                }
                at += 1 + keys;
            } else if has_scores && left >= 2 && words.is(at, "aggregate") {
                options.aggregate = aggregate_of(words, at + 1).ok_or(Refused::Syntax)?;
                at += 2;
            } else if of == Use::Returned && words.is(at, "withscores") {
                options.with_scores = true;
                at += 1;
            } else if of == Use::Counted && left >= 2 && words.is(at, "limit") {
                let limit = integer::parse(words.get(at + 1));
                let limit = limit.and_then(|limit| u64::try_from(limit).ok());
                options.count_to = limit.ok_or(Refused::Limit)?;
                at += 2;
            } else {
                return Err(Refused::Syntax);
            }
        }
        Ok(options)
    }
}

fn aggregate_of(words: Words<'_>, at: usize) -> Option<Aggregate> {
    let all = [("sum", Aggregate::Sum), ("min", Aggregate::Min), ("max", Aggregate::Max)];
    all.into_iter().find(|(name, _)| words.is(at, name)).map(|(_, aggregate)| aggregate)
}

/// The request; the replies are those without scores and with them.
fn combined<'a>(
    words: Words<'a>,
    how: Combination,
    of: Use,
    [plain, with_scores]: [&'static ObjectReply; 2],
) -> ParseResult<'a> {
    let number_at = if of == Use::Stored { 2 } else { 1 };
    let keys = integer::parse(words.get(number_at)).ok_or(CommandError::NotAnInteger)?;
    if keys < 1 {
        return Err(CommandError::NoInputKey(plain.command));
    }
    let from = number_at + 1;
    let count = usize::try_from(keys).ok().filter(|keys| *keys <= words.len() - from);
    let count = count.ok_or(CommandError::Syntax)?;
    if count > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let end = from + count;
    let (steps, keys, reply) = match Options::parse(words, end, (how, of, count)) {
        Ok(options) => {
            let reply = if options.with_scores { with_scores } else { plain };
            let Options { weights, aggregate, count_to, .. } = options;
            let steps = Combine::new(how, aggregate, weights);
            match of {
                Use::Returned => (steps, Keys::within(words, from, end)?, reply),
                Use::Counted => (steps.counting(count_to), Keys::within(words, from, end)?, reply),
                Use::Stored => (steps.stored(), Keys::without(words, (1, end), 2)?, reply),
            }
        }
        Err(refused) => {
            let reply = match refused {
                Refused::Syntax => &REFUSED_SYNTAX,
                Refused::Weight => &REFUSED_WEIGHT,
                Refused::Limit => &REFUSED_LIMIT,
            };
            let weights = vec![1.0; count];
            let looks = Combine::new(Combination::Inter, Aggregate::Sum, weights).counting(1);
            (looks, Keys::within(words, from, end)?, reply)
        }
    };
    Ok(Request::Steps { keys, steps: Box::new(steps), form: ReplyForm::Object(reply) })
}

const fn scored(command: &'static str, form: ScoredForm) -> ObjectReply {
    ObjectReply { command, shape: Shape::Scored(form), errors: TOO_LONG }
}

const fn number(command: &'static str) -> ObjectReply {
    ObjectReply { command, shape: Shape::Number, errors: TOO_LONG }
}

const ZUNION: CommandSpec = CommandSpec {
    name: "zunion",
    summary: "Returns the members that any of the sets has, in the order of their scores.",
    parse: |words, _| combined(words, Combination::Union, Use::Returned, [&UNION, &UNION_PAIRS]),
    ..COMBINES
};

static UNION: ObjectReply = scored("zunion", ScoredForm::Members);
static UNION_PAIRS: ObjectReply = scored("zunion", ScoredForm::Pairs);

const ZINTER: CommandSpec = CommandSpec {
    name: "zinter",
    summary: "Returns the members that all of the sets have, in the order of their scores.",
    parse: |words, _| combined(words, Combination::Inter, Use::Returned, [&INTER, &INTER_PAIRS]),
    ..COMBINES
};

static INTER: ObjectReply = scored("zinter", ScoredForm::Members);
static INTER_PAIRS: ObjectReply = scored("zinter", ScoredForm::Pairs);

const ZDIFF: CommandSpec = CommandSpec {
    name: "zdiff",
    summary: "Returns the members of the first set that no other has, in the order of their scores.",
    arguments: &[NUMBER_OF_KEYS, KEY.multiple(), WITH_SCORES],
    parse: |words, _| combined(words, Combination::Diff, Use::Returned, [&DIFF, &DIFF_PAIRS]),
    ..COMBINES
};

static DIFF: ObjectReply = scored("zdiff", ScoredForm::Members);
static DIFF_PAIRS: ObjectReply = scored("zdiff", ScoredForm::Pairs);

const ZUNIONSTORE: CommandSpec = CommandSpec {
    name: "zunionstore",
    summary: "Stores the members that any of the sets has; returns their number.",
    parse: |words, _| {
        combined(words, Combination::Union, Use::Stored, [&UNION_STORED, &UNION_STORED])
    },
    ..STORES
};

static UNION_STORED: ObjectReply = number("zunionstore");

const ZINTERSTORE: CommandSpec = CommandSpec {
    name: "zinterstore",
    summary: "Stores the members that all of the sets have; returns their number.",
    parse: |words, _| {
        combined(words, Combination::Inter, Use::Stored, [&INTER_STORED, &INTER_STORED])
    },
    ..STORES
};

static INTER_STORED: ObjectReply = number("zinterstore");

const ZDIFFSTORE: CommandSpec = CommandSpec {
    name: "zdiffstore",
    since: "6.2.0",
    summary: "Stores the members of the first set that no other has; returns their number.",
    arguments: &[Argument::new("destination", Kind::Key), NUMBER_OF_KEYS, KEY.multiple()],
    parse: |words, _| combined(words, Combination::Diff, Use::Stored, [&DIFF_STORED, &DIFF_STORED]),
    ..STORES
};

static DIFF_STORED: ObjectReply = number("zdiffstore");

const ZINTERCARD: CommandSpec = CommandSpec {
    name: "zintercard",
    since: "7.0.0",
    summary: "Returns the number of members that all of the sets have.",
    notes: "With LIMIT it stops at that number. See ZUNION.",
    arguments: &[
        NUMBER_OF_KEYS,
        KEY.multiple(),
        Argument::new("limit", Kind::Integer).after("LIMIT").optional(),
    ],
    parse: |words, _| {
        combined(words, Combination::Inter, Use::Counted, [&INTER_COUNTED, &INTER_COUNTED])
    },
    ..COMBINES
};

static INTER_COUNTED: ObjectReply = number("zintercard");

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] =
    &[ZDIFF, ZDIFFSTORE, ZINTER, ZINTERCARD, ZINTERSTORE, ZUNION, ZUNIONSTORE];
