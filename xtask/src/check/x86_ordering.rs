//! Code that relies on the order in which x86-64 makes loads and stores visible has a
//! comment that says so and why ([`MARK`], a colon, the reason). This check lists these
//! places: what a port to ARM64 has to look at. They stay in few crates. Assembly, which
//! no other processor executes, is among them.

use crate::rust_text::{code_only, has_word};
use crate::tree::Tree;
use crate::violation::Violation;

/// Paths under which such code may stand.
const CRATES: &[&str] = &[
    "crates/arena/src/copy.rs",
    "crates/fabric/src/shm/",
    "crates/fabric/src/tcp/",
    "crates/walk/src/memory.rs",
    "crates/bench/src/variants/indicator.rs",
];
/// The mark, of two halves so that this file has none.
const MARK: &str = concat!("x86-", "ordering");

/// What is wrong, and the list of places.
pub fn check(tree: &Tree) -> (Vec<Violation>, Vec<String>) {
    let (mut found, mut places) = (Vec::new(), Vec::new());
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        let marked = places.len();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((before, why)) = line.split_once(MARK) else { continue };
            if !CRATES.iter().any(|folder| path.starts_with(folder)) {
                let message =
                    "relies on x86's order outside of the crates of such code: use a fence";
                found.push(Violation::at(path, at + 1, message));
            } else if before.trim() != "//" || !why.starts_with(": ") {
                let message = format!("write it as a comment of its own: // {MARK}: why");
                found.push(Violation::at(path, at + 1, message));
            } else {
                places.push(format!("{path}:{}{why}{}", at + 1, rest_of(&lines[at + 1..])));
            }
        }
        let assembly = code_only(text);
        let assembly = assembly.lines().position(|line| has_word(line, "asm"));
        if let Some(at) = assembly.filter(|_| places.len() == marked) {
            let message = format!("assembly without a mark // {MARK}: why");
            found.push(Violation::at(path, at + 1, message));
        }
    }
    (found, places)
}

/// The lines of a comment that follow its first one, each behind a space.
fn rest_of(lines: &[&str]) -> String {
    let comment = |line: &&str| line.trim().strip_prefix("// ").map(|text| format!(" {text}"));
    lines.iter().map_while(comment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(path: &str, text: &str) -> (Vec<usize>, Vec<String>) {
        let text = text.replace("MARK", MARK);
        let (found, places) = check(&Tree::of(&[(path, &text)]));
        (found.into_iter().map(|found| found.line).collect(), places)
    }

    #[test]
    fn places_are_listed_with_their_reason() {
        let text = "fn f() {\n    // MARK: loads stay\n    // in order.\n    g();\n}\n";
        let place = "crates/fabric/src/shm/link.rs:2: loads stay in order.";
        assert_eq!(
            checked("crates/fabric/src/shm/link.rs", text),
            (vec![], vec![place.to_owned()])
        );
    }

    #[test]
    fn marks_in_other_rooms_and_without_a_reason_are_caught() {
        let marked = "// MARK: stores stay in order.\n";
        assert_eq!(checked("crates/engine/src/lib.rs", marked), (vec![1], vec![]));
        for bare in ["// MARK\n", "f(); // MARK: why\n", "/// MARK: why\n"] {
            assert_eq!(checked("crates/fabric/src/shm/link.rs", bare), (vec![1], vec![]), "{bare}");
        }
    }

    #[test]
    fn assembly_without_a_mark_is_caught() {
        let assembly = "// About asm.\nfn f() {\n    asm!(\"nop\");\n}\n";
        assert_eq!(checked("crates/arena/src/copy.rs", assembly), (vec![3], vec![]));
        let marked = format!("// MARK: words stay whole.\n{assembly}");
        assert_eq!(checked("crates/arena/src/copy.rs", &marked).0, [0usize; 0]);
        assert_eq!(checked("crates/engine/src/lib.rs", assembly).0, [3]);
    }
}
