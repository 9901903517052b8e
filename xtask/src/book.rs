//! `cargo xtask book`: the documents as a site, made by mdBook.
//!
//! The pages are those that `docs/SUMMARY.md` lists. Some of them lie outside `docs/`, where a
//! host of git repositories shows them. mdBook takes one directory, so the pages are laid out
//! anew in a copy, what is in `docs/` at its top, and links between them are rewritten.
//! In the repository they stay what such hosts follow. At the end every link of the site is
//! looked at.

use crate::tree::Tree;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Lists the pages, in order.
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// The settings of mdBook.
pub const SETTINGS: &str = "docs/book.toml";
/// mdBook, where `scripts/book.sh` installs it, below the target directory.
const PROGRAM: &str = "tools/bin/mdbook";

/// An entry of the summary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Line of the summary, from 1.
    pub line: usize,
    /// Repository path.
    pub path: String,
}

/// The pages that a summary lists, in order.
pub fn pages(summary: &str) -> Vec<Page> {
    let entry = |(at, line): (usize, &str)| {
        let target = targets(line).next()?;
        Some(Page { line: at + 1, path: resolved(SUMMARY, target)? })
    };
    summary.lines().enumerate().filter_map(entry).collect()
}

/// Targets of a line's links in the repository, without what is behind `#`.
pub fn targets(line: &str) -> impl Iterator<Item = &str> {
    links(line).map(|(_, target)| without_fragment(target)).filter(|target| !is_foreign(target))
}

/// A line's links: where their targets begin, and what these are.
fn links(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.match_indices("](").filter_map(|(at, brackets)| {
        let from = at + brackets.len();
        Some((from, line[from..].split([')', ' ']).next()?))
    })
}

fn without_fragment(target: &str) -> &str {
    target.split('#').next().unwrap_or_default()
}

/// Whether a target is no path: another site, or a place on the page.
fn is_foreign(target: &str) -> bool {
    target.is_empty() || target.contains(':')
}

/// `target` as a repository path, seen from the document's directory; `None`
/// where it leaves the repository.
pub fn resolved(document: &str, target: &str) -> Option<String> {
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

/// Where a page lies in the book.
fn place(path: &str) -> &str {
    path.strip_prefix("docs/").unwrap_or(path)
}

/// Where mdBook looks for it.
fn laid_out(path: &str) -> String {
    format!("src/{}", place(path))
}

/// A page's text with links as they are in the book.
fn text_in_book(document: &str, text: &str) -> String {
    let up = "../".repeat(place(document).matches('/').count());
    let (mut written, mut is_fenced) = (String::with_capacity(text.len()), false);
    for line in text.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        let mut rest = 0;
        for (from, target) in links(line).filter(|_| !is_fenced) {
            let path = without_fragment(target);
            if let Some(to) = resolved(document, path).filter(|_| !is_foreign(path)) {
                written.push_str(&line[rest..from]);
                written.push_str(&up);
                written.push_str(place(&to));
                rest = from + path.len();
            }
        }
        written.push_str(&line[rest..]);
        written.push('\n');
    }
    written
}

/// Makes the site in the target directory.
pub fn build(root: &Path) -> Result<ExitCode> {
    let tree = Tree::load(root)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let target = root.join(target);
    let (source, site) = (target.join("book-source"), target.join("book"));
    for old in [&source, &site] {
        if old.exists() {
            std::fs::remove_dir_all(old).with_context(|| format!("{}", old.display()))?;
        }
    }
    let summary = tree.text(SUMMARY).with_context(|| format!("there is no {SUMMARY}"))?;
    let settings = tree.text(SETTINGS).with_context(|| format!("there is no {SETTINGS}"))?;
    let mut files = vec![
        ("book.toml".to_owned(), settings.to_owned()),
        (laid_out(SUMMARY), text_in_book(SUMMARY, summary)),
    ];
    for Page { line, path } in pages(summary) {
        let text = tree.text(&path).with_context(|| format!("{SUMMARY}:{line}: no page {path}"))?;
        files.push((laid_out(&path), text_in_book(&path, text)));
    }
    for (path, text) in files {
        let path = source.join(path);
        std::fs::create_dir_all(path.parent().context("it lies in a directory")?)?;
        std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    }
    let made = Command::new(target.join(PROGRAM))
        .arg("build")
        .arg(&source)
        .arg("--dest-dir")
        .arg(&site)
        .status()
        .context("mdBook cannot be run; make book installs it")?;
    ensure!(made.success(), "mdBook made no site");
    let site_pages = site_pages(&site)?;
    let broken = broken_links(&site_pages);
    if let Some(first) = broken.first() {
        broken.iter().for_each(|link| eprintln!("{link}"));
        bail!("{} links of the site lead nowhere, the first {first}", broken.len());
    }
    println!(
        "{} pages, every link leads somewhere: {}",
        site_pages.len(),
        site.join("index.html").display()
    );
    Ok(ExitCode::SUCCESS)
}

/// The site's pages, by their paths in it.
fn site_pages(site: &Path) -> Result<BTreeMap<String, String>> {
    let (mut pages, mut directories) = (BTreeMap::new(), vec![site.to_path_buf()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "html") {
                let name = path.strip_prefix(site)?.to_str().context("a path is not UTF-8")?;
                pages.insert(name.to_owned(), std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(pages)
}

/// Links to pages or to places on pages that are not there: `from: target`.
fn broken_links(pages: &BTreeMap<String, String>) -> Vec<String> {
    let places: BTreeMap<&str, BTreeSet<&str>> = pages
        .iter()
        .map(|(path, text)| (path.as_str(), attributes(text, " id=\"").collect()))
        .collect();
    let mut broken = BTreeSet::new();
    for (path, text) in pages {
        for target in attributes(text, " href=\"") {
            let (to, fragment) = target.split_once('#').unwrap_or((target, ""));
            let to = match to {
                "" => Some(path.clone()),
                to if to.contains(':') || !to.ends_with(".html") => continue,
                to => resolved(path, to),
            };
            let there = to.as_deref().and_then(|to| places.get(to));
            if !there.is_some_and(|ids| fragment.is_empty() || ids.contains(fragment)) {
                broken.insert(format!("{path}: {target}"));
            }
        }
    }
    broken.into_iter().collect()
}

/// The values of an attribute, which stands before its quoted value as in `before`.
fn attributes<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = &'t str> {
    text.match_indices(before)
        .filter_map(move |(at, _)| text[at + before.len()..].split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_lists_pages_of_the_repository() {
        let summary = "# Summary\n\n# Start\n\n- [One](one.md)\n  - [Two](more/two.md)\n\
            - [Above](../README.md)\n- [Draft]()\n";
        let pages: Vec<(usize, String)> =
            pages(summary).into_iter().map(|page| (page.line, page.path)).collect();
        let expected = [(5, "docs/one.md"), (6, "docs/more/two.md"), (7, "README.md")];
        assert_eq!(pages, expected.map(|(line, path)| (line, path.to_owned())));
    }

    #[test]
    fn links_are_those_of_the_book() {
        let text = "[a](a.md) and [b](../ARCHITECTURE.md#crates), [c](decisions/0001.md)\n\
            [d](https://example.org/x.md) [e](#here)\n```\n[f](a.md)\n```\n";
        let expected = "[a](a.md) and [b](ARCHITECTURE.md#crates), [c](decisions/0001.md)\n\
            [d](https://example.org/x.md) [e](#here)\n```\n[f](a.md)\n```\n";
        assert_eq!(text_in_book("docs/b.md", text), expected);
        let decision = "[a](../performance.md#here) [b](0002.md) [c](../../SECURITY.md)\n";
        let expected =
            "[a](../performance.md#here) [b](../decisions/0002.md) [c](../SECURITY.md)\n";
        assert_eq!(text_in_book("docs/decisions/0001.md", decision), expected);
        let above = "[a](docs/decisions/README.md) [b](data/README.md)\n";
        assert_eq!(
            text_in_book("README.md", above),
            "[a](decisions/README.md) [b](data/README.md)\n"
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = |text: &str| text.to_owned();
        let pages = BTreeMap::from([
            (
                page("a.html"),
                page("<h1 id=\"top\"></h1> <a href=\"b/c.html#in\"> <a href=\"#top\">"),
            ),
            (page("b/c.html"), page("<h2 id=\"in\"> <a href=\"../a.html\"> <a href=\"x.css\">")),
        ]);
        assert_eq!(broken_links(&pages), [""; 0]);
        for (planted, broken) in [
            ("<a href=\"b/d.html\">", "a.html: b/d.html"),
            ("<a href=\"b/c.html#out\">", "a.html: b/c.html#out"),
            ("<a href=\"#bottom\">", "a.html: #bottom"),
            ("<a href=\"../a.html\">", "a.html: ../a.html"),
        ] {
            let mut pages = pages.clone();
            pages.get_mut("a.html").unwrap().push_str(planted);
            assert_eq!(broken_links(&pages), [broken], "{planted}");
        }
    }
}
