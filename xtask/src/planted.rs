//! `cargo xtask planted`: lets every planted mistake be found ([`crate::patches`]).
//! The copy of the tree lies below the target directory, and so do its builds, which
//! all patches share: the next one builds only what it changes, and what the last one
//! has changed. So patches of one crate come one after the other.

use crate::patches::{Patch, Run, all};
use crate::tree::Tree;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Lines of a run's output that are shown where it found nothing.
const SHOWN_LINES: usize = 15;
/// A run that takes longer is ended, and has found nothing. A mistake may let a test
/// wait for ever.
const MOST_SECONDS: &str = "1800";
/// No debugger is used on these builds, and they run for seconds: they must build fast.
/// Tests of whole processes build the release binary.
pub const QUICK_BUILDS: [(&str, &str); 5] = [
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_TEST_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];
/// Mistakes of the rings, the engine and the client, found quickly, in an order in which little is
/// built twice.
const SHORT: [&str; 3] = ["credit-too-early", "updated-stays-live", "conclude-absence"];

/// Which mistakes are looked for.
pub enum Which {
    /// All, or those that are named.
    Named(Vec<String>),
    /// [`SHORT`], each by the first of its runs.
    Short,
}

/// Applies each patch to the copy in turn, and lets it be found. Fails if one is not.
pub fn hunt(root: &Path, which: Which) -> Result<ExitCode> {
    let tree = Tree::load(root)?;
    let patches = match which {
        Which::Named(names) => chosen(&tree, &names)?,
        Which::Short => short(&tree)?,
    };
    let (copy, builds) = places(root);
    let (began, mut missed) = (Instant::now(), 0);
    for patch in &patches {
        renew(root, &tree, &copy)?;
        patch.apply(root, &copy)?;
        for (run, expect) in &patch.runs {
            let run_began = Instant::now();
            let end = look_for(run, expect, &copy, &builds)?;
            let seconds = run_began.elapsed().as_secs();
            match end {
                None if matches!(run, Run::Race(_)) => {
                    println!("planted {} left to scripts/sanitize.sh", patch.name);
                }
                None => println!("planted {} found by {run} seconds={seconds}", patch.name),
                Some(end) => {
                    missed += 1;
                    let name = &patch.name;
                    println!("planted {name} NOT-FOUND by {run}: no {expect:?}\n{end}");
                }
            }
        }
    }
    renew(root, &tree, &copy)?;
    let (all, seconds) = (patches.len(), began.elapsed().as_secs());
    println!("planted: patches={all} missed={missed} seconds={seconds}");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes a copy of the tree with a patch applied, and prints where it is.
pub fn copy(root: &Path, name: &str) -> Result<ExitCode> {
    let tree = Tree::load(root)?;
    let patches = chosen(&tree, &[name.to_owned()])?;
    let copy = target(root).join("patched").join(name);
    renew(root, &tree, &copy)?;
    patches[0].apply(root, &copy)?;
    println!("{}", copy.display());
    Ok(ExitCode::SUCCESS)
}

/// The patches with these names, or all, in an order in which little is built twice.
fn chosen(tree: &Tree, names: &[String]) -> Result<Vec<Patch>> {
    let (mut patches, wrong) = all(tree);
    if let Some(wrong) = wrong.first() {
        bail!("{}", wrong.message);
    }
    if let Some(name) = names.iter().find(|name| patches.iter().all(|p| p.name != **name)) {
        bail!("there is no patch {name}");
    }
    patches.retain(|patch| names.is_empty() || names.contains(&patch.name));
    patches.sort_by(|one, other| (&one.crates, &one.runs).cmp(&(&other.crates, &other.runs)));
    ensure!(!patches.is_empty(), "there are no patches");
    Ok(patches)
}

fn short(tree: &Tree) -> Result<Vec<Patch>> {
    let mut patches = chosen(tree, &SHORT.map(str::to_owned))?;
    patches.sort_by_key(|patch| SHORT.iter().position(|name| *name == patch.name));
    patches.iter_mut().for_each(|patch| patch.runs.truncate(1));
    Ok(patches)
}

/// Runs in the copy what looks for a mistake. The end of its output, if it did not
/// fail as expected.
fn look_for(run: &Run, expect: &str, copy: &Path, builds: &Path) -> Result<Option<String>> {
    let mut command = Command::new("timeout");
    command.arg(MOST_SECONDS).arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(copy).env("CARGO_TARGET_DIR", builds).env("CARGO_TERM_COLOR", "never");
    command.env("RUST_BACKTRACE", "0");
    command.envs(QUICK_BUILDS);
    // The binary of the tree has no mistake.
    command.env_remove("REMORA_BIN");
    match run {
        Run::Worlds(seeds) => {
            command.args(["run", "--locked", "--quiet", "--package", "remora-sim", "--"]);
            command.args(["--until-broken", "--seeds"]).args(seeds.split(' '));
        }
        Run::Test(test) => {
            command.args(["test", "--locked", "--quiet", "--package", &test.package]);
            match test.binary.as_str() {
                "lib" => command.arg("--lib"),
                binary => command.args(["--test", binary]),
            };
            command.args(["--", &test.name]);
        }
        Run::Race(_) => return Ok(None),
    }
    let output = command.output().context("cargo cannot be run")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_found = !output.status.success() && text.contains(expect);
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
    Ok((!is_found).then_some(end))
}

/// The copy of the tree, and where it is built.
pub fn places(root: &Path) -> (PathBuf, PathBuf) {
    (target(root).join("tree"), target(root).join("builds"))
}

/// A directory of its own: these builds are not what is shipped.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target))
        .join("planted")
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

    #[test]
    fn a_copy_is_renewed() {
        let directory = std::env::temp_dir().join(format!("remora-planted-{}", std::process::id()));
        let (root, copy) = (directory.join("root"), directory.join("copy"));
        std::fs::create_dir_all(root.join("d")).unwrap();
        std::fs::create_dir_all(copy.join("e")).unwrap();
        std::fs::write(root.join("d/f"), "one\n").unwrap();
        std::fs::write(copy.join("e/old"), "gone").unwrap();
        let tree = Tree::of(&[("d/f", "one\n")]);
        for _ in 0..2 {
            renew(&root, &tree, &copy).unwrap();
            assert_eq!(files_below(&copy, &copy).unwrap(), ["d/f"]);
            assert_eq!(std::fs::read_to_string(copy.join("d/f")).unwrap(), "one\n");
            std::fs::write(copy.join("d/f"), "patched\n").unwrap();
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_short_ones_are_there_in_their_order_and_others_are_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = Tree::load(root).unwrap();
        let short = short(&tree).unwrap();
        assert!(short.iter().map(|patch| patch.name.as_str()).eq(SHORT));
        assert!(short.iter().all(|patch| patch.runs.len() == 1));
        let all = chosen(&tree, &[]).unwrap();
        assert!(all.len() > SHORT.len() && all.is_sorted_by_key(|patch| &patch.crates));
        assert!(chosen(&tree, &["no-such".to_owned()]).is_err());
    }
}
