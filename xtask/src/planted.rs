//! `cargo xtask planted`: builds the simulator with the planted bugs, and lets
//! it look for each. One line a bug; fails if one is not found.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Seeds within which every bug has to be found.
const SEEDS: &str = "0..3000";

/// Runs the hunt.
pub fn run(root: &Path) -> Result<ExitCode> {
    // A directory of its own: this build is not the one that is shipped.
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), Into::into)
        .join("planted");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--locked", "--release", "--quiet"])
        .args(["--package", "remora-sim", "--features", "plants"])
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(root)
        .status()
        .context("cargo cannot be run")?;
    ensure!(built.success(), "the simulator with planted bugs does not build");
    let hunted = Command::new(target.join("release/remora-sim"))
        .args(["--hunt", "--seeds", SEEDS])
        .status()
        .context("the simulator cannot be run")?;
    Ok(if hunted.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
