//! Templates of keys: `user:{id}`.

use crate::row::Cell;
use anyhow::bail;

/// A key with columns in it.
#[derive(Debug)]
pub struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    /// The number of a cell.
    Cell(usize),
}

/// The number of a column's cell.
pub fn cell(columns: &mut Vec<String>, name: &str) -> usize {
    columns.iter().position(|known| known == name).unwrap_or_else(|| {
        columns.push(name.to_owned());
        columns.len() - 1
    })
}

/// Why there is no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoKey {
    /// The cell of this number has no value, or an empty one.
    Missing(usize),
    /// The cell of this number is an array.
    IsArray(usize),
}

impl Template {
    /// Reads a template. Columns that it names get a number in `columns`.
    ///
    /// # Errors
    /// A brace has no partner, or no column is named.
    pub fn parse(text: &str, columns: &mut Vec<String>) -> anyhow::Result<Self> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain += &rest[..at];
            let (brace, behind) = rest[at..].split_at(1);
            if behind.starts_with(brace) {
                plain += brace;
                rest = &behind[1..];
                continue;
            }
            if brace == "}" {
                bail!("}} has no {{ (two of them are a brace)");
            }
            let Some((column, behind)) = behind.split_once('}') else {
                bail!("{{ has no }} (two of them are a brace)");
            };
            if column.is_empty() || column.contains('{') {
                bail!("{{{column}}} names no column");
            }
            parts.push(Part::Text(std::mem::take(&mut plain)));
            parts.push(Part::Cell(cell(columns, column)));
            rest = behind;
        }
        parts.push(Part::Text(plain + rest));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        if parts.is_empty() {
            bail!("a key is not empty");
        }
        Ok(Self(parts))
    }

    /// The text of a template without columns.
    pub fn text(&self) -> String {
        let texts = self.0.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Cell(_) => None,
        });
        texts.collect()
    }

    /// Appends the key of a row. The cell of number `each`, an array, counts with its element.
    ///
    /// # Errors
    /// A cell has no value to stand in a key; `out` then has some of it.
    pub fn render(
        &self,
        cells: &[Cell<'_>],
        each: Option<(usize, &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), NoKey> {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Cell(at) => {
                    let element = each.filter(|(array, _)| array == at).map(|(_, text)| text);
                    let text = match (element, &cells[*at]) {
                        (Some(text), _) => text,
                        (None, Cell::Text(text)) => text,
                        (None, Cell::Missing) => return Err(NoKey::Missing(*at)),
                        (None, Cell::Array(_)) => return Err(NoKey::IsArray(*at)),
                    };
                    if text.is_empty() {
                        return Err(NoKey::Missing(*at));
                    }
                    out.extend_from_slice(text);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, cells: &[Cell<'_>]) -> Result<String, NoKey> {
        let mut columns = vec!["id".to_owned(), "tag".to_owned()];
        let template = Template::parse(text, &mut columns).unwrap();
        let mut out = Vec::new();
        template.render(cells, None, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn columns_stand_in_braces_and_two_braces_are_one() {
        let cells = [Cell::Text(b"7"[..].into()), Cell::Text(b"x"[..].into())];
        for (text, key) in [
            ("user:{id}", "user:7"),
            ("{id}{tag}", "7x"),
            ("{{{tag}}}:{id}", "{x}:7"),
            ("a}}b{{c", "a}b{c"),
            ("plain", "plain"),
        ] {
            assert_eq!(rendered(text, &cells).unwrap(), key);
        }
        for (text, why) in [
            ("{}", "names no column"),
            ("{a{b}", "names no column"),
            ("a{b", "has no }"),
            ("a}b", "has no {"),
            ("", "not empty"),
        ] {
            let error = Template::parse(text, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_cell_without_a_text_makes_no_key() {
        let array = Cell::Array(vec![b"1"[..].into()]);
        assert_eq!(rendered("u:{id}", &[Cell::Missing, Cell::Missing]), Err(NoKey::Missing(0)));
        let empty = Cell::Text(b""[..].into());
        assert_eq!(rendered("u:{tag}", &[Cell::Missing, empty]), Err(NoKey::Missing(1)));
        assert_eq!(rendered("u:{id}", &[array, Cell::Missing]), Err(NoKey::IsArray(0)));
    }
}
