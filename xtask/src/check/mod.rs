//! `cargo xtask check`: one line for each check, `check NAME ok`, or the list
//! of what is wrong, where, and what to do.

mod cargo;
mod changes;
mod circles;
mod determinism;
mod documents;
mod imports;
mod leftovers;
mod papers;
mod sizes;
mod threads;
mod types;
mod unsafety;

use crate::tree::Tree;
use crate::violation::Violation;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::ExitCode;

/// A check over the tree.
type TreeCheck = fn(&Tree) -> Vec<Violation>;

enum Check {
    /// Looks at the files.
    Tree(TreeCheck),
    /// Looks whether the planted patches apply.
    Patches,
    /// Runs cargo with these arguments; the text says what to do if it fails.
    Cargo(&'static [&'static str], &'static str),
}

/// All checks, cheap ones first.
const CHECKS: &[(&str, Check)] = &[
    ("imports", Check::Tree(imports::check)),
    ("circles", Check::Tree(circles::check)),
    ("unsafe", Check::Tree(unsafety::check)),
    ("determinism", Check::Tree(determinism::check)),
    ("threads", Check::Tree(threads::check)),
    ("types", Check::Tree(types::check)),
    ("changes", Check::Tree(changes::check)),
    ("sizes", Check::Tree(sizes::check)),
    ("documents", Check::Tree(documents::check)),
    ("papers", Check::Tree(papers::check)),
    ("leftovers", Check::Tree(leftovers::check)),
    ("planted", Check::Patches),
    ("newcomer", Check::Tree(crate::newcomer::check)),
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
    (
        "plants",
        Check::Cargo(
            &[
                "clippy",
                "--quiet",
                "--package",
                "remora-sim",
                "--all-targets",
                "--features",
                "plants",
                "--",
                "-D",
                "warnings",
            ],
            "correct what clippy names in the code that the feature plants compiles in",
        ),
    ),
];

/// Runs the checks, or only those named.
pub fn run(root: &Path, only: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = only.iter().find(|name| !CHECKS.iter().any(|(known, _)| known == name)) {
        let known: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        bail!("there is no check {unknown}; there are: {}", known.join(", "));
    }
    let tree = Tree::load(root)?;
    let mut failed = 0usize;
    for (name, check) in CHECKS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        let violations = match check {
            Check::Tree(check) => check(&tree),
            Check::Patches => crate::patches::check(root, &tree),
            Check::Cargo(arguments, advice) => cargo::check(root, arguments, advice)?,
        };
        let errors = violations.iter().filter(|violation| !violation.warning).count();
        if errors == 0 {
            println!("check {name} ok");
        } else {
            println!("check {name} FAILED: {errors} to correct");
            failed += 1;
        }
        violations.iter().for_each(Violation::print);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
