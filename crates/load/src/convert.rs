//! From a row to what is written of it.

use crate::mapping::{
    FieldMapping, ItemMapping, ListMapping, NoKey, TableMapping, Template, ValueKind,
};
use crate::row::{Cell, Position};
use crate::source::array;
use remora_layout::limits::MAX_KEY_BYTES;
use std::borrow::Cow;
use std::fmt;

/// What is written of all rows before anything else is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Plain fields: once they are there, the server knows where links lead.
    Fields,
    /// Links and lists of links.
    Links,
}

/// Something to be written. Keys are whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write<'a> {
    /// Plain fields of a hash: names and values in turn.
    Fields(&'a [u8], &'a [Cow<'a, [u8]>]),
    /// Fields of a hash that are links: names and keys of targets in turn.
    Links(&'a [u8], &'a [Cow<'a, [u8]>]),
    /// An element of a list: the list's key, and the target's.
    Push(&'a [u8], &'a [u8]),
}

/// The command that writes it.
impl fmt::Display for Write<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, key, parts) = match self {
            Self::Fields(key, pairs) => ("HSET", key, *pairs),
            Self::Links(key, pairs) => ("LINK.SET", key, *pairs),
            Self::Push(key, target) => {
                let (key, target) = (key.escape_ascii(), target.escape_ascii());
                return write!(out, "LINK.PUSH {key} \"{target}\"");
            }
        };
        write!(out, "{command} {}", key.escape_ascii())?;
        parts.iter().try_for_each(|part| write!(out, " \"{}\"", part.escape_ascii()))
    }
}

/// Why a row is not written.
#[derive(Debug)]
pub enum NotWritten {
    /// Something is wrong with it.
    Bad(Position, String),
    /// Something else.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for NotWritten {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Takes what is to be written.
pub type Take<'t> = dyn FnMut(Write<'_>) -> anyhow::Result<()> + 't;

/// Gives what a pass writes of a row to `take`. `prefix`: the beginning of all keys.
///
/// # Errors
/// A value is not what it has to be, or what `take` returns. Something of the row may be written then.
pub fn convert(
    table: &TableMapping,
    prefix: &[u8],
    pass: Pass,
    cells: &[Cell<'_>],
    take: &mut Take<'_>,
) -> Result<(), NotWritten> {
    for item in &table.items {
        let key = key(&item.key, prefix, cells, None)?;
        match pass {
            Pass::Fields => {
                let pairs = fields(item, cells)?;
                if !pairs.is_empty() {
                    take(Write::Fields(&key, &pairs))?;
                }
            }
            Pass::Links => {
                let pairs = links(item, prefix, cells)?;
                if !pairs.is_empty() {
                    take(Write::Links(&key, &pairs))?;
                }
            }
        }
    }
    if pass == Pass::Links {
        table.lists.iter().try_for_each(|list| elements(list, prefix, cells, take))?;
    }
    Ok(())
}

fn key(
    template: &Template,
    prefix: &[u8],
    cells: &[Cell<'_>],
    each: Option<(usize, &[u8])>,
) -> Result<Vec<u8>, NotWritten> {
    let mut key = prefix.to_vec();
    template.render(cells, each, &mut key).map_err(|why| match why {
        NoKey::Missing(cell) => {
            NotWritten::Bad(Position::Cell(cell), "it has no value, and a key needs one".to_owned())
        }
        NoKey::IsArray(cell) => NotWritten::Bad(Position::Cell(cell), NO_ARRAY.to_owned()),
    })?;
    if key.len() > MAX_KEY_BYTES {
        let why = format!("a key of {} bytes; {MAX_KEY_BYTES} are the most", key.len());
        return Err(NotWritten::Bad(Position::Row, why));
    }
    Ok(key)
}

const NO_ARRAY: &str = "it is an array, which only a list takes, by each";

fn fields<'a>(
    item: &'a ItemMapping,
    cells: &'a [Cell<'_>],
) -> Result<Vec<Cow<'a, [u8]>>, NotWritten> {
    let mut pairs = Vec::with_capacity(2 * item.fields.len());
    for FieldMapping { name, column, kind } in &item.fields {
        let bad = |why: String| NotWritten::Bad(Position::Cell(*column), why);
        match &cells[*column] {
            Cell::Missing => {}
            Cell::Array(_) => return Err(bad(NO_ARRAY.to_owned())),
            Cell::Text(text) => {
                let value = value(*kind, text).map_err(bad)?;
                pairs.extend([Cow::from(name.as_bytes()), value]);
            }
        }
    }
    Ok(pairs)
}

fn value(kind: ValueKind, text: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let shown = || format!("\"{}\"", text.get(..40).unwrap_or(text).escape_ascii());
    let word = str::from_utf8(text).unwrap_or_default().trim();
    let is_good = match kind {
        ValueKind::Text => return Ok(text.into()),
        ValueKind::Integer => word.parse::<i64>().is_ok(),
        ValueKind::Number => word.parse::<f64>().is_ok_and(f64::is_finite),
        ValueKind::Boolean => {
            return match word {
                "true" | "t" | "1" => Ok(b"1"[..].into()),
                "false" | "f" | "0" => Ok(b"0"[..].into()),
                _ => Err(format!("{} is neither true nor false", shown())),
            };
        }
    };
    let kind = if kind == ValueKind::Integer { "integer of 64 bits" } else { "finite number" };
    if is_good { Ok(text.trim_ascii().into()) } else { Err(format!("{} is no {kind}", shown())) }
}

fn links<'a>(
    item: &'a ItemMapping,
    prefix: &[u8],
    cells: &[Cell<'_>],
) -> Result<Vec<Cow<'a, [u8]>>, NotWritten> {
    let mut pairs = Vec::with_capacity(2 * item.links.len());
    for (name, target) in &item.links {
        if let Some(target) = target_key(target, prefix, cells, None)? {
            pairs.extend([Cow::from(name.as_bytes()), target.into()]);
        }
    }
    Ok(pairs)
}

/// The key of a link; a foreign key without a value is no link.
fn target_key(
    target: &Template,
    prefix: &[u8],
    cells: &[Cell<'_>],
    each: Option<(usize, &[u8])>,
) -> Result<Option<Vec<u8>>, NotWritten> {
    match target.render(cells, each, &mut Vec::new()) {
        Err(NoKey::Missing(_)) => Ok(None),
        _ => key(target, prefix, cells, each).map(Some),
    }
}

fn elements(
    list: &ListMapping,
    prefix: &[u8],
    cells: &[Cell<'_>],
    take: &mut Take<'_>,
) -> Result<(), NotWritten> {
    let mut push = |each: Option<(usize, &[u8])>| -> Result<(), NotWritten> {
        let Some(target) = target_key(&list.link, prefix, cells, each)? else { return Ok(()) };
        // A row that belongs to no list adds to none.
        let Some(key) = target_key(&list.key, prefix, cells, each)? else { return Ok(()) };
        Ok(take(Write::Push(&key, &target))?)
    };
    match list.each {
        None => push(None),
        Some(cell) => match &cells[cell] {
            Cell::Missing => Ok(()),
            Cell::Array(texts) => texts.iter().try_for_each(|text| push(Some((cell, &**text)))),
            // CSV and PostgreSQL have arrays as texts only.
            Cell::Text(text) => match array(text) {
                Ok(texts) => texts.iter().try_for_each(|text| push(Some((cell, &**text)))),
                Err(why) => Err(NotWritten::Bad(Position::Cell(cell), why.to_owned())),
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;

    const MAPPING: &str = r#"
        name = "shop"
        [[items]]
        key = "order:{id}"
        fields = { n = { column = "n", type = "integer" }, p = { column = "p", type = "number" }, b = { column = "b", type = "boolean" } }
        links = { user = "user:{user}" }
        [[lists]]
        key = "user:{user}:orders"
        link = "order:{id}"
        [[lists]]
        key = "order:{id}:goods"
        link = "ware:{wares}"
        each = "wares"
    "#;

    /// Columns: id, n, p, b, user, wares by their first mention: b, n, p are fields in their order.
    fn written(values: &[(&str, Cell<'_>)], pass: Pass) -> Result<Vec<String>, String> {
        let mapping = Mapping::parse(MAPPING).unwrap();
        let table = &mapping.tables[0];
        let cell = |column: &String| {
            let given = values.iter().find(|(name, _)| name == column);
            given.map_or(Cell::Missing, |(_, cell)| cell.clone())
        };
        let cells: Vec<Cell<'_>> = table.columns.iter().map(cell).collect();
        let mut told = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut take = |write: Write<'_>| {
            let pairs = |pairs: &[Cow<'_, [u8]>]| {
                pairs.iter().map(|part| text(part)).collect::<Vec<_>>().join(" ")
            };
            told.push(match write {
                Write::Fields(key, fields) => format!("fields {} {}", text(key), pairs(fields)),
                Write::Links(key, links) => format!("links {} {}", text(key), pairs(links)),
                Write::Push(key, target) => format!("push {} {}", text(key), text(target)),
            });
            Ok(())
        };
        match convert(table, b"@1:", pass, &cells, &mut take) {
            Ok(()) => Ok(told),
            Err(NotWritten::Bad(Position::Cell(cell), why)) => {
                Err(format!("{}: {why}", table.columns[cell]))
            }
            Err(why) => panic!("{why:?}"),
        }
    }

    fn text(text: &str) -> Cell<'_> {
        Cell::Text(text.as_bytes().into())
    }

    #[test]
    fn fields_come_before_links_and_what_is_missing_is_not_written() {
        let row = [
            ("id", text("7")),
            ("n", text("-5")),
            ("p", text("1.50")),
            ("b", text("t")),
            ("user", text("3")),
            ("wares", Cell::Array(vec![b"a"[..].into(), b"b"[..].into()])),
        ];
        let fields = written(&row, Pass::Fields).unwrap();
        assert_eq!(fields, ["fields @1:order:7 b 1 n -5 p 1.50"]);
        let links = written(&row, Pass::Links).unwrap();
        let expected = [
            "links @1:order:7 user @1:user:3",
            "push @1:user:3:orders @1:order:7",
            "push @1:order:7:goods @1:ware:a",
            "push @1:order:7:goods @1:ware:b",
        ];
        assert_eq!(links, expected);
        for pass in [Pass::Fields, Pass::Links] {
            assert!(written(&row[..1], pass).unwrap().is_empty());
        }
        // The text of an array counts as one.
        let row = [("id", text("7")), ("wares", text(r#" ["a", 2] "#))];
        let links = written(&row, Pass::Links).unwrap();
        assert_eq!(links, ["push @1:order:7:goods @1:ware:a", "push @1:order:7:goods @1:ware:2"]);
    }

    #[test]
    fn a_key_that_is_too_long_is_told() {
        let long = "7".repeat(MAX_KEY_BYTES);
        let mapping = Mapping::parse(MAPPING).unwrap();
        let table = &mapping.tables[0];
        let cell = |column: &String| if column == "id" { text(&long) } else { Cell::Missing };
        let cells: Vec<Cell<'_>> = table.columns.iter().map(cell).collect();
        let told = convert(table, b"@1:", Pass::Fields, &cells, &mut |_| Ok(()));
        let Err(NotWritten::Bad(Position::Row, why)) = told else { panic!("{told:?}") };
        assert_eq!(
            why,
            format!("a key of {} bytes; {MAX_KEY_BYTES} are the most", MAX_KEY_BYTES + 9)
        );
    }

    #[test]
    fn a_value_that_is_not_what_it_has_to_be_is_told() {
        let id = ("id", text("7"));
        for (column, cell, why) in [
            ("n", text("1.5"), "\"1.5\" is no integer of 64 bits"),
            ("n", text("9223372036854775808"), "is no integer"),
            ("p", text("inf"), "\"inf\" is no finite number"),
            ("b", text("yes"), "\"yes\" is neither true nor false"),
            ("n", Cell::Array(Vec::new()), "only a list takes"),
        ] {
            let told = written(&[id.clone(), (column, cell)], Pass::Fields).unwrap_err();
            assert!(told.starts_with(&format!("{column}: ")) && told.contains(why), "{told}");
        }
        let told = written(&[("n", text("1"))], Pass::Fields).unwrap_err();
        assert_eq!(told, "id: it has no value, and a key needs one");
        for (wares, why) in [
            ("a", "it is no JSON array"),
            ("{a,b}", "it is no JSON array"),
            ("[1,", "it is no JSON array"),
            ("7", "it is no JSON array"),
            ("[null]", "an element is null"),
        ] {
            let told = written(&[id.clone(), ("wares", text(wares))], Pass::Links).unwrap_err();
            assert_eq!(told, format!("wares: {why}"));
        }
    }
}
