//! Requests about parts of values, and the short words for SET and GET with
//! options. The table has checked the number of arguments.

use super::expiry::Form;
use super::keys::{key, value};
use super::{ExpiryChange, Request};
use crate::error::CommandError;
use crate::resp::Words;
use remora_engine::command::{Condition, Expiry};
use remora_engine::integer;
use remora_engine::string_edit::narrow_range;
use remora_layout::limits::MAX_VALUE_BYTES;
use remora_layout::message::Status;

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// A part to be written: one beyond the limit makes any value too long.
fn part(part: &[u8]) -> Result<&[u8], CommandError> {
    if part.len() > MAX_VALUE_BYTES { Err(CommandError::StringTooLong) } else { Ok(part) }
}

pub(crate) fn append(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Append { key: key(words.get(1))?, value: part(words.get(2))? })
}

pub(crate) fn strlen(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::StrLen { key: key(words.get(1))? })
}

pub(crate) fn setrange(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let offset = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let offset = u64::try_from(offset).map_err(|_| CommandError::Offset)?;
    Ok(Request::SetRange { key: key(words.get(1))?, offset, value: part(words.get(3))? })
}

/// GETRANGE and SUBSTR.
pub(crate) fn getrange(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let start = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let end = integer::parse(words.get(3)).ok_or(CommandError::NotAnInteger)?;
    let (start, end) = narrow_range(start, end);
    Ok(Request::GetRange { key: key(words.get(1))?, start, end })
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
    Ok(Request::SetBit { key: key(words.get(1))?, offset, bit })
}

pub(crate) fn getbit(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let offset = bit_offset(words.get(2))?;
    Ok(Request::GetBit { key: key(words.get(1))?, offset })
}

pub(crate) fn getdel(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::GetDel { key: key(words.get(1))? })
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
    let change = match timed {
        None if persist => ExpiryChange::Clear,
        None => return Ok(Request::Get { key }),
        Some((form, text)) => match integer::parse(text) {
            None => ExpiryChange::Invalid(Status::NotAnInteger),
            Some(number) if number <= 0 => ExpiryChange::Invalid(Status::InvalidExpiry),
            Some(number) => match form.at_ms(number, now_unix_ms, "getex") {
                Ok(at_ms) => ExpiryChange::At(at_ms),
                Err(_) => ExpiryChange::Invalid(Status::InvalidExpiry),
            },
        },
    };
    Ok(Request::GetEx { key, change })
}

pub(crate) fn getset(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Set {
        key: key(words.get(1))?,
        value: value(words.get(2))?,
        condition: Condition::Always,
        expiry: Expiry::Never,
        get: true,
    })
}

pub(crate) fn setnx(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::SetNx { key: key(words.get(1))?, value: value(words.get(2))? })
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
    Ok(Request::Set {
        key: key(words.get(1))?,
        value: value(words.get(3))?,
        condition: Condition::Always,
        expiry: Expiry::At(form.at_ms(number, now_unix_ms, command)?),
        get: false,
    })
}
