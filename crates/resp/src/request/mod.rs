//! Requests: what a session is asked to do.
//!
//! A session answers some of them itself. The others, which are about data, are
//! commands for shards, or become some. Points in time are absolute from here
//! on.

mod any_key;
mod data;
mod expiry;
mod geo;
mod geo_search;
mod keys;
mod session;
mod strings;
mod trees;

pub(crate) mod parsers {
    //! One function for each command; the table names them.
    pub(crate) use super::any_key::*;
    pub(crate) use super::data::*;
    pub(crate) use super::expiry::*;
    pub(crate) use super::geo::*;
    pub(crate) use super::geo_search::*;
    pub(crate) use super::session::*;
    pub(crate) use super::strings::*;
    pub(crate) use super::trees::*;
}

pub(crate) use any_key::cursor;
pub use any_key::{KeyFilter, Transfer};
pub use geo::{GeoError, GeoForm, GeoRender, GeoRequest, Order, Stored};
pub use keys::{Keys, Pairs};
pub(crate) use keys::{key, value};
pub use session::{ClientAttribute, CommandQuery, Hello, ListFilter, Patterns, Sections};
pub(crate) use session::{MAX_COMMAND_NAMES, MAX_CONFIG_PATTERNS};
pub use trees::{ObjectForm, ObjectParts, kind_name};

use crate::error::{CommandError, excerpt};
use crate::object_reply::ObjectReply;
use crate::table::{self, CommandSpec};
use crate::wire::{Args, Made, Words};
use remora_geometry::Refine;
use remora_layout::database::Database;
use remora_protocol::message::Status;
use remora_protocol::tree::TreeCommand;
use remora_protocol::{self as protocol, Command};

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

/// How a request's parts become its reply.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Render {
    /// GET: the value or null.
    Value,
    /// SET; with `get` the old value instead of OK.
    Set {
        /// Whether GET was asked for.
        get: bool,
    },
    /// SETNX: whether it was set.
    Done(&'static str),
    /// GETEX with a time that makes no sense: null without key, else the error
    /// of this status.
    NullOrError(Status, &'static str),
    /// The number.
    Number(&'static str),
    /// A time to live.
    Ttl(Unit),
    /// RENAME, and RENAMENX with `number`.
    Renamed {
        /// Whether it was done is the reply.
        number: bool,
    },
    /// Null without the key, else this number or error.
    IfThere(Result<i64, &'static str>),
    /// OBJECT FREQ: how often a key was touched, null without it, or the error that this
    /// is not counted.
    Touches,
    /// SCAN: where to go on, and keys.
    Scanned,
    /// KEYS: an array of keys.
    KeyList,
    /// RANDOMKEY: a key or null.
    AnyKey,
    /// MGET: an array of values.
    Values,
    /// TYPE, from what the number of a GEO key's members was answered with.
    Type,
    /// The sum of all parts' numbers.
    Sum,
    /// DEBUG DIGEST: the sum of all parts' digests.
    Digest,
    /// DEBUG DIGEST-VALUE: an array of digests.
    Digests,
    /// OK if all parts are.
    AllOk(&'static str),
    /// RTREE.CREATE: OK, or the error that there is one.
    TreeMade,
    /// RTREE.GET: a rectangle and its data, or null.
    TreeObject(ObjectParts),
    /// RTREE.SEARCH and RTREE.NEAREST: an array of objects.
    TreeObjects(ObjectForm),
    /// RTREE.INFO: a map.
    TreeInfo,
    /// What is about a GEO key and no number.
    Geo(GeoRender),
    /// What an operation on an object says itself.
    Object(&'static ObjectReply),
}

/// One request of a RESP connection. Everything borrows from its bytes, or from what was
/// made of them.
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
    ConfigGet(Patterns),
    /// COMMAND; [`table::answer`] writes the reply.
    Command(CommandQuery<'a>),
    /// SELECT.
    Select(Database),
    /// QUIT: `+OK`, then the connection closes.
    Quit,
    /// One command for the shard that owns its one key.
    Key(Command<'a>, Render),
    /// DEL and UNLINK; at least one key.
    Del(Keys<'a>),
    /// EXISTS; at least one key. A key that is named twice counts twice.
    Exists(Keys<'a>),
    /// TOUCH.
    Touch(Keys<'a>),
    /// MGET; at least one key.
    MGet(Keys<'a>),
    /// MSET; at least one pair. Of a key that is named twice the last counts.
    MSet(Pairs<'a>),
    /// One command about one tree, for the shard that owns it.
    Tree {
        /// The tree's name.
        name: &'a [u8],
        /// What is asked.
        command: TreeCommand<'a>,
        /// How the answer becomes the reply.
        render: Render,
        /// Objects that the reply tells of at most.
        most: usize,
    },
    /// RTREE.SEARCH for a geometry.
    TreeRefine {
        /// The tree's name.
        name: &'a [u8],
        /// What objects have to do with which geometry.
        refine: Box<Refine>,
        /// What is told of each object.
        form: ObjectForm,
        /// Objects that the reply tells of at most.
        most: usize,
    },
    /// RTREE.COUNT for a geometry.
    TreeCountRefined {
        /// The tree's name.
        name: &'a [u8],
        /// What objects have to do with which geometry.
        refine: Box<Refine>,
    },
    /// RTREE.REM; at least one id.
    TreeRemove {
        /// The tree's name.
        name: &'a [u8],
        /// The objects' ids, which are checked, as text.
        ids: Keys<'a>,
    },
    /// One command about one GEO key, for the shard that owns it.
    Geo(GeoRequest<'a>),
    /// One operation on the object of one key, for the shard that owns it.
    Object {
        /// The key.
        key: &'a [u8],
        /// What is asked.
        request: protocol::Request<'a>,
        /// How the reply is made.
        reply: &'static ObjectReply,
    },
    /// DBSIZE.
    DbSize,
    /// DEBUG DIGEST.
    Digest,
    /// DEBUG DIGEST-VALUE.
    DigestValues(Keys<'a>),
    /// FLUSHALL.
    FlushAll,
    /// FLUSHDB.
    FlushDb,
    /// SCAN.
    Scan {
        /// Where to go on; 0 at the beginning.
        cursor: u64,
        /// About how many keys are wanted.
        count: u32,
        /// Which of them are told.
        filter: KeyFilter,
    },
    /// KEYS.
    KeysOf(KeyFilter),
    /// RANDOMKEY.
    RandomKey,
    /// RENAME, RENAMENX, COPY and MOVE.
    Transfer(Transfer<'a>),
    /// CLUSTER KEYSLOT.
    KeySlot(&'a [u8]),
}

/// The request that parsed arguments make. Relative expiries are counted from
/// `now_unix_ms`. `made` is empty before.
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
    made: &'a Made,
    now_unix_ms: u64,
) -> Result<Request<'a>, CommandError> {
    let words = Words::new(args, buffer, made);
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
