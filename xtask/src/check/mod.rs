//! `cargo xtask check`: one line for each check, `check NAME ok`, or the list
//! of what is wrong, where, and what to do. A check that could not run says
//! `check NAME DID NOT RUN`, and is named once more at the end.

mod cargo;
mod changes;
mod circles;
mod deny;
mod determinism;
mod documents;
mod imports;
mod leftovers;
mod papers;
mod security;
mod sizes;
mod threads;
mod types;
mod unsafety;
mod x86_ordering;

use crate::tree::Tree;
use crate::violation::{Outcome, Violation};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

/// A check over the tree.
type TreeCheck = fn(&Tree) -> Vec<Violation>;

enum Check {
    /// Looks at the files.
    Tree(TreeCheck),
    /// Looks at the files, and lists something.
    Listing(fn(&Tree) -> (Vec<Violation>, Vec<String>)),
    /// Looks whether the planted patches apply.
    Patches,
    /// Asks a program of its own, which may be missing.
    Program(fn(&Path) -> Result<Outcome>),
    /// Runs cargo with these arguments; the text says what to do if it fails.
    Cargo(&'static [&'static str], &'static str),
    /// Makes the documentation.
    Documentation,
}

/// All checks, cheap ones first.
const CHECKS: &[(&str, Check)] = &[
    ("imports", Check::Tree(imports::check)),
    ("circles", Check::Tree(circles::check)),
    ("unsafe", Check::Tree(unsafety::check)),
    ("determinism", Check::Tree(determinism::check)),
    ("ordering", Check::Listing(x86_ordering::check)),
    ("threads", Check::Tree(threads::check)),
    ("types", Check::Tree(types::check)),
    ("changes", Check::Tree(changes::check)),
    ("sizes", Check::Tree(sizes::check)),
    ("documents", Check::Tree(documents::check)),
    ("papers", Check::Tree(papers::check)),
    ("security", Check::Tree(security::check)),
    ("leftovers", Check::Tree(leftovers::check)),
    ("planted", Check::Patches),
    ("newcomer", Check::Tree(crate::newcomer::check)),
    ("dependencies", Check::Program(deny::check)),
    ("advisories", Check::Program(deny::advisories)),
    (
        "format",
        Check::Cargo(&["fmt", "--all", "--check", "--", "--color=never"], "run cargo fmt --all"),
    ),
    (
        "clippy",
        Check::Cargo(
            &[
                "clippy",
                "--quiet",
                "--workspace",
                "--all-targets",
                "--features",
                "remora-fabric/rxe,remora-tests/rxe",
                "--",
                "-D",
                "warnings",
            ],
            "correct what clippy names; an allow needs its reason beside it",
        ),
    ),
    ("documentation", Check::Documentation),
];

const DOCUMENTATION: &[&str] = &["doc", "--quiet", "--workspace", "--no-deps"];

/// Runs the checks, or only those named: 0 if all that ran have passed, 1 if one has
/// not, 2 if none could run.
pub fn run(root: &Path, only: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = only.iter().find(|name| !CHECKS.iter().any(|(known, _)| known == name)) {
        let known: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        bail!("there is no check {unknown}; there are: {}", known.join(", "));
    }
    let tree = Tree::load(root)?;
    let (mut failed, mut ran, mut not_run) = (0usize, 0usize, Vec::new());
    for (name, check) in CHECKS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let outcome = outcome(root, &tree, check)?;
        if let Some(why) = &outcome.not_run {
            println!("check {name} DID NOT RUN: {why}");
            not_run.push(*name);
            continue;
        }
        ran += 1;
        let errors = outcome.violations.iter().filter(|violation| !violation.warning).count();
        if errors == 0 {
            println!("check {name} ok");
        } else {
            println!("check {name} FAILED: {errors} to correct");
            failed += 1;
        }
        outcome.notes.iter().for_each(|note| println!("  {note}"));
        outcome.violations.iter().for_each(Violation::print);
    }
    if !not_run.is_empty() {
        println!("check: {} DID NOT RUN: {}", not_run.len(), not_run.join(", "));
    }
    Ok(match (failed, ran) {
        (0, 0) => ExitCode::from(2),
        (0, _) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn outcome(root: &Path, tree: &Tree, check: &Check) -> Result<Outcome> {
    Ok(match check {
        Check::Tree(check) => check(tree).into(),
        Check::Listing(check) => {
            let (violations, notes) = check(tree);
            Outcome { violations, notes, not_run: None }
        }
        Check::Patches => crate::patches::check(root, tree).into(),
        Check::Program(check) => check(root)?,
        Check::Cargo(arguments, advice) => cargo::check(root, arguments, &[], advice)?.into(),
        Check::Documentation => {
            let variables = [("RUSTDOCFLAGS", "-D warnings")];
            cargo::check(root, DOCUMENTATION, &variables, "correct what rustdoc names")?.into()
        }
    })
}
