//! A file that can be read in one sitting: Rust files over 400 lines are
//! named, over 600 refused; tests may have 800.

use super::Violation;
use crate::tree::Tree;

const WARN_LINES: usize = 400;
const MOST_LINES: usize = 600;
const MOST_TEST_LINES: usize = 800;

/// No Rust file is too long.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        let lines = text.lines().count();
        let is_test = path.starts_with("tests/") || path.contains("/tests/");
        let most = if is_test { MOST_TEST_LINES } else { MOST_LINES };
        if lines > most {
            let message = format!("{lines} lines, at most {most}: split it by concept");
            found.push(Violation::at(path, 0, message));
        } else if lines > WARN_LINES && !is_test {
            let message = format!("{lines} lines, more than {WARN_LINES}: think of splitting it");
            found.push(Violation { warning: true, ..Violation::at(path, 0, message) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(path: &str, lines: usize) -> Option<&'static str> {
        let text = "x\n".repeat(lines);
        let found = check(&Tree::of(&[(path, &text)]));
        found.first().map(|found| if found.warning { "warning" } else { "error" })
    }

    #[test]
    fn long_files_are_caught() {
        assert_eq!(severity("crates/a/src/b.rs", 400), None);
        assert_eq!(severity("crates/a/src/b.rs", 401), Some("warning"));
        assert_eq!(severity("crates/a/src/b.rs", 601), Some("error"));
        assert_eq!(severity("tests/tests/b.rs", 800), None);
        assert_eq!(severity("crates/a/tests/b.rs", 801), Some("error"));
        assert_eq!(severity("docs/papers.md", 2000), None);
    }
}
