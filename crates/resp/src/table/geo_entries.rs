//! Entries of the commands about GEO keys, and of those of sorted sets that
//! users of GEO keys need.

use super::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind};
use crate::request::parsers;

const KEY: Argument = Argument::new("key", Kind::Key);
const DESTINATION: Argument = Argument::new("destination", Kind::Key);
const SOURCE: Argument = Argument::new("source", Kind::Key);
const MEMBER: Argument = Argument::new("member", Kind::String);
const LONGITUDE: Argument = Argument::new("longitude", Kind::Double);
const LATITUDE: Argument = Argument::new("latitude", Kind::Double);
const RADIUS: Argument = Argument::new("radius", Kind::Double);
const UNITS: &[Argument] = &[
    Argument::word("m", "M"),
    Argument::word("km", "KM"),
    Argument::word("ft", "FT"),
    Argument::word("mi", "MI"),
];
const UNIT: Argument = Argument::of("unit", Kind::OneOf, UNITS);
const CONDITION: Argument = Argument::of(
    "condition",
    Kind::OneOf,
    &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
)
.optional();
const COUNT: Argument = Argument::of(
    "count-block",
    Kind::Block,
    &[
        Argument::new("count", Kind::Integer).after("COUNT"),
        Argument::word("any", "ANY").optional(),
    ],
)
.optional();
const ORDER: Argument = Argument::of(
    "order",
    Kind::OneOf,
    &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")],
)
.optional();
const WITH_COORD: Argument = Argument::word("withcoord", "WITHCOORD").optional();
const WITH_DIST: Argument = Argument::word("withdist", "WITHDIST").optional();
const WITH_HASH: Argument = Argument::word("withhash", "WITHHASH").optional();
const STORE: Argument = Argument::of(
    "store",
    Kind::OneOf,
    &[
        Argument::new("storekey", Kind::Key).after("STORE"),
        Argument::new("storedistkey", Kind::Key).after("STOREDIST"),
    ],
)
.optional();
const FROM: Argument = Argument::of(
    "from",
    Kind::OneOf,
    &[
        MEMBER.after("FROMMEMBER"),
        Argument::of("fromlonlat", Kind::Block, &[LONGITUDE, LATITUDE]).after("FROMLONLAT"),
    ],
);
const BY: Argument = Argument::of(
    "by",
    Kind::OneOf,
    &[
        Argument::of("circle", Kind::Block, &[RADIUS, UNIT]).after("BYRADIUS"),
        Argument::of(
            "box",
            Kind::Block,
            &[Argument::new("width", Kind::Double), Argument::new("height", Kind::Double), UNIT],
        )
        .after("BYBOX"),
    ],
);

const GEO: CommandSpec = CommandSpec {
    categories: &["geo"],
    since: "3.2.0",
    group: Group::GEO,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    complexity: "O(log N) for each member where N is the number of members",
    ..CommandSpec::PLAIN
};

/// What a search costs.
const SEARCHING: &str = "Usually O(log N + M) where N is the number of members and M of those \
found; to sort them costs O(M log M)";

/// What holds for each search.
const SEARCH_NOTES: &str = "Without ASC or DESC there is no order; with COUNT alone the nearest \
come, with COUNT and ANY any that many, sooner. A member is told at the centre of its cell, less \
than a metre from where it was put. Redis looks at nine cells and can miss members near the poles; \
here none is missed. While the key changes, a member that was within all the time is found, once. \
A search of many members lets the shard do other work in between, and what a connection sends \
behind it waits for its reply.";

/// What holds for each search whose outcome is stored.
const STORE_NOTES: &str = "The outcome replaces what the other key held, whatever it was; without \
any member that key is removed. With STOREDIST the scores are the distances. Searching and storing \
are two steps: others may see the key that is searched change in between, but never a part of what \
is stored. More than 8,192 members are stored in pieces: if the other key is being renamed, copied or \
moved at the end of it, or a shard has too many such stores and moves under way, it keeps what it had, \
and the answer is TRYAGAIN.";

pub(super) const GEOADD: CommandSpec = CommandSpec {
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
    parse: parsers::geoadd,
    ..GEO
};

pub(super) const GEODIST: CommandSpec = CommandSpec {
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
    parse: parsers::geodist,
    ..GEO
};

pub(super) const GEOHASH: CommandSpec = CommandSpec {
    name: "geohash",
    arity: -2,
    summary: "Returns members' positions as geohashes of eleven digits.",
    complexity: "O(1) for each member",
    arguments: &[KEY, MEMBER.optional().multiple()],
    parse: parsers::geohash,
    ..GEO
};

pub(super) const GEOPOS: CommandSpec = CommandSpec {
    name: "geopos",
    arity: -2,
    summary: "Returns members' longitudes and latitudes.",
    complexity: "O(1) for each member",
    arguments: &[KEY, MEMBER.optional().multiple()],
    parse: parsers::geopos,
    ..GEO
};

pub(super) const GEORADIUS: CommandSpec = CommandSpec {
    name: "georadius",
    arity: -6,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RO", "access"]),
    summary: "Returns or stores the members within a distance of a position.",
    complexity: SEARCHING,
    notes: "As GEOSEARCH with FROMLONLAT and BYRADIUS. With STORE or STOREDIST as GEOSEARCHSTORE.",
    arguments: &[
        KEY, LONGITUDE, LATITUDE, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER,
        STORE,
    ],
    parse: parsers::georadius,
    ..GEO
};

pub(super) const GEORADIUS_RO: CommandSpec = CommandSpec {
    name: "georadius_ro",
    flags: &[Flag::ReadOnly],
    summary: "Returns the members within a distance of a position.",
    since: "3.2.10",
    notes: "As GEOSEARCH with FROMLONLAT and BYRADIUS.",
    arguments: &[
        KEY, LONGITUDE, LATITUDE, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER,
    ],
    parse: parsers::georadius_ro,
    ..GEORADIUS
};

pub(super) const GEORADIUSBYMEMBER: CommandSpec = CommandSpec {
    name: "georadiusbymember",
    arity: -5,
    summary: "Returns or stores the members within a distance of a member.",
    notes: "As GEOSEARCH with FROMMEMBER and BYRADIUS. With STORE or STOREDIST as GEOSEARCHSTORE.",
    arguments: &[KEY, MEMBER, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER, STORE],
    parse: parsers::georadiusbymember,
    ..GEORADIUS
};

pub(super) const GEORADIUSBYMEMBER_RO: CommandSpec = CommandSpec {
    name: "georadiusbymember_ro",
    arity: -5,
    summary: "Returns the members within a distance of a member.",
    notes: "As GEOSEARCH with FROMMEMBER and BYRADIUS.",
    arguments: &[KEY, MEMBER, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER],
    parse: parsers::georadiusbymember_ro,
    ..GEORADIUS_RO
};

pub(super) const GEOSEARCH: CommandSpec = CommandSpec {
    name: "geosearch",
    arity: -7,
    since: "6.2.0",
    summary: "Returns the members within a circle or a box.",
    complexity: SEARCHING,
    notes: SEARCH_NOTES,
    arguments: &[KEY, FROM, BY, ORDER, COUNT, WITH_COORD, WITH_DIST, WITH_HASH],
    parse: parsers::geosearch,
    ..GEO
};

pub(super) const GEOSEARCHSTORE: CommandSpec = CommandSpec {
    name: "geosearchstore",
    arity: -8,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces { first: 1, last: 2, step: 1, access: &["OW", "update"] },
    summary: "Stores the members within a circle or a box in another key; returns their number.",
    notes: STORE_NOTES,
    arguments: &[
        DESTINATION,
        SOURCE,
        FROM,
        BY,
        ORDER,
        COUNT,
        Argument::word("storedist", "STOREDIST").optional(),
    ],
    parse: parsers::geosearchstore,
    ..GEOSEARCH
};

/// What holds for the commands of sorted sets that there are.
const SORTED_SET_NOTES: &str = "For GEO keys; there are no other sorted sets. The other commands \
of sorted sets, ZADD or ZRANGE for example, are unknown: members come by GEOADD and are found by GEOSEARCH.";

const SORTED_SET: CommandSpec = CommandSpec {
    categories: &["sortedset"],
    since: "1.2.0",
    group: Group::SORTED_SET,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    notes: SORTED_SET_NOTES,
    ..CommandSpec::PLAIN
};

pub(super) const ZCARD: CommandSpec = CommandSpec {
    name: "zcard",
    arity: 2,
    keys: KeyPlaces::one(&["RO"]),
    summary: "Returns the number of members; 0 without the key.",
    arguments: &[KEY],
    parse: parsers::zcard,
    ..SORTED_SET
};

pub(super) const ZREM: CommandSpec = CommandSpec {
    name: "zrem",
    arity: -3,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes members; returns how many of them were there.",
    complexity: "O(log N) for each member where N is the number of members",
    arguments: &[KEY, MEMBER.multiple()],
    parse: parsers::zrem,
    ..SORTED_SET
};

pub(super) const ZSCORE: CommandSpec = CommandSpec {
    name: "zscore",
    arity: 3,
    summary: "Returns a member's score, or null if it is not there.",
    arguments: &[KEY, MEMBER],
    parse: parsers::zscore,
    ..SORTED_SET
};
