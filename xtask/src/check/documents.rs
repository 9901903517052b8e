//! Paths that documents name exist: in relative links, and in backticks where
//! the words look like a path of this repository.

use crate::tree::Tree;
use crate::violation::Violation;

/// Directories of the repository, there or planned: a path in backticks that
/// begins with one of them is meant as a path.
const TOP_DIRECTORIES: &[&str] = &[
    ".cargo",
    ".ci",
    "bench",
    "clients",
    "crates",
    "data",
    "dataplane",
    "docs",
    "examples",
    "fuzz",
    "scripts",
    "tests",
    "xtask",
];
/// Names with these endings are meant as files even without a directory.
const FILE_ENDINGS: &[&str] = &[".md", ".rs", ".sh", ".py", ".toml", ".tsv.xz"];

/// Every path in README, ARCHITECTURE, SECURITY, CHANGELOG and docs exists.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_document(path)) {
        let mut fenced = false;
        for (at, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                let missing =
                    missing_links(tree, path, line).chain(missing_words(tree, path, line));
                found.extend(missing.map(|name| {
                    let message = format!("{name} does not exist: correct the path");
                    Violation::at(path, at + 1, message)
                }));
            }
        }
    }
    found
}

fn is_document(path: &str) -> bool {
    let named = ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md", "data/README.md"];
    named.contains(&path) || (path.starts_with("docs/") && path.ends_with(".md"))
}

/// Targets of relative links that lead nowhere.
fn missing_links<'t>(
    tree: &'t Tree,
    document: &'t str,
    line: &'t str,
) -> impl Iterator<Item = String> + 't {
    line.match_indices("](").filter_map(move |(at, _)| {
        let target = line[at + 2..].split([')', ' ', '#']).next()?;
        let foreign = target.is_empty() || target.contains(':');
        let resolved = resolved(document, target);
        (!foreign && !resolved.is_some_and(|path| tree.exists(&path))).then(|| target.to_owned())
    })
}

/// `target` as a repository path, seen from the document's directory; `None`
/// where it leaves the repository.
fn resolved(document: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Words in backticks that look like a path and are none.
fn missing_words<'t>(
    tree: &'t Tree,
    document: &'t str,
    line: &'t str,
) -> impl Iterator<Item = String> + 't {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted
        .filter_map(path_in)
        .filter(move |path| !named_exists(tree, document, path))
        .map(str::to_owned)
}

/// The path that words in backticks name, if they name one.
fn path_in(quoted: &str) -> Option<&str> {
    let path =
        quoted.split("::").next()?.trim_end_matches(|c: char| c == ':' || c.is_ascii_digit());
    let path = if path.ends_with('.') { quoted } else { path };
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '*');
    if path.is_empty() || !path.chars().all(plain) || path.starts_with('/') {
        return None;
    }
    match path.split_once('/') {
        Some((top, _)) => TOP_DIRECTORIES.contains(&top).then_some(path),
        None => {
            let file = FILE_ENDINGS.iter().any(|end| path.len() > end.len() && path.ends_with(end));
            file.then_some(path)
        }
    }
}

fn named_exists(tree: &Tree, document: &str, path: &str) -> bool {
    match path.split_once('*') {
        Some((before, _)) => tree.has_prefix(before),
        None if path.contains('/') => tree.exists(path),
        None => {
            tree.has_file_named(path)
                || resolved(document, path).is_some_and(|path| tree.exists(&path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(document: &str, text: &str) -> Vec<String> {
        let files = [
            ("crates/arena/src/word.rs", ""),
            ("docs/a.md", ""),
            ("README.md", ""),
            ("Cargo.toml", ""),
        ];
        let mut files = files.to_vec();
        files.push((document, text));
        check(&Tree::of(&files)).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn paths_that_exist_pass() {
        let text = "`crates/arena`, `crates/arena/src/word.rs:12`, `crates/arena/src/*.rs`, `word.rs`,\n\
            `crates/arena/src/word.rs::a_test`, [a](a.md), [r](../README.md#x), `Cargo.toml`,\n\
            [w](https://example.org/x.md), `/proc/self/maps`, `fabric/shm`, `make test`, `GET`, [x](#y)\n\
            ```\ncrates/nowhere.rs [x](nowhere.md)\n```\n";
        assert_eq!(missing("docs/b.md", text), [""; 0]);
    }

    #[test]
    fn missing_paths_are_caught() {
        for planted in [
            "`crates/arena/src/lost.rs`",
            "`crates/lost/`",
            "`crates/lost/*.rs`",
            "`lost.rs`",
            "`docs/lost.md`",
            "[lost](lost.md)",
            "[lost](../../lost.md)",
            "[lost](../docs/lost.md#part)",
        ] {
            assert_eq!(missing("docs/b.md", planted).len(), 1, "{planted}");
            assert_eq!(missing("crates/arena/notes.md", planted).len(), 0, "{planted}");
        }
        assert_eq!(missing("CHANGELOG.md", "see `scripts/lost.sh`").len(), 1);
    }
}
