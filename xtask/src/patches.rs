//! Planted mistakes as patches: a file `xtask/planted/NAME.patch` makes one mistake
//! in production code, and says what has to find it. `cargo xtask planted` applies
//! it to a copy of the tree ([`crate::planted`]). So wrong code never stands in
//! production files.
//!
//! ```text
//! Breaks: what the patch makes wrong
//! Run: worlds 0..600                            seeds of remora-sim, or
//! Run: worlds 0..600 --ordered                  those with a further kind of data, or
//! Run: test remora-engine engine durable::nil    package, binary (or lib), name, or
//! Run: race remora-arena arena publication::     the same, by scripts/sanitize.sh
//! Expect: what the failing run prints
//!
//! --- a/crates/...                              a unified diff
//! ```
//! A patch may have several runs, each with its `Expect:`; each has to find it. The
//! seeds may begin shortly before one that has found it: those before cost time only.

use crate::tree::Tree;
use crate::violation::Violation;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::Command;

/// Where the patches lie.
const PATCHES: &str = "xtask/planted/";

/// Flags of worlds with kinds of data that no seed chooses by itself.
const KINDS: [&str; 5] = ["--lists", "--links", "--ordered", "--sorted", "--collections"];

/// What looks for a mistake.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Run {
    /// Worlds with these seeds, and the flag of a kind of data, until a promise is broken.
    Worlds(String),
    /// A test.
    Test(Test),
    /// A test under tools that look for data races; `scripts/sanitize.sh` runs it.
    Race(Test),
}

/// Tests of a package: its binary, or `lib`, and the beginning of their names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Test {
    /// As cargo names it.
    pub package: String,
    /// As cargo names it, or `lib`.
    pub binary: String,
    /// With the modules that it needs to be found.
    pub name: String,
}

impl Display for Run {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worlds(seeds) => write!(f, "worlds {seeds}"),
            Self::Test(test) => write!(f, "test {} {} {}", test.package, test.binary, test.name),
            Self::Race(test) => write!(f, "race {} {} {}", test.package, test.binary, test.name),
        }
    }
}

impl Run {
    fn parse(text: &str) -> Option<Self> {
        let test = |package: &str, binary: &str, name: &str| Test {
            package: package.to_owned(),
            binary: binary.to_owned(),
            name: name.to_owned(),
        };
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            ["worlds", seeds] => Some(Self::Worlds(seeds.to_owned())),
            ["worlds", seeds, kind] if KINDS.contains(&kind) => {
                Some(Self::Worlds(format!("{seeds} {kind}")))
            }
            ["test", package, binary, name] => Some(Self::Test(test(package, binary, name))),
            ["race", package, binary, name] => Some(Self::Race(test(package, binary, name))),
            _ => None,
        }
    }
}

/// One planted mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// File name without its ending.
    pub name: String,
    /// What has to find it, and what each prints then.
    pub runs: Vec<(Run, String)>,
    /// The directories in `crates/` that it changes, each once.
    pub crates: Vec<String>,
}

impl Patch {
    /// The patch in a file. An error says what its head lacks.
    fn parse(path: &str, text: &str) -> Result<Self> {
        let name = path.trim_start_matches(PATCHES).trim_end_matches(".patch").to_owned();
        let head = text.split("\n--- ").next().unwrap_or_default();
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        let (mut breaks, mut runs) = (false, Vec::new());
        for (label, value) in fields.map(|(label, value)| (label, value.trim())) {
            match label {
                "Breaks" => breaks = !value.is_empty(),
                "Run" => {
                    let run = Run::parse(value).with_context(|| {
                        format!(
                            "{path}: `Run:` is `worlds A..B [--KIND]` or `test PACKAGE BINARY NAME`"
                        )
                    })?;
                    runs.push((run, String::new()));
                }
                "Expect" => match runs.last_mut() {
                    Some((_, expect)) => value.clone_into(expect),
                    None => bail!("{path}: `Expect:` follows its `Run:`"),
                },
                _ => bail!("{path}: its head has no line `{label}:`"),
            }
        }
        let is_whole = !runs.is_empty() && runs.iter().all(|(_, expect)| !expect.is_empty());
        ensure!(breaks && is_whole, "{path}: its head says `Breaks:`, `Run:` and `Expect:`");
        let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/crates/"));
        let mut crates: Vec<String> =
            files.filter_map(|file| Some(file.split_once('/')?.0.to_owned())).collect();
        crates.sort_unstable();
        crates.dedup();
        Ok(Self { name, runs, crates })
    }

    fn path(&self) -> String {
        format!("{PATCHES}{}.patch", self.name)
    }

    /// Applies it to the tree in a directory.
    pub fn apply(&self, root: &Path, tree: &Path) -> Result<()> {
        self.git_apply(tree, &root.join(self.path()), &[])
    }

    fn git_apply(&self, tree: &Path, patch: &Path, options: &[&str]) -> Result<()> {
        let mut git = Command::new("git");
        git.arg("apply").args(options).arg(patch).current_dir(tree);
        // A copy is no repository, and lies in one.
        git.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
        let output = git.output().context("git could not be run")?;
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "{} does not apply: {why}", self.path());
        Ok(())
    }
}

/// All patches of a tree, and what is wrong with some.
pub fn all(tree: &Tree) -> (Vec<Patch>, Vec<Violation>) {
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

/// Whether every patch has its head, names tests that are there, and applies to the
/// tree as it is.
pub fn check(root: &Path, tree: &Tree) -> Vec<Violation> {
    let (patches, mut wrong) = all(tree);
    for patch in patches {
        if let Err(error) = patch.git_apply(root, &root.join(patch.path()), &["--check"]) {
            wrong.push(Violation::at(&patch.path(), 0, format!("{error:#}: mend it")));
        }
        for (run, _) in &patch.runs {
            let (Run::Test(test) | Run::Race(test)) = run else { continue };
            if !is_there(tree, test) {
                wrong.push(Violation::at(&patch.path(), 0, format!("there is no {run}")));
            }
        }
    }
    wrong
}

/// Whether the tree has such a test: the binary, and in the file of its module a function
/// whose name begins so.
fn is_there(tree: &Tree, test: &Test) -> bool {
    let name = format!("name = \"{}\"", test.package);
    let is_manifest = |(path, text): &(&str, &str)| {
        path.ends_with("Cargo.toml") && text.lines().any(|line| line == name)
    };
    let Some((manifest, text)) = tree.texts().find(is_manifest) else { return false };
    let directory = manifest.trim_end_matches("Cargo.toml");
    let (module, start) = test.name.rsplit_once("::").unwrap_or(("", &test.name));
    let function = format!("fn {start}");
    let is_of_it = |path: &str| {
        if test.binary == "lib" {
            return path.starts_with(&format!("{directory}src/"));
        }
        let names_main = format!("name = \"{}\"\npath = \"tests/main.rs\"", test.binary);
        let file = match module.split("::").next().unwrap_or_default() {
            module if text.contains(&names_main) => format!("{directory}tests/{module}"),
            _ => format!("{directory}tests/{}", test.binary),
        };
        path == format!("{file}.rs") || path.starts_with(&format!("{file}/"))
    };
    tree.texts().any(|(path, text)| is_of_it(path) && text.contains(&function))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Breaks: x\nRun: worlds 0..9\nExpect: y\n";
    const AT: &str = "xtask/planted/a.patch";

    #[test]
    fn a_head_says_what_is_broken_and_what_finds_it() {
        let diff =
            "\n--- a/x\n+++ b/crates/ring/src/x\n+++ b/crates/arena/x\n+++ b/crates/ring/y\n";
        let parsed = Patch::parse(AT, &format!("{HEAD}{diff}")).unwrap();
        let runs = vec![(Run::Worlds("0..9".into()), "y".into())];
        let crates = vec!["arena".into(), "ring".into()];
        assert_eq!(parsed, Patch { name: "a".into(), runs, crates });
        let both = Patch::parse(AT, &format!("{HEAD}Run: test p lib n\nExpect: z\n")).unwrap();
        let shown: Vec<_> = both.runs.iter().map(|(run, by)| format!("{run} {by}")).collect();
        assert_eq!(shown, ["worlds 0..9 y", "test p lib n z"]);
        for label in ["Breaks:", "Run:", "Expect:"] {
            let without = HEAD.replace(label, "Other:");
            assert!(Patch::parse(AT, &without).is_err(), "{label}");
        }
        let of_kind = Patch::parse(AT, &HEAD.replace("0..9", "0..9 --ordered")).unwrap();
        assert_eq!(of_kind.runs[0].0.to_string(), "worlds 0..9 --ordered");
        for wrong in [
            HEAD.replace("0..9", ""),
            HEAD.replace("0..9", "0..9 --x"),
            format!("{HEAD}Run: worlds 1..2\n"),
        ] {
            assert!(Patch::parse(AT, &wrong).is_err(), "{wrong}");
        }
    }

    const MANIFEST: &str =
        "[package]\nname = \"remora-p\"\n\n[[test]]\nname = \"p\"\npath = \"tests/main.rs\"\n";

    #[test]
    fn a_test_that_is_not_there_is_an_error() {
        let tree = Tree::of(&[
            ("crates/p/Cargo.toml", MANIFEST),
            ("crates/p/src/a.rs", "fn of_lib() {}"),
            ("crates/p/tests/one.rs", "fn of_one() {}"),
            ("crates/p/tests/whole.rs", "fn of_whole() {}"),
            ("crates/p/tests/parts/one.rs", "fn of_parts() {}"),
        ]);
        let is_there = |text: &str| match Run::parse(text) {
            Some(Run::Test(test)) => is_there(&tree, &test),
            _ => panic!("{text}"),
        };
        assert!(is_there("test remora-p lib a::of_l") && is_there("test remora-p whole of_whole"));
        assert!(is_there("test remora-p parts one::of_parts"));
        assert!(
            is_there("test remora-p p one::of_one") && is_there("test remora-p p parts::of_pa")
        );
        assert!(!is_there("test remora-p p one::of_parts"));
        assert!(!is_there("test remora-p whole of_lib") && !is_there("test remora-p lib of_whole"));
        assert!(!is_there("test remora-q lib of_lib") && !is_there("test remora-p part of_parts"));
    }

    #[test]
    fn a_patch_that_does_not_apply_is_an_error() {
        let root = std::env::temp_dir().join(format!("remora-patches-{}", std::process::id()));
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::create_dir_all(root.join(PATCHES)).unwrap();
        std::fs::write(root.join("d/f"), "one\n").unwrap();
        let diff = format!("{HEAD}\n--- a/d/f\n+++ b/d/f\n@@ -1 +1 @@\n-one\n+two\n");
        std::fs::write(root.join(AT), &diff).unwrap();
        let tree = Tree::of(&[(AT, &diff)]);
        assert_eq!(check(&root, &tree), []);
        Patch::parse(AT, &diff).unwrap().apply(&root, &root).unwrap();
        assert_eq!(std::fs::read_to_string(root.join("d/f")).unwrap(), "two\n");
        let wrong = check(&root, &tree);
        assert!(wrong[0].message.contains("a.patch does not apply"), "{wrong:?}");
        std::fs::remove_dir_all(root).unwrap();
    }
}
