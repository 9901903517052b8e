//! Requests about parts of values, and the short words for SET and GET with
//! options. The table has checked the number of arguments.

use super::expiry::Form;
use super::keys::{key, value};
use super::{Render, Request};
use crate::error::CommandError;
use crate::wire::Words;
use remora_layout::limits::MAX_VALUE_BYTES;
use remora_protocol::integer;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// A part to be written: one beyond the limit makes any value too long.
fn part(part: &[u8]) -> Result<&[u8], CommandError> {
    if part.len() > MAX_VALUE_BYTES { Err(CommandError::StringTooLong) } else { Ok(part) }
}

pub(crate) fn append(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(
        Command::Append { key: key(words.get(1))?, value: part(words.get(2))? },
        Render::Number("append"),
    ))
}

pub(crate) fn strlen(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::StrLen { key: key(words.get(1))? }, Render::Number("strlen")))
}

pub(crate) fn setrange(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let offset = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let offset = u64::try_from(offset).map_err(|_| CommandError::Offset)?;
    Ok(Request::Key(
        Command::SetRange { key: key(words.get(1))?, offset, value: part(words.get(3))? },
        Render::Number("setrange"),
    ))
}

/// GETRANGE and SUBSTR.
pub(crate) fn getrange(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let start = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let end = integer::parse(words.get(3)).ok_or(CommandError::NotAnInteger)?;
    Ok(Request::Key(Command::get_range(key(words.get(1))?, start, end), Render::Value))
}

/// The offset of a bit: below 2^32, as in Redis.
fn bit_offset(word: &[u8]) -> Result<u32, CommandError> {
    let offset = integer::parse(word).and_then(|offset| u32::try_from(offset).ok());
    offset.ok_or(CommandError::BitOffset)
}

pub(crate) fn setbit(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let offset = bit_offset(words.get(2))?;
    let bit = match integer::parse(words.get(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(CommandError::Bit),
    };
    Ok(Request::Key(
        Command::SetBit { key: key(words.get(1))?, offset, bit },
        Render::Number("setbit"),
    ))
}

pub(crate) fn getbit(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let offset = bit_offset(words.get(2))?;
    Ok(Request::Key(Command::GetBit { key: key(words.get(1))?, offset }, Render::Number("getbit")))
}

pub(crate) fn getdel(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Key(Command::GetDel { key: key(words.get(1))? }, Render::Value))
}

/// GETEX. An option that makes no sense is an error at once, a time that makes
/// none only if the key exists: so it is in Redis.
pub(crate) fn getex(words: Words<'_>, now_unix_ms: u64) -> Parsed<'_> {
    let mut persist = false;
    let mut timed: Option<(Form, &[u8])> = None;
    let mut at = 2;
    while at < words.len() {
        if words.is(at, "persist") && timed.is_none() {
            persist = true;
        } else if let Some(form) = Form::of_option(words.get(at))
            && !persist
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
    let key = key(words.get(1))?;
    let at_ms = match timed {
        None if persist => Ok(None),
        None => return Ok(Request::Key(Command::Get { key }, Render::Value)),
        Some((form, text)) => match integer::parse(text) {
            None => Err(Status::NotAnInteger),
            Some(number) if number <= 0 => Err(Status::InvalidExpiry),
            Some(number) => match form.at_ms(number, now_unix_ms, "getex") {
                Ok(at_ms) => Ok(Some(at_ms)),
                Err(_) => Err(Status::InvalidExpiry),
            },
        },
    };
    Ok(match at_ms {
        Ok(at_ms) => Request::Key(Command::GetEx { key, at_ms }, Render::Value),
        Err(status) => Request::Key(Command::Exists { key }, Render::NullOrError(status, "getex")),
    })
}

pub(crate) fn getset(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (key, value) = (key(words.get(1))?, value(words.get(2))?);
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let command = Command::Set { key, value, condition, expiry, get: true };
    Ok(Request::Key(command, Render::Set { get: true }))
}

pub(crate) fn setnx(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (key, value) = (key(words.get(1))?, value(words.get(2))?);
    let (condition, expiry) = (Condition::IfAbsent, Expiry::Never);
    let command = Command::Set { key, value, condition, expiry, get: false };
    Ok(Request::Key(command, Render::Done("setnx")))
}

pub(crate) fn setex(words: Words<'_>, now_unix_ms: u64) -> Parsed<'_> {
    set_in_form(words, now_unix_ms, Form::InSeconds, "setex")
}

pub(crate) fn psetex(words: Words<'_>, now_unix_ms: u64) -> Parsed<'_> {
    set_in_form(words, now_unix_ms, Form::InMs, "psetex")
}

fn set_in_form<'a>(
    words: Words<'a>,
    now_unix_ms: u64,
    form: Form,
    command: &'static str,
) -> Parsed<'a> {
    let number = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    if number <= 0 {
        return Err(CommandError::InvalidExpiry(command));
    }
    let (key, value) = (key(words.get(1))?, value(words.get(3))?);
    let expiry = Expiry::At(form.at_ms(number, now_unix_ms, command)?);
    let command = Command::Set { key, value, condition: Condition::Always, expiry, get: false };
    Ok(Request::Key(command, Render::Set { get: false }))
}
