//! The table: the commands of all types, sorted by name when it is compiled.

use super::CommandSpec;
use super::entries::BASE;
use crate::types::COMMANDS;

const COUNT: usize = {
    let mut count = BASE.len();
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
    let mut filled = add(&mut table, 0, BASE);
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
