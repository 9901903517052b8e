//! The files that a check looks at: repository paths and their text.
//!
//! A check is a function over a [`Tree`], never over the disk, so that a test
//! can plant a violation in a tree of three lines and see it caught.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Repository paths (with `/`) and, where a file is text, its text.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// What git tracks under `root`, and what it would track: ignored files
    /// stay out, files deleted from the work tree too.
    pub fn load(root: &Path) -> Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git could not be run")?;
        if !listed.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr).trim());
        }
        let names = String::from_utf8(listed.stdout).context("a path is not UTF-8")?;
        let mut files = BTreeMap::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            if let Ok(bytes) = std::fs::read(root.join(name)) {
                files.insert(name.to_owned(), String::from_utf8(bytes).ok());
            }
        }
        Ok(Self { files })
    }

    /// A tree made of paths and texts.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Some((*text).to_owned())));
        Self { files: files.collect() }
    }

    /// Text files: path and text, in order of paths.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Paths of all files, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is such a file, or a directory with a file in it.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.files.contains_key(path) {
            return true;
        }
        self.has_prefix(&format!("{path}/"))
    }

    /// Whether any path begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.files
            .range(prefix.to_owned()..)
            .next()
            .is_some_and(|(name, _)| name.starts_with(prefix))
    }

    /// Whether any file, in whatever directory, has this name.
    pub fn has_file_named(&self, name: &str) -> bool {
        self.files.keys().any(|path| path.rsplit('/').next() == Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_exist() {
        let tree = Tree::of(&[("docs/a.md", ""), ("docs-b/c.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/") && tree.exists("docs/a.md"));
        assert!(!tree.exists("doc") && !tree.exists("docs/a"));
        assert!(tree.has_file_named("c.md") && !tree.has_file_named("b/c.md"));
    }
}
