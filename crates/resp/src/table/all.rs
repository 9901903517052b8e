//! The table: the commands of all groups, sorted by name when it is compiled.

use crate::commands::COMMANDS;
use crate::spec::{CommandSpec, Group};

const COUNT: usize = {
    let mut count = 0;
    let mut at = 0;
    while at < COMMANDS.len() {
        count += COMMANDS[at].len();
        at += 1;
    }
    count
};

/// The table, sorted by name.
pub static TABLE: [CommandSpec; COUNT] = {
    let mut table = [CommandSpec::PLAIN; COUNT];
    let mut filled = 0;
    let mut at = 0;
    while at < COMMANDS.len() {
        filled = add(&mut table, filled, COMMANDS[at]);
        at += 1;
    }
    table
};

/// Inserts each command where it belongs.
const fn add(
    table: &mut [CommandSpec; COUNT],
    mut filled: usize,
    commands: &[CommandSpec],
) -> usize {
    let mut next = 0;
    while next < commands.len() {
        let mut at = filled;
        while at > 0 && is_before(commands[next].name, table[at - 1].name) {
            table[at] = table[at - 1];
            at -= 1;
        }
        table[at] = commands[next];
        filled += 1;
        next += 1;
    }
    filled
}

const fn is_before(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() {
        if one[at] != other[at] {
            return one[at] < other[at];
        }
        at += 1;
    }
    one.len() < other.len()
}

/// All commands and subcommands.
pub fn all() -> impl Iterator<Item = &'static CommandSpec> {
    TABLE.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

/// All chapters, in the order of the documentation: values and keys, the types,
/// the server.
pub fn groups() -> Vec<Group> {
    let mut all = vec![Group::STRING, Group::GENERIC];
    let last = [Group::CONNECTION, Group::CLUSTER, Group::SENTINEL, Group::PUBSUB, Group::SERVER];
    for spec in TABLE.iter() {
        if !all.contains(&spec.group) && !last.contains(&spec.group) {
            all.push(spec.group);
        }
    }
    all.extend(last);
    all
}
