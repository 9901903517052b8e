//! `docs/commands.md`, made from the table.

use crate::spec::CommandSpec;
use crate::table::{TABLE, groups};
use remora_layout::database::DATABASES;
use remora_layout::limits::{
    CONNECTION_MAX_OUTPUT_BYTES, MAX_KEY_BYTES, MAX_REQUEST_BYTES, MAX_VALUE_BYTES, RESP_MAX_ARGS,
    RESP_MAX_INLINE_BYTES,
};
use std::fmt::Write;

/// The whole page.
pub fn commands() -> String {
    let mut page = introduction();
    page.push_str("\n## Commands\n\n| Command | What it does | Cost |\n| --- | --- | --- |\n");
    for spec in leaves() {
        let title = title(spec);
        // A heading's anchor is without its dots.
        let anchor = title.to_ascii_lowercase().replace(' ', "-").replace('.', "");
        let cost = spec.complexity.split(" where ").next().unwrap_or(spec.complexity);
        line(&mut page, format_args!("| [{title}](#{anchor}) | {} | {cost} |", spec.summary));
    }
    for group in groups() {
        let heading = group.heading;
        line(&mut page, format_args!("\n## {heading}"));
        for spec in leaves().filter(|spec| spec.group == group) {
            section(&mut page, spec);
        }
    }
    page
}

/// The commands that can be called: containers that only hold subcommands cannot.
fn leaves() -> impl Iterator<Item = &'static CommandSpec> {
    TABLE
        .iter()
        .flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
        .filter(|spec| spec.subcommands.is_empty() || spec.accepts(1))
}

fn title(spec: &CommandSpec) -> String {
    spec.name.to_ascii_uppercase().replace('|', " ")
}

/// Writing to a string cannot fail.
fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(page, "{text}");
}

fn section(page: &mut String, spec: &CommandSpec) {
    line(page, format_args!("\n### {}\n", title(spec)));
    line(page, format_args!("    {}\n", spec.syntax()));
    line(page, format_args!("{}\n", spec.summary));
    let origin = if spec.is_own { "Remora" } else { spec.group.origin };
    line(page, format_args!("Cost: {}. In {origin} since {}.", bare(spec.complexity), spec.since));
    if !spec.notes.is_empty() {
        line(page, format_args!("\n{}", spec.notes));
    }
}

fn bare(text: &str) -> &str {
    text.strip_suffix('.').unwrap_or(text)
}

fn introduction() -> String {
    format!(
        "# Commands\n\n\
<!-- Made from the table in crates/resp: change it there, then run its tests with \
REMORA_UPDATE_DOCS=1. -->\n\n\
Remora speaks RESP2 and RESP3, so any Redis client can be used. These are all the commands that it \
knows. Their\nnames, options, replies and errors are those of Redis 7; where Remora differs, the \
command's section says so.\nThose about trees of places (RTREE) and RESYNC are Remora's own: a \
tree is a key of a type of its own, so that DEL, EXISTS,\nEXPIRE, TYPE and DBSIZE know it.\n\n\
## What holds for all\n\n\
- Words may be in upper or lower case. In the syntax `[a]` may be left out, `a | b` is a choice, and\n  \
`a [a ...]` may be repeated.\n\
- A command for one key is atomic and linearizable.\n\
- An error that repeats words of the request is text: bytes that are not UTF-8 become U+FFFD \
(Redis sends them\n  back as they are).\n\
- Several keys are not one transaction across shards. MSET is atomic for each shard only. DEL, \
UNLINK, EXISTS and\n  MGET act on each key on its own.\n\
- A client that reads the server's memory itself (a one-sided multi-get) gets linearizable values \
for each key only:\n  two values of one such read need not have been current at the same moment.\n\n\
## Limits\n\n\
| What | Most | Beyond it |\n| --- | --- | --- |\n\
| Key | {MAX_KEY_BYTES} bytes | `ERR key is longer than {MAX_KEY_BYTES} bytes` |\n\
| Value | {MAX_VALUE_BYTES} bytes | `ERR value is longer than {MAX_VALUE_BYTES} bytes` |\n\
| Arguments of a command | {RESP_MAX_ARGS} | the connection is closed |\n\
| A whole command | {MAX_REQUEST_BYTES} bytes | the connection is closed |\n\
| An inline command | {RESP_MAX_INLINE_BYTES} bytes | the connection is closed |\n\
| Replies that wait to be read | {CONNECTION_MAX_OUTPUT_BYTES} bytes | the connection is closed |\n\
| Databases | {DATABASES} | `ERR DB index is out of range` |\n"
    )
}
