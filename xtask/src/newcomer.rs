//! `cargo xtask newcomer`: a type that somebody added from docs/adding-a-type.md
//! alone, as a patch. The check `newcomer` sees to it that the patch still fits,
//! and that it touches few files; this command applies it to a copy of the
//! sources and runs the type's tests there.

use crate::planted;
use crate::tree::Tree;
use crate::violation::Violation;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The patch.
const PATCH: &str = "tests/newcomer/counter.patch";
/// The type's folder.
const FOLDER: &str = "crates/engine/src/types/bcount/";
/// Files that it may touch outside of its folder: what it can be asked, its commands, and
/// a line or two in each of five lists. `docs/commands.md`, which is made from the table,
/// counts as one of them.
const MOST_OUTSIDE: usize = 7;
/// The one file of engine and server that it may touch outside of its folder.
const REGISTRY: &str = "crates/engine/src/types/mod.rs";

/// One file of a patch.
#[derive(Default)]
struct Touched<'p> {
    path: &'p str,
    is_new: bool,
    /// What the file has to hold, one text for each hunk.
    expected: Vec<String>,
}

fn touched(patch: &str) -> Vec<Touched<'_>> {
    let mut files: Vec<Touched<'_>> = Vec::new();
    let mut is_new = false;
    for line in patch.lines() {
        if let Some(old) = line.strip_prefix("--- ") {
            is_new = old == "/dev/null";
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            files.push(Touched { path, is_new, expected: Vec::new() });
        } else if let Some(file) = files.last_mut() {
            if line.starts_with("@@") {
                file.expected.push(String::new());
            } else if let (Some(hunk), Some(kept)) =
                (file.expected.last_mut(), line.strip_prefix([' ', '-']))
            {
                hunk.push_str(kept);
                hunk.push('\n');
            }
        }
    }
    files
}

/// What is wrong with the patch.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(patch) = tree.text(PATCH) else {
        return vec![Violation::at(PATCH, 0, "the newcomer's patch is missing")];
    };
    let files = touched(patch);
    let mut wrong = Vec::new();
    let outside: Vec<&str> =
        files.iter().map(|file| file.path).filter(|path| !path.starts_with(FOLDER)).collect();
    // The page of commands is made, not patched.
    if outside.len() + 1 > MOST_OUTSIDE || files.len() == outside.len() {
        let message = format!(
            "a type touches {} files outside of its folder, docs/commands.md included, and may \
             touch {MOST_OUTSIDE}: {}",
            outside.len() + 1,
            outside.join(", ")
        );
        wrong.push(Violation::at(PATCH, 0, message));
    }
    let is_of_the_house =
        |path: &&&str| path.starts_with("crates/engine/") || path.starts_with("crates/server/");
    for path in outside.iter().filter(is_of_the_house).filter(|path| **path != REGISTRY) {
        let message = format!("of engine and server a type touches {REGISTRY} alone, not {path}");
        wrong.push(Violation::at(PATCH, 0, message));
    }
    for file in &files {
        let text = tree.text(file.path);
        let fits = match (text, file.is_new) {
            (None, true) => true,
            (Some(text), false) => file.expected.iter().all(|hunk| text.contains(hunk.as_str())),
            _ => false,
        };
        if !fits {
            let message = "the newcomer's patch does not fit any more: add the type anew, from \
                           docs/adding-a-type.md alone";
            wrong.push(Violation::at(file.path, 0, message));
        }
    }
    wrong
}

/// Lists what the patch touches.
pub fn list(root: &Path) -> Result<ExitCode> {
    let patch = std::fs::read_to_string(root.join(PATCH)).context(PATCH)?;
    for file in touched(&patch) {
        let place = if file.path.starts_with(FOLDER) { "in its folder" } else { "outside" };
        println!("{place:13} {}{}", file.path, if file.is_new { " (new)" } else { "" });
    }
    println!("{:13} docs/commands.md (made from the table)", "outside");
    Ok(ExitCode::SUCCESS)
}

/// Adds the type to a copy of the sources, and runs its tests.
pub fn build(root: &Path) -> Result<ExitCode> {
    // Not with the workspace's builds: cargo names a crate of the copy as it names the
    // workspace's own, and would take the one for the other. With those of the planted
    // mistakes, as what neither changes is built once.
    let (copy, builds) = planted::places(root);
    let patched = copy.with_file_name("newcomer");
    if patched.exists() {
        std::fs::remove_dir_all(&patched).context("the last copy cannot be removed")?;
    }
    for (path, text) in Tree::load(root)?.texts() {
        write(&patched.join(path), text.as_bytes())?;
    }
    let mut git = Command::new("git");
    git.args(["apply", "-C1"]).arg(root.join(PATCH));
    // The copy is no repository, and lies in one.
    git.env("GIT_CEILING_DIRECTORIES", patched.parent().context("it has a parent")?);
    run(&mut git, &patched)?;
    // What is as it was the last time is not built again.
    bring_up_to_date(&patched, &copy)?;
    let tests: [&[&str]; 2] =
        [&["--package", "remora-engine", "--lib", "bcount"], &["--package", "remora-resp"]];
    for test in tests {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["test", "--quiet"]).args(test);
        // As the page says: the page of commands is made from the table.
        cargo.env("REMORA_UPDATE_DOCS", "1");
        cargo.env("CARGO_TARGET_DIR", &builds);
        cargo.envs(planted::QUICK_BUILDS);
        run(&mut cargo, &copy)?;
    }
    println!("the type that {PATCH} adds passes its tests");
    Ok(ExitCode::SUCCESS)
}

fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::create_dir_all(to.parent().context("each file has a directory")?)?;
    std::fs::write(to, bytes).with_context(|| format!("{} cannot be written", to.display()))
}

/// The names of what lies in a directory; nothing if there is none.
fn names_in(directory: &Path) -> Result<BTreeSet<OsString>> {
    if !directory.is_dir() {
        return Ok(BTreeSet::new());
    }
    let names = std::fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name()));
    names.collect()
}

/// Makes a directory equal to another; a file that is so already is not written.
fn bring_up_to_date(from: &Path, to: &Path) -> Result<()> {
    let names = names_in(from)?;
    for gone in names_in(to)?.difference(&names).map(|name| to.join(name)) {
        if gone.is_dir() { std::fs::remove_dir_all(gone)? } else { std::fs::remove_file(gone)? }
    }
    for name in names {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            bring_up_to_date(&from, &to)?;
            continue;
        }
        let bytes = std::fs::read(&from)?;
        if std::fs::read(&to).ok().as_ref() != Some(&bytes) {
            write(&to, &bytes)?;
        }
    }
    Ok(())
}

fn run(command: &mut Command, directory: &Path) -> Result<()> {
    let status = command.current_dir(directory).status().context("it cannot be run")?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "\
--- a/crates/engine/src/types/mod.rs
+++ b/crates/engine/src/types/mod.rs
@@ -1,2 +1,3 @@
 one
+two
 three
--- /dev/null
+++ b/crates/engine/src/types/bcount/mod.rs
@@ -0,0 +1 @@
+new
";

    #[test]
    fn a_patch_that_fits_is_right_and_one_that_does_not_is_named() {
        let tree = |text| Tree::of(&[(PATCH, SMALL), (REGISTRY, text)]);
        assert!(check(&tree("zero\none\nthree\n")).is_empty());
        assert_eq!(check(&tree("one\nbetween\nthree\n"))[0].file, REGISTRY);
        assert_eq!(check(&Tree::default())[0].file, PATCH);
    }

    #[test]
    fn a_copy_is_brought_up_to_date_and_what_is_equal_stays() {
        let here = std::env::temp_dir().join(format!("remora-newcomer-{}", std::process::id()));
        let (from, to) = (here.join("from"), here.join("to"));
        for (at, text) in [("from/a/same", "1"), ("from/new", "2"), ("from/b/other", "3")] {
            write(&here.join(at), text.as_bytes()).unwrap();
        }
        for (at, text) in [("to/a/same", "1"), ("to/gone/x", "2"), ("to/b/other", "old")] {
            write(&here.join(at), text.as_bytes()).unwrap();
        }
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        let same = std::fs::File::options().write(true).open(to.join("a/same")).unwrap();
        same.set_modified(long_ago).unwrap();
        bring_up_to_date(&from, &to).unwrap();
        let text = |at: &str| std::fs::read_to_string(to.join(at)).ok();
        assert_eq!(text("new").as_deref(), Some("2"));
        assert_eq!(text("b/other").as_deref(), Some("3"));
        assert_eq!(text("gone/x"), None);
        assert_eq!(same.metadata().unwrap().modified().unwrap(), long_ago);
        std::fs::remove_dir_all(here).unwrap();
    }

    #[test]
    fn what_touches_more_than_the_registry_is_refused() {
        let patch = SMALL.replace("types/mod.rs", "shard.rs");
        let tree = Tree::of(&[(PATCH, &patch), ("crates/engine/src/shard.rs", "one\nthree\n")]);
        assert!(check(&tree)[0].message.contains("alone"));
        let many: String = (0..6)
            .map(|at| format!("--- /dev/null\n+++ b/docs/{at}.md\n@@ -0,0 +1 @@\n+new\n"))
            .collect();
        let tree = Tree::of(&[(PATCH, &(SMALL.to_owned() + &many)), (REGISTRY, "one\nthree\n")]);
        assert!(check(&tree)[0].message.contains("outside"));
    }
}
