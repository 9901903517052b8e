//! A panic in a thread of a server ends its process. So the server's code
//! starts threads by `vital_thread::spawn` only.

use crate::rust_text::{code_only, has_word};
use crate::tree::Tree;
use crate::violation::Violation;

/// Code of which the server's threads are made.
const SERVES: &[&str] = &[
    "crates/server/src/",
    "crates/fabric/src/",
    "crates/command-line/src/serving.rs",
    "crates/remora/src/serve/",
];
/// Files among them that may nevertheless, and why.
const EXCEPT: &[&str] = &[
    // It is what starts vital threads.
    "crates/fabric/src/vital_thread.rs",
    // Runs in clients' processes, too. A later reader replaces one that panics.
    "crates/fabric/src/verbs/known_places.rs",
    // Compiled into tests only: stands in for the standard library in models.
    "crates/fabric/src/sync/modelled.rs",
];
/// How the standard library starts threads that outlive the call. (A scope
/// passes a panic on to the thread that waits for it.)
const STARTS: &[&str] = &["thread::spawn", "thread::Builder"];

/// See the module's text.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        let serves = SERVES.iter().any(|folder| path.starts_with(folder));
        if !serves || !path.ends_with(".rs") || EXCEPT.contains(&path) || is_test(path) {
            continue;
        }
        // Tests inside a file stand at its end.
        let code = code_only(text);
        let code = code.split("mod tests {").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate() {
            let line = line.replace("vital_thread::spawn", "");
            let imports = line.trim_start().starts_with("use std::thread")
                && (has_word(&line, "spawn") || has_word(&line, "Builder"));
            if imports || STARTS.iter().any(|start| line.contains(start)) {
                let message = "a thread of a server: start it by remora_fabric::vital_thread";
                found.push(Violation::at(path, at + 1, message));
            }
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    ["/tests.rs", "/tests/", "/models/", "/conformance/"].iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn threads_whose_panic_goes_unseen_are_found_where_a_server_starts_them() {
        let text = "vital_thread::spawn(\"a\", run)?;\nstd::thread::spawn(run);\n\
                    thread::Builder::new().spawn(run);\n// thread::spawn\n\
                    use std::thread::{Builder, JoinHandle};\nuse std::thread::JoinHandle;\n";
        assert_eq!(lines("crates/server/src/server.rs", text), [2, 3, 5]);
        assert_eq!(lines("crates/fabric/src/verbs/host.rs", text), [2, 3, 5]);
        assert_eq!(lines("crates/command-line/src/serving.rs", text), [2, 3, 5]);
        assert!(lines("crates/remora/src/demo/mod.rs", text).is_empty());
        assert!(lines("crates/fabric/src/tcp/models/mod.rs", text).is_empty());
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    std::thread::spawn(run);\n}\n";
        assert!(lines("crates/server/src/server.rs", tests).is_empty());
    }
}
