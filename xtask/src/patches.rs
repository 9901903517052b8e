//! Planted mistakes as patches: `xtask/planted/NAME.patch` is applied to a copy
//! of the tree, and what its head names has to find the mistake. So wrong code
//! never stands in production files.
//!
//! ```text
//! Breaks: what the patch makes wrong
//! Run: worlds 0..600                            seeds of remora-sim, or
//! Run: test remora-engine durable nil_waits     package, binary (or lib), name
//! Expect: what the failing run prints
//!
//! --- a/crates/...                              a unified diff
//! ```
//! The copy stays below the target directory, and so do its builds: the next
//! patch builds only what it changes.

use crate::tree::Tree;
use crate::violation::Violation;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the patches lie.
const PATCHES: &str = "xtask/planted/";
/// Lines of a run's output that are shown where it found nothing.
const SHOWN_LINES: usize = 15;

/// What looks for a mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Run {
    /// Worlds with these seeds, until a promise is broken.
    Worlds(String),
    /// A test of a package: its binary, or `lib`, and its name.
    Test { package: String, binary: String, name: String },
}

/// One planted mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// File name without its ending.
    pub name: String,
    run: Run,
    expect: String,
}

impl Patch {
    /// The patch in a file. An error says what its head lacks.
    fn parse(path: &str, text: &str) -> Result<Self> {
        let name = path.trim_start_matches(PATCHES).trim_end_matches(".patch").to_owned();
        let head = text.split("\n--- ").next().unwrap_or_default();
        let field = |label: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(label));
            let line = line.map(str::trim).filter(|line| !line.is_empty());
            line.with_context(|| format!("{path}: its head has no line `{label} ...`"))
        };
        field("Breaks:")?;
        let run = match field("Run:")?.split_whitespace().collect::<Vec<_>>()[..] {
            ["worlds", seeds] => Run::Worlds(seeds.to_owned()),
            ["test", package, binary, name] => Run::Test {
                package: package.to_owned(),
                binary: binary.to_owned(),
                name: name.to_owned(),
            },
            _ => bail!("{path}: `Run:` is `worlds A..B` or `test PACKAGE BINARY NAME`"),
        };
        Ok(Self { name, run, expect: field("Expect:")?.to_owned() })
    }

    fn path(&self) -> String {
        format!("{PATCHES}{}.patch", self.name)
    }

    /// Applies it to the tree in a directory, or only looks whether it applies.
    fn apply(&self, tree: &Path, patch: &Path, check: bool) -> Result<()> {
        let mut git = Command::new("git");
        git.arg("apply").args(check.then_some("--check")).arg(patch).current_dir(tree);
        // The copy is no repository, and lies in one.
        git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
        let output = git.output().context("git could not be run")?;
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "{} does not apply: {why}", self.path());
        Ok(())
    }

    /// Runs what looks for it, in the copy. Whether it failed as expected; else
    /// the end of its output.
    fn hunt(&self, copy: &Path, target: &Path) -> Result<Option<String>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(copy).env("CARGO_TARGET_DIR", target).env("CARGO_TERM_COLOR", "never");
        match &self.run {
            Run::Worlds(seeds) => {
                cargo.args(["run", "--locked", "--quiet", "--package", "remora-sim", "--"]);
                cargo.args(["--until-broken", "--seeds", seeds]);
            }
            Run::Test { package, binary, name } => {
                cargo.args(["test", "--locked", "--quiet", "--package", package]);
                match binary.as_str() {
                    "lib" => cargo.arg("--lib"),
                    binary => cargo.args(["--test", binary]),
                };
                cargo.args(["--", name]);
            }
        }
        let output = cargo.output().context("cargo cannot be run")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_found = !output.status.success() && text.contains(&self.expect);
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
        Ok((!is_found).then_some(end))
    }
}

/// All patches of a tree, and what is wrong with some.
fn all(tree: &Tree) -> (Vec<Patch>, Vec<Violation>) {
    let (mut patches, mut wrong) = (Vec::new(), Vec::new());
    let texts =
        tree.texts().filter(|(path, _)| path.starts_with(PATCHES) && path.ends_with(".patch"));
    for (path, text) in texts {
        match Patch::parse(path, text) {
            Ok(patch) => patches.push(patch),
            Err(error) => wrong.push(Violation::at(path, 0, error.to_string())),
        }
    }
    (patches, wrong)
}

/// Whether every patch has its head and applies to the tree as it is.
pub fn check(root: &Path, tree: &Tree) -> Vec<Violation> {
    let (patches, mut wrong) = all(tree);
    for patch in patches {
        if let Err(error) = patch.apply(root, &root.join(patch.path()), true) {
            wrong.push(Violation::at(&patch.path(), 0, format!("{error:#}: mend it")));
        }
    }
    wrong
}

/// Applies each patch to the copy in turn, and lets it be found. How many were
/// not. `only` names some of them; empty for all.
pub fn hunt(root: &Path, target: &Path, only: &[String]) -> Result<usize> {
    let tree = Tree::load(root)?;
    let (patches, wrong) = all(&tree);
    if let Some(wrong) = wrong.first() {
        bail!("{}", wrong.message);
    }
    if let Some(name) = only.iter().find(|name| patches.iter().all(|p| p.name != **name)) {
        bail!("there is no patch {name}");
    }
    let copy = target.join("tree");
    let mut missed = 0;
    for patch in patches.iter().filter(|p| only.is_empty() || only.contains(&p.name)) {
        renew(root, &tree, &copy)?;
        patch.apply(&copy, &root.join(patch.path()), false)?;
        match patch.hunt(&copy, &target.join("builds"))? {
            None => println!("planted {} found", patch.name),
            Some(end) => {
                missed += 1;
                println!(
                    "planted {} NOT-FOUND: no {:?} in its output\n{end}",
                    patch.name, patch.expect
                );
            }
        }
    }
    renew(root, &tree, &copy)?;
    Ok(missed)
}

/// Makes the copy what the tree is. Files that are so already keep their times,
/// by which cargo knows what to build.
fn renew(root: &Path, tree: &Tree, copy: &Path) -> Result<()> {
    let known: BTreeSet<&str> = tree.paths().collect();
    for path in files_below(copy, copy)? {
        if !known.contains(path.as_str()) {
            std::fs::remove_file(copy.join(&path))?;
        }
    }
    for path in known {
        let (from, to) = (root.join(path), copy.join(path));
        let bytes = std::fs::read(&from).with_context(|| format!("{path} cannot be read"))?;
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().expect("it is below the copy"))?;
        std::fs::write(&to, bytes)
            .with_context(|| format!("{} cannot be written", to.display()))?;
    }
    Ok(())
}

/// Paths of the files below a directory; none if it is not there.
fn files_below(directory: &Path, from: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut waiting: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else if let Ok(path) = path.strip_prefix(from) {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Breaks: x\nRun: worlds 0..9\nExpect: y\n";

    #[test]
    fn a_head_says_what_is_broken_and_what_finds_it() {
        let parsed = Patch::parse("xtask/planted/a.patch", &format!("{HEAD}\n--- a/x\n")).unwrap();
        let run = Run::Worlds("0..9".into());
        assert_eq!(parsed, Patch { name: "a".into(), run, expect: "y".into() });
        let test = HEAD.replace("worlds 0..9", "test p lib n");
        assert!(Patch::parse("xtask/planted/a.patch", &test).is_ok());
        for label in ["Breaks:", "Run:", "Expect:"] {
            let without = HEAD.replace(label, "Other:");
            assert!(Patch::parse("xtask/planted/a.patch", &without).is_err(), "{label}");
        }
        assert!(Patch::parse("xtask/planted/a.patch", &HEAD.replace("0..9", "")).is_err());
    }

    #[test]
    fn a_copy_is_renewed_and_a_patch_that_does_not_apply_is_an_error() {
        let directory = std::env::temp_dir().join(format!("remora-patches-{}", std::process::id()));
        let (root, copy) = (directory.join("root"), directory.join("copy"));
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::create_dir_all(copy.join("e")).unwrap();
        std::fs::write(root.join("d/f"), "one\n").unwrap();
        std::fs::write(copy.join("e/old"), "gone").unwrap();
        let tree = Tree::of(&[("d/f", "one\n")]);
        renew(&root, &tree, &copy).unwrap();
        assert_eq!(files_below(&copy, &copy).unwrap(), ["d/f"]);
        let patch = Patch::parse("xtask/planted/a.patch", HEAD).unwrap();
        let file = directory.join("a.patch");
        let diff = format!("{HEAD}\n--- a/d/f\n+++ b/d/f\n@@ -1 +1 @@\n-one\n+two\n");
        std::fs::write(&file, diff).unwrap();
        patch.apply(&copy, &file, true).unwrap();
        patch.apply(&copy, &file, false).unwrap();
        assert_eq!(std::fs::read_to_string(copy.join("d/f")).unwrap(), "two\n");
        let again = patch.apply(&copy, &file, true).unwrap_err().to_string();
        assert!(again.contains("xtask/planted/a.patch does not apply"), "{again}");
        renew(&root, &tree, &copy).unwrap();
        patch.apply(&copy, &file, true).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }
}
