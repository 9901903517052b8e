//! `cargo xtask planted`: lets every patch be found ([`crate::patches`]), then
//! builds the simulator with the bugs that a feature compiles in, and lets it
//! look for each; those that worlds cannot show are looked for by a test.
//! One line a bug; fails if one is not found. With
//! `--unit-tests` it shows what the worlds are for: bugs with which the unit
//! tests of their own crate pass.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Seeds within which every bug has to be found.
const SEEDS: &str = "0..3000";

/// Bugs that only a test shows, which sees each store or comes between all READs: package, test, bug.
const NOTICED: [(&str, &str, &str); 3] = [
    ("remora-engine", "shape_stores", "hidden-too-late"),
    ("remora-engine", "geo_readers", "leaves-unchecked"),
    ("remora-sim", "sessions", "tree-without-root"),
];

/// Bugs that a crate's unit tests do not notice: package, which of its tests
/// (`--tests` are all of them), bugs.
const UNNOTICED: [(&str, &str, &[&str]); 5] = [
    ("remora-layout", "--tests", &["checksum-too-short"]),
    ("remora-index", "--tests", &["freed-stays-live"]),
    (
        "remora-client-core",
        "--tests",
        &[
            "conclude-absence",
            "read-past-own-writes",
            "believe-failed-read",
            "lost-is-refused",
            "believe-torn-node",
            "trust-kept-top",
            "tree-without-root",
            "read-tree-past-right",
        ],
    ),
    (
        "remora-server",
        "--tests",
        &["upload-outlives-client", "resp-answers-slot", "resp-ignores-expiry"],
    ),
    (
        "remora-engine",
        "--lib",
        &[
            "updated-stays-live",
            "removed-stays-live",
            "moved-stays-live",
            "pinned-is-reused",
            "data-outlives-object",
        ],
    ),
];

/// Lets the simulator, or a test, look for each bug; or only for some patches.
pub fn hunt(root: &Path, patches: &[String]) -> Result<ExitCode> {
    let missed_patches = crate::patches::hunt(root, &target(root), patches)?;
    if !patches.is_empty() {
        return Ok(if missed_patches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let built = cargo(root)
        .args(["build", "--locked", "--release", "--quiet"])
        .args(["--package", "remora-sim", "--features", "plants"])
        .status()
        .context("cargo cannot be run")?;
    ensure!(built.success(), "the simulator with planted bugs does not build");
    let hunted = Command::new(target(root).join("release/remora-sim"))
        .args(["--hunt", "--seeds", SEEDS])
        .status()
        .context("the simulator cannot be run")?;
    let mut missed = missed_patches as u32;
    for (package, name, bug) in NOTICED {
        let tests = Tests { root, package, which: &["--test", name] };
        tests.build()?;
        let is_found = tests.pass(None)? && !tests.pass(Some(bug))?;
        missed += !is_found as u32;
        println!("planted {bug} {} test={name}", if is_found { "found" } else { "NOT-FOUND" });
    }
    Ok(if hunted.success() && missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Some tests of a crate, in a build with the planted bugs.
struct Tests<'a> {
    root: &'a Path,
    package: &'a str,
    /// As cargo is told of them.
    which: &'a [&'a str],
}

impl Tests<'_> {
    fn command(&self) -> Command {
        let mut cargo = cargo(self.root);
        cargo.args(["test", "--locked", "--release", "--quiet", "--package", self.package]);
        cargo.args(self.which).args(["--features", "remora-layout/plants"]);
        cargo
    }

    fn build(&self) -> Result<()> {
        let built = self.command().arg("--no-run").status().context("cargo cannot be run")?;
        ensure!(built.success(), "the tests of {} do not build", self.package);
        Ok(())
    }

    /// Whether they pass with this bug.
    fn pass(&self, bug: Option<&str>) -> Result<bool> {
        let mut command = self.command();
        command.env_remove("REMORA_PLANT").envs(bug.map(|bug| ("REMORA_PLANT", bug)));
        let tested = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(tested.context("cargo cannot be run")?.success())
    }
}

/// Runs the unit tests with each bug that they do not notice. One that they
/// notice fails: the tables here and in `docs/testing.md` are wrong then.
pub fn unit_tests(root: &Path) -> Result<ExitCode> {
    let mut noticed = 0;
    for (package, tests, bugs) in UNNOTICED {
        let built = Tests { root, package, which: &[tests] };
        built.build()?;
        for bug in bugs {
            let passed = built.pass(Some(bug))?;
            noticed += !passed as u32;
            println!("planted {bug}: {package} {tests} {}", if passed { "pass" } else { "FAIL" });
        }
    }
    Ok(if noticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A directory of its own: these builds are not what is shipped.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), Into::into)
        .join("planted")
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env("CARGO_TARGET_DIR", target(root)).current_dir(root);
    cargo
}
