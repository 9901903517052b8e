//! Requests: what a session is asked to do.
//!
//! A session answers some of them itself and turns the others, which are about
//! data, into commands for shards. Points in time are absolute from here on.

mod data;
mod expiry;
mod keys;
mod session;
mod strings;

pub(crate) mod parsers {
    //! One function for each command; the table names them.
    pub(crate) use super::data::*;
    pub(crate) use super::expiry::*;
    pub(crate) use super::session::*;
    pub(crate) use super::strings::*;
}

pub use keys::{Keys, Pairs};
pub(crate) use session::MAX_COMMAND_NAMES;
pub use session::{ClientAttribute, CommandQuery, Hello, ListFilter, Patterns, Sections};

use crate::error::{CommandError, excerpt};
use crate::resp::{Args, Words};
use crate::table::{self, CommandSpec};
use remora_engine::command::{Condition, ExpireCondition, Expiry};
use remora_layout::message::Status;

/// Unit of a TTL's reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// TTL. A positive rest is rounded to the nearest second, as Redis does.
    Seconds,
    /// PTTL.
    Milliseconds,
}

impl Unit {
    /// A time to live in ms, as the engine gives it, in this unit. -1 (no
    /// expiry) and -2 (no key) stay as they are.
    pub const fn from_ms(self, ttl_ms: i64) -> i64 {
        match self {
            Self::Seconds if ttl_ms >= 0 => ttl_ms.saturating_add(500) / 1000,
            _ => ttl_ms,
        }
    }
}

/// What GETEX does to the expiry of a key that exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryChange {
    /// PERSIST: the key no longer expires.
    Clear,
    /// Unix ms. A time at or before now removes the key.
    At(u64),
    /// The time makes no sense: an error, but null if there is no such key.
    Invalid(Status),
}

/// One request of a RESP connection. Everything borrows from its bytes.
#[derive(Clone, Debug)]
pub enum Request<'a> {
    /// PING, with the text to send back.
    Ping(Option<&'a [u8]>),
    /// ECHO.
    Echo(&'a [u8]),
    /// HELLO.
    Hello(Hello<'a>),
    /// CLIENT SETNAME; empty takes the name away.
    ClientSetName(&'a [u8]),
    /// CLIENT GETNAME.
    ClientGetName,
    /// CLIENT SETINFO; empty takes the value away.
    ClientSetInfo {
        /// Which attribute.
        attribute: ClientAttribute,
        /// Its value.
        value: &'a [u8],
    },
    /// CLIENT ID.
    ClientId,
    /// CLIENT INFO.
    ClientInfo,
    /// HELP of a command with subcommands.
    Help(&'static CommandSpec),
    /// INFO.
    Info(Sections<'a>),
    /// CONFIG GET.
    ConfigGet(Patterns<'a>),
    /// COMMAND; [`table::answer`] writes the reply.
    Command(CommandQuery<'a>),
    /// SELECT 0: nothing to do.
    Select,
    /// QUIT: `+OK`, then the connection closes.
    Quit,
    /// GET.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// SET.
    Set {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// NX or XX.
        condition: Condition,
        /// The new expiry, in Unix ms.
        expiry: Expiry,
        /// Reply with the old value.
        get: bool,
    },
    /// SETNX.
    SetNx {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// APPEND.
    Append {
        /// The key.
        key: &'a [u8],
        /// What to append.
        value: &'a [u8],
    },
    /// STRLEN.
    StrLen {
        /// The key.
        key: &'a [u8],
    },
    /// SETRANGE.
    SetRange {
        /// The key.
        key: &'a [u8],
        /// In bytes.
        offset: u64,
        /// What to write there.
        value: &'a [u8],
    },
    /// GETRANGE and SUBSTR.
    GetRange {
        /// The key.
        key: &'a [u8],
        /// First byte; negative: from the end.
        start: i32,
        /// Last byte; negative: from the end.
        end: i32,
    },
    /// SETBIT.
    SetBit {
        /// The key.
        key: &'a [u8],
        /// In bits.
        offset: u32,
        /// The bit.
        bit: bool,
    },
    /// GETBIT.
    GetBit {
        /// The key.
        key: &'a [u8],
        /// In bits.
        offset: u32,
    },
    /// GETDEL.
    GetDel {
        /// The key.
        key: &'a [u8],
    },
    /// GETEX with an option; without one it is GET.
    GetEx {
        /// The key.
        key: &'a [u8],
        /// What happens to the expiry.
        change: ExpiryChange,
    },
    /// INCR, INCRBY, DECR and DECRBY.
    Incr {
        /// The key.
        key: &'a [u8],
        /// What to add.
        by: i64,
    },
    /// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
    Expire {
        /// The key.
        key: &'a [u8],
        /// Unix ms. A time at or before now removes the key; what lies before
        /// 1970 is 0.
        at_ms: u64,
        /// NX, XX, GT or LT.
        condition: ExpireCondition,
    },
    /// TTL and PTTL.
    Ttl {
        /// The key.
        key: &'a [u8],
        /// Of the reply.
        unit: Unit,
    },
    /// DEL and UNLINK; at least one key.
    Del(Keys<'a>),
    /// EXISTS; at least one key. A key that is named twice counts twice.
    Exists(Keys<'a>),
    /// MGET; at least one key.
    MGet(Keys<'a>),
    /// MSET; at least one pair. Of a key that is named twice the last counts.
    MSet(Pairs<'a>),
    /// DBSIZE.
    DbSize,
    /// FLUSHALL and FLUSHDB.
    FlushAll,
}

/// The request that parsed arguments make. Relative expiries are counted from
/// `now_unix_ms`.
///
/// An empty request (no arguments) has no answer in Redis: skip it. Here it is
/// an unknown command.
///
/// # Errors
/// What the client did wrong; the connection goes on.
#[inline]
pub fn request<'a>(
    args: &'a Args,
    buffer: &'a [u8],
    now_unix_ms: u64,
) -> Result<Request<'a>, CommandError> {
    let words = Words::new(args, buffer);
    let spec = command(words)?;
    (spec.parse)(words, now_unix_ms)
}

/// The command or subcommand that `words` call, with a fitting number of
/// arguments.
///
/// # Errors
/// It is unknown, or has too few or too many arguments.
#[inline]
pub fn command(words: Words<'_>) -> Result<&'static CommandSpec, CommandError> {
    let Some(mut spec) = table::lookup(words.get(0)) else {
        return Err(CommandError::unknown_command(words));
    };
    if !spec.subcommands.is_empty() && words.len() > 1 {
        let name = words.get(1);
        spec = spec.subcommand(name).ok_or_else(|| CommandError::UnknownSubcommand {
            name: excerpt(name),
            command: spec.name,
        })?;
    }
    if spec.accepts(words.len()) { Ok(spec) } else { Err(CommandError::WrongArity(spec.name)) }
}
