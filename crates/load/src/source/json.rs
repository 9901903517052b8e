//! JSON lines: an object on each line. A column is a member; `address.city` is one of an inner object.

use crate::mapping::TableMapping;
use crate::row::{Cell, MAX_RECORD_BYTES, Position, Rows};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// The members of an object, as they are written.
type Members<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// Reads all lines. Empty ones are none.
///
/// # Errors
/// The input cannot be read, or what `rows` returns.
pub fn read(
    mut input: impl BufRead,
    table: &TableMapping,
    rows: &mut impl Rows,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
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
        match cells(line.trim_ascii_end(), table) {
            Ok(cells) => rows.row(number, &cells)?,
            Err((at, why)) => rows.bad(number, at, why)?,
        }
    }
    Ok(())
}

fn cells<'a>(line: &'a [u8], table: &TableMapping) -> Result<Vec<Cell<'a>>, (Position, String)> {
    let members: Members<'a> = serde_json::from_slice(line).map_err(|error| {
        let why = error.to_string();
        let why = why.split_once(" at line ").map_or(&*why, |(why, _)| why);
        (Position::Character(error.column().max(1)), format!("no JSON object: {why}"))
    })?;
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
            r#"{"id":5}"#,
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
        let taken = taken(&long);
        assert_eq!(taken.rows, ["2: 1|-|-"]);
        assert_eq!(taken.bad.len(), 1);
    }
}
