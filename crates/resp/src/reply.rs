//! Replies that more than one place would otherwise write by hand.

use crate::request::Patterns;
use crate::table::CommandSpec;
use crate::wire::{Protocol, encode};

/// What HELLO says about the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerFacts<'a> {
    /// The server's name.
    pub server: &'a str,
    /// The version that clients take their decisions by.
    pub version: &'a str,
    /// The connection's number.
    pub connection: i64,
    /// `standalone` or `cluster`.
    pub mode: &'a str,
    /// `master` or `replica`.
    pub role: &'a str,
}

/// The reply to HELLO; `protocol` is the one that the connection now speaks.
pub fn hello(out: &mut Vec<u8>, protocol: Protocol, facts: &ServerFacts<'_>) {
    encode::map(out, protocol, 7);
    for (name, value) in [("server", facts.server), ("version", facts.version)] {
        text_pair(out, name, value);
    }
    encode::bulk(out, b"proto");
    encode::integer(out, protocol.number());
    encode::bulk(out, b"id");
    encode::integer(out, facts.connection);
    for (name, value) in [("mode", facts.mode), ("role", facts.role)] {
        text_pair(out, name, value);
    }
    encode::bulk(out, b"modules");
    encode::array(out, 0);
}

fn text_pair(out: &mut Vec<u8>, name: &str, value: &str) {
    encode::bulk(out, name.as_bytes());
    encode::bulk(out, value.as_bytes());
}

/// The reply to CONFIG GET, from all parameters with their values. Each name
/// comes at most once, however many patterns match it.
pub fn config_get(
    out: &mut Vec<u8>,
    protocol: Protocol,
    patterns: &Patterns,
    parameters: &[(&str, &str)],
) {
    let matching = || parameters.iter().filter(|(name, _)| patterns.matches(name));
    encode::map(out, protocol, matching().count());
    for (name, value) in matching() {
        text_pair(out, name, value);
    }
}

/// The reply to HELP of a command with subcommands.
pub fn help(out: &mut Vec<u8>, spec: &CommandSpec) {
    let name = spec.name.to_ascii_uppercase();
    encode::array(out, 1 + 2 * spec.subcommands.len());
    encode::simple(
        out,
        &format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"),
    );
    for subcommand in spec.subcommands {
        let syntax = subcommand.syntax();
        let syntax = syntax.strip_prefix(&name).unwrap_or(&syntax).trim_start();
        encode::simple(out, syntax);
        encode::simple(out, &format!("    {}", subcommand.summary));
    }
}
