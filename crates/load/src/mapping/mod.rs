//! The mapping file: which columns of which table become items, fields, links and lists of links.
//!
//! ```text
//! name = "social"                    the data set: its root's key, and the beginning of all its keys
//!
//! [[items]]                          a hash for each row of a table
//! from = "users"                     file of a directory, or table or query of PostgreSQL
//! key = "user:{id}"                  {column} is the row's value, {{ and }} are braces
//! fields = { name = "full_name", age = { column = "age", type = "integer" } }
//! links = { city = "city:{city_id}" }
//!
//! [[lists]]                          an element of a list for each row
//! from = "follows"
//! key = "user:{from}:follows"
//! link = "user:{to}"
//! ```

mod template;

pub use template::{NoKey, Template};

use anyhow::Context;
use remora_command_line::usage;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use template::cell;

/// Fields of a root that are the loader's own.
const ROOT_FIELDS: [&str; 5] = ["generation", "current", "started_at", "last_error", "failed_at"];
/// The longest name of a data set, in bytes: it stands in each of its keys.
const MAX_NAME_BYTES: usize = 64;

/// A mapping, checked.
#[derive(Debug)]
pub struct Mapping {
    /// The name of the data set.
    pub name: String,
    /// Links of the root: fields, and the keys that they lead to, without the generation.
    pub root: Vec<(String, String)>,
    /// How CSV files are written.
    pub csv: CsvForm,
    /// Queries that stand for tables of PostgreSQL, by their names.
    pub queries: BTreeMap<String, String>,
    /// What becomes of each table, in the order in which the tables are first named.
    pub tables: Vec<TableMapping>,
}

/// How CSV files are written.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CsvForm {
    /// What parts two columns, a single byte [default: a comma, in files that end in `.tsv` a tab].
    pub separator: Option<String>,
    /// The names of the columns, where no first line has them.
    pub columns: Option<Vec<String>>,
}

/// What becomes of a table.
#[derive(Debug)]
pub struct TableMapping {
    /// Its name; there may be none where the source is a single file.
    pub name: Option<String>,
    /// The columns that are used; a row has a cell for each.
    pub columns: Vec<String>,
    /// The items of a row.
    pub items: Vec<ItemMapping>,
    /// The lists to which a row adds.
    pub lists: Vec<ListMapping>,
}

/// An item of a row.
#[derive(Debug)]
pub struct ItemMapping {
    /// Its key.
    pub key: Template,
    /// Its plain fields.
    pub fields: Vec<FieldMapping>,
    /// Its fields that are links, and the keys of their targets.
    pub links: Vec<(String, Template)>,
}

/// A plain field of an item.
#[derive(Debug)]
pub struct FieldMapping {
    /// Its name.
    pub name: String,
    /// The number of its cell.
    pub column: usize,
    /// What its value has to be.
    pub kind: ValueKind,
}

/// A list to which a row adds.
#[derive(Debug)]
pub struct ListMapping {
    /// The list's key.
    pub key: Template,
    /// The key of the element's target.
    pub link: Template,
    /// The number of the cell that is an array: each of its elements adds to the list.
    pub each: Option<usize>,
}

/// What a value has to be.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ValueKind {
    /// Any text, kept as it is.
    #[default]
    Text,
    /// An integer of 64 bits.
    Integer,
    /// A finite number.
    Number,
    /// `true`, `t` or `1`, `false`, `f` or `0`; kept as 1 or 0.
    Boolean,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MappingFile {
    name: String,
    #[serde(default)]
    root: BTreeMap<String, String>,
    #[serde(default)]
    csv: CsvForm,
    #[serde(default)]
    queries: BTreeMap<String, String>,
    #[serde(default)]
    items: Vec<ItemSection>,
    #[serde(default)]
    lists: Vec<ListSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemSection {
    from: Option<String>,
    key: String,
    #[serde(default)]
    fields: BTreeMap<String, FieldSection>,
    #[serde(default)]
    links: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a column, or { column = ..., type = ... }")]
enum FieldSection {
    Column(String),
    Typed(TypedColumn),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedColumn {
    column: String,
    #[serde(default, rename = "type")]
    kind: ValueKind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListSection {
    from: Option<String>,
    key: String,
    link: String,
    each: Option<String>,
}

impl Mapping {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// Usage: it cannot be read, is no TOML (with line and column), or makes no sense.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
        Self::parse(&text).map_err(|why| usage(format!("{}: {why:#}", path.display())))
    }

    /// The mapping that a text says.
    ///
    /// # Errors
    /// It is no TOML, or makes no sense.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let file: MappingFile = toml::from_str(text)?;
        check_name(&file.name)?;
        let separator = file.csv.separator.as_deref();
        anyhow::ensure!(
            separator.is_none_or(|separator| separator.len() == 1),
            "csv.separator: one byte parts two columns"
        );
        let root = file.root.into_iter().map(root_link).collect::<Result<_, _>>()?;
        let mut tables = Vec::new();
        for (at, section) in file.items.into_iter().enumerate() {
            let key = section.key.clone();
            let context = || format!("items {} (key \"{key}\")", at + 1);
            section.add_to(&mut tables).with_context(context)?;
        }
        for (at, section) in file.lists.into_iter().enumerate() {
            let key = section.key.clone();
            let context = || format!("lists {} (key \"{key}\")", at + 1);
            section.add_to(&mut tables).with_context(context)?;
        }
        anyhow::ensure!(!tables.is_empty(), "it has neither [[items]] nor [[lists]]");
        Ok(Self { name: file.name, root, csv: file.csv, queries: file.queries, tables })
    }

    /// Whether a row sets links or adds to lists.
    pub fn has_links(&self) -> bool {
        let mut tables = self.tables.iter();
        tables.any(|table| {
            !table.lists.is_empty() || table.items.iter().any(|item| !item.links.is_empty())
        })
    }
}

/// A name is part of keys, of patterns and of hash tags: none of their characters is in it.
fn check_name(name: &str) -> anyhow::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    anyhow::ensure!(
        (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain),
        "name: \"{name}\" is not 1 to {MAX_NAME_BYTES} of A-Z, a-z, 0-9, _, -, . and :"
    );
    Ok(())
}

fn root_link((field, key): (String, String)) -> anyhow::Result<(String, String)> {
    let is_ours = ROOT_FIELDS.contains(&field.as_str());
    anyhow::ensure!(!is_ours, "root: the loader itself sets the field {field}");
    let mut columns = Vec::new();
    let template = Template::parse(&key, &mut columns).with_context(|| format!("root.{field}"))?;
    anyhow::ensure!(columns.is_empty(), "root.{field}: a root has no columns");
    Ok((field, template.text()))
}

/// The table of a name, made if it is not there.
fn table(tables: &mut Vec<TableMapping>, name: Option<String>) -> &mut TableMapping {
    let at = tables.iter().position(|table| table.name == name).unwrap_or_else(|| {
        let (columns, items, lists) = Default::default();
        tables.push(TableMapping { name, columns, items, lists });
        tables.len() - 1
    });
    &mut tables[at]
}

impl ItemSection {
    fn add_to(self, tables: &mut Vec<TableMapping>) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.fields.is_empty() || !self.links.is_empty(),
            "an item has a field or a link at least"
        );
        let twice = self.fields.keys().find(|name| self.links.contains_key(*name));
        if let Some(name) = twice {
            anyhow::bail!("{name} is a plain field and a link");
        }
        let TableMapping { columns, items, .. } = table(tables, self.from);
        let key = Template::parse(&self.key, columns).context("key")?;
        let field = |(name, section)| {
            let (column, kind) = match section {
                FieldSection::Column(column) => (column, ValueKind::Text),
                FieldSection::Typed(TypedColumn { column, kind }) => (column, kind),
            };
            FieldMapping { name, column: cell(columns, &column), kind }
        };
        let fields = self.fields.into_iter().map(field).collect();
        let link = |(name, target): (String, String)| {
            let target = Template::parse(&target, columns).with_context(|| name.clone())?;
            Ok((name, target))
        };
        let links = self.links.into_iter().map(link).collect::<anyhow::Result<_>>()?;
        items.push(ItemMapping { key, fields, links });
        Ok(())
    }
}

impl ListSection {
    fn add_to(self, tables: &mut Vec<TableMapping>) -> anyhow::Result<()> {
        let TableMapping { columns, lists, .. } = table(tables, self.from);
        let key = Template::parse(&self.key, columns).context("key")?;
        let link = Template::parse(&self.link, columns).context("link")?;
        let each = self.each.map(|each| cell(columns, &each));
        lists.push(ListMapping { key, link, each });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        name = "social"
        root = { first = "user:1" }
        [[items]]
        from = "users"
        key = "user:{id}"
        fields = { name = "name", age = { column = "years", type = "integer" } }
        links = { city = "city:{city}" }
        [[lists]]
        from = "users"
        key = "city:{city}:users"
        link = "user:{id}"
        [[lists]]
        from = "follows"
        key = "user:{from}:follows"
        link = "user:{to}"
    "#;

    #[test]
    fn sections_of_a_table_share_its_columns() {
        let mapping = Mapping::parse(GOOD).unwrap();
        assert_eq!(mapping.root, [("first".to_owned(), "user:1".to_owned())]);
        let [users, follows] = &mapping.tables[..] else { panic!("{mapping:?}") };
        assert_eq!(users.columns, ["id", "years", "name", "city"]);
        assert_eq!((users.items.len(), users.lists.len()), (1, 1));
        assert_eq!(follows.columns, ["from", "to"]);
        assert!(mapping.has_links());
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (old, new, told) in [
            ("name = \"social\"", "name = \"so cial\"", "\"so cial\" is not 1 to 64 of"),
            ("name = \"social\"", "name = \"a@1\"", "is not 1 to 64 of"),
            ("type = \"integer\"", "type = \"int\"", "column"),
            ("from = \"users\"", "form = \"users\"", "unknown field `form`"),
            ("name = \"name\"", "city = \"name\"", "city is a plain field and a link"),
            ("user:{id}", "user:{id", "items 1 (key \"user:{id\"): key: { has no }"),
            ("user:{to}", "user:to}", "lists 2 (key \"user:{from}:follows\"): link: } has no {"),
            ("first = \"user:1\"", "first = \"user:{id}\"", "root.first: a root has no columns"),
            ("first = ", "generation = ", "the loader itself sets the field generation"),
        ] {
            assert!(GOOD.contains(old), "{old}");
            let why = format!("{:#}", Mapping::parse(&GOOD.replacen(old, new, 1)).unwrap_err());
            assert!(why.contains(told), "{why}");
        }
        let why = Mapping::parse("name = \"a\"").unwrap_err().to_string();
        assert!(why.contains("neither"), "{why}");
        let why = Mapping::parse("name = \"a\"\n[[items]\n").unwrap_err().to_string();
        assert!(why.contains("line 2, column"), "{why}");
    }
}
