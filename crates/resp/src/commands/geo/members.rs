//! Members of GEO keys: commands add, read and remove them. Of the sorted-set commands there are
//! only those that users of GEO keys need.

use super::numbers::{distance, number_text, position, score_text, scores};
use super::words::{self, GEO, LATITUDE, LONGITUDE, MEMBER, UNIT, UNITS, member, unit};
use crate::arguments::KEY;
use crate::error::CommandError;
use crate::form::{GeoError, ObjectReply, ReplyForm, Shape, WriteReply};
use crate::keys::key;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::MAX_COMMAND_MEMBERS;
use remora_protocol::Condition;
use remora_protocol::geo::{GeoCommand, Member, Members, Position};

fn request<'a>(
    words: Words<'a>,
    command: GeoCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    let (key, form) = (key(words.get(1))?, ReplyForm::Object(reply));
    Ok(Request::Object { key, request: command.request(), form })
}

/// The arguments from some index on as members.
fn members(words: Words<'_>, from: usize, to: usize) -> Result<Members<'_>, GeoError> {
    if to - from > MAX_COMMAND_MEMBERS {
        return Err(GeoError::TooManyMembers);
    }
    let mut list = Vec::new();
    for at in from..to {
        Members::push(&mut list, &Member { member: member(words.get(at))?, ..Member::default() });
    }
    Ok(made(words, list))
}

fn made(words: Words<'_>, list: Vec<u8>) -> Members<'_> {
    Members::parse(words.keep(list)).expect("it was just made")
}

const CONDITION: Argument = Argument::of(
    "condition",
    Kind::OneOf,
    &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
)
.optional();

const GEOADD: CommandSpec = CommandSpec {
    name: "geoadd",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "update"]),
    summary: "Adds members with their positions to a GEO key, or moves them.",
    notes: "Returns the number of new members, with CH also those that were moved. NX moves none, \
XX adds none. Longitudes go from -180 to 180, latitudes from -85.05112878 to 85.05112878. A GEO key \
is a key as that of a string is: DEL, EXISTS, EXPIRE, TTL and DBSIZE know it, SET and MSET overwrite \
it, and what reads or changes strings refuses it. It is gone with \
its last member. If memory ends, the members before stay added.",
    arguments: &[
        KEY,
        CONDITION,
        Argument::word("change", "CH").optional(),
        Argument::of("data", Kind::Block, &[LONGITUDE, LATITUDE, MEMBER]).multiple(),
    ],
    parse: geoadd,
    ..GEO
};

static ADDED: ObjectReply = ObjectReply::new("geoadd", Shape::Number);

fn geoadd(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (mut absent, mut present, mut tell_changed) = (false, false, false);
    let mut at = 2;
    while at < words.len() {
        let options =
            [("nx", &mut absent), ("xx", &mut present), ("ch", &mut tell_changed)].into_iter();
        let Some((_, option)) = options.into_iter().find(|(name, _)| words.is(at, name)) else {
            break;
        };
        *option = true;
        at += 1;
    }
    if (absent && present) || at == words.len() || !(words.len() - at).is_multiple_of(3) {
        return Err(CommandError::Syntax);
    }
    if words.len() - at > 3 * MAX_COMMAND_MEMBERS {
        return Err(GeoError::TooManyMembers.into());
    }
    let condition = match (absent, present) {
        (true, _) => Condition::IfAbsent,
        (_, true) => Condition::IfPresent,
        _ => Condition::Always,
    };
    let mut list = Vec::new();
    for at in (at..words.len()).step_by(3) {
        let score = words::position(words, at)?.score();
        let member = member(words.get(at + 2))?;
        Members::push(&mut list, &Member { score, distance: 0.0, member });
    }
    let places = made(words, list);
    request(words, GeoCommand::Add { condition, tell_changed, places }, &ADDED)
}

const GEODIST: CommandSpec = CommandSpec {
    name: "geodist",
    arity: -4,
    summary: "Returns the distance of two members, or null if one is not there.",
    complexity: "O(1)",
    notes: "In metres without a unit. The earth is a sphere with a radius of 6372797.560856 m.",
    arguments: &[
        KEY,
        Argument::new("member1", Kind::String),
        Argument::new("member2", Kind::String),
        UNIT.optional(),
    ],
    parse: geodist,
    ..GEO
};

/// By the unit of the distance.
static DISTANCES: [ObjectReply; UNITS.len()] = [
    distance_as(|out, version, answer| write_distance(out, version, answer, UNITS[0].1)),
    distance_as(|out, version, answer| write_distance(out, version, answer, UNITS[1].1)),
    distance_as(|out, version, answer| write_distance(out, version, answer, UNITS[2].1)),
    distance_as(|out, version, answer| write_distance(out, version, answer, UNITS[3].1)),
];

const fn distance_as(write: WriteReply) -> ObjectReply {
    ObjectReply::new("geodist", Shape::Own(write))
}

fn geodist(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let unit = match words.len() {
        4 => 0,
        5 => unit(words, 4)?,
        _ => return Err(CommandError::Syntax),
    };
    let places = members(words, 2, 4)?;
    request(words, GeoCommand::Scores { places }, &DISTANCES[unit])
}

fn write_distance(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>, unit: f64) {
    let mut both = scores(answer.value).map(|score| score.map(Position::of_score));
    match (both.next().flatten(), both.next().flatten()) {
        (Some(from), Some(to)) => distance(out, from.distance(to), unit),
        _ => encode::null(out, version),
    }
}

const GEOHASH: CommandSpec = CommandSpec {
    name: "geohash",
    arity: -2,
    summary: "Returns members' positions as geohashes of eleven digits.",
    complexity: "O(1) for each member",
    arguments: &[KEY, MEMBER.optional().multiple()],
    parse: geohash,
    ..GEO
};

static HASHES: ObjectReply = ObjectReply::new("geohash", Shape::Own(write_hashes));

fn geohash(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let places = members(words, 2, words.len())?;
    request(words, GeoCommand::Scores { places }, &HASHES)
}

fn write_hashes(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    encode::array(out, scores(answer.value).count());
    for score in scores(answer.value) {
        let hash = score.map(|score| Position::of_score(score).geohash());
        encode::bulk_or_null(out, version, hash.as_ref().map(|hash| &hash[..]));
    }
}

const GEOPOS: CommandSpec = CommandSpec {
    name: "geopos",
    arity: -2,
    summary: "Returns members' longitudes and latitudes.",
    complexity: "O(1) for each member",
    arguments: &[KEY, MEMBER.optional().multiple()],
    parse: geopos,
    ..GEO
};

static POSITIONS: ObjectReply = ObjectReply::new("geopos", Shape::Own(write_positions));

fn geopos(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let places = members(words, 2, words.len())?;
    request(words, GeoCommand::Scores { places }, &POSITIONS)
}

fn write_positions(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    encode::array(out, scores(answer.value).count());
    for score in scores(answer.value) {
        match score {
            Some(score) => position(out, version, score),
            None => encode::null_array(out, version),
        }
    }
}

/// Notes for the sorted-set commands that exist.
const SORTED_SET_NOTES: &str = "For GEO keys; there are no other sorted sets. The other commands \
of sorted sets, ZADD or ZRANGE for example, are unknown: members come by GEOADD and are found by GEOSEARCH.";

const SORTED_SET: CommandSpec = CommandSpec {
    categories: &["sortedset"],
    since: "1.2.0",
    group: Group::new("sorted-set", "Sorted sets"),
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    notes: SORTED_SET_NOTES,
    ..CommandSpec::PLAIN
};

const ZCARD: CommandSpec = CommandSpec {
    name: "zcard",
    arity: 2,
    keys: KeyPlaces::one(&["RO"]),
    summary: "Returns the number of members; 0 without the key.",
    arguments: &[KEY],
    parse: zcard,
    ..SORTED_SET
};

static COUNT: ObjectReply = ObjectReply::new("zcard", Shape::Number);

fn zcard(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    request(words, GeoCommand::Members, &COUNT)
}

const ZREM: CommandSpec = CommandSpec {
    name: "zrem",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes members; returns how many of them were there.",
    complexity: "O(log N) for each member where N is the number of members",
    arguments: &[KEY, MEMBER.multiple()],
    parse: zrem,
    ..SORTED_SET
};

static REMOVED: ObjectReply = ObjectReply::new("zrem", Shape::Number);

fn zrem(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let places = members(words, 2, words.len())?;
    request(words, GeoCommand::Remove { places }, &REMOVED)
}

const ZSCORE: CommandSpec = CommandSpec {
    name: "zscore",
    arity: 3,
    summary: "Returns a member's score, or null if it is not there.",
    arguments: &[KEY, MEMBER],
    parse: zscore,
    ..SORTED_SET
};

static SCORE: ObjectReply = ObjectReply::new("zscore", Shape::Own(write_score));

fn zscore(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let places = members(words, 2, 3)?;
    request(words, GeoCommand::Scores { places }, &SCORE)
}

fn write_score(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    match scores(answer.value).next().flatten() {
        Some(score) => number_text(out, version, &score_text(score)),
        None => encode::null(out, version),
    }
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] =
    &[GEOADD, GEODIST, GEOHASH, GEOPOS, ZCARD, ZREM, ZSCORE];
