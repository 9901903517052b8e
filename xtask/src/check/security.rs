//! Each line of each table of `SECURITY.md` names the tests that show it, and they can be found.

use super::papers;
use crate::tree::Tree;
use crate::violation::Violation;

const SECURITY: &str = "SECURITY.md";
/// The last column of each table.
const COLUMN: &str = "Test";
/// What a line says that no test shows.
const NONE: &str = "none yet";
/// What a line says that is a weakness, and has nothing to show.
const NOTHING: &str = "-";
const WEAKNESS: &str = "Weakness";

/// Where a test lies that is named without a directory.
const TESTS: &str = "tests/tests/";

/// All tables have the column, and all that it names exists.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(SECURITY) else {
        return vec![Violation::at(SECURITY, 0, "is missing")];
    };
    let mut found = Vec::new();
    let mut columns = None;
    for (at, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            columns = None;
            continue;
        };
        let problems = match columns {
            None => {
                columns = Some(cells.len());
                let has_column = cells.last() == Some(&COLUMN);
                let problem = format!("the last column of this table is not {COLUMN}");
                (!has_column).then_some(problem).into_iter().collect()
            }
            _ if cells.iter().all(|cell| cell.starts_with("--")) => Vec::new(),
            Some(columns) if columns != cells.len() => {
                vec![format!("{} cells, not {columns}; a cell cannot hold a bar", cells.len())]
            }
            Some(_) => problems(tree, line, cells.last().copied().unwrap_or_default()),
        };
        found.extend(problems.into_iter().map(|text| Violation::at(SECURITY, at + 1, text)));
    }
    found
}

/// The cells of a line of a table.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn problems(tree: &Tree, line: &str, tests: &str) -> Vec<String> {
    match tests {
        NONE => return Vec::new(),
        NOTHING if line.contains(WEAKNESS) => return Vec::new(),
        _ => {}
    }
    let mut names = tests.split(", ").map(|name| name.strip_prefix('`')?.strip_suffix('`'));
    let is_list = names.clone().all(|name| name.is_some_and(|name| !name.contains('`')));
    if !is_list {
        return vec![format!(
            "\"{tests}\" is neither names in backticks, separated by commas, nor {NONE}; only a line with {WEAKNESS} may say {NOTHING}"
        )];
    }
    names.by_ref().flatten().filter_map(|name| problem(tree, name)).collect()
}

/// What is wrong with the name of a test, a fuzz target, a planted patch or a script of the virtual machine.
fn problem(tree: &Tree, name: &str) -> Option<String> {
    match name.split_once("::") {
        Some((file, _)) if file.contains('/') => papers::test_problem(tree, name),
        Some(_) => papers::test_problem(tree, &format!("{TESTS}{name}")),
        None => {
            let places = [
                format!("fuzz/fuzz_targets/{name}.rs"),
                format!("xtask/planted/{name}.patch"),
                format!("tests/rxe/guest/{name}"),
            ];
            let is_there = places.iter().any(|place| tree.exists(place));
            (!is_there).then(|| {
                format!("{name} is no test (file.rs::name), fuzz target, planted patch or script")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (SECURITY, text),
            ("tests/tests/users.rs", "#[test]\nfn it_holds() {}\n"),
            ("crates/a/src/b.rs", "#[test]\nfn it_holds() {}\n"),
            ("fuzz/fuzz_targets/frame.rs", ""),
            ("xtask/planted/it-breaks.patch", ""),
            ("tests/rxe/guest/many.sh", ""),
        ]);
        check(&tree).into_iter().map(|found| found.message).collect()
    }

    fn row(cells: &str) -> Vec<String> {
        messages(&format!("# Security\n\n| can | Test |\n| --- | --- |\n{cells}\n\nText.\n"))
    }

    #[test]
    fn tests_that_exist_pass() {
        for right in [
            "| it | `users.rs::it_holds` |",
            "| it | `users.rs::it_holds`, `crates/a/src/b.rs::it_holds`, `frame` |",
            "| it | `it-breaks`, `many.sh` |",
            "| it | none yet |",
            "| it. **Weakness** | - |",
        ] {
            assert_eq!(row(right), [""; 0], "{right}");
        }
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn lines_without_a_test_that_exists_are_caught() {
        for wrong in [
            "| it | `users.rs::it_hold` |",
            "| it | `lost.rs::it_holds` |",
            "| it | `crates/a/src/c.rs::it_holds` |",
            "| it | `frames` |",
            "| it | `users.rs::it_holds`, `frames` |",
            "| it | users.rs::it_holds |",
            "| it | `users.rs::it_holds` `frame` |",
            "| it | - |",
            "| it | |",
            "| it | by hand |",
            "| it | `frame` | more |",
        ] {
            assert_eq!(row(wrong).len(), 1, "{wrong}");
        }
        let without = "| can | cannot |\n| --- | --- |\n";
        assert_eq!(messages(without).len(), 1);
        // Each table has a head of its own.
        let two = format!("| can | Test |\n| --- | --- |\n| it | none yet |\n\n{without}");
        assert_eq!(messages(&two).len(), 1);
    }
}
