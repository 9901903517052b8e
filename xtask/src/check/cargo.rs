//! Checks that cargo makes itself: formatting, lints, documentation.

use crate::violation::Violation;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Lines of cargo's output that are shown; the rest is counted.
const SHOWN_LINES: usize = 120;

/// The cargo that runs this program.
pub fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs `cargo ARGUMENTS` with these variables; its output becomes one violation if it
/// fails.
pub fn check(
    root: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
    advice: &str,
) -> Result<Vec<Violation>> {
    let output = Command::new(program())
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root)
        .output()
        .context("cargo could not be run")?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let command = format!("cargo {}", arguments.join(" "));
    Ok(vec![Violation::at("", 0, format!("{command} failed: {advice}\n{}", shortened(&text)))])
}

/// At most [`SHOWN_LINES`] lines of `text`.
fn shortened(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = lines[..lines.len().min(SHOWN_LINES)].join("\n");
    if lines.len() > SHOWN_LINES {
        shown.push_str(&format!("\n... and {} more lines", lines.len() - SHOWN_LINES));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_a_violation_with_its_output() {
        let found = check(Path::new("."), &["no-such-subcommand"], &[], "do this").unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("do this") && found[0].message.contains("no-such"));
        assert_eq!(check(Path::new("."), &["--version"], &[], "").unwrap(), []);
    }

    #[test]
    fn long_output_is_shortened() {
        let text = "x\n".repeat(SHOWN_LINES + 5);
        assert!(shortened(&text).ends_with("... and 5 more lines"));
    }
}
