//! Arguments that several groups of commands take: their entries in the table, and their parsers.

use crate::error::CommandError;
use crate::keys::{key, value};
use crate::spec::{Argument, Kind};
use crate::wire::Words;
use remora_layout::database::Database;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_PATTERN_BYTES};
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::decimal;
use remora_protocol::glob::Glob;
use remora_protocol::{Items, integer};

pub(crate) const KEY: Argument = Argument::new("key", Kind::Key);
pub(crate) const VALUE: Argument = Argument::new("value", Kind::String);
pub(crate) const SECONDS: Argument = Argument::new("seconds", Kind::Integer);
pub(crate) const MILLISECONDS: Argument = Argument::new("milliseconds", Kind::Integer);
pub(crate) const UNIX_SECONDS: Argument = Argument::new("unix-time-seconds", Kind::UnixTime);

pub(crate) const UNIX_MILLISECONDS: Argument =
    Argument::new("unix-time-milliseconds", Kind::UnixTime);

/// An expiry, or its removal.
pub(crate) const EXPIRATIONS: &[Argument] = &[
    SECONDS.after("EX"),
    MILLISECONDS.after("PX"),
    UNIX_SECONDS.after("EXAT"),
    UNIX_MILLISECONDS.after("PXAT"),
    Argument::word("persist", "PERSIST"),
];

pub(crate) const ONE_KEY: &[Argument] = &[KEY];
pub(crate) const KEYS: &[Argument] = &[KEY.multiple()];
pub(crate) const PATTERN: Argument = Argument::new("pattern", Kind::Pattern);

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

/// The end of a wait of so many seconds from now, Unix ms; 0 for one without end.
pub(crate) fn wait_until(seconds: &[u8], now_ms: u64) -> Result<u64, CommandError> {
    let seconds = decimal::parse(seconds).ok_or(CommandError::NoTimeout)?;
    // Redis 7.0 takes a number beyond 64 bits for one below zero.
    let ms = seconds.ceil_times(1_000).ok_or(CommandError::NegativeTimeout)?;
    match u64::try_from(ms) {
        Err(_) => Err(CommandError::NegativeTimeout),
        Ok(0) => Ok(0),
        Ok(ms) => {
            let until_ms = now_ms.saturating_add(ms);
            let fits = i64::try_from(until_ms).is_ok();
            fits.then_some(until_ms).ok_or(CommandError::LongTimeout)
        }
    }
}

/// The options of a step of a scan of one key's object, from word 3 on.
pub(crate) enum ScanOptions<'a> {
    /// Encoded as operations have them.
    Some(Items<'a>),
    /// Options that make no sense: in Redis an error only if the key exists, ...
    Syntax,
    /// ... as is a count that is no number.
    Number,
}

/// Those of HSCAN and its kin.
pub(crate) fn scan_options(words: Words<'_>) -> Result<ScanOptions<'_>, CommandError> {
    let (mut pattern, mut count) = (None, 10i64);
    for at in (3..words.len()).step_by(2) {
        if at + 1 < words.len() && words.is(at, "count") {
            match integer::parse(words.get(at + 1)) {
                None => return Ok(ScanOptions::Number),
                Some(number) if number < 1 => return Ok(ScanOptions::Syntax),
                Some(number) => count = number,
            }
        } else if at + 1 < words.len() && words.is(at, "match") {
            let word = words.get(at + 1);
            if word.len() > MAX_PATTERN_BYTES {
                return Err(CommandError::PatternTooLong);
            }
            pattern = Some(word);
        } else {
            return Ok(ScanOptions::Syntax);
        }
    }
    let mut options = Vec::new();
    match pattern.filter(|pattern| *pattern != b"*") {
        Some(pattern) => Items::push(&mut options, pattern),
        None => Items::push_none(&mut options),
    }
    Items::push(&mut options, &count.to_le_bytes());
    Ok(ScanOptions::Some(kept(words, options)))
}

/// An encoded list, kept with the request.
pub(crate) fn kept(words: Words<'_>, list: Vec<u8>) -> Items<'_> {
    Items::parse(words.keep(list)).expect("it was just made")
}

/// The arguments from `from` on, as names or, if `step` is 2, names and values.
pub(crate) fn items(words: Words<'_>, from: usize, step: usize) -> Result<Items<'_>, CommandError> {
    if words.len() - from > MAX_COMMAND_ITEMS {
        return Err(CommandError::TooManyItems);
    }
    let bytes = (from..words.len()).map(|at| Items::bytes_of(words.get(at).len())).sum();
    let mut list = Vec::with_capacity(bytes);
    for at in from..words.len() {
        let is_value = (at - from) % step == 1;
        let item = if is_value { value(words.get(at))? } else { key(words.get(at))? };
        Items::push(&mut list, item);
    }
    Ok(kept(words, list))
}

/// The arguments of HSCAN and its kin.
pub(crate) const SCAN_ARGUMENTS: &[Argument] = &[
    KEY,
    Argument::new("cursor", Kind::Integer),
    PATTERN.after("MATCH").optional(),
    Argument::new("count", Kind::Integer).after("COUNT").optional(),
];

/// The database with this number.
pub(crate) fn database(number: &[u8]) -> Result<Database, CommandError> {
    let index = integer::parse(number).ok_or(CommandError::NotAnInteger)?;
    let index = i32::try_from(index).map_err(|_| CommandError::OutOfRange)?;
    let database = usize::try_from(index).ok().and_then(Database::new);
    database.ok_or(CommandError::DatabaseIndex)
}

/// How an expiry is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExpiryForm {
    /// EX: seconds from now.
    InSeconds,
    /// PX: ms from now.
    InMs,
    /// EXAT: Unix seconds.
    AtSeconds,
    /// PXAT: Unix ms.
    AtMs,
}

impl ExpiryForm {
    /// The form that an option of SET asks for.
    pub(crate) fn of_option(option: &[u8]) -> Option<Self> {
        let forms = [
            ("ex", Self::InSeconds),
            ("px", Self::InMs),
            ("exat", Self::AtSeconds),
            ("pxat", Self::AtMs),
        ];
        let mut forms = forms.into_iter();
        forms.find(|(name, _)| option.eq_ignore_ascii_case(name.as_bytes())).map(|(_, form)| form)
    }

    /// Unix ms. A time in the past becomes 1, which is in the past for any thread's clock: a shard
    /// with an older reading of its clock removes the key as well.
    pub(crate) fn at_ms(
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
