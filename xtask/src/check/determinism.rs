//! A simulated world repeats itself from its seed, and what it drives is what
//! runs in production. So neither the simulator nor the crates that it drives
//! look at a wall clock, begin threads or iterate in an order that the process
//! draws; and no production code knows that it is simulated.

use crate::rust_text::{code_only, has_word};
use crate::tree::Tree;
use crate::violation::Violation;

/// Where a world's own code is.
const SIMULATOR: &[&str] = &["crates/sim/", "crates/fabric/src/sim/", "crates/fabric/tests/sim"];
/// The code that worlds drive.
const DRIVEN: &[&str] = &[
    "crates/sim/src/",
    "crates/fabric/src/sim/",
    "crates/layout/src/",
    "crates/arena/src/",
    "crates/ring/src/",
    "crates/walk/src/",
    "crates/index/src/",
    "crates/plan/src/",
    "crates/engine/src/",
    "crates/cluster/src/",
    "crates/client-core/src/",
    "crates/server/src/ring_session/",
    "crates/server/src/resp/",
    "crates/server/src/inbox.rs",
    "crates/server/src/large_jobs.rs",
    "crates/server/src/touch_hints.rs",
];
/// Files among them that may nevertheless, and why.
const EXCEPT: &[&str] = &[
    // Measures the worlds of a command, from outside of them.
    "crates/sim/src/main.rs",
    // Counts virtual time from one Instant, as production's ring clients go by
    // Instants; only differences of them are looked at.
    "crates/sim/src/node/ring_clients.rs",
    // Compares policies on traces; no shard runs it.
    "crates/engine/src/evict/tests.rs",
];
/// Words that make a run differ from the last one.
const WILD: &[(&str, &str)] = &[
    ("Instant", "take the time from the clock that was handed in"),
    ("SystemTime", "take the time from the clock that was handed in"),
    ("HashMap", "its order is drawn by the process: use BTreeMap"),
    ("HashSet", "its order is drawn by the process: use BTreeSet"),
    ("spawn_scoped", "a world has one thread"),
];
/// Names that only the simulator may know, and the file that declares them.
const SIMULATED: &[&str] = &["SimWorld", "SimLink", "SimTarget", "SimJournal", "remora_sim"];
const DECLARES: &str = "crates/fabric/src/lib.rs";

/// See the module's text.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        if !path.ends_with(".rs") || !path.starts_with("crates/") {
            continue;
        }
        // Tests inside a file stand at its end.
        let code = code_only(text);
        let code = code.split("mod tests {").next().unwrap_or_default();
        let is_driven = DRIVEN.iter().any(|folder| path.starts_with(folder)) && !is_test(path);
        if is_driven && !EXCEPT.contains(&path) {
            check_words(path, code, &mut found);
        }
        if !SIMULATOR.iter().any(|folder| path.starts_with(folder)) && path != DECLARES {
            check_names(path, code, &mut found);
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

fn check_words(path: &str, code: &str, found: &mut Vec<Violation>) {
    for (at, line) in code.lines().enumerate() {
        for (word, instead) in WILD {
            if has_word(line, word) {
                let message = format!("{word} in code that a simulated world drives: {instead}");
                found.push(Violation::at(path, at + 1, message));
            }
        }
    }
}

fn check_names(path: &str, code: &str, found: &mut Vec<Violation>) {
    for (at, line) in code.lines().enumerate() {
        let knows = SIMULATED.iter().find(|name| has_word(line, name));
        let asks = line.contains("cfg(") && has_word(line, "sim");
        if knows.is_some() || asks {
            let message =
                "production code does not know that it is simulated: hand in what differs";
            found.push(Violation::at(path, at + 1, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn wall_clocks_and_drawn_orders_are_found_where_worlds_drive() {
        let text = "use std::time::Instant;\n// Instant\nlet map: HashMap<u8, u8>;\n";
        assert_eq!(lines("crates/engine/src/shard.rs", text), [1, 3]);
        assert_eq!(lines("crates/sim/src/world.rs", text), [1, 3]);
        assert!(lines("crates/server/src/server.rs", text).is_empty());
        assert_eq!(lines("crates/server/src/resp/read.rs", text), [1, 3]);
        assert!(lines("crates/sim/src/main.rs", text).is_empty());
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::time::Instant;\n}\n";
        assert!(lines("crates/engine/src/shard.rs", tests).is_empty());
    }

    #[test]
    fn production_code_that_knows_of_the_simulator_is_found() {
        assert_eq!(
            lines(
                "crates/client-core/src/endpoint/receive.rs",
                "use remora_fabric::sim::SimLink;\n"
            ),
            [1]
        );
        assert_eq!(lines("crates/server/src/server.rs", "#[cfg(feature = \"x\", sim)]\n"), [1]);
        assert!(lines("crates/fabric/src/sim/link.rs", "pub struct SimLink;\n").is_empty());
    }
}
