//! `unsafe` stays in its folders: the arena, bindings, and in the fabric the
//! backends that touch foreign memory. Every other crate forbids it, so that the compiler
//! helps; this check refuses a crate without the `forbid`. That each
//! block has its SAFETY comment is clippy's business, through the workspace's
//! lints, which every crate must inherit.

use crate::rust_text::{code_only, has_word};
use crate::tree::Tree;
use crate::violation::Violation;

/// Paths under which `unsafe` may stand.
const UNSAFE_FOLDERS: &[&str] = &[
    "crates/arena/",
    "crates/fabric/src/shm/",
    "crates/fabric/src/shm.rs",
    "crates/fabric/src/verbs/",
    "crates/fabric/src/verbs.rs",
    "crates/fabric/tests/shm",
    "crates/fabric/tests/verbs",
    "crates/verbs-sys/",
    "crates/sim/src/tasks.rs",
];
/// Crates with such a folder beside safe code: they deny, and the folder allows.
const DENYING_ROOTS: &[&str] = &["crates/fabric/src/lib.rs", "crates/sim/src/lib.rs"];
/// Crates that are such a folder as a whole.
const FREE_ROOTS: &[&str] = &["crates/arena/src/lib.rs", "crates/verbs-sys/src/lib.rs"];

const FORBID: &str = "#![forbid(unsafe_code)]";
const DENY: &str = "#![deny(unsafe_code)]";

/// `unsafe` only in its folders, and every crate says so itself.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.texts() {
        if path.ends_with(".rs") {
            check_words(path, text, &mut found);
            check_root(path, text, &mut found);
        } else if is_member(path) && path.ends_with("/Cargo.toml") {
            check_lints(path, text, &mut found);
        }
    }
    found
}

/// Crates of the workspace, as opposed to `fuzz`, whose macros need `unsafe`.
fn is_member(path: &str) -> bool {
    ["crates/", "examples/", "tests/", "xtask/"].iter().any(|folder| path.starts_with(folder))
}

fn check_words(path: &str, text: &str, found: &mut Vec<Violation>) {
    if UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return;
    }
    for (at, line) in code_only(text).lines().enumerate() {
        if has_word(line, "unsafe") {
            let message = "unsafe outside its folders: use what arena or fabric/shm offers, or move the code there";
            found.push(Violation::at(path, at + 1, message));
        }
        let allows = line.contains("allow(unsafe_code)") || line.contains("expect(unsafe_code)");
        if allows && !DENYING_ROOTS.contains(&path) {
            let message = "the lint unsafe_code is switched off outside the folders of unsafe";
            found.push(Violation::at(path, at + 1, message));
        }
    }
}

fn check_root(path: &str, text: &str, found: &mut Vec<Violation>) {
    let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    if !is_root || !is_member(path) || FREE_ROOTS.contains(&path) {
        return;
    }
    let code = code_only(text);
    let has = |wanted: &str| code.lines().any(|line| line.trim() == wanted);
    if DENYING_ROOTS.contains(&path) {
        if !has(DENY) && !has(FORBID) {
            found.push(Violation::at(
                path,
                1,
                format!("add {DENY}: only its folders may allow it"),
            ));
        }
    } else if !has(FORBID) {
        found.push(Violation::at(path, 1, format!("add {FORBID}")));
    }
}

fn check_lints(path: &str, text: &str, found: &mut Vec<Violation>) {
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let inherits = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        .is_some_and(|workspace| workspace.as_bool() == Some(true));
    if !inherits {
        found.push(Violation::at(path, 0, "add [lints] workspace = true"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAFE: &str = "//! About unsafe.\n#![forbid(unsafe_code)]\nfn f() {}\n";
    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn lines(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        check(&Tree::of(files)).into_iter().map(|found| (found.file, found.line)).collect()
    }

    #[test]
    fn rooms_of_unsafe_pass() {
        let files = [
            ("crates/engine/src/lib.rs", SAFE),
            ("crates/engine/Cargo.toml", LINTS),
            ("crates/arena/src/lib.rs", "fn f() { unsafe { g() } }"),
            (
                "crates/fabric/src/lib.rs",
                "#![deny(unsafe_code)]\n#[allow(unsafe_code)]\nmod shm;\n",
            ),
            ("crates/fabric/src/shm/map.rs", "unsafe fn f() {}"),
        ];
        assert_eq!(lines(&files), []);
    }

    #[test]
    fn unsafe_elsewhere_is_caught() {
        let planted = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(
            lines(&[("crates/ring/src/send.rs", planted)]),
            [("crates/ring/src/send.rs".to_owned(), 2)]
        );
        assert_eq!(lines(&[("crates/fabric/src/link.rs", planted)]).len(), 1);
        assert_eq!(lines(&[("crates/ring/tests/all.rs", planted)]).len(), 1);
        assert_eq!(lines(&[("crates/ring/src/a.rs", "#![allow(unsafe_code)]\n")]).len(), 1);
    }

    #[test]
    fn a_missing_or_commented_forbid_is_caught() {
        for planted in ["fn f() {}\n", "// #![forbid(unsafe_code)]\n", "#![deny(unsafe_code)]\n"] {
            assert_eq!(lines(&[("crates/ring/src/lib.rs", planted)]).len(), 1, "{planted}");
        }
        assert_eq!(lines(&[("crates/fabric/src/lib.rs", "fn f() {}\n")]).len(), 1);
        assert_eq!(lines(&[("crates/remora/src/main.rs", "fn main() {}\n")]).len(), 1);
    }

    #[test]
    fn a_crate_without_the_lints_is_caught() {
        assert_eq!(lines(&[("crates/ring/Cargo.toml", "[package]\n")]).len(), 1);
        assert_eq!(lines(&[("fuzz/Cargo.toml", "[package]\n")]), []);
    }
}
