//! Nothing unfinished, nothing of one machine and no half of a merge stays in the source.
//! (The words are put together from halves, so that this file passes.)

use crate::rust_text::has_word;
use crate::tree::Tree;
use crate::violation::Violation;

/// Marks of unfinished work.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("unimple", "mented!"),
    concat!("to", "do!"),
];
/// Beginnings of lines that a merge leaves where two changes met.
const CONFLICTS: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];
/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/tmp/tar", "get-"),
    concat!("../sha", "red"),
];

/// No mark, no conflict and no machine path in any text file.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        for (at, line) in text.lines().enumerate() {
            for mark in MARKS.iter().filter(|mark| has_mark(line, mark)) {
                let message = format!("{mark}: finish it, or file an issue and take the mark away");
                found.push(Violation::at(path, at + 1, message));
            }
            if CONFLICTS.iter().any(|start| line.starts_with(start)) {
                let message = "two changes met here in a merge: say which counts".to_owned();
                found.push(Violation::at(path, at + 1, message));
            }
            for start in MACHINE_PATHS.iter().filter(|start| has_path(line, start)) {
                let message = format!("a path of one machine ({start}): make it relative");
                found.push(Violation::at(path, at + 1, message));
            }
        }
    }
    found
}

fn has_mark(line: &str, mark: &str) -> bool {
    match mark.strip_suffix('!') {
        Some(name) => line.match_indices(mark).any(|(at, _)| has_word(&line[at..], name)),
        None => has_word(line, mark),
    }
}

/// Whether an absolute path begins so: not the middle of a longer path.
fn has_path(line: &str, start: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}');
    line.match_indices(start).any(|(at, _)| !line[..at].chars().next_back().is_some_and(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let tree = Tree::of(&[("crates/a/src/lib.rs", text)]);
        check(&tree).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn marks_are_caught() {
        for mark in MARKS {
            let call = if mark.ends_with('!') { "()" } else { ": later" };
            assert_eq!(lines(&format!("fine\n// {mark}{call}\n")), [2], "{mark}");
        }
        assert_eq!(lines("mktemp -d /tmp/a.XXXXXX\nautodos\n"), [0usize; 0]);
    }

    #[test]
    fn conflicts_are_caught() {
        for start in CONFLICTS {
            assert_eq!(lines(&format!("fine\n{start}HEAD\n  {start}\n")), [2], "{start}");
        }
    }

    #[test]
    fn machine_paths_are_caught() {
        for start in MACHINE_PATHS {
            assert_eq!(lines(&format!("at \"{start}x\"\n")), [1], "{start}");
        }
        let inner = MACHINE_PATHS[0];
        let longer = format!("docs{inner}plan.md and $root{inner}x and ${{x}}{inner}x\n");
        assert_eq!(lines(&longer), [0usize; 0]);
    }
}
