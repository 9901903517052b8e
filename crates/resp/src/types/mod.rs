//! The commands of types, one file each: it parses them, says what they mean and
//! how their replies are made.

mod hash;

use crate::table::CommandSpec;

/// Their commands, one line each.
pub(crate) const COMMANDS: &[&[CommandSpec]] = &[hash::COMMANDS];
