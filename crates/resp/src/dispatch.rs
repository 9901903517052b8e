//! Leads from the words of a request to its command's parser.

use crate::error::{CommandError, excerpt};
use crate::request::Request;
use crate::spec::CommandSpec;
use crate::table;
use crate::wire::{Args, Made, Words};

/// The request that parsed arguments make. Relative expiries are counted from
/// `now_unix_ms`. `made` is empty before.
///
/// An empty request (no arguments) has no answer in Redis: skip it. Here it is
/// an unknown command.
///
/// # Errors
/// The client's error; the connection continues.
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
