//! Requests about keys of any type, and about which keys there are.

use super::keys::{Keys, key};
use super::{Render, Request, Unit, session};
use crate::error::CommandError;
use crate::wire::Words;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_protocol::Command;
use remora_protocol::glob::Glob;
use remora_protocol::integer;

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// Keys that SCAN gives unless told.
const SCAN_COUNT: u32 = 10;

/// Which keys SCAN and KEYS give.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyFilter {
    /// MATCH: a glob pattern.
    pub pattern: Option<Glob>,
    /// TYPE: the name of a type.
    pub of_type: Option<Box<[u8]>>,
}

impl KeyFilter {
    /// Whether a key of this kind is one of them.
    pub fn admits(&self, kind: Kind, key: &[u8]) -> bool {
        let name = kind.name().as_bytes();
        let is_type = |wanted: &[u8]| wanted.eq_ignore_ascii_case(name);
        self.of_type.as_deref().is_none_or(is_type)
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(key))
    }
}

/// RENAME, RENAMENX, COPY and MOVE.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The other one.
    pub to: &'a [u8],
    /// The other one's database; `None` for the same.
    pub database: Option<Database>,
    /// Another key of that name goes.
    pub replaces: bool,
    /// The key stays.
    pub keeps: bool,
    /// To the same key of the same database is an error.
    pub must_differ: bool,
    /// How the reply is made.
    pub render: Render,
}

pub(crate) fn persist(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let command = Command::Persist { key: key(words.get(1))? };
    Ok(Request::Key(command, Render::Number("persist")))
}

pub(crate) fn expiretime(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let command = Command::ExpireTime { key: key(words.get(1))? };
    Ok(Request::Key(command, Render::Ttl(Unit::Seconds)))
}

pub(crate) fn pexpiretime(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let command = Command::ExpireTime { key: key(words.get(1))? };
    Ok(Request::Key(command, Render::Ttl(Unit::Milliseconds)))
}

pub(crate) fn touch(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Touch(Keys::checked(words, 1)?))
}

pub(crate) fn object_encoding(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Encoding { key: key(words.get(2))? }, Render::Value))
}

pub(crate) fn object_refcount(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Type { key: key(words.get(2))? }, Render::IfThere(Ok(1))))
}

pub(crate) fn object_freq(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Encoding { key: key(words.get(2))? }, Render::Touches))
}

pub(crate) fn object_idletime(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let refused = Render::IfThere(Err(
        "ERR idle time is not tracked: a client may read a key without asking the server",
    ));
    Ok(Request::Key(Command::Type { key: key(words.get(2))? }, refused))
}

/// A glob pattern of a request.
pub(crate) fn pattern(word: &[u8], ignore_case: bool) -> Result<Glob, CommandError> {
    Glob::new(word, ignore_case).ok_or(CommandError::PatternTooLong)
}

/// The cursor of SCAN and its kin, as Redis takes it: by C's `strtoul`, to which no
/// digits at all are 0, and a number may be negative.
pub(crate) fn cursor(word: &[u8]) -> Result<u64, CommandError> {
    let (is_negative, digits) = match word {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(digits).ok().filter(|_| is_number).ok_or(CommandError::Cursor)?;
    let number: u64 = text.parse().map_err(|_| CommandError::Cursor)?;
    Ok(if is_negative { number.wrapping_neg() } else { number })
}

pub(crate) fn scan(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let cursor = cursor(words.get(1))?;
    let (mut count, mut filter) = (SCAN_COUNT, KeyFilter::default());
    let mut at = 2;
    while at < words.len() {
        if at + 1 == words.len() {
            return Err(CommandError::Syntax);
        }
        let value = words.get(at + 1);
        if words.is(at, "count") {
            let wanted = integer::parse(value).ok_or(CommandError::NotAnInteger)?;
            if wanted < 1 {
                return Err(CommandError::Syntax);
            }
            count = u32::try_from(wanted).unwrap_or(u32::MAX);
        } else if words.is(at, "match") {
            filter.pattern = Some(pattern(value, false)?);
        } else if words.is(at, "type") {
            filter.of_type = Some(value.into());
        } else {
            return Err(CommandError::Syntax);
        }
        at += 2;
    }
    Ok(Request::Scan { cursor, count, filter })
}

pub(crate) fn keys(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let pattern = Some(pattern(words.get(1), false)?);
    Ok(Request::KeysOf(KeyFilter { pattern, of_type: None }))
}

pub(crate) fn randomkey(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::RandomKey)
}

fn renamed(words: Words<'_>, replaces: bool, render: Render) -> Parsed<'_> {
    let (key, to) = (key(words.get(1))?, key(words.get(2))?);
    let (database, keeps, must_differ) = (None, false, false);
    Ok(Request::Transfer(Transfer { key, to, database, replaces, keeps, must_differ, render }))
}

pub(crate) fn rename(words: Words<'_>, _now: u64) -> Parsed<'_> {
    renamed(words, true, Render::Renamed { number: false })
}

pub(crate) fn renamenx(words: Words<'_>, _now: u64) -> Parsed<'_> {
    renamed(words, false, Render::Renamed { number: true })
}

pub(crate) fn move_key(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let database = Some(session::database(words.get(2))?);
    let key = key(words.get(1))?;
    let (replaces, keeps, must_differ, render) = (false, false, true, Render::Number("move"));
    Ok(Request::Transfer(Transfer { key, to: key, database, replaces, keeps, must_differ, render }))
}

pub(crate) fn copy(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (mut database, mut replaces) = (None, false);
    let mut at = 3;
    while at < words.len() {
        if words.is(at, "replace") {
            replaces = true;
        } else if words.is(at, "db") && at + 1 < words.len() {
            at += 1;
            database = Some(session::database(words.get(at))?);
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (key, to) = (key(words.get(1))?, key(words.get(2))?);
    let (keeps, must_differ, render) = (true, true, Render::Number("copy"));
    Ok(Request::Transfer(Transfer { key, to, database, replaces, keeps, must_differ, render }))
}

pub(crate) fn cluster_keyslot(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::KeySlot(words.get(2)))
}
