//! COMMAND: the table in replies to clients.

use super::all::{TABLE, all};
use super::index::lookup;
use crate::error::CommandError;
use crate::keys::Keys;
use crate::request::{CommandQuery, ListFilter};
use crate::spec::{Argument, CommandSpec, KeyPlaces, Kind, OtherKeys};
use crate::wire::RespVersion;
use crate::wire::encode::{array, bulk, integer, map, null, set, simple};

/// Appends the reply to a COMMAND.
pub fn answer(out: &mut Vec<u8>, version: RespVersion, query: &CommandQuery<'_>) {
    match query {
        CommandQuery::All => {
            array(out, TABLE.len());
            for spec in TABLE.iter() {
                info(out, version, spec);
            }
        }
        CommandQuery::Count => integer(out, TABLE.len() as i64),
        CommandQuery::Info(names) => {
            array(out, names.len());
            for name in names.clone() {
                match find(name) {
                    Some(spec) => info(out, version, spec),
                    None => null(out, version),
                }
            }
        }
        CommandQuery::Docs(names) => all_docs(out, version, names),
        CommandQuery::List(filter) => list(out, filter),
        CommandQuery::GetKeys(words) => match keys_of(words) {
            Ok(keys) => {
                array(out, keys.len());
                for key in keys {
                    bulk(out, key);
                }
            }
            Err(error) => error.write(out),
        },
    }
}

/// The keys among words that call a command.
fn keys_of<'a>(words: &Keys<'a>) -> Result<Vec<&'a [u8]>, CommandError> {
    let words: Vec<&[u8]> = words.clone().collect();
    let name = words.first().copied().unwrap_or_default();
    let spec = lookup(name).ok_or(CommandError::InvalidCommand)?;
    let spec = match (spec.subcommands, &words[..]) {
        ([], _) | (_, [] | [_]) => spec,
        (_, [_, name, ..]) => spec.subcommand(name).ok_or(CommandError::InvalidCommand)?,
    };
    if spec.keys.first == 0 && spec.keys.counted_at == 0 {
        return Err(CommandError::NoKeys);
    }
    if !spec.accepts(words.len()) {
        return Err(CommandError::InvalidCommandArity);
    }
    let positions = spec.keys.among(words.len(), |at| words[at]);
    Ok(positions.map(|position| words[position]).collect())
}

/// The command with this name, or the subcommand, as in `client|id`.
fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    let mut parts = name.splitn(2, |&byte| byte == b'|');
    let spec = lookup(parts.next()?)?;
    match parts.next() {
        Some(subcommand) => spec.subcommand(subcommand),
        None => Some(spec),
    }
}

/// The ten elements of COMMAND INFO. Tips are left out: they only advise
/// proxies.
fn info(out: &mut Vec<u8>, version: RespVersion, spec: &CommandSpec) {
    array(out, 10);
    bulk(out, spec.name.as_bytes());
    integer(out, i64::from(spec.arity));
    set(out, version, spec.flags.len());
    for flag in spec.flags {
        simple(out, flag.name());
    }
    integer(out, spec.keys.first as i64);
    integer(out, spec.keys.last as i64);
    integer(out, spec.keys.step as i64);
    let categories = spec.all_categories();
    set(out, version, categories.len());
    for category in categories {
        simple(out, &format!("@{category}"));
    }
    set(out, version, 0);
    if spec.keys.first == 0 && spec.keys.counted_at == 0 {
        set(out, version, 0);
    } else {
        let firsts = usize::from(spec.keys.first_access.is_some());
        set(out, version, 1 + firsts + spec.keys.others.len());
        key_places(out, version, spec.keys);
        for other in spec.keys.others {
            other_keys(out, version, other);
        }
    }
    array(out, spec.subcommands.len());
    for subcommand in spec.subcommands {
        info(out, version, subcommand);
    }
}

/// The positions of the keys, in the words of Redis 7, those of another access apart. Their last key
/// is relative to the first.
fn key_places(out: &mut Vec<u8>, version: RespVersion, keys: KeyPlaces) {
    if let Some(access) = keys.first_access {
        let first =
            KeyPlaces { first: keys.first, last: keys.first as isize, ..KeyPlaces::one(access) };
        key_places(out, version, first);
        let (first, counted_at) = match keys.counted_at {
            0 => (keys.first + keys.step, 0),
            at => (0, at),
        };
        return key_places(
            out,
            version,
            KeyPlaces { first, counted_at, first_access: None, ..keys },
        );
    }
    let last = if keys.last < 0 { keys.last as i64 } else { keys.last as i64 - keys.first as i64 };
    map(out, version, 3);
    bulk(out, b"flags");
    set(out, version, keys.access.len());
    for access in keys.access {
        simple(out, access);
    }
    bulk(out, b"begin_search");
    map(out, version, 2);
    text(out, "type", "index");
    bulk(out, b"spec");
    map(out, version, 1);
    number(out, "index", keys.first.max(keys.counted_at) as i64);
    bulk(out, b"find_keys");
    map(out, version, 2);
    if keys.counted_at > 0 {
        text(out, "type", "keynum");
        bulk(out, b"spec");
        map(out, version, 3);
        number(out, "keynumidx", 0);
        number(out, "firstkey", 1);
        return number(out, "keystep", 1);
    }
    text(out, "type", "range");
    bulk(out, b"spec");
    map(out, version, 3);
    number(out, "lastkey", last);
    number(out, "keystep", keys.step as i64);
    number(out, "limit", 0);
}

/// Keys whose places are not said.
fn other_keys(out: &mut Vec<u8>, version: RespVersion, keys: &OtherKeys) {
    map(out, version, 4);
    text(out, "notes", keys.notes);
    bulk(out, b"flags");
    set(out, version, keys.access.len());
    for access in keys.access {
        simple(out, access);
    }
    for part in ["begin_search", "find_keys"] {
        bulk(out, part.as_bytes());
        map(out, version, 2);
        text(out, "type", "unknown");
        bulk(out, b"spec");
        map(out, version, 0);
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    bulk(out, name.as_bytes());
    bulk(out, value.as_bytes());
}

fn number(out: &mut Vec<u8>, name: &str, value: i64) {
    bulk(out, name.as_bytes());
    integer(out, value);
}

/// Unknown names are left out. A name that comes twice is answered once, as
/// keys of a map must be.
fn all_docs(out: &mut Vec<u8>, version: RespVersion, names: &Keys<'_>) {
    let mut found: Vec<&CommandSpec> = Vec::new();
    if names.len() == 0 {
        found.extend(&TABLE);
    }
    for spec in names.clone().filter_map(find) {
        if !found.iter().any(|other| other.name == spec.name) {
            found.push(spec);
        }
    }
    map(out, version, found.len());
    for spec in found {
        bulk(out, spec.name.as_bytes());
        docs(out, version, spec);
    }
}

fn docs(out: &mut Vec<u8>, version: RespVersion, spec: &CommandSpec) {
    let has_arguments = !spec.arguments.is_empty();
    let has_subcommands = !spec.subcommands.is_empty();
    map(out, version, 4 + usize::from(has_arguments) + usize::from(has_subcommands));
    text(out, "summary", spec.summary);
    text(out, "since", spec.since);
    text(out, "group", spec.group.name);
    text(out, "complexity", spec.complexity);
    if has_arguments {
        bulk(out, b"arguments");
        arguments(out, version, spec.arguments);
    }
    if has_subcommands {
        bulk(out, b"subcommands");
        map(out, version, spec.subcommands.len());
        for subcommand in spec.subcommands {
            bulk(out, subcommand.name.as_bytes());
            docs(out, version, subcommand);
        }
    }
}

fn arguments(out: &mut Vec<u8>, version: RespVersion, list: &[Argument]) {
    array(out, list.len());
    for argument in list {
        let is_key = argument.kind == Kind::Key;
        let has_flags = argument.optional || argument.multiple;
        let has_parts = !argument.parts.is_empty();
        let has_token = argument.token.is_some();
        let extras = [is_key, has_token, has_flags, has_parts].map(usize::from);
        map(out, version, 2 + extras.iter().sum::<usize>());
        text(out, "name", argument.name);
        text(out, "type", argument.kind.name());
        if is_key {
            number(out, "key_spec_index", 0);
        }
        if let Some(token) = argument.token {
            text(out, "token", token);
        }
        if has_flags {
            bulk(out, b"flags");
            let flags = [(argument.optional, "optional"), (argument.multiple, "multiple")];
            set(out, version, flags.iter().filter(|(holds, _)| *holds).count());
            for (_, name) in flags.iter().filter(|(holds, _)| *holds) {
                simple(out, name);
            }
        }
        if has_parts {
            bulk(out, b"arguments");
            arguments(out, version, argument.parts);
        }
    }
}

fn list(out: &mut Vec<u8>, filter: &ListFilter<'_>) {
    let passes = |spec: &CommandSpec| match filter {
        ListFilter::None => true,
        ListFilter::Module => false,
        ListFilter::Category(name) => {
            let mut categories = spec.all_categories().into_iter();
            categories.any(|category| name.eq_ignore_ascii_case(category.as_bytes()))
        }
        ListFilter::Pattern(pattern) => pattern.matches(spec.name.as_bytes()),
    };
    array(out, all().filter(|spec| passes(spec)).count());
    for spec in all().filter(|spec| passes(spec)) {
        bulk(out, spec.name.as_bytes());
    }
}

/// The reply to HELP of a command with subcommands.
pub fn write_help(out: &mut Vec<u8>, name: &[u8]) {
    let Some(spec) = lookup(name) else { return null(out, RespVersion::Resp2) };
    let name = spec.name.to_ascii_uppercase();
    array(out, 1 + 2 * spec.subcommands.len());
    simple(out, &format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for subcommand in spec.subcommands {
        let syntax = subcommand.syntax();
        let syntax = syntax.strip_prefix(&name).unwrap_or(&syntax).trim_start();
        simple(out, syntax);
        simple(out, &format!("    {}", subcommand.summary));
    }
}
