//! Entries of the commands that look at a value or change it piece by piece or
//! as a number, and of those that are one word for what SET and GET can do with
//! options.

use super::{CommandSpec, Flag, Group, KeyPlaces, arguments as args};
use crate::request::parsers;

const STRING: CommandSpec =
    CommandSpec { categories: &["string"], group: Group::STRING, ..CommandSpec::PLAIN };
const BITMAP: CommandSpec = CommandSpec { categories: &["bitmap"], ..STRING };

/// What holds for each command that changes a part of a value.
const EDIT_NOTES: &str = "The expiry stays. A value that would be longer than the limit is an \
error, and nothing is changed.";

pub(super) const APPEND: CommandSpec = CommandSpec {
    name: "append",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "insert"]),
    since: "2.0.0",
    summary: "Appends to a value; an absent key counts as empty. Returns the new length.",
    complexity: "O(N) where N is the length of the new value",
    notes: EDIT_NOTES,
    arguments: args::ONE_PAIR,
    parse: parsers::append,
    ..STRING
};

pub(super) const DECR: CommandSpec = CommandSpec {
    name: "decr",
    arity: 2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Subtracts one from the integer that a key holds; an absent key counts as 0.",
    arguments: args::ONE_KEY,
    parse: parsers::decr,
    ..STRING
};

pub(super) const DECRBY: CommandSpec = CommandSpec {
    name: "decrby",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Subtracts a number from the integer that a key holds; an absent key counts as 0.",
    arguments: args::DECREMENT,
    parse: parsers::decrby,
    ..STRING
};

pub(super) const GETBIT: CommandSpec = CommandSpec {
    name: "getbit",
    arity: 3,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO", "access"]),
    since: "2.2.0",
    summary: "Returns a bit of a value; bits behind the end and of an absent key are 0.",
    notes: "Bit 0 is the highest bit of the first byte.",
    arguments: args::GETBIT,
    parse: parsers::getbit,
    ..BITMAP
};

pub(super) const GETDEL: CommandSpec = CommandSpec {
    name: "getdel",
    arity: 2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "delete"]),
    since: "6.2.0",
    summary: "Removes a key and returns the value that it had, or null.",
    arguments: args::ONE_KEY,
    parse: parsers::getdel,
    ..STRING
};

pub(super) const GETEX: CommandSpec = CommandSpec {
    name: "getex",
    arity: -2,
    flags: &[Flag::Write, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    since: "6.2.0",
    summary: "Returns the value of a key, or null, and sets its expiry or takes it away.",
    notes: "Without an option it is GET. A time in the past removes the key. Expiries reach to the \
year 2527.",
    arguments: args::GETEX,
    parse: parsers::getex,
    ..STRING
};

pub(super) const GETRANGE: CommandSpec = CommandSpec {
    name: "getrange",
    arity: 4,
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    since: "2.4.0",
    summary: "Returns a part of a value; empty if the key is absent.",
    complexity: "O(N) where N is the length of the part",
    notes: "Both ends are included; negative ones count from the end of the value, -1 being the \
last byte.",
    arguments: args::GETRANGE,
    parse: parsers::getrange,
    ..STRING
};

pub(super) const GETSET: CommandSpec = CommandSpec {
    name: "getset",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Sets a key and returns the value that it had, or null.",
    notes: "SET with GET does the same.",
    arguments: args::ONE_PAIR,
    parse: parsers::getset,
    ..STRING
};

pub(super) const INCR: CommandSpec = CommandSpec {
    name: "incr",
    arity: 2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Adds one to the integer that a key holds; an absent key counts as 0.",
    notes: "Values are 64-bit signed integers in decimal; a result beyond them is an error. The \
expiry stays.",
    arguments: args::ONE_KEY,
    parse: parsers::incr,
    ..STRING
};

pub(super) const INCRBY: CommandSpec = CommandSpec {
    name: "incrby",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    summary: "Adds a number to the integer that a key holds; an absent key counts as 0.",
    arguments: args::INCREMENT,
    parse: parsers::incrby,
    ..STRING
};

pub(super) const PSETEX: CommandSpec = CommandSpec {
    name: "psetex",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["OW", "update"]),
    since: "2.6.0",
    summary: "Sets a key and its time to live in milliseconds.",
    notes: "SET with PX does the same. Expiries reach to the year 2527.",
    arguments: args::PSETEX,
    parse: parsers::psetex,
    ..STRING
};

pub(super) const SETBIT: CommandSpec = CommandSpec {
    name: "setbit",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "access", "update"]),
    since: "2.2.0",
    summary: "Sets a bit of a value and returns the bit before; what is added between is 0.",
    complexity: "O(N) where N is the length of the new value",
    notes: "Bit 0 is the highest bit of the first byte. The expiry stays. A bit beyond the longest \
value is an error, and nothing is changed.",
    arguments: args::SETBIT,
    parse: parsers::setbit,
    ..BITMAP
};

pub(super) const SETEX: CommandSpec = CommandSpec {
    name: "setex",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["OW", "update"]),
    since: "2.0.0",
    summary: "Sets a key and its time to live in seconds.",
    notes: "SET with EX does the same. Expiries reach to the year 2527.",
    arguments: args::SETEX,
    parse: parsers::setex,
    ..STRING
};

pub(super) const SETNX: CommandSpec = CommandSpec {
    name: "setnx",
    arity: 3,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["OW", "insert"]),
    summary: "Sets a key if it does not exist; returns 1 if it was set, 0 if not.",
    arguments: args::ONE_PAIR,
    parse: parsers::setnx,
    ..STRING
};

pub(super) const SETRANGE: CommandSpec = CommandSpec {
    name: "setrange",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "update"]),
    since: "2.2.0",
    summary: "Overwrites a part of a value, behind zeros if need be. Returns the new length.",
    complexity: "O(N) where N is the length of the new value",
    notes: EDIT_NOTES,
    arguments: args::SETRANGE,
    parse: parsers::setrange,
    ..STRING
};

pub(super) const STRLEN: CommandSpec = CommandSpec {
    name: "strlen",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    keys: KeyPlaces::one(&["RO"]),
    since: "2.2.0",
    summary: "Returns the length of a value in bytes; 0 if the key is absent.",
    arguments: args::ONE_KEY,
    parse: parsers::strlen,
    ..STRING
};

pub(super) const SUBSTR: CommandSpec = CommandSpec {
    name: "substr",
    since: "1.0.0",
    summary: "Returns a part of a value, as GETRANGE does.",
    notes: "See GETRANGE.",
    ..GETRANGE
};
