//! A type of objects is named in its own places only: its folder, its operations, its
//! walk, its commands, its handle. All other code concerns any key (design, "Objects").

use super::Violation;
use crate::rust_text::{code_only, has_word};
use crate::tree::Tree;

/// Rooms that keep objects, or bring requests about them.
const ROOMS: &[&str] = &[
    "layout", "log", "arena", "fabric", "ring", "walk", "index", "engine", "front", "server",
    "client",
];

/// What names a type, and where it may be named.
struct Named {
    words: &'static [&'static str],
    places: &'static [&'static str],
}

/// Strings are none of them: a record's value is one, and every shard begins with it.
const TYPES: &[Named] = &[
    Named {
        words: &["Kind::HASH", "Kind::HASH_FIELD", "HashCommand", "types::hash"],
        places: &[
            "crates/engine/src/types/hash/",
            "crates/front/src/types/hash.rs",
            "crates/client/src/hash",
            "crates/index/src/hash/object.rs",
        ],
    },
    Named {
        words: &["Kind::GEO", "Kind::GEO_MEMBER", "GeoCommand", "types::geo"],
        places: &[
            "crates/engine/src/types/geo/",
            "crates/engine/src/command/geo.rs",
            "crates/engine/src/geo_read.rs",
            "crates/front/src/request/geo",
            "crates/front/src/table/geo_entries.rs",
            "crates/front/src/geo_reply.rs",
        ],
    },
    Named {
        words: &["Kind::RTREE", "Kind::OBJECT", "TreeCommand", "types::rtree"],
        places: &[
            "crates/engine/src/types/rtree/",
            "crates/engine/src/command/tree.rs",
            "crates/engine/src/command/refined.rs",
            "crates/engine/src/command/object.rs",
            "crates/index/src/rtree/",
            "crates/front/src/request/trees.rs",
            "crates/front/src/table/tree_entries.rs",
            "crates/front/src/tree_reply.rs",
            "crates/client/src/trees",
        ],
    },
];

/// Files that name types and are no type's, and why.
const EXCEPT: &[&str] = &[
    // A kind is a number in a record; here it gets its name.
    "crates/layout/src/kind.rs",
    // The registry.
    "crates/engine/src/types/mod.rs",
    // Exports the operations.
    "crates/engine/src/command/mod.rs",
    // The RESP thread looks at a request about a tree before it is encoded: it may read
    // the tree itself.
    "crates/front/src/request/mod.rs",
    // A thread that does not own a tree reads it for its client (decision 0024).
    "crates/server/src/ring_session/searching.rs",
    // The RESP thread reads small trees itself (decision 0024).
    "crates/server/src/resp/trees.rs",
    // It reads GEO keys, and stores what it found in another shard (decision 0025).
    "crates/server/src/resp/geo.rs",
];

/// See the module's text.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        if !is_checked(path) {
            continue;
        }
        // Tests inside a file stand at its end.
        let code = code_only(text);
        let code = code.split("mod tests {").next().unwrap_or_default();
        let elsewhere =
            TYPES.iter().filter(|of| !of.places.iter().any(|place| path.starts_with(place)));
        for word in elsewhere.flat_map(|of| of.words) {
            for (at, _) in code.lines().enumerate().filter(|(_, line)| has_word(line, word)) {
                let message = format!(
                    "{word} names a type outside its places: let trait Type answer, or move this to \
                     the type's own code"
                );
                found.push(Violation::at(path, at + 1, message));
            }
        }
    }
    found
}

fn is_checked(path: &str) -> bool {
    let is_room = |room: &&str| {
        let rest = path.strip_prefix("crates/").and_then(|rest| rest.strip_prefix(*room));
        rest.is_some_and(|rest| rest.starts_with("/src/"))
    };
    let is_test = ["/tests/", "/tests.rs", "_tests.rs"].iter().any(|part| path.contains(part));
    ROOMS.iter().any(is_room) && path.ends_with(".rs") && !is_test && !EXCEPT.contains(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn a_type_is_named_in_its_own_places_only() {
        let text = "if kind == Kind::RTREE {}\nKind::STRING;\n// Kind::GEO\n\
                    use crate::types::hash::Told;\nlet name = \"GeoCommand\";\nKind::GEO_MEMBER;\n";
        // As the store asked for the encoding once.
        assert_eq!(lines("crates/engine/src/store/keys.rs", text), [4, 6, 1]);
        assert_eq!(lines("crates/server/src/large_jobs.rs", text), [4, 6, 1]);
        assert_eq!(lines("crates/engine/src/types/rtree/put.rs", text), [4, 6]);
        assert_eq!(lines("crates/client/src/hash/read.rs", text), [6, 1]);
        for free in [
            "crates/layout/src/kind.rs",
            "crates/engine/src/types/mod.rs",
            "crates/engine/tests/trees.rs",
            "crates/engine/src/shard/kind_tests.rs",
            "crates/remora/src/export/mod.rs",
            "tests/tests/trees.rs",
        ] {
            assert!(lines(free, text).is_empty(), "{free}");
        }
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    Kind::GEO;\n}\n";
        assert!(lines("crates/engine/src/store/mod.rs", tests).is_empty());
    }

    #[test]
    fn every_place_is_there() {
        let tree = Tree::load(std::path::Path::new("..")).expect("a repository");
        for place in TYPES.iter().flat_map(|of| of.places).chain(EXCEPT) {
            assert!(tree.paths().any(|path| path.starts_with(place)), "{place}");
        }
    }
}
