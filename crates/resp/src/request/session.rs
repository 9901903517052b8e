//! Requests that a session answers itself.

use super::any_key::pattern;
use super::{Keys, Request};
use crate::error::{CommandError, excerpt};
use crate::table;
use crate::wire::{Protocol, Words};
use remora_layout::database::Database;
use remora_layout::limits::RESP_MAX_CLIENT_NAME_BYTES;
use remora_protocol::glob::Glob;
use remora_protocol::integer;

/// Names in one COMMAND INFO or DOCS. Each can make a reply of a kilobyte:
/// without a bound a small request could ask for a huge reply.
pub(crate) const MAX_COMMAND_NAMES: usize = 1024;
/// Most patterns of a CONFIG GET.
pub(crate) const MAX_CONFIG_PATTERNS: usize = 64;

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// What HELLO asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The protocol to speak from the reply on; as before without one.
    pub protocol: Option<Protocol>,
    /// User and password.
    pub auth: Option<(&'a [u8], &'a [u8])>,
    /// The connection's new name.
    pub name: Option<&'a [u8]>,
}

/// What CLIENT SETINFO sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAttribute {
    /// LIB-NAME: the client library's name.
    LibraryName,
    /// LIB-VER: its version.
    LibraryVersion,
}

/// The sections that INFO asks for.
#[derive(Clone, Debug)]
pub struct Sections<'a>(Keys<'a>);

impl Sections<'_> {
    /// Whether to show a section. No argument, `default`, `all` and
    /// `everything` ask for each.
    pub fn wants(&self, section: &str) -> bool {
        let every = ["default", "all", "everything", section];
        self.0.len() == 0
            || self
                .0
                .clone()
                .any(|word| every.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    }
}

/// The patterns of CONFIG GET.
#[derive(Clone, Debug)]
pub struct Patterns(Vec<Glob>);

impl Patterns {
    /// Whether any pattern matches a parameter's name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name.as_bytes()))
    }
}

/// What COMMAND asks for.
#[derive(Clone, Debug)]
pub enum CommandQuery<'a> {
    /// COMMAND alone, and COMMAND INFO without names.
    All,
    /// COUNT.
    Count,
    /// INFO with names.
    Info(Keys<'a>),
    /// DOCS; no names ask for all.
    Docs(Keys<'a>),
    /// LIST.
    List(ListFilter<'a>),
    /// GETKEYS: the keys, already found.
    GetKeys(Vec<&'a [u8]>),
}

/// Which commands COMMAND LIST names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListFilter<'a> {
    /// All.
    None,
    /// Those of a module: there are no modules.
    Module,
    /// Those of an ACL category.
    Category(&'a [u8]),
    /// Those that match a glob pattern.
    Pattern(Glob),
}

pub(crate) fn ping(words: Words<'_>, _now: u64) -> Parsed<'_> {
    match words.len() {
        1 => Ok(Request::Ping(None)),
        2 => Ok(Request::Ping(Some(words.get(1)))),
        _ => Err(CommandError::WrongArity("ping")),
    }
}

pub(crate) fn echo(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Echo(words.get(1)))
}

pub(crate) fn quit(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Quit)
}

pub(crate) fn select(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Select(database(words.get(1))?))
}

/// The database with this number.
pub(super) fn database(number: &[u8]) -> Result<Database, CommandError> {
    let index = integer::parse(number).ok_or(CommandError::NotAnInteger)?;
    let index = i32::try_from(index).map_err(|_| CommandError::OutOfRange)?;
    let database = usize::try_from(index).ok().and_then(Database::new);
    database.ok_or(CommandError::DatabaseIndex)
}

pub(crate) fn hello(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let mut hello = Hello { protocol: None, auth: None, name: None };
    if words.len() > 1 {
        hello.protocol = match integer::parse(words.get(1)) {
            None => return Err(CommandError::ProtocolVersionNumber),
            Some(2) => Some(Protocol::Resp2),
            Some(3) => Some(Protocol::Resp3),
            Some(_) => return Err(CommandError::ProtocolVersion),
        };
    }
    let mut at = 2;
    while at < words.len() {
        let left = words.len() - at - 1;
        if words.is(at, "auth") && left >= 2 {
            hello.auth = Some((words.get(at + 1), words.get(at + 2)));
            at += 3;
        } else if words.is(at, "setname") && left >= 1 {
            hello.name = Some(client_name(words.get(at + 1))?);
            at += 2;
        } else {
            return Err(CommandError::HelloOption(excerpt(words.get(at))));
        }
    }
    Ok(Request::Hello(hello))
}

/// A connection's name.
fn client_name(name: &[u8]) -> Result<&[u8], CommandError> {
    is_short(name, "client name")?;
    if is_plain(name) { Ok(name) } else { Err(CommandError::ClientName) }
}

/// A connection keeps it.
const fn is_short(name: &[u8], what: &'static str) -> Result<(), CommandError> {
    if name.len() <= RESP_MAX_CLIENT_NAME_BYTES {
        Ok(())
    } else {
        Err(CommandError::ClientNameTooLong(what))
    }
}

/// Whether a name can stand in CLIENT INFO and in logs.
fn is_plain(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

pub(crate) fn client_setname(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::ClientSetName(client_name(words.get(2))?))
}

pub(crate) fn client_getname(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::ClientGetName)
}

pub(crate) fn client_setinfo(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (attribute, name) = if words.is(2, "lib-name") {
        (ClientAttribute::LibraryName, "lib-name")
    } else if words.is(2, "lib-ver") {
        (ClientAttribute::LibraryVersion, "lib-ver")
    } else {
        return Err(CommandError::ClientOption(excerpt(words.get(2))));
    };
    let value = words.get(3);
    is_short(value, name)?;
    if !is_plain(value) {
        return Err(CommandError::ClientAttribute(name));
    }
    Ok(Request::ClientSetInfo { attribute, value })
}

pub(crate) fn client_id(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::ClientId)
}

pub(crate) fn client_info(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::ClientInfo)
}

/// HELP, as a subcommand.
pub(crate) fn help(words: Words<'_>, _now: u64) -> Parsed<'_> {
    match table::lookup(words.get(0)) {
        Some(spec) => Ok(Request::Help(spec)),
        None => Err(CommandError::unknown_command(words)),
    }
}

/// A command that only has subcommands: the table lets nobody call it alone.
pub(crate) fn container(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Err(CommandError::unknown_command(words))
}

pub(crate) fn info(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Info(Sections(Keys::all(words, 1))))
}

pub(crate) fn config_get(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let words = Keys::all(words, 2);
    if words.len() > MAX_CONFIG_PATTERNS {
        return Err(CommandError::TooManyPatterns);
    }
    let patterns = words.map(|word| pattern(word, true)).collect::<Result<_, _>>()?;
    Ok(Request::ConfigGet(Patterns(patterns)))
}

pub(crate) fn command(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Command(CommandQuery::All))
}

pub(crate) fn command_count(_words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Command(CommandQuery::Count))
}

pub(crate) fn command_info(words: Words<'_>, _now: u64) -> Parsed<'_> {
    match words.len() {
        2 => Ok(Request::Command(CommandQuery::All)),
        _ => Ok(Request::Command(CommandQuery::Info(command_names(words)?))),
    }
}

pub(crate) fn command_docs(words: Words<'_>, _now: u64) -> Parsed<'_> {
    Ok(Request::Command(CommandQuery::Docs(command_names(words)?)))
}

fn command_names(words: Words<'_>) -> Result<Keys<'_>, CommandError> {
    let names = Keys::all(words, 2);
    if names.len() > MAX_COMMAND_NAMES {
        return Err(CommandError::TooManyNames);
    }
    Ok(names)
}

pub(crate) fn command_list(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let filter = match words.len() {
        2 => ListFilter::None,
        5 if words.is(2, "filterby") && words.is(3, "module") => ListFilter::Module,
        5 if words.is(2, "filterby") && words.is(3, "aclcat") => ListFilter::Category(words.get(4)),
        5 if words.is(2, "filterby") && words.is(3, "pattern") => {
            ListFilter::Pattern(pattern(words.get(4), true)?)
        }
        _ => return Err(CommandError::Syntax),
    };
    Ok(Request::Command(CommandQuery::List(filter)))
}

pub(crate) fn command_getkeys(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let count = words.len().saturating_sub(2);
    let spec = table::lookup(words.get(2)).ok_or(CommandError::InvalidCommand)?;
    let spec = match spec.subcommands {
        [] => spec,
        _ if count < 2 => spec,
        _ => spec.subcommand(words.get(3)).ok_or(CommandError::InvalidCommand)?,
    };
    if spec.keys.first == 0 {
        return Err(CommandError::NoKeys);
    }
    if !spec.accepts(count) {
        return Err(CommandError::InvalidCommandArity);
    }
    let keys = spec.keys.positions(count).map(|position| words.get(position + 2));
    Ok(Request::Command(CommandQuery::GetKeys(keys.collect())))
}
