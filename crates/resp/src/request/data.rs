//! Requests about data. The table has checked the number of arguments.

use super::keys::{Keys, Pairs, key, value};
use super::{Render, Request, Unit, expiry};
use crate::error::CommandError;
use crate::wire::Words;
use remora_protocol::integer;
use remora_protocol::{Command, Condition, Expiry};

type Parsed<'a> = Result<Request<'a>, CommandError>;

pub(crate) fn get(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Get { key: key(words.get(1))? }, Render::Value))
}

pub(crate) fn set(words: Words<'_>, now_unix_ms: u64) -> Parsed<'_> {
    let mut condition = Condition::Always;
    let mut get = false;
    let mut keep = false;
    // The option that sets an expiry, and the argument after it.
    let mut timed: Option<(expiry::Form, &[u8])> = None;
    let mut at = 3;
    while at < words.len() {
        if words.is(at, "nx") && condition != Condition::IfPresent {
            condition = Condition::IfAbsent;
        } else if words.is(at, "xx") && condition != Condition::IfAbsent {
            condition = Condition::IfPresent;
        } else if words.is(at, "get") {
            get = true;
        } else if words.is(at, "keepttl") && timed.is_none() {
            keep = true;
        } else if let Some(form) = expiry::Form::of_option(words.get(at))
            && !keep
            && timed.is_none_or(|(other, _)| other == form)
            && at + 1 < words.len()
        {
            at += 1;
            timed = Some((form, words.get(at)));
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let expiry = match timed {
        None if keep => Expiry::Keep,
        None => Expiry::Never,
        Some((form, text)) => {
            let number = integer::parse(text).ok_or(CommandError::NotAnInteger)?;
            if number <= 0 {
                return Err(CommandError::InvalidExpiry("set"));
            }
            Expiry::At(form.at_ms(number, now_unix_ms, "set")?)
        }
    };
    let (key, value) = (key(words.get(1))?, value(words.get(2))?);
    let command = Command::Set { key, value, condition, expiry, get };
    Ok(Request::Key(command, Render::Set { get }))
}

pub(crate) fn del(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Del(Keys::checked(words, 1)?))
}

pub(crate) fn exists(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Exists(Keys::checked(words, 1)?))
}

pub(crate) fn mget(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::MGet(Keys::checked(words, 1)?))
}

pub(crate) fn mset(words: Words<'_>, _now: u64) -> Parsed<'_> {
    match Pairs::checked(words, 1)? {
        Some(pairs) => Ok(Request::MSet(pairs)),
        None => Err(CommandError::WrongArity("mset")),
    }
}

fn add(words: Words<'_>, by: i64) -> Parsed<'_> {
    let command = Command::Incr { key: key(words.get(1))?, by };
    Ok(Request::Key(command, Render::Number("incr")))
}

pub(crate) fn incr(words: Words<'_>, _now: u64) -> Parsed<'_> {
    add(words, 1)
}

pub(crate) fn decr(words: Words<'_>, _now: u64) -> Parsed<'_> {
    add(words, -1)
}

pub(crate) fn incrby(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let by = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    add(words, by)
}

pub(crate) fn decrby(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let by = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let by = by.checked_neg().ok_or(CommandError::DecrementOverflow)?;
    add(words, by)
}

pub(crate) fn ttl(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Ttl { key: key(words.get(1))? }, Render::Ttl(Unit::Seconds)))
}

pub(crate) fn pttl(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Ttl { key: key(words.get(1))? }, Render::Ttl(Unit::Milliseconds)))
}

pub(crate) fn dbsize(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::DbSize)
}

pub(crate) fn debug_digest(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Digest)
}

pub(crate) fn debug_digest_value(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::DigestValues(Keys::checked(words, 2)?))
}

/// Memory is reclaimed slot by slot in any case, so ASYNC and SYNC mean the
/// same.
fn flushed<'a>(words: Words<'a>, request: Request<'a>) -> Parsed<'a> {
    let is_mode = || words.is(1, "async") || words.is(1, "sync");
    match words.len() {
        1 => Ok(request),
        2 if is_mode() => Ok(request),
        _ => Err(CommandError::Syntax),
    }
}

pub(crate) fn flushall(words: Words<'_>, _now: u64) -> Parsed<'_> {
    flushed(words, Request::FlushAll)
}

pub(crate) fn flushdb(words: Words<'_>, _now: u64) -> Parsed<'_> {
    flushed(words, Request::FlushDb)
}

pub(crate) fn type_of(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::Type { key: key(words.get(1))? }, Render::Type))
}
