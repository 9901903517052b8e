//! A row on its way through the steps, and the item at which it stands.

use crate::limits::{MAX_PLAN_KEY_BYTES, REMEMBERED_UNIT_BYTES};
use crate::outcome::{Column, Explain, Skipped};
use crate::plan::Bytes;
use crate::want::{Given, LinkPlace, Place, Value};
use hashbrown::HashTable;
use remora_layout::hash::checksum;
use std::sync::Arc;

/// A row. Rows that came from the same item share their columns' texts.
#[derive(Clone, Debug)]
pub(super) struct Row {
    columns: Vec<Column>,
    /// What the columns count for the limit of bytes.
    column_bytes: u64,
    /// The level at which the last walk found the item to which, or from which, it came.
    pub level: u32,
    pub item: Item,
}

/// The item of a row, and its content once it was fetched.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub place: Place,
    pub content: Option<Arc<Content>>,
}

/// What an item holds.
#[derive(Debug)]
pub(super) struct Content {
    kind: Kind,
    bytes: usize,
}

#[derive(Debug)]
enum Kind {
    /// In the order of the names.
    Hash(Vec<(Bytes, Value)>),
    Text(Bytes),
}

impl Row {
    /// A row without columns.
    pub fn at(item: Item) -> Self {
        Self { columns: Vec::new(), column_bytes: 0, level: 0, item }
    }

    /// A row with the same columns at another item.
    pub fn moved(&self, item: Item) -> Self {
        let (columns, level) = (self.columns.clone(), self.level);
        Self { columns, column_bytes: self.column_bytes, level, item }
    }

    pub fn push(&mut self, column: Column) {
        self.column_bytes += column.bytes();
        self.columns.push(column);
    }

    /// Its columns, and what they count for the limit of bytes.
    pub fn into_columns(self) -> (Vec<Column>, u64) {
        (self.columns, self.column_bytes)
    }

    /// Bytes that it holds, shared ones too.
    pub fn bytes(&self) -> usize {
        let content = self.item.content.as_ref().map_or(0, |content| content.bytes);
        self.column_bytes as usize + content
    }
}

impl Item {
    /// The item of a key to which no link led; `None` if it is too long for a key.
    pub fn of_key(key: Bytes) -> Option<Self> {
        let place = Place { key, hint: None, link: None };
        (place.key.len() <= MAX_PLAN_KEY_BYTES).then_some(Self { place, content: None })
    }

    /// The item to which a value leads, or why it leads to none. `link`: where it stands, if a link that
    /// stands there can be mended.
    pub fn behind(value: &Value, by_key: bool, link: Option<LinkPlace>) -> Result<Self, Explain> {
        let skipped = |skipped| Explain { skipped, ..Explain::default() };
        let not_a_key = || skipped(Skipped { not_a_key: 1, ..Skipped::default() });
        match value {
            Value::Link { key, hint } => {
                let mut item = Self::of_key(key.clone()).ok_or_else(not_a_key)?;
                // A hint that nobody can mend is not followed.
                (item.place.hint, item.place.link) = (hint.filter(|_| link.is_some()), link);
                Ok(item)
            }
            Value::Plain(key) if by_key => Self::of_key(key.clone()).ok_or_else(not_a_key),
            Value::Plain(_) => Err(skipped(Skipped { not_a_link: 1, ..Skipped::default() })),
        }
    }
}

impl Content {
    /// The content that was given; otherwise why there is none.
    pub fn of(given: Given) -> Result<Self, Explain> {
        match given {
            Given::Hash(mut fields) => {
                fields.sort_by(|(one, _), (other, _)| one.cmp(other));
                let bytes = |(name, value): &(Bytes, Value)| name.len() + value.text().len();
                let bytes = fields.iter().map(bytes).sum();
                Ok(Self { kind: Kind::Hash(fields), bytes })
            }
            Given::Text(text) => Ok(Self { bytes: text.len(), kind: Kind::Text(text) }),
            other => Err(refusal(&other)),
        }
    }

    /// A field; a string has none.
    pub fn field(&self, name: &[u8]) -> Option<&Value> {
        let fields = self.fields();
        let at = fields.binary_search_by(|(other, _)| (**other).cmp(name)).ok()?;
        Some(&fields[at].1)
    }

    /// All fields, in the order of their names; a string has none.
    pub fn fields(&self) -> &[(Bytes, Value)] {
        match &self.kind {
            Kind::Hash(fields) => fields,
            Kind::Text(_) => &[],
        }
    }

    /// All of it as a column.
    pub fn column(&self) -> Column {
        match &self.kind {
            Kind::Text(text) => Column::Text(text.clone()),
            Kind::Hash(fields) => {
                let pair = |(name, value): &(Bytes, Value)| (name.clone(), value.text().clone());
                Column::Fields(fields.iter().map(pair).collect())
            }
        }
    }
}

/// Counts an answer that is not what was wanted.
pub(super) fn refusal(given: &Given) -> Explain {
    let is_gone = matches!(given, Given::Gone);
    let skipped =
        Skipped { gone: u64::from(is_gone), other_type: u64::from(!is_gone), ..Skipped::default() };
    Explain { skipped, ..Explain::default() }
}

/// Keys that a step remembers.
#[derive(Debug)]
pub(super) struct Remembered {
    /// The keys with their hashes.
    keys: HashTable<(u64, Bytes)>,
    seed: u64,
    /// What they count.
    count: u64,
    most: u64,
}

/// Whether a key was remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meeting {
    New,
    Before,
    /// It is new, and the limit is reached.
    Full,
}

impl Remembered {
    /// Remembers keys that count `most` together.
    pub fn new(most: u64, seed: u64) -> Self {
        Self { keys: HashTable::new(), seed, count: 0, most }
    }

    /// Remembers a new key that does not count.
    pub fn insert(&mut self, key: Bytes) {
        let hash = checksum(&key, self.seed);
        self.keys.insert_unique(hash, (hash, key), |(hash, _)| *hash);
    }

    /// Remembers a key if it is new.
    pub fn meet(&mut self, key: &Bytes) -> Meeting {
        let hash = checksum(key, self.seed);
        if self.keys.find(hash, |known| known.0 == hash && known.1 == *key).is_some() {
            return Meeting::Before;
        }
        if !self.count(key) {
            return Meeting::Full;
        }
        self.keys.insert_unique(hash, (hash, key.clone()), |(hash, _)| *hash);
        Meeting::New
    }

    /// Counts a key that the step keeps otherwise. False: the limit is reached.
    pub fn count(&mut self, key: &Bytes) -> bool {
        self.count += 1 + (key.len() / REMEMBERED_UNIT_BYTES) as u64;
        self.count <= self.most
    }
}
