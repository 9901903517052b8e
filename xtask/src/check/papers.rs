//! `docs/papers.md` lists every mechanism of the five papers, each exactly
//! once, and what it says is built can be found: the file and the test.

use crate::tree::Tree;
use crate::violation::Violation;
use std::collections::BTreeMap;

const PAPERS: &str = "docs/papers.md";

/// First letter of a row, first and last number: 189 rows in all.
const ROWS: &[(char, usize, usize)] = &[
    ('C', 1, 26),
    ('A', 0, 18),
    ('W', 1, 7),
    ('H', 1, 43),
    ('M', 1, 31),
    ('F', 1, 38),
    ('K', 1, 25),
];
/// Statuses, and whether file and test must be named.
const STATUSES: &[(&str, bool)] =
    &[("built", true), ("built otherwise", true), ("modelled", true), ("not yet", false)];

/// Cells of a row: row, what, status, file, test, remark.
const CELLS: usize = 6;

/// All rows are there, and files and tests exist.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(PAPERS) else {
        return vec![Violation::at(PAPERS, 0, "is missing: every row of the papers stands there")];
    };
    let mut found = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let Some((row, cells)) = row_of(line) else { continue };
        if let Some(first) = seen.insert(row.clone(), at + 1) {
            found.push(Violation::at(
                PAPERS,
                at + 1,
                format!("{row} stands already in line {first}"),
            ));
        }
        if !expected().any(|known| known == row) {
            found.push(Violation::at(
                PAPERS,
                at + 1,
                format!("there is no row {row} in the papers"),
            ));
        }
        let problems = problems(tree, &cells);
        found.extend(
            problems
                .into_iter()
                .map(|problem| Violation::at(PAPERS, at + 1, format!("{row}: {problem}"))),
        );
    }
    for row in expected().filter(|row| !seen.contains_key(row)) {
        found.push(Violation::at(PAPERS, 0, format!("{row} is missing: add it as not yet")));
    }
    found
}

fn expected() -> impl Iterator<Item = String> {
    ROWS.iter()
        .flat_map(|(letter, first, last)| (*first..=*last).map(move |n| format!("{letter}{n}")))
}

/// The row's name and its cells, where the line is a row of a table.
fn row_of(line: &str) -> Option<(String, Vec<String>)> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().replace('`', "")).collect();
    let (letter, number) = cells[0].split_at_checked(1)?;
    let row = letter.chars().all(|c| c.is_ascii_uppercase())
        && !number.is_empty()
        && number.chars().all(|c| c.is_ascii_digit());
    row.then(|| (cells[0].clone(), cells))
}

fn problems(tree: &Tree, cells: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    if cells.len() != CELLS {
        return vec![format!("{} cells, not {CELLS}; a cell cannot hold a bar", cells.len())];
    }
    let [_, what, status, file, test, remark] = cells else { unreachable!("six cells") };
    let Some((_, built)) = STATUSES.iter().find(|(known, _)| known == status) else {
        let known: Vec<_> = STATUSES.iter().map(|(known, _)| *known).collect();
        return vec![format!("status \"{status}\" is none of: {}", known.join(", "))];
    };
    if what.is_empty() {
        problems.push("say in a few words what it is".to_owned());
    }
    if *built && (file == "-" || test == "-") {
        problems.push(format!("is {status}, so name its file and its test"));
    }
    if matches!(status.as_str(), "built otherwise" | "modelled")
        && matches!(remark.as_str(), "" | "-")
    {
        problems.push(format!("is {status}, so the remark says how and why"));
    }
    for file in names(file).filter(|file| !tree.exists(file)) {
        problems.push(format!("the file {file} does not exist"));
    }
    for test in names(test) {
        problems.extend(test_problem(tree, test));
    }
    problems
}

/// The names in a cell: separated by commas, `-` for none.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "-")
}

/// What is wrong with the name of a test, `path::name`.
pub(super) fn test_problem(tree: &Tree, test: &str) -> Option<String> {
    let Some((path, name)) = test.split_once("::") else {
        return Some(format!("the test {test} is not of the form path::name"));
    };
    let Some(text) = tree.text(path) else {
        return Some(format!("the file {path} of the test does not exist"));
    };
    let name = name.rsplit("::").next().unwrap_or(name);
    let (plain, generic) = (format!("fn {name}("), format!("fn {name}<"));
    let defined = text.contains(&plain) || text.contains(&generic);
    (!defined).then(|| format!("{path} has no fn {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows as not yet, with some lines replaced.
    fn papers(changes: &[(&str, &str)]) -> String {
        let mut text =
            "| row | what | status | file | test | remark |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for row in expected() {
            match changes.iter().find(|(changed, _)| *changed == row) {
                Some((_, line)) => text.push_str(line),
                None => text.push_str(&format!("| {row} | it | not yet | - | - | - |\n")),
            }
        }
        text
    }

    fn messages(text: &str) -> Vec<String> {
        let code = ("crates/a/src/b.rs", "#[test]\nfn it_holds() {}\n");
        let tree = Tree::of(&[(PAPERS, text), code]);
        check(&tree).into_iter().map(|found| found.message).collect()
    }

    #[test]
    fn there_are_189_rows() {
        assert_eq!(expected().count(), 189);
        assert_eq!(messages(&papers(&[])), [""; 0]);
    }

    #[test]
    fn built_rows_pass_where_file_and_test_exist() {
        let line =
            "| H7 | it | built | `crates/a/src/b.rs` | `crates/a/src/b.rs::it_holds` | - |\n";
        assert_eq!(messages(&papers(&[("H7", line)])), [""; 0]);
        let line = "| H8 | it | built otherwise | crates/a | crates/a/src/b.rs::it_holds | why |\n";
        assert_eq!(messages(&papers(&[("H8", line)])), [""; 0]);
    }

    #[test]
    fn missing_double_and_unknown_rows_are_caught() {
        assert!(messages(&papers(&[("K25", "")]))[0].contains("K25 is missing"));
        let twice = "| C1 | it | not yet | - | - | - |\n";
        assert!(messages(&papers(&[("C2", twice)])).iter().any(|found| found.contains("already")));
        let unknown = "| A19 | it | not yet | - | - | - |\n";
        assert!(messages(&format!("{}{unknown}", papers(&[])))[0].contains("no row A19"));
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn what_is_said_to_be_built_must_exist() {
        for planted in [
            "| H7 | it | done | - | - | - |\n",
            "| H7 | it | built | - | - | - |\n",
            "| H7 | it | built | crates/a/src/b.rs | - | - |\n",
            "| H7 | it | built | crates/a/src/c.rs | crates/a/src/b.rs::it_holds | - |\n",
            "| H7 | it | built | crates/a/src/b.rs | crates/a/src/b.rs::it_hold | - |\n",
            "| H7 | it | built | crates/a/src/b.rs | crates/a/src/c.rs::it_holds | - |\n",
            "| H7 | it | built | crates/a/src/b.rs | it_holds | - |\n",
            "| H7 | it | built otherwise | crates/a/src/b.rs | crates/a/src/b.rs::it_holds | - |\n",
            "| H7 | it | not yet | crates/a/src/lost.rs | - | - |\n",
            "| H7 | it | not yet | - | - |\n",
            "| H7 |  | not yet | - | - | - |\n",
        ] {
            assert_eq!(messages(&papers(&[("H7", planted)])).len(), 1, "{planted}");
        }
    }
}
