//! Paths that documents name exist: in relative links, and in backticks where
//! the words look like a path of this repository. The book that is made of them
//! ([`crate::book`]) has every page of `docs/`, once, and its pages link to no others.

use crate::book::{self, Page, SETTINGS, SUMMARY, resolved, targets};
use crate::tree::Tree;
use crate::violation::Violation;
use std::collections::BTreeSet;

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

/// The parts of the book, in order.
const PARTS: [&str; 5] = ["Start", "Use", "Operate", "Understand", "Measure"];

/// Every path in README, ARCHITECTURE, SECURITY, CHANGELOG and docs exists, and the book
/// is whole.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = check_paths(tree);
    found.extend(check_book(tree));
    found
}

fn check_paths(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_document(path)) {
        for (at, line) in unfenced(text) {
            let missing = missing_links(tree, path, line).chain(missing_words(tree, path, line));
            found.extend(missing.map(|name| {
                let message = format!("{name} does not exist: correct the path");
                Violation::at(path, at + 1, message)
            }));
        }
    }
    found
}

/// Whether the summary has the parts of the book and every page of `docs/`, once, and no
/// page leads to one that is not in the book.
fn check_book(tree: &Tree) -> Vec<Violation> {
    let Some(summary) = tree.text(SUMMARY) else {
        let is_book = tree.exists(SETTINGS);
        return is_book.then(|| Violation::at(SUMMARY, 0, "it is missing")).into_iter().collect();
    };
    let mut found = Vec::new();
    let parts = summary.lines().filter_map(|line| line.strip_prefix("# ")).skip(1);
    if !parts.eq(PARTS) {
        let message = format!("its parts are to be {}, in this order", PARTS.join(", "));
        found.push(Violation::at(SUMMARY, 0, message));
    }
    let mut listed = BTreeSet::new();
    for Page { line, path } in book::pages(summary) {
        if !listed.insert(path.clone()) {
            found.push(Violation::at(SUMMARY, line, format!("{path} is listed twice")));
        }
    }
    let is_page = |path: &str| path.starts_with("docs/") && path.ends_with(".md");
    for path in tree.paths().filter(|path| is_page(path) && *path != SUMMARY) {
        if !listed.contains(path) {
            found.push(Violation::at(
                path,
                0,
                format!("it is not in the book: list it in {SUMMARY}"),
            ));
        }
    }
    for path in &listed {
        let Some(text) = tree.text(path) else { continue };
        for (at, line) in unfenced(text) {
            let leads_out = |target: &&str| {
                resolved(path, target).is_some_and(|to| tree.exists(&to) && !listed.contains(&to))
            };
            found.extend(targets(line).filter(leads_out).map(|target| {
                let message = format!(
                    "{target} is not in the book: put it in backticks, or list it in {SUMMARY}"
                );
                Violation::at(path, at + 1, message)
            }));
        }
    }
    found
}

/// Lines that are no code, and their numbers from 0.
fn unfenced(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

fn is_document(path: &str) -> bool {
    let named = [
        "README.md",
        "ARCHITECTURE.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "data/README.md",
        "tests/rxe/README.md",
    ];
    named.contains(&path) || (path.starts_with("docs/") && path.ends_with(".md"))
}

/// Targets of relative links that lead nowhere.
fn missing_links<'t>(
    tree: &'t Tree,
    document: &'t str,
    line: &'t str,
) -> impl Iterator<Item = String> + 't {
    targets(line)
        .filter(move |target| !resolved(document, target).is_some_and(|path| tree.exists(&path)))
        .map(str::to_owned)
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

    /// What is wrong with a book of these files beside a summary and a page of each part.
    fn wrong_book(more: &[(&str, &str)], summary: &str) -> Vec<String> {
        let text = format!(
            "# Summary\n# Start\n- [a](a.md)\n# Use\n# Operate\n- [R](../README.md)\n# Understand\n\
             - [d](decisions/README.md)\n# Measure\n{summary}"
        );
        let mut files = vec![
            (SUMMARY, &*text),
            ("README.md", "[a](docs/a.md) [s](https://example.org)"),
            ("docs/a.md", "[d](decisions/README.md#x) [r](../README.md)\n```\n[x](../x.rs)\n```"),
            ("docs/decisions/README.md", "[a](../a.md)"),
            ("x.rs", ""),
        ];
        files.extend(more);
        let found = check(&Tree::of(&files));
        found.into_iter().map(|found| format!("{}: {}", found.file, found.message)).collect()
    }

    #[test]
    fn a_book_has_every_page_once_and_leads_to_no_other() {
        let without = check(&Tree::of(&[(SETTINGS, ""), ("docs/a.md", "")]));
        assert_eq!(without, [Violation::at(SUMMARY, 0, "it is missing")]);
        assert_eq!(wrong_book(&[], ""), [""; 0]);
        assert_eq!(wrong_book(&[("docs/b.md", "")], "- [b](b.md)\n"), [""; 0]);
        for (more, summary, expected) in [
            (("docs/b.md", ""), "", "docs/b.md: it is not in the book"),
            (("docs/b/c.md", ""), "", "docs/b/c.md: it is not in the book"),
            (("y.rs", ""), "- [a](a.md)\n", "docs/SUMMARY.md: docs/a.md is listed twice"),
            (("y.rs", ""), "- [b](b.md)\n", "docs/SUMMARY.md: b.md does not exist"),
            (("y.rs", ""), "# More\n", "docs/SUMMARY.md: its parts are to be"),
            (
                ("docs/b.md", "[x](../x.rs)"),
                "- [b](b.md)\n",
                "docs/b.md: ../x.rs is not in the book",
            ),
            (("docs/b.md", "[d](decisions)"), "- [b](b.md)\n", "docs/b.md: decisions is not in"),
        ] {
            let wrong = wrong_book(&[more], summary);
            assert!(
                matches!(&wrong[..], [one] if one.starts_with(expected)),
                "{expected}: {wrong:?}"
            );
        }
    }
}
