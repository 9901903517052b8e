//! Members of GEO keys: commands add them and say where they are. A GEO key is a sorted set whose scores
//! are geohashes.

use super::numbers::{distance, position};
use super::words::{self, GEO, LATITUDE, LONGITUDE, MEMBER, UNIT, UNITS, unit};
use crate::arguments::KEY;
use crate::commands::sorted::{kept, member, members, request, scores};
use crate::error::CommandError;
use crate::form::{ObjectReply, Shape, WriteReply};
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_layout::limits::MAX_COMMAND_MEMBERS;
use remora_protocol::Condition;
use remora_protocol::geo::Position;
use remora_protocol::sorted::{Scored, SortedCommand, When};

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
is a sorted set whose scores are geohashes of 52 bits: the commands of sorted sets know it, and ZREM removes \
members. It is gone with its last member. One change: others see all of it, or nothing.",
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
    let (mut absent, mut present, mut counts_changed) = (false, false, false);
    let mut at = 2;
    while at < words.len() {
        let options =
            [("nx", &mut absent), ("xx", &mut present), ("ch", &mut counts_changed)].into_iter();
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
        return Err(CommandError::TooManyMembers);
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
        Scored::push(&mut list, score, member);
    }
    let (when, members) = (When { condition, ..When::default() }, kept(words, list));
    request(words, SortedCommand::Add { when, counts_changed, members }, &ADDED)
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
    let members = members(words, 2, 4)?;
    request(words, SortedCommand::Scores { members }, &DISTANCES[unit])
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
    let members = members(words, 2, words.len())?;
    request(words, SortedCommand::Scores { members }, &HASHES)
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
    let members = members(words, 2, words.len())?;
    request(words, SortedCommand::Scores { members }, &POSITIONS)
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

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] = &[GEOADD, GEODIST, GEOHASH, GEOPOS];
