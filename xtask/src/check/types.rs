//! A type of objects is named in its own places only: its folder, its operations, its
//! walk, its commands, its handle. All other code concerns any key (design, "Objects").
//!
//! The types are the folders of the engine. By what a type is called follows from its
//! folder's name, from the kinds of records (`kind.rs`) that its folder names, and from
//! the enums of what it can be asked: a new type is checked without a line here.
//!
//! And each type goes through crashes, snapshots and restores: it has a history of random changes in
//! `remora crash`.

use crate::rust_text::{code_only, has_word};
use crate::tree::Tree;
use crate::violation::Violation;
use std::collections::BTreeSet;

/// Crates that keep objects, or bring requests about them.
const CRATES: &[&str] = &[
    "layout",
    "log",
    "arena",
    "fabric",
    "ring",
    "walk",
    "index",
    "protocol",
    "engine",
    "resp",
    "server",
    "client-core",
];

/// The folders of the types.
const FOLDERS: &str = "crates/engine/src/types/";
/// Their histories in `remora crash`, and the list of these.
const CRASHED: &str = "crates/crash/src/types/";
const CRASHED_LIST: &str = "crates/crash/src/types/mod.rs";
/// What the types can be asked.
const OPERATIONS: &str = "crates/protocol/src/types/";
/// The kinds of records.
const KINDS: &str = "crates/layout/src/kind.rs";
/// The lists of all types, and of their commands.
const REGISTRIES: &[&str] = &[
    "crates/protocol/src/types/mod.rs",
    "crates/engine/src/types/mod.rs",
    "crates/resp/src/commands/mod.rs",
];
/// Every shard begins with them: what concerns any key may name them.
const STRINGS: &str = "string";

/// Words that mean a type in no name that is made of them: all of the index hashes, there are lists of
/// many things, and anything can be set, or ordered.
const AMBIGUOUS: &[&str] = &["hash", "list", "set", "ordered", "sorted"];

/// What else a type is called, and where else it is at home.
struct More {
    folder: &'static str,
    words: &'static [&'static str],
    places: &'static [&'static str],
}

const MORE: &[More] = &[
    More { folder: "collection", words: &[], places: &["crates/layout/src/collection.rs"] },
    More {
        folder: "hash",
        words: &[],
        places: &["crates/index/src/hash/object.rs", "crates/server/src/resp/hashes"],
    },
    More {
        folder: "ordered",
        words: &[],
        places: &[
            "crates/index/src/btree/",
            "crates/layout/src/btree",
            "crates/client-core/src/ordered/",
        ],
    },
    More { folder: "set", words: &[], places: &["crates/server/src/resp/sets.rs"] },
    More {
        folder: "sorted",
        words: &["geo"],
        places: &[
            "crates/engine/src/geo_read.rs",
            "crates/layout/src/packed_scores.rs",
            "crates/layout/src/sorted.rs",
            "crates/protocol/src/types/geo/",
            "crates/resp/src/commands/geo/",
            "crates/server/src/resp/geo",
        ],
    },
    More {
        folder: "rtree",
        words: &["tree", "trees"],
        places: &[
            "crates/protocol/src/types/tree/",
            "crates/layout/src/tree.rs",
            "crates/layout/src/node.rs",
            "crates/layout/src/object.rs",
            "crates/server/src/resp/trees",
            "crates/client-core/src/trees",
        ],
    },
];

/// A file, or a folder, that names types and is not theirs.
struct Except {
    path: &'static str,
    folders: &'static [&'static str],
    /// Why it does.
    why: &'static str,
}

const fn except(path: &'static str, folders: &'static [&'static str], why: &'static str) -> Except {
    Except { path, folders, why }
}

const BOTH: &[&str] = &["rtree", "sorted"];
const TREES: &[&str] = &["rtree"];
const SORTED: &[&str] = &["sorted"];

/// GEO keys and trees are asked by `Request::Object`, as any type is; but a connection's
/// thread reads small ones itself before it asks a shard, and what is found has forms of
/// its own.
const EXCEPT: &[Except] = &[
    except("crates/index/src/btree/", TREES, "a B+tree is a tree, too"),
    except("crates/layout/src/btree", TREES, "the same"),
    except("crates/client-core/src/btree/", TREES, "the same"),
    except("crates/client-core/src/ordered/", TREES, "the same"),
    except("crates/client-core/src/sorted/", TREES, "the same"),
    except("crates/engine/src/types/ordered/", TREES, "the same"),
    except("crates/engine/src/types/tree_range.rs", TREES, "the same"),
    except(
        "crates/engine/src/types/collection/",
        BOTH,
        "the same; and MongoDB's conditions on geometries, and so their indexes, begin with `geo`",
    ),
    except("crates/client-core/src/collection/", TREES, "the same"),
    except(
        "crates/client-core/src/read_lease/clocks.rs",
        &["collection"],
        "a module of proptest has the name",
    ),
    except("crates/engine/src/types/tree_table.rs", TREES, "the same"),
    except("crates/layout/src/sorted.rs", TREES, "keys lie in one tree, places in another"),
    except("crates/resp/src/commands/ordered.rs", TREES, "the same"),
    except(
        "crates/engine/src/store/stats.rs",
        BOTH,
        "their counts in INFO are fields of ShardStats",
    ),
    except("crates/server/src/resp/info.rs", BOTH, "writes these counts"),
    except("crates/resp/src/error.rs", TREES, "the text of the status NoTree"),
    except("crates/resp/src/form.rs", BOTH, "replies to their searches have options of their own"),
    except("crates/resp/src/reply.rs", BOTH, "writes these"),
    except("crates/server/src/resp/mod.rs", BOTH, "lists the modules"),
    except("crates/server/src/resp/execute.rs", BOTH, "hands their requests to their modules"),
    except("crates/server/src/resp/executor.rs", BOTH, "keeps where trees and GEO keys are read"),
    except(
        "crates/server/src/ring_session/long_requests.rs",
        TREES,
        "a thread that does not own a tree reads it for its client (decision 0024)",
    ),
    except("crates/engine/src/types/sorted/", TREES, "keys lie in one tree, places in another"),
    except("crates/engine/src/geo_read.rs", TREES, "searches the tree of a GEO key"),
    except("crates/server/src/resp/geo", TREES, "reads the tree of a GEO key, as trees.rs does"),
    except("crates/server/src/resp/trees.rs", SORTED, "reads the tree of a GEO key, too"),
    except("crates/layout/src/limits.rs", BOTH, "all limits stand in one file"),
    except("crates/protocol/src/message.rs", TREES, "the status NoTree"),
    except("crates/client-core/src/choose/classes.rs", TREES, "the cost of a search has classes"),
    except("crates/client-core/src/session.rs", TREES, "a session keeps what it knows of trees"),
    except(
        "crates/client-core/src/models/endless.rs",
        TREES,
        "a search is what a server may answer without end",
    ),
    except("crates/client-core/src/error.rs", TREES, "the text of the status NoTree"),
    except(
        "crates/client-core/src/links/",
        &["hash", "list"],
        "links are fields of hashes and elements of lists, and lead to hashes (decision 0075)",
    ),
    except(
        "crates/server/src/plans/",
        &["hash", "list", "rtree", "collection"],
        "plans start from lists and trees, look at hashes (decision 0074), and find documents",
    ),
    except(
        "crates/client-core/src/plans/",
        &["list", "rtree", "ordered", "collection"],
        "plans read lists and trees of both types (decision 0075), and find documents",
    ),
];

/// One type: what names it, and where that may stand.
struct Named {
    folder: String,
    /// Parts of names: of `geo_keys` and `GeoCommand`, in small letters.
    parts: Vec<String>,
    /// Whole names, with what stands before them.
    words: BTreeSet<String>,
    places: Vec<String>,
}

impl Named {
    fn is_at_home(&self, path: &str) -> bool {
        self.places.iter().any(|place| path.starts_with(place.as_str()))
    }
}

/// The names of the types' folders.
fn folders(tree: &Tree) -> BTreeSet<&str> {
    let inside = tree.paths().filter_map(|path| path.strip_prefix(FOLDERS));
    let folders = inside.filter_map(|path| Some(path.split_once('/')?.0));
    folders.filter(|folder| *folder != STRINGS).collect()
}

/// What follows `before` in each line of code that has it, as far as it is a name.
fn names_behind<'c>(code: &'c str, before: &str) -> impl Iterator<Item = &'c str> {
    code.match_indices(before).map(|(at, before)| {
        let rest = &code[at + before.len()..];
        &rest[..rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())]
    })
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn types(tree: &Tree) -> Vec<Named> {
    let kinds = code_only(tree.text(KINDS).unwrap_or_default());
    let kinds: BTreeSet<&str> = names_behind(&kinds, "pub const ")
        .filter(|name| *name != "STRING" && name.chars().all(|c| !c.is_lowercase()))
        .collect();
    let mut types: Vec<Named> = folders(tree).into_iter().map(|at| named(tree, at)).collect();
    for of in &mut types {
        let own: Vec<String> = tree
            .texts()
            .filter(|(path, _)| path.starts_with(FOLDERS) && of.is_at_home(path))
            .map(|(_, text)| code_only(text))
            .collect();
        let is_own = |kind: &&&str| own.iter().any(|code| has_word(code, &format!("Kind::{kind}")));
        of.words.extend(kinds.iter().filter(is_own).map(|kind| format!("Kind::{kind}")));
    }
    types
}

/// A type by its folder, without its kinds.
fn named(tree: &Tree, folder: &str) -> Named {
    let more = MORE.iter().find(|more| more.folder == folder);
    let (words, places) = more.map_or((&[][..], &[][..]), |more| (more.words, more.places));
    let mut own = vec![format!("{FOLDERS}{folder}/")];
    for name in ["protocol/src/types", "resp/src/commands", "index/src", "client-core/src"] {
        // Nothing but a type's file has its name, or lies in a folder of that name.
        let is_taken = AMBIGUOUS.contains(&folder) && name == "index/src";
        if !is_taken {
            own.extend([format!("crates/{name}/{folder}.rs"), format!("crates/{name}/{folder}/")]);
        }
    }
    own.extend(places.iter().map(|place| (*place).to_owned()));
    let mut of = Named {
        folder: folder.to_owned(),
        parts: words.iter().map(|word| (*word).to_owned()).collect(),
        words: BTreeSet::from([format!("types::{folder}")]),
        places: own,
    };
    if !AMBIGUOUS.contains(&folder) {
        of.parts.push(folder.to_owned());
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.starts_with(OPERATIONS)) {
        if of.is_at_home(path) {
            let code = code_only(text);
            let enums = names_behind(&code, "pub enum ").filter(|name| name.ends_with("Command"));
            of.words.extend(enums.map(str::to_owned));
        }
    }
    of
}

/// The parts of a name, in small letters: of `geo_keys` and of `GeoKeys` two.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && before.is_lowercase()) {
            parts.push(String::new());
        }
        if c != '_' {
            parts.last_mut().expect("there is one").extend(c.to_lowercase());
        }
        before = c;
    }
    parts
}

/// The names in a line of code by which it names a type.
fn found_in(line: &str, of: &Named) -> Vec<String> {
    let words = of.words.iter().filter(|word| has_word(line, word)).cloned();
    let names = line.split(|c| !is_of_name(c)).filter(|name| !name.is_empty());
    let made = names.filter(|name| parts(name).iter().any(|part| of.parts.contains(part)));
    words.chain(made.map(str::to_owned)).collect()
}

/// Kinds that more than one type names.
fn shared_kinds(types: &[Named]) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (at, of) in types.iter().enumerate() {
        for other in &types[at + 1..] {
            for kind in of.words.intersection(&other.words) {
                let message =
                    format!("{kind} is named by two types: {}, {}", of.folder, other.folder);
                wrong.push(Violation::at(KINDS, 0, message));
            }
        }
    }
    wrong
}

/// Types that no crash tests.
fn uncrashed(tree: &Tree) -> Vec<Violation> {
    let Some(list) = tree.text(CRASHED_LIST) else { return Vec::new() };
    let list = code_only(list);
    let is_listed = |folder: &str| {
        tree.exists(&format!("{CRASHED}{folder}.rs")) && list.contains(&format!("mod {folder};"))
    };
    let missing = folders(tree).into_iter().chain([STRINGS]).filter(|folder| !is_listed(folder));
    let told = missing.map(|folder| {
        let message = format!(
            "the type {folder} goes through no crash, snapshot and restore: add {CRASHED}{folder}.rs"
        );
        Violation::at(CRASHED_LIST, 0, message)
    });
    told.collect()
}

/// See the module's text.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let types = types(tree);
    let mut wrong = shared_kinds(&types);
    wrong.extend(uncrashed(tree));
    let mut used = BTreeSet::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_checked(path)) {
        // Tests inside a file stand at its end.
        let code = code_only(text);
        let code = code.split("mod tests {").next().unwrap_or_default();
        for of in types.iter().filter(|of| !of.is_at_home(path)) {
            let lines = code.lines().enumerate();
            let mut found = lines
                .flat_map(|(at, line)| found_in(line, of).into_iter().map(move |name| (at, name)));
            let folder = of.folder.as_str();
            let except = EXCEPT.iter().find(|except| path.starts_with(except.path));
            if let Some(except) = except.filter(|except| except.folders.contains(&folder)) {
                if found.next().is_some() {
                    used.insert((except.path, folder));
                }
                continue;
            }
            for (at, name) in found {
                let message = format!(
                    "{name} names a type outside its places: let trait Type answer, or move \
                     this to the type's own code"
                );
                wrong.push(Violation::at(path, at + 1, message));
            }
        }
    }
    for except in EXCEPT.iter().filter(|except| tree.has_prefix(except.path)) {
        for folder in except.folders.iter().filter(|of| !used.contains(&(except.path, **of))) {
            let why = except.why;
            let message = format!("it does not name {folder} any more: end the exception ({why})");
            wrong.push(Violation::at(except.path, 0, message));
        }
    }
    wrong
}

fn is_checked(path: &str) -> bool {
    let is_of_crate = |name: &&str| {
        let rest = path.strip_prefix("crates/").and_then(|rest| rest.strip_prefix(*name));
        rest.is_some_and(|rest| rest.starts_with("/src/"))
    };
    let is_test = ["/tests/", "/tests.rs", "_tests.rs"].iter().any(|part| path.contains(part));
    // A crate's first file lists its modules.
    let is_list = path == KINDS || REGISTRIES.contains(&path) || path.ends_with("/lib.rs");
    CRATES.iter().any(is_of_crate) && path.ends_with(".rs") && !is_test && !is_list
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS_TEXT: &str = "impl Kind {\n\
        pub const STRING: Self = Self(0);\npub const HASH: Self = Self(1);\n\
        pub const RTREE: Self = Self(5);\npub const GEO: Self = Self(6);\n\
        pub const BOUNDED: Self = Self(8);\npub const GEO_MEMBER: Self = Self(64);\n\
        pub const fn name(self) {}\n}";

    /// Lines at which a text is wrong, beside four types of which one has just come.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            (KINDS, KINDS_TEXT),
            ("crates/engine/src/types/string/mod.rs", "Kind::STRING;"),
            ("crates/engine/src/types/hash/mod.rs", "Kind::HASH;"),
            ("crates/protocol/src/types/hash.rs", "pub enum HashCommand {}"),
            ("crates/engine/src/types/sorted/mod.rs", "Kind::GEO; Kind::GEO_MEMBER; tree();"),
            ("crates/protocol/src/types/geo/mod.rs", "pub enum GeoCommand {}"),
            ("crates/engine/src/types/rtree/mod.rs", "Kind::RTREE;"),
            ("crates/engine/src/types/bcount/mod.rs", "Kind::BOUNDED;"),
            ("crates/protocol/src/types/bcount.rs", "pub enum CounterCommand {}"),
            (path, text),
        ]);
        let found = check(&tree).into_iter().filter(|found| found.file == path);
        let mut lines: Vec<usize> = found.map(|found| found.line).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    #[test]
    fn a_type_is_named_in_its_own_places_only() {
        let text = "if kind == Kind::RTREE {}\nKind::STRING;\n// Kind::GEO\n\
                    use crate::types::hash::Told;\nlet name = \"GeoCommand\";\nKind::GEO_MEMBER;\n";
        // As the store asked for the encoding once.
        assert_eq!(lines("crates/engine/src/keys/scan.rs", text), [1, 4, 6]);
        assert_eq!(lines("crates/server/src/large_jobs.rs", text), [1, 4, 6]);
        assert_eq!(lines("crates/engine/src/types/rtree/put.rs", text), [4, 6]);
        assert_eq!(lines("crates/client-core/src/hash/read.rs", text), [1, 6]);
        for free in [
            "crates/engine/tests/trees.rs",
            "crates/engine/src/shard/kind_tests.rs",
            "crates/remora/src/export/mod.rs",
            "tests/tests/trees.rs",
        ] {
            assert!(lines(free, text).is_empty(), "{free}");
        }
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    Kind::GEO;\n}\n";
        assert!(lines("crates/engine/src/keys/scan.rs", tests).is_empty());
    }

    #[test]
    fn names_that_are_made_of_a_types_name_are_seen() {
        let text = "Request::TreeRefine { name }\nself.geo_answers\nTREE_NAME\nmod trees;\n\
                    KeyHash::of(hash)\nGeometry\nlet street = subtree;\nRender::Geo(form)\n";
        assert_eq!(lines("crates/server/src/large_jobs.rs", text), [1, 2, 3, 4, 8]);
        // What is excepted is so for the types that are named there.
        let path = "crates/server/src/ring_session/long_requests.rs";
        assert_eq!(lines(path, text), [2, 8]);
    }

    #[test]
    fn a_new_type_is_checked_without_a_line_here() {
        let text = "Kind::BOUNDED;\nCounterCommand::Get\nuse types::bcount::X;\nBcountReply\nfn other() {}";
        assert_eq!(lines("crates/engine/src/keys/scan.rs", text), [1, 2, 3, 4]);
        for own in
            ["engine/src/types/bcount/x", "resp/src/commands/bcount", "client-core/src/bcount/x"]
        {
            assert!(lines(&format!("crates/{own}.rs"), text).is_empty(), "{own}");
        }
    }

    #[test]
    fn exceptions_that_are_none_any_more_and_shared_kinds_are_told() {
        let path = "crates/server/src/resp/info.rs";
        assert_eq!(lines(path, "geo_keys"), [0]);
        assert!(lines(path, "geo_keys; trees").is_empty());
        assert!(!lines(KINDS, KINDS_TEXT).contains(&0));
        let tree = Tree::of(&[
            (KINDS, KINDS_TEXT),
            ("crates/engine/src/types/geo/mod.rs", "Kind::GEO;"),
            ("crates/engine/src/types/other/mod.rs", "Kind::GEO;"),
        ]);
        assert!(check(&tree).iter().any(|found| found.file == KINDS));
    }

    #[test]
    fn a_type_that_no_crash_tests_is_told() {
        let list = "mod string;\nmod hash;\n";
        let with = |files: &[(&'static str, &'static str)]| {
            let types = [
                ("crates/engine/src/types/string/mod.rs", ""),
                ("crates/engine/src/types/hash/mod.rs", ""),
                ("crates/crash/src/types/string.rs", ""),
                (CRASHED_LIST, list),
            ];
            check(&Tree::of(&[&types[..], files].concat())).len()
        };
        assert_eq!(with(&[]), 1, "hash has no history");
        assert_eq!(with(&[("crates/crash/src/types/hash.rs", "")]), 0);
        let (history, folder) =
            (("crates/crash/src/types/hash.rs", ""), "crates/engine/src/types/bcount/mod.rs");
        assert_eq!(with(&[history, (folder, "")]), 1, "bcount is not listed");
    }

    #[test]
    fn every_place_is_there() {
        let tree = Tree::load(std::path::Path::new("..")).expect("a repository");
        let excepted = EXCEPT.iter().map(|except| &except.path);
        for place in MORE.iter().flat_map(|of| of.places).chain(excepted) {
            assert!(tree.paths().any(|path| path.starts_with(place)), "{place}");
        }
        assert!(MORE.iter().all(|of| folders(&tree).contains(of.folder)));
    }
}
