//! JSON lines: an object on each line. A column is a member; `address.city` is one of an inner object.

use crate::mapping::TableMapping;
use crate::row::{Cell, MAX_RECORD_BYTES, Position, Rows};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, Read};

/// The members of an object, as they are written.
type Members<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// Names of members that are kept for a message.
const NAMES_TOLD: usize = 20;
/// Characters of each that the message has.
const NAME_CHARACTERS: usize = 40;

/// Columns of a mapping that no row has.
#[derive(Debug, thiserror::Error)]
#[error("no row has the member {missing}, but {there}")]
pub struct NoSuchMember {
    /// The columns.
    missing: String,
    /// Members that rows have.
    there: String,
}

/// Reads all lines. Empty ones are none.
///
/// # Errors
/// The input cannot be read, what `rows` returns, or [`NoSuchMember`] at the end: there are objects, and a column is
/// in none of them.
pub fn read(
    mut input: impl BufRead,
    table: &TableMapping,
    rows: &mut impl Rows,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    let mut seen = Seen::of(table);
    for number in 1.. {
        line.clear();
        if input.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == MAX_RECORD_BYTES && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
            let why = format!("the line is longer than {MAX_RECORD_BYTES} bytes");
            rows.bad(number, Position::Row, why)?;
            continue;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match cells(line.trim_ascii_end(), table, &mut seen) {
            Ok(cells) => rows.row(number, &cells)?,
            Err((at, why)) => rows.bad(number, at, why)?,
        }
    }
    seen.finish()
}

/// Which members the objects have: a misspelled column is in none of them.
struct Seen<'t> {
    /// Columns that were in no object so far.
    missing: Vec<&'t String>,
    has_objects: bool,
    /// Members that are there, as long as a column is missing; a bounded number.
    names: BTreeSet<String>,
}

impl<'t> Seen<'t> {
    fn of(table: &'t TableMapping) -> Self {
        Self { missing: table.columns.iter().collect(), has_objects: false, names: BTreeSet::new() }
    }

    fn take(&mut self, members: &Members<'_>) {
        self.has_objects = true;
        if self.missing.is_empty() {
            return;
        }
        self.missing.retain(|column| !has_member(members, column));
        if !self.missing.is_empty() && self.names.len() < NAMES_TOLD {
            let mut names: Vec<String> = members.iter().flat_map(names_of).collect();
            names.sort_unstable();
            for name in names {
                if self.names.len() < NAMES_TOLD {
                    self.names.insert(name);
                }
            }
        }
    }

    fn finish(self) -> anyhow::Result<()> {
        if self.missing.is_empty() || !self.has_objects {
            return Ok(());
        }
        let missing: Vec<&str> = self.missing.iter().map(|column| column.as_str()).collect();
        let mut there = self.names.into_iter().collect::<Vec<_>>();
        if there.len() == NAMES_TOLD {
            there.push("...".to_owned());
        } else if there.is_empty() {
            there.push("none".to_owned());
        }
        Err(NoSuchMember { missing: missing.join(", "), there: there.join(", ") }.into())
    }
}

/// Whether a member is there, whatever its value. What is null where an object may be might have it.
fn has_member(members: &Members<'_>, name: &str) -> bool {
    if members.contains_key(name) {
        return true;
    }
    let Some((outer, inner)) = name.split_once('.') else { return false };
    members.get(outer).is_some_and(|value| {
        value.get() == "null"
            || serde_json::from_str(value.get()).is_ok_and(|inside| has_member(&inside, inner))
    })
}

/// The name of a member, cut; of an object the names of its own members.
fn names_of((name, value): (&Cow<'_, str>, &&RawValue)) -> Vec<String> {
    let cut = |name: &str| name.chars().take(NAME_CHARACTERS).collect::<String>();
    let inside: Members<'_> = serde_json::from_str(value.get()).unwrap_or_default();
    if inside.is_empty() {
        return vec![cut(name).escape_debug().to_string()];
    }
    let whole = |inner: &Cow<'_, str>| format!("{}.{}", cut(name), cut(inner));
    inside.keys().map(|inner| whole(inner).escape_debug().to_string()).collect()
}

fn cells<'a>(
    line: &'a [u8],
    table: &TableMapping,
    seen: &mut Seen<'_>,
) -> Result<Vec<Cell<'a>>, (Position, String)> {
    let members: Members<'a> = serde_json::from_slice(line).map_err(|error| {
        let why = error.to_string();
        let why = why.split_once(" at line ").map_or(&*why, |(why, _)| why);
        (Position::Character(error.column().max(1)), format!("no JSON object: {why}"))
    })?;
    seen.take(&members);
    let cell = |(at, column): (usize, &String)| {
        member(&members, column).map_err(|why| (Position::Cell(at), why.to_owned()))
    };
    table.columns.iter().enumerate().map(cell).collect()
}

/// A member, or one of a member that is an object.
fn member<'a>(members: &Members<'a>, name: &str) -> Result<Cell<'a>, &'static str> {
    if let Some(value) = members.get(name) {
        return value_cell(value);
    }
    let Some((outer, inner)) = name.split_once('.') else { return Ok(Cell::Missing) };
    match members.get(outer).map(|value| value.get()) {
        None | Some("null") => Ok(Cell::Missing),
        Some(text) => {
            let inside = serde_json::from_str(text).map_err(|_| "it is no object")?;
            member(&inside, inner)
        }
    }
}

/// The texts of the elements of a JSON array.
///
/// # Errors
/// It is none, or an element is null, an array or an object.
pub fn array(text: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, &'static str> {
    const NONE: &str = "it is no JSON array";
    if !text.trim_ascii_start().starts_with(b"[") {
        return Err(NONE);
    }
    let value: &RawValue = serde_json::from_slice(text).map_err(|_| NONE)?;
    match value_cell(value)? {
        Cell::Array(texts) => Ok(texts),
        _ => Err(NONE),
    }
}

fn value_cell<'a>(value: &'a RawValue) -> Result<Cell<'a>, &'static str> {
    let text = value.get();
    match text.as_bytes()[0] {
        b'n' => Ok(Cell::Missing),
        b'{' => Err("it is an object; name its members with a dot between"),
        b'[' => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| BAD_TEXT)?;
            let elements = elements.into_iter().map(value_cell).map(|cell| match cell? {
                Cell::Text(text) => Ok(text),
                Cell::Missing => Err("an element is null"),
                Cell::Array(_) => Err("an element is an array"),
            });
            Ok(Cell::Array(elements.collect::<Result<_, _>>()?))
        }
        b'"' => {
            let text: Text<'a> = serde_json::from_str(text).map_err(|_| BAD_TEXT)?;
            Ok(Cell::Text(match text.0 {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            }))
        }
        _ => Ok(Cell::Text(text.as_bytes().into())),
    }
}

const BAD_TEXT: &str = "its text cannot be read";

/// Borrowed where no escape is in it.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::Taken;
    use crate::source::place::tests::table;

    fn taken(text: &str) -> Taken {
        let mut taken = Taken::default();
        read(text.as_bytes(), &table(&["id", "at.city", "tags"]), &mut taken).unwrap();
        taken
    }

    #[test]
    fn members_are_texts_numbers_and_arrays_as_they_are_written() {
        let taken = taken(concat!(
            r#"{"id": 12345678901234567890123, "at": {"city": "Z\u00fcrich"}, "tags": ["a", 1.50]}"#,
            "\n\n",
            r#"{"id":"x","at.city":true,"other":{"id":1}}"#,
            "\r\n",
            r#"{"at":null,"id":null}"#,
        ));
        let first = "1: 12345678901234567890123|Zürich|[a,1.50]";
        assert_eq!(taken.rows, [first, "3: x|true|-", "4: -|-|-"]);
        assert!(taken.bad.is_empty(), "{:?}", taken.bad);
    }

    #[test]
    fn a_bad_line_is_told_with_its_position_and_takes_no_other_with_it() {
        let lines = [
            r#"{"id":1"#,
            r#"[1]"#,
            r#"{"id":{"a":1}}"#,
            r#"{"at":7}"#,
            r#"{"tags":[[1]]}"#,
            r#"{"tags":[null]}"#,
            r#"{"id":"\ud800"}"#,
            r#"{"id":5,"at":{"city":null}}"#,
        ];
        let taken = taken(&lines.join("\n"));
        assert_eq!(taken.rows, ["8: 5|-|-"]);
        let told = [
            "1 Character(7): no JSON object: EOF while parsing an object",
            "2 Character(1): no JSON object: invalid type: sequence, expected a map",
            "3 Cell(0): it is an object; name its members with a dot between",
            "4 Cell(1): it is no object",
            "5 Cell(2): an element is an array",
            "6 Cell(2): an element is null",
        ];
        assert_eq!(taken.bad[..6], told);
        assert!(taken.bad[6].starts_with("7 "), "{:?}", taken.bad);
    }

    #[test]
    fn the_length_of_a_line_is_bounded() {
        let long = " ".repeat(MAX_RECORD_BYTES as usize + 7) + "\n{\"id\":1}";
        let mut taken = Taken::default();
        read(long.as_bytes(), &table(&["id"]), &mut taken).unwrap();
        assert_eq!(taken.rows, ["2: 1"]);
        assert_eq!(taken.bad.len(), 1);
    }

    /// What is wrong with these lines in a table with these columns.
    fn told(lines: &str, columns: &[&str]) -> Option<String> {
        let error = read(lines.as_bytes(), &table(columns), &mut Taken::default()).err()?;
        assert!(error.is::<NoSuchMember>());
        Some(error.to_string())
    }

    #[test]
    fn a_column_that_no_row_has_is_told_with_those_that_are_there() {
        let rows = r#"{"id":1,"name":"a","at":{"city":"x"}}
            {"id":2,"nick":null,"at":{"state":1}}"#;
        let why = "no row has the member nmae, but at.city, at.state, id, name, nick";
        assert_eq!(told(rows, &["id", "nmae"]).unwrap(), why);
        let why = "no row has the member at.town, born, but at.city, at.state, id, name, nick";
        assert_eq!(told(rows, &["at.town", "id", "born"]).unwrap(), why);
        // Some rows have them, or no row can tell.
        assert_eq!(told(rows, &["nick", "name", "at.city", "at.state", "at"]), None);
        assert_eq!(told(r#"{"id":1,"at":null}"#, &["id", "at.city"]), None);
        for none in ["", "\n\n", "no object\n"] {
            assert_eq!(told(none, &["id"]), None);
        }
        assert_eq!(told("{}", &["id"]).unwrap(), "no row has the member id, but none");
    }

    #[test]
    fn members_that_are_told_are_bounded() {
        let members = |count: usize| {
            let member = |at: usize| format!("\"{at:04}\\n{}\":1", "x".repeat(1000));
            (0..count).map(member).collect::<Vec<_>>().join(",")
        };
        let told = told(&format!("{{{}}}", members(5000)), &["id"]).unwrap();
        assert!(told.contains("but 0000\\nxxx") && told.ends_with("x, ..."), "{told}");
        assert!(told.contains("0019") && !told.contains("0020"), "{told}");
        assert!(told.len() < 1000, "{told}");
    }
}
