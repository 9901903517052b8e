//! The project's own checks.
//!
//! `cargo xtask check` looks at the source: form, imports, circles, unsafe code,
//! sizes, documents. `cargo xtask book` makes a site of the documents.
//! `cargo xtask fresh` builds and runs everything on a bare Debian.
//! Exit codes: 0 done, 1 a check or a step failed, 2 usage.

#![forbid(unsafe_code)]

mod book;
mod check;
mod file_graph;
mod fresh;
mod newcomer;
mod patches;
mod planted;
mod rust_text;
mod sbom;
mod tree;
mod violation;

use crate::planted::Which;
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own checks")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Looks at formatting, lints, imports, circles, unsafe code, sizes and documents.
    Check {
        /// Run only this check; may be given several times.
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
    },
    /// Applies planted mistakes, each a patch, to a copy of the tree, and lets each be
    /// found by what it names.
    Planted {
        /// The mistakes to look for; none for all.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Looks for one mistake of each group of crates.
        #[arg(long, conflicts_with = "names")]
        short: bool,
        /// Only looks whether all patches apply.
        #[arg(long, conflicts_with_all = ["names", "short"])]
        check: bool,
        /// Only makes a copy of the tree with this mistake, and prints where it is.
        #[arg(long, value_name = "NAME", conflicts_with_all = ["names", "short", "check"])]
        copy: Option<String>,
    },
    /// Adds a type by the patch that a newcomer made, in a copy of the sources, and
    /// runs its tests there.
    Newcomer {
        /// Lists the files that the patch touches instead.
        #[arg(long)]
        list: bool,
    },
    /// Makes a site of the documents, by mdBook, in the target directory.
    Book,
    /// Writes the bill of materials of the binary, as CycloneDX, into the target directory.
    Sbom,
    /// Builds and runs a clean clone of HEAD on a bare Debian 12. Needs root.
    Fresh(fresh::Options),
}

/// The workspace's root: the nearest directory upwards with a `[workspace]`.
fn workspace_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the current directory cannot be read")?;
    for directory in here.ancestors() {
        let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        if manifest.lines().any(|line| line.trim() == "[workspace]") {
            return Ok(directory.to_path_buf());
        }
    }
    bail!("no Cargo workspace here or above; run this inside the repository")
}

fn run() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let root = workspace_root()?;
    match arguments.command {
        Command::Check { only } => check::run(&root, &only),
        Command::Planted { copy: Some(name), .. } => planted::copy(&root, &name),
        Command::Planted { check: true, .. } => check::run(&root, &["planted".to_owned()]),
        Command::Planted { short: true, .. } => planted::hunt(&root, Which::Short),
        Command::Planted { names, .. } => planted::hunt(&root, Which::Named(names)),
        Command::Newcomer { list: true } => newcomer::list(&root),
        Command::Newcomer { list: false } => newcomer::build(&root),
        Command::Sbom => sbom::write(&root),
        Command::Book => book::build(&root),
        Command::Fresh(options) => fresh::run(&root, &options),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
