//! Files that import each other in a circle are understood only together: they
//! are one file, or lack a third one below them. No crate has such a circle,
//! but for those that stand here with a reason.

use crate::file_graph::{self, Imports};
use crate::tree::Tree;
use crate::violation::Violation;
use std::collections::BTreeSet;

/// Circles that stay.
const KEPT: &[Kept] = &[];
/// Circles that may stay, and the files that each may have.
const MOST_KEPT: usize = 5;
const MOST_KEPT_FILES: usize = 3;
/// Where the tables stand.
const HERE: &str = "xtask/src/check/circles.rs";

/// A circle that stays.
struct Kept {
    /// Its files, in order.
    files: &'static [&'static str],
    /// Why neither one file nor a third one would be easier to read.
    reason: &'static str,
}

/// No circle of imports between the files of a crate.
pub fn check(tree: &Tree) -> Vec<Violation> {
    check_with(tree, KEPT)
}

fn check_with(tree: &Tree, kept: &[Kept]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut met = BTreeSet::new();
    for directory in crates(tree) {
        let imports = match file_graph::of_crate(tree, directory) {
            Ok(imports) => imports,
            Err((file, why)) => {
                found.push(Violation::at(&file, 0, format!("not Rust: {why}")));
                continue;
            }
        };
        for circle in circles(&imports) {
            if let Some(at) = kept.iter().position(|kept| kept.files == circle) {
                met.insert(at);
            } else {
                found.push(Violation::at(circle[0], 0, description(&imports, &circle)));
            }
        }
    }
    check_table(kept, &met, &mut found);
    found
}

/// The table of circles that stay is short, says why, and lists nothing that is gone.
fn check_table(kept: &[Kept], met: &BTreeSet<usize>, found: &mut Vec<Violation>) {
    let mut refuse = |message: String| found.push(Violation::at(HERE, 0, message));
    if kept.len() > MOST_KEPT {
        refuse(format!("{} circles stay, at most {MOST_KEPT} may: mend some", kept.len()));
    }
    for (at, circle) in kept.iter().enumerate() {
        let files = circle.files.join(", ");
        if !met.contains(&at) {
            refuse(format!("{files} are listed in KEPT and are no circle: take them out"));
        }
        if circle.files.len() > MOST_KEPT_FILES {
            refuse(format!("{files}: a circle that stays has at most {MOST_KEPT_FILES} files"));
        }
        if circle.reason.is_empty() {
            refuse(format!("{files}: a circle that stays has a reason"));
        }
    }
}

/// The directories of the crates that are held to it.
fn crates(tree: &Tree) -> impl Iterator<Item = &str> {
    let directories = tree.paths().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    directories.filter(|directory| {
        let name = directory.strip_prefix("crates/").or((*directory == "xtask").then_some("xtask"));
        name.is_some_and(|name| !name.contains('/'))
    })
}

/// The largest sets of two or more files each of which leads to all others.
fn circles(imports: &Imports) -> Vec<Vec<&str>> {
    let mut circles: Vec<Vec<&str>> = Vec::new();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    for file in imports.keys().map(String::as_str) {
        if placed.contains(file) {
            continue;
        }
        let reached = reached(imports, file);
        let circle: Vec<&str> = reached
            .iter()
            .copied()
            .filter(|other| self::reached(imports, other).contains(file))
            .collect();
        placed.extend(&circle);
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

/// The files that a file leads to, over one import or more.
fn reached<'i>(imports: &'i Imports, from: &'i str) -> BTreeSet<&'i str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let next = imports.get(file).into_iter().flat_map(|taken| taken.keys());
        open.extend(next.map(String::as_str).filter(|next| reached.insert(*next)));
    }
    reached
}

/// Which file takes what from which, and what to do.
fn description(imports: &Imports, circle: &[&str]) -> String {
    let mut text = format!(
        "{} files import each other: make them one, or move what both ends need to a file below",
        circle.len()
    );
    for file in circle {
        for (from, names) in imports.get(*file).into_iter().flatten() {
            if circle.contains(&from.as_str()) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                text.push_str(&format!("\n    {file} takes {} from {from}", names.join(", ")));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATE: (&str, &str) = ("crates/a/Cargo.toml", "");

    fn messages(files: &[(&str, &str)], kept: &[Kept]) -> Vec<String> {
        let mut files = files.to_vec();
        files.push(CRATE);
        let found = check_with(&Tree::of(&files), kept);
        found.into_iter().map(|found| found.message).collect()
    }

    /// The circles in a crate of a `lib.rs` and other files.
    fn found(files: &[(&str, &str)]) -> usize {
        let names: Vec<String> =
            files.iter().map(|(name, _)| format!("crates/a/src/{name}.rs")).collect();
        let files: Vec<(&str, &str)> =
            names.iter().zip(files).map(|(name, (_, text))| (name.as_str(), *text)).collect();
        messages(&files, &[]).len()
    }

    const LIB: (&str, &str) = ("lib", "mod x;\nmod y;\npub use x::X;\npub use y::Y;\n");

    #[test]
    fn files_that_import_each_other_are_found() {
        let x = ("x", "use crate::y::Y;\npub struct X(Y);\n");
        assert_eq!(found(&[LIB, x, ("y", "use super::x::X;\npub struct Y(Box<X>);\n")]), 1);
        assert_eq!(found(&[LIB, x, ("y", "pub struct Y;\n")]), 0);
    }

    #[test]
    fn every_way_to_name_an_item_counts() {
        for y in [
            "pub struct Y;\nimpl Y { fn f() { crate::x::X::new(); } }\n",
            "pub struct Y;\nfn f() { use crate::X as Z; }\n",
            "pub struct Y(Vec<super::x::X>);\n",
            "pub struct Y;\nfn f() { assert!(g(1, crate::x::X::new())); }\n",
            "use super::*;\npub struct Y(Box<X>);\n",
            "use crate::{self as all};\npub struct Y(Box<all::X>);\n",
            "pub(crate) use crate::x::{X as Z};\npub struct Y(Box<Z>);\n",
            "mod inner { use crate::x::X; }\npub struct Y;\n",
            "pub struct Y;\nimpl From<crate::X> for u8 {}\n",
        ] {
            let x = ("x", "pub struct X(crate::Y);\n");
            assert_eq!(found(&[LIB, x, ("y", y)]), 1, "{y}");
        }
    }

    #[test]
    fn what_imports_nothing_does_not_count() {
        for y in [
            "pub use crate::x::X;\npub struct Y;\n",
            "/// [`crate::x::X`]\npub struct Y; // crate::x::X\n",
            "pub struct Y;\n#[cfg(test)]\nmod tests { use crate::x::X; }\n",
            "pub struct Y;\n#[cfg(all(test, unix))]\nfn f(x: crate::x::X) {}\n",
            "pub struct Y;\nimpl Y { #[cfg(test)] fn f(x: crate::x::X) {} }\n",
            "pub(in crate::x) struct Y;\n",
            "use std::x::X;\npub struct Y(X);\n",
            "pub struct Y;\nfn f() { g!(\"crate::x::X\", a.X); }\n",
        ] {
            let x = ("x", "pub struct X(crate::Y);\n");
            assert_eq!(found(&[LIB, x, ("y", y)]), 0, "{y}");
        }
    }

    #[test]
    fn a_parent_imports_what_it_uses_and_not_what_it_declares() {
        let child = ("x", "pub struct X(super::Top);\n");
        let parent = "mod x;\npub use x::X;\npub struct Top;\n";
        assert_eq!(found(&[("lib", parent), child]), 0);
        let uses = format!("{parent}fn f(x: X) {{}}\n");
        assert_eq!(found(&[("lib", &uses), child]), 1);
    }

    #[test]
    fn folders_and_named_paths_are_followed() {
        let y = ("y", "pub struct Y(crate::deep::other::Z);\n");
        let lib = ("lib", "mod deep;\nmod y;\n");
        let deep = ("deep/mod", "#[path = \"file.rs\"]\npub mod other;\n");
        assert_eq!(found(&[lib, y, deep, ("deep/file", "pub struct Z(crate::y::Y);\n")]), 1);
        let deep = ("deep", "pub mod other;\n");
        assert_eq!(found(&[lib, y, deep, ("deep/other", "pub struct Z(crate::y::Y);\n")]), 1);
    }

    #[test]
    fn a_function_is_not_taken_for_the_module_of_its_name() {
        let lib = ("lib", "mod x;\nmod y;\npub use x::x;\n");
        let y = "pub fn y() { crate::x(); }\n";
        assert_eq!(found(&[lib, ("x", "pub fn x() { crate::y::y(); }\n"), ("y", y)]), 1);
    }

    #[test]
    fn listed_circles_stay_and_must_be_there() {
        let files = [
            ("crates/a/src/lib.rs", LIB.1),
            ("crates/a/src/x.rs", "pub struct X(crate::Y);\n"),
            ("crates/a/src/y.rs", "pub struct Y(crate::X);\n"),
        ];
        const BOTH: &[&str] = &["crates/a/src/x.rs", "crates/a/src/y.rs"];
        assert_eq!(messages(&files, &[Kept { files: BOTH, reason: "r" }]), [""; 0]);
        assert_eq!(messages(&files, &[Kept { files: BOTH, reason: "" }]).len(), 1);
        assert_eq!(messages(&files[..1], &[Kept { files: BOTH, reason: "r" }]).len(), 1);
    }

    #[test]
    fn the_table_has_bounds() {
        let mut wrong = Vec::new();
        let many: Vec<Kept> = (0..6).map(|_| Kept { files: &["a", "b"], reason: "r" }).collect();
        check_table(&many, &(0..6).collect(), &mut wrong);
        assert_eq!(wrong.len(), 1);
        let large = [Kept { files: &["a", "b", "c", "d"], reason: "r" }];
        check_table(&large, &BTreeSet::from([0]), &mut wrong);
        assert_eq!(wrong.len(), 2);
    }

    #[test]
    fn files_that_are_not_rust_are_named() {
        let found = messages(&[("crates/a/src/lib.rs", "fn {")], &[]);
        assert!(found[0].contains("not Rust"), "{found:?}");
    }
}
