//! Members of sorted sets: commands add and remove them, and say what their scores and ranks are.

use super::reply::scores;
use super::words::{MEMBER, SORTED, TOO_LONG, WRITES, kept, member, members, request};
use crate::arguments::{KEY, SCAN_ARGUMENTS, ScanOptions, cursor, scan_options};
use crate::error::CommandError;
use crate::form::{ObjectReply, ScoredForm, Shape};
use crate::numbers::{self, float};
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::MAX_COMMAND_MEMBERS;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Comparison, Scored, SortedCommand, When};
use remora_protocol::{Condition, integer};

const SCORE: Argument = Argument::new("score", Kind::Double);

const CONDITION: Argument = Argument::of(
    "condition",
    Kind::OneOf,
    &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
)
.optional();

const COMPARISON: Argument = Argument::of(
    "comparison",
    Kind::OneOf,
    &[Argument::word("gt", "GT"), Argument::word("lt", "LT")],
)
.optional();

const ZADD: CommandSpec = CommandSpec {
    name: "zadd",
    arity: -4,
    summary: "Adds members with their scores, or gives them other scores.",
    complexity: "O(log N) for each member where N is the number of members",
    notes: "Returns the number of new members, with CH also those whose score changed. NX changes no \
score, XX adds none; GT and LT change a score only to a greater or lower one. With INCR it is ZINCRBY, and \
the reply is null where an option forbids the change. At most 16 \
members of a large set are one change: more are several, which others see one after the other. \
At most 8,192 members, each of at most 65,535 bytes.",
    arguments: &[
        KEY,
        CONDITION,
        COMPARISON,
        Argument::word("change", "CH").optional(),
        Argument::word("increment", "INCR").optional(),
        Argument::of("data", Kind::Block, &[SCORE, MEMBER]).multiple(),
    ],
    parse: |words, _| add(words, false, [&ADDED, &ADD_INCREMENTED]),
    ..WRITES
};

static ADDED: ObjectReply = ObjectReply::new("zadd", Shape::Number);
static ADD_INCREMENTED: ObjectReply = ObjectReply::new("zadd", Shape::Own(write_score));

const ZINCRBY: CommandSpec = CommandSpec {
    name: "zincrby",
    arity: 4,
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Adds to the score of a member; returns the sum.",
    notes: "A member that is not there has the score 0 before. A sum that is not a number, as that of \
infinity and its negative, is an error.",
    arguments: &[KEY, Argument::new("increment", Kind::Double), MEMBER],
    parse: |words, _| add(words, true, [&INCREMENTED, &INCREMENTED]),
    ..WRITES
};

static INCREMENTED: ObjectReply = ObjectReply::new("zincrby", Shape::Own(write_score));

/// The options of ZADD.
#[derive(Default)]
struct Options {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    counts_changed: bool,
    increments: bool,
}

impl Options {
    /// Takes those from word 2 on; the place of the first score.
    fn take(&mut self, words: Words<'_>) -> usize {
        let mut at = 2;
        while at < words.len() {
            let all = [
                ("nx", &mut self.absent),
                ("xx", &mut self.present),
                ("gt", &mut self.greater),
                ("lt", &mut self.less),
                ("ch", &mut self.counts_changed),
                ("incr", &mut self.increments),
            ];
            let Some((_, option)) = all.into_iter().find(|(name, _)| words.is(at, name)) else {
                break;
            };
            *option = true;
            at += 1;
        }
        at
    }

    fn when(&self) -> Result<When, CommandError> {
        if self.absent && self.present {
            return Err(CommandError::NewAndOld);
        }
        if [self.absent, self.greater, self.less].into_iter().filter(|is| *is).count() > 1 {
            return Err(CommandError::Comparisons);
        }
        let condition = match (self.absent, self.present) {
            (true, _) => Condition::IfAbsent,
            (_, true) => Condition::IfPresent,
            _ => Condition::Always,
        };
        let comparison = match (self.greater, self.less) {
            (true, _) => Comparison::Greater,
            (_, true) => Comparison::Less,
            _ => Comparison::Any,
        };
        Ok(When { condition, comparison })
    }
}

/// ZADD, and ZINCRBY, which Redis reads in the same way.
fn add<'a>(
    words: Words<'a>,
    increments: bool,
    [added, incremented]: [&'static ObjectReply; 2],
) -> ParseResult<'a> {
    let mut options = Options { increments, ..Options::default() };
    let from = options.take(words);
    let pairs = words.len() - from;
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let when = options.when()?;
    if options.increments && pairs > 2 {
        return Err(CommandError::SeveralIncrements);
    }
    if pairs > 2 * MAX_COMMAND_MEMBERS {
        return Err(CommandError::TooManyMembers);
    }
    let mut list = Vec::new();
    for at in (from..words.len()).step_by(2) {
        let score = float(words.get(at)).ok_or(CommandError::NotAFloat)?;
        let member = member(words.get(at + 1))?;
        if options.increments {
            let command = SortedCommand::Increment { when, by: score, member };
            return request(words, command, incremented);
        }
        Scored::push(&mut list, score, member);
    }
    let (counts_changed, members) = (options.counts_changed, kept(words, list));
    request(words, SortedCommand::Add { when, counts_changed, members }, added)
}

fn write_score(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let found = answer.value.filter(|_| answer.status == Status::Ok);
    match scores(found).next().flatten() {
        Some(score) => numbers::write(out, version, score),
        None => encode::null(out, version),
    }
}

const ZREM: CommandSpec = CommandSpec {
    name: "zrem",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes members; returns how many of them were there.",
    complexity: "O(log N) for each member where N is the number of members",
    notes: "The key is gone with its last member. At most 8,192 members.",
    arguments: &[KEY, MEMBER.multiple()],
    parse: zrem,
    ..WRITES
};

static REMOVED: ObjectReply = ObjectReply::new("zrem", Shape::Number);

fn zrem(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let members = members(words, 2, words.len())?;
    request(words, SortedCommand::Remove { members }, &REMOVED)
}

const ZCARD: CommandSpec = CommandSpec {
    name: "zcard",
    arity: 2,
    keys: KeyPlaces::one(&["RO"]),
    summary: "Returns the number of members; 0 without the key.",
    complexity: "O(1)",
    arguments: &[KEY],
    parse: |words, _| request(words, SortedCommand::Length, &LENGTH),
    ..SORTED
};

static LENGTH: ObjectReply = ObjectReply::new("zcard", Shape::Number);

const ZSCORE: CommandSpec = CommandSpec {
    name: "zscore",
    arity: 3,
    summary: "Returns a member's score, or null if it is not there.",
    complexity: "O(1)",
    parse: |words, _| {
        request(words, SortedCommand::Score { member: member(words.get(2))? }, &SCORE_OF)
    },
    ..SORTED
};

static SCORE_OF: ObjectReply = ObjectReply::new("zscore", Shape::Own(write_score));

const ZMSCORE: CommandSpec = CommandSpec {
    name: "zmscore",
    arity: -3,
    since: "6.2.0",
    summary: "Returns members' scores; null for those that are not there.",
    complexity: "O(N) where N is the number of members that are asked for",
    notes: "At most 8,192 members.",
    arguments: &[KEY, MEMBER.multiple()],
    parse: zmscore,
    ..SORTED
};

static SCORES_OF: ObjectReply = ObjectReply::new("zmscore", Shape::Own(write_scores));

fn zmscore(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let members = members(words, 2, words.len())?;
    request(words, SortedCommand::Scores { members }, &SCORES_OF)
}

fn write_scores(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    encode::array(out, scores(answer.value).count());
    for score in scores(answer.value) {
        match score {
            Some(score) => numbers::write(out, version, score),
            None => encode::null(out, version),
        }
    }
}

const ZRANK: CommandSpec = CommandSpec {
    name: "zrank",
    arity: -3,
    since: "2.0.0",
    summary: "Returns the number of members before a member, or null if it is not there.",
    notes: "Members are in the order of their scores, those with one score in the order of their bytes. \
With WITHSCORE, as in Redis 7.2, the reply is an array of the rank and the score.",
    arguments: &[KEY, MEMBER, Argument::word("withscore", "WITHSCORE").optional()],
    parse: |words, _| rank(words, false, [&RANK, &RANK_AND_SCORE]),
    ..SORTED
};

static RANK: ObjectReply = ObjectReply::new("zrank", Shape::Own(write_rank));
static RANK_AND_SCORE: ObjectReply = ObjectReply::new("zrank", Shape::Own(write_rank_and_score));

const ZREVRANK: CommandSpec = CommandSpec {
    name: "zrevrank",
    summary: "Returns the number of members behind a member, or null if it is not there.",
    notes: "See ZRANK.",
    parse: |words, _| rank(words, true, [&BACK_RANK, &BACK_RANK_AND_SCORE]),
    ..ZRANK
};

static BACK_RANK: ObjectReply = ObjectReply::new("zrevrank", Shape::Own(write_rank));
static BACK_RANK_AND_SCORE: ObjectReply =
    ObjectReply::new("zrevrank", Shape::Own(write_rank_and_score));

fn rank<'a>(
    words: Words<'a>,
    is_reverse: bool,
    [plain, with_score]: [&'static ObjectReply; 2],
) -> ParseResult<'a> {
    let reply = match words.len() {
        3 => plain,
        4 if words.is(3, "withscore") => with_score,
        4 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity(plain.command)),
    };
    request(words, SortedCommand::Rank { member: member(words.get(2))?, is_reverse }, reply)
}

fn write_rank(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match answer.status {
        Status::Ok => encode::integer(out, answer.number),
        _ => encode::null(out, version),
    }
}

fn write_rank_and_score(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let found = answer.value.filter(|_| answer.status == Status::Ok);
    let Some(score) = scores(found).next().flatten() else {
        return encode::null_array(out, version);
    };
    encode::array(out, 2);
    encode::integer(out, answer.number);
    numbers::write(out, version, score);
}

const ZRANDMEMBER: CommandSpec = CommandSpec {
    name: "zrandmember",
    arity: -2,
    flags: &[Flag::ReadOnly],
    since: "6.2.0",
    summary: "Returns random members.",
    complexity: "O(N) where N is the number of members in the reply, or of all of them, which are \
looked at in turns, if the count is positive and large",
    notes: "Without a count one member, or null. A positive count: so many different ones at most. A \
negative one: so many, of which some may be the same.",
    arguments: &[
        KEY,
        Argument::of(
            "options",
            Kind::Block,
            &[
                Argument::new("count", Kind::Integer),
                Argument::word("withscores", "WITHSCORES").optional(),
            ],
        )
        .optional(),
    ],
    parse: zrandmember,
    ..SORTED
};

static RANDOM_ONE: ObjectReply = ObjectReply::new("zrandmember", Shape::Own(write_member));
static RANDOM: ObjectReply = random(ScoredForm::Members);
static RANDOM_PAIRS: ObjectReply = random(ScoredForm::Pairs);

const fn random(form: ScoredForm) -> ObjectReply {
    ObjectReply { command: "zrandmember", shape: Shape::Scored(form), errors: TOO_LONG }
}

fn zrandmember(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len() == 2 {
        return request(words, SortedCommand::Random { count: -1 }, &RANDOM_ONE);
    }
    let count = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    if count == i64::MIN {
        return Err(CommandError::NotInLongRange);
    }
    let with_scores = match words.len() {
        3 => false,
        4 if words.is(3, "withscores") => true,
        _ => return Err(CommandError::Syntax),
    };
    if with_scores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::CountOutOfRange);
    }
    let reply = if with_scores { &RANDOM_PAIRS } else { &RANDOM };
    request(words, SortedCommand::Random { count }, reply)
}

fn write_member(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let member = answer.value.and_then(Scored::split_first).map(|(_, member, _)| member);
    encode::bulk_or_null(out, version, member);
}

const ZSCAN: CommandSpec = CommandSpec {
    name: "zscan",
    arity: -3,
    flags: &[Flag::ReadOnly],
    since: "2.8.0",
    summary: "Returns some members with their scores, and a cursor to go on with.",
    complexity: "O(1) for each call, O(N) for all where N is the number of members",
    notes: "The scan is over when the cursor is 0. A member that is there all the time is returned at \
least once, whatever is added meanwhile. A small set is returned whole, whatever COUNT says.",
    arguments: SCAN_ARGUMENTS,
    parse: zscan,
    ..SORTED
};

static SCAN: ObjectReply = ObjectReply::new("zscan", Shape::Scored(ScoredForm::Cursor));
static SCAN_SYNTAX: ObjectReply =
    ObjectReply::new("zscan", Shape::ErrorUnlessEmpty("ERR syntax error"));
static SCAN_NUMBER: ObjectReply = ObjectReply::new(
    "zscan",
    Shape::ErrorUnlessEmpty("ERR value is not an integer or out of range"),
);

/// ZSCAN. Options that make no sense are an error only if the key exists: so it is in Redis.
fn zscan(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let cursor = cursor(words.get(2))?;
    match scan_options(words)? {
        ScanOptions::Some(options) => {
            request(words, SortedCommand::Scan { cursor, options }, &SCAN)
        }
        ScanOptions::Syntax => request(words, SortedCommand::Length, &SCAN_SYNTAX),
        ScanOptions::Number => request(words, SortedCommand::Length, &SCAN_NUMBER),
    }
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] =
    &[ZADD, ZCARD, ZINCRBY, ZMSCORE, ZRANDMEMBER, ZRANK, ZREM, ZREVRANK, ZSCAN, ZSCORE];
