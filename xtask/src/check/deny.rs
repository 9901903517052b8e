//! What `cargo deny` says of the dependencies: licences, second versions, sources, and
//! advisories. It is a program of its own, and its database of advisories is fetched:
//! where either cannot be had the check has not run, and says so.

use super::cargo;
use crate::violation::{Outcome, Violation};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Output};

/// Seconds that fetching the database may take.
const FETCH_S: &str = "300";
/// With which `timeout` ends when it has ended its command.
const TIMED_OUT: i32 = 124;

/// Licences, second versions and sources, by `deny.toml`.
pub fn check(root: &Path) -> Result<Outcome> {
    if let Some(missing) = missing(root)? {
        return Ok(missing);
    }
    let arguments =
        ["deny", "--locked", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    let advice = "drop the dependency, or give deny.toml the exception with its reason";
    Ok(cargo::check(root, &arguments, &[], advice)?.into())
}

/// Advisories about the dependencies, by a database fetched just now.
pub fn advisories(root: &Path) -> Result<Outcome> {
    if let Some(missing) = missing(root)? {
        return Ok(missing);
    }
    let fetched = Command::new("timeout")
        .args([
            FETCH_S,
            &cargo::program().to_string_lossy(),
            "deny",
            "--color",
            "never",
            "fetch",
            "db",
        ])
        .current_dir(root)
        .output()
        .context("timeout could not be run")?;
    if !fetched.status.success() {
        return Ok(not_fetched(&fetched));
    }
    // Without the network from here on: that database, and no older one by mistake.
    let arguments =
        ["deny", "--locked", "--offline", "check", "--hide-inclusion-graph", "advisories"];
    let advice =
        "update the crate (cargo update -p), or give deny.toml the exception with its reason";
    Ok(cargo::check(root, &arguments, &[], advice)?.into())
}

/// What it means that the database was not fetched: only where the network or the time
/// was to blame the check has not run.
fn not_fetched(fetched: &Output) -> Outcome {
    let text = String::from_utf8_lossy(&fetched.stderr);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let why = last.map_or_else(|| fetched.status.to_string(), str::to_owned);
    let why = format!("the database of advisories cannot be fetched: {why}");
    let is_out_of_reach =
        text.contains("failed to fetch") || fetched.status.code() == Some(TIMED_OUT);
    if is_out_of_reach { Outcome::not_run(why) } else { vec![Violation::at("", 0, why)].into() }
}

/// That there is no cargo-deny here, if so.
fn missing(root: &Path) -> Result<Option<Outcome>> {
    let version = Command::new(cargo::program())
        .args(["deny", "--version"])
        .current_dir(root)
        .output()
        .context("cargo could not be run")?;
    let why = "there is no cargo-deny here; make check installs it";
    Ok((!version.status.success()).then(|| Outcome::not_run(why.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_out_of_reach_is_no_success_and_no_failure() {
        let outcome = |script| {
            let output = Command::new("sh").args(["-c", script]).output().unwrap();
            let Outcome { violations, not_run, .. } = not_fetched(&output);
            (violations.len(), not_run)
        };
        let why = "the database of advisories cannot be fetched: no such host";
        let far = outcome("printf 'failed to fetch x\\n no such host \\n\\n' >&2; exit 1");
        assert_eq!(far, (0, Some(why.to_owned())));
        assert!(matches!(outcome("exit 124"), (0, Some(_))), "too slow");
        assert_eq!(outcome("echo 'a broken deny.toml' >&2; exit 1"), (1, None));
    }
}
