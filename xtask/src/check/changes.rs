//! Whatever changes goes through one function (design, "One change"): the log of a
//! shard gets entries in one place, and counts those of other logs in one place.

use crate::rust_text::code_only;
use crate::tree::Tree;
use crate::violation::Violation;

/// Where the log is appended to.
const COMMIT: &str = "crates/engine/src/store/commit.rs";
/// The log itself.
const LOG: &str = "crates/log/";
/// How a log gets an entry, or counts one. Spaces and line ends do not count.
const CALLS: &[&[&str]] = &[
    &["log.append(", "Log::append("],
    &[".append_part(", "Log::append_part("],
    &["log.pass(", "Log::pass("],
];

/// See the module's text.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_checked(path)) {
        // Tests inside a file stand at its end.
        let code = code_only(text);
        let code = code.split("mod tests {").next().unwrap_or_default();
        for calls in CALLS {
            // In the one place the first call is the right one.
            let calls = lines_of(code, calls).into_iter().skip((path == COMMIT) as usize);
            found.extend(calls.map(|line| {
                let message = "changes the log: let Store::commit do it, which publishes, too";
                Violation::at(path, line, message)
            }));
        }
    }
    found
}

/// The lines, from 1, on which any of these calls ends, each once.
fn lines_of(code: &str, calls: &[&str]) -> Vec<usize> {
    let mut dense = String::new();
    let mut lines = Vec::new();
    for (at, line) in code.lines().enumerate() {
        for c in line.chars().filter(|c| !c.is_whitespace()) {
            dense.push(c);
            if calls.iter().any(|call| dense.ends_with(call)) {
                lines.push(at + 1);
            }
        }
    }
    lines
}

fn is_checked(path: &str) -> bool {
    let is_test = ["/tests/", "/tests.rs", "_tests.rs"].iter().any(|part| path.contains(part));
    let is_code = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    is_code && !is_test && !path.starts_with(LOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn a_second_place_that_changes_the_log_is_found() {
        let text = "self.log.append([&[], &[], &[]]);\nlog.pass();\n// log.append(\n\
                    list.append(&mut more);\nself.log\n    .append([a]);\n\
                    let text = \"log.pass()\";\nstore.log.append_part(&parts, []);\n\
                    Log::pass(&mut log);\ncatalog.pass_on();\n";
        assert_eq!(lines("crates/engine/src/shard/apply.rs", text), [1, 6, 8, 2, 9]);
        assert_eq!(lines("crates/server/src/shard_loop.rs", text), [1, 6, 8, 2, 9]);
        assert_eq!(lines(COMMIT, text), [6, 9]);
        for free in ["crates/log/src/append.rs", "crates/engine/tests/apply.rs", "fuzz/src/log.rs"]
        {
            assert!(lines(free, text).is_empty(), "{free}");
        }
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    log.append([]);\n}\n";
        assert!(lines("crates/engine/src/store/mod.rs", tests).is_empty());
    }

    /// In this repository, with one call more than it has.
    #[test]
    fn a_planted_call_is_found() {
        let tree = Tree::load(std::path::Path::new("..")).expect("a repository");
        assert_eq!(check(&tree), []);
        let text = tree.texts().find(|(path, _)| *path == COMMIT).expect("it is there").1;
        for (call, lines) in [("log.append(", 1), (".append_part(", 1), ("log.pass(", 1)] {
            let line = text.lines().find(|line| line.contains(call)).expect("it is called");
            let planted = text.replace(line, &format!("{line}\n{line}"));
            assert_eq!(check(&Tree::of(&[(COMMIT, &planted)])).len(), lines, "{call}");
            assert_eq!(check(&Tree::of(&[("crates/engine/src/shard.rs", line)])).len(), lines);
        }
    }
}
