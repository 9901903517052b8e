//! Upper bounds of the flags of all benches.

use remora_command_line::usage;

/// Threads of the bench; each has a session of its own.
pub const MAX_CLIENTS: usize = 256;
/// Operations of a run; each takes four bytes, drawn before it begins.
pub const MAX_OPS: usize = 1 << 30;

/// Refuses a number that is out of its range.
pub fn within(flag: &str, value: usize, least: usize, most: usize) -> anyhow::Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(usage(format!("{flag}: {value} is not in {least}..={most}")))
}
