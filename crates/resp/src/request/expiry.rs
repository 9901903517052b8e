//! Points in time: four ways to say one, one way to keep it.

use super::keys::key;
use super::{Render, Request};
use crate::error::{CommandError, excerpt};
use crate::wire::Words;
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::integer;
use remora_protocol::{Command, ExpireCondition};

/// How an expiry is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// EX: seconds from now.
    InSeconds,
    /// PX: ms from now.
    InMs,
    /// EXAT: Unix seconds.
    AtSeconds,
    /// PXAT: Unix ms.
    AtMs,
}

impl Form {
    /// The form that an option of SET asks for.
    pub(super) fn of_option(option: &[u8]) -> Option<Self> {
        let forms = [
            ("ex", Self::InSeconds),
            ("px", Self::InMs),
            ("exat", Self::AtSeconds),
            ("pxat", Self::AtMs),
        ];
        let mut forms = forms.into_iter();
        forms.find(|(name, _)| option.eq_ignore_ascii_case(name.as_bytes())).map(|(_, form)| form)
    }

    /// Unix ms. What is past becomes 1, which is past for any thread's clock: a shard
    /// that read its own some time ago removes the key as well.
    pub(super) fn at_ms(
        self,
        number: i64,
        now_unix_ms: u64,
        command: &'static str,
    ) -> Result<u64, CommandError> {
        let number = i128::from(number);
        let now = i128::from(now_unix_ms);
        // 128 bits cannot overflow here, so one comparison is enough.
        let at_ms = match self {
            Self::InSeconds => now + number * 1000,
            Self::InMs => now + number,
            Self::AtSeconds => number * 1000,
            Self::AtMs => number,
        };
        // A number of seconds that Redis cannot turn into ms is an error there
        // too, even when it lies in the past.
        let fits = match self {
            Self::InSeconds | Self::AtSeconds => number * 1000 >= i128::from(i64::MIN),
            Self::InMs | Self::AtMs => true,
        };
        if !fits || at_ms > i128::from(MAX_EXPIRES_AT_MS) {
            return Err(CommandError::InvalidExpiry(command));
        }
        Ok(if at_ms <= now { 1 } else { at_ms as u64 })
    }
}

/// EXPIRE and its kin. Options come first, as in Redis: a wrong option is
/// reported before a wrong number.
fn expire_in_form<'a>(
    words: Words<'a>,
    now_unix_ms: u64,
    form: Form,
    command: &'static str,
) -> Result<Request<'a>, CommandError> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for at in 3..words.len() {
        let options =
            [("nx", &mut nx), ("xx", &mut xx), ("gt", &mut gt), ("lt", &mut lt)].into_iter();
        let mut named = options.filter(|(name, _)| words.is(at, name));
        match named.next() {
            Some((_, option)) => *option = true,
            None => return Err(CommandError::UnsupportedOption(excerpt(words.get(at)))),
        }
    }
    let condition = match (nx, xx, gt, lt) {
        (true, true, _, _) | (true, _, true, _) | (true, _, _, true) => {
            return Err(CommandError::ConditionNx);
        }
        (_, _, true, true) => return Err(CommandError::ConditionGtLt),
        (_, true, _, true) => ExpireCondition::IfSomeEarlier,
        (true, ..) => ExpireCondition::IfNone,
        // XX adds nothing to GT: a key without expiry is never "later".
        (_, _, true, _) => ExpireCondition::IfLater,
        (_, _, _, true) => ExpireCondition::IfEarlier,
        (_, true, ..) => ExpireCondition::IfSome,
        _ => ExpireCondition::Always,
    };
    let number = integer::parse(words.get(2)).ok_or(CommandError::NotAnInteger)?;
    let at_ms = form.at_ms(number, now_unix_ms, command)?;
    let command = Command::Expire { key: key(words.get(1))?, at_ms, condition };
    Ok(Request::Key(command, Render::Number("expire")))
}

pub(crate) fn expire(words: Words<'_>, now_unix_ms: u64) -> Result<Request<'_>, CommandError> {
    expire_in_form(words, now_unix_ms, Form::InSeconds, "expire")
}

pub(crate) fn pexpire(words: Words<'_>, now_unix_ms: u64) -> Result<Request<'_>, CommandError> {
    expire_in_form(words, now_unix_ms, Form::InMs, "pexpire")
}

pub(crate) fn expireat(words: Words<'_>, now_unix_ms: u64) -> Result<Request<'_>, CommandError> {
    expire_in_form(words, now_unix_ms, Form::AtSeconds, "expireat")
}

pub(crate) fn pexpireat(words: Words<'_>, now_unix_ms: u64) -> Result<Request<'_>, CommandError> {
    expire_in_form(words, now_unix_ms, Form::AtMs, "pexpireat")
}
