//! What a step does with one row.

use super::documents::Documents;
use super::each::Each;
use super::objects::Search;
use super::range::Entries;
use super::row::{Content, Item, Meeting, Remembered, Row};
use super::rows::{Fetch, Nested, Next, Output, Taken, skip};
use crate::outcome::{Column, Explain, Limit, Skipped};
use crate::plan::{Bytes, Condition};
use crate::want::{Fields, LinkAt, LinkPlace, Want};

/// A step's work, with its state.
#[derive(Debug)]
pub(super) enum Work {
    /// Hands on the keys of the start.
    Pass,
    Content(ContentWork),
    Each(Each),
    Entries(Entries),
    Documents(Documents),
    Objects(Box<Search>),
    Walk(Box<dyn Nested>),
    Suffix(Bytes),
    GetKey,
    GetLevel,
    Once(Remembered),
    /// So many rows are still dropped.
    Skip(u64),
    /// So many rows still pass.
    Take(u64),
}

/// Work with the content of the row's item.
#[derive(Debug)]
pub(super) struct ContentWork {
    pub act: Act,
    /// What this and the next steps use of the item.
    pub fields: Fields,
}

/// What to do with it.
#[derive(Debug)]
pub(super) enum Act {
    Where(Condition),
    Get(Vec<Bytes>),
    GetAll,
    Follow {
        field: Bytes,
        by_key: bool,
    },
    /// `next`: the field of the first waiting row that is taken next.
    Fields {
        by_key: bool,
        next: usize,
    },
}

impl Work {
    /// Takes the first waiting row. The output has room for one.
    pub fn take(&mut self, mut row: Row, fetch: &mut Fetch, out: &mut dyn Output) -> Taken {
        match self {
            Self::Content(work) => return work.take(row, out),
            Self::Each(each) => return each.take(row, fetch, out),
            Self::Entries(entries) => return entries.take(row, fetch, out),
            Self::Documents(documents) => return documents.take(row, fetch, out),
            Self::Objects(search) => return search.take(row, fetch, out),
            Self::Walk(walk) => return walk.take(row, out),
            Self::Once(remembered) => return once(remembered, row, out),
            Self::Skip(left) if *left > 0 => {
                *left -= 1;
                return Taken::Done;
            }
            Self::Take(left) => {
                *left -= 1;
                out.push(Next::Row(row));
                return if *left == 0 { Taken::Stop } else { Taken::Done };
            }
            Self::Suffix(suffix) => {
                let key = [&row.item.place.key[..], suffix].concat();
                let Some(item) = Item::of_key(key.into()) else {
                    skip(out, Skipped { not_a_key: 1, ..Skipped::default() });
                    return Taken::Done;
                };
                row.item = item;
            }
            Self::GetKey => row.push(Column::Text(row.item.place.key.clone())),
            Self::GetLevel => row.push(Column::Text(row.level.to_string().into_bytes().into())),
            Self::Pass | Self::Skip(_) => {}
        }
        out.push(Next::Row(row));
        Taken::Done
    }

    /// What it needs to take a row, the first one or another.
    pub fn want(&self, row: &Row, is_first: bool) -> Option<Want> {
        match self {
            Self::Content(work) => work.want(row),
            Self::Each(each) => each.want(row, is_first),
            Self::Entries(entries) => entries.want(row, is_first),
            Self::Documents(documents) => documents.want(row, is_first),
            Self::Objects(search) => search.want(),
            _ => None,
        }
    }

    /// As [`super::stage::Stage::held`], of the state within.
    pub fn held(&self) -> (u64, usize) {
        match self {
            Self::Walk(walk) => walk.held(),
            _ => (0, 0),
        }
    }
}

impl ContentWork {
    fn take(&mut self, mut row: Row, out: &mut dyn Output) -> Taken {
        let Some(content) = row.item.content.clone() else {
            return Taken::Back { row, moved: false };
        };
        let text = |name: &Bytes| content.field(name).map(|value| value.text());
        match &mut self.act {
            Act::Fields { by_key, next } => return fields(*by_key, next, (row, &content), out),
            Act::Where(condition) => {
                if !condition.holds(text(&condition.field).map(|text| &**text)) {
                    skip(out, Skipped { filtered: 1, ..Skipped::default() });
                    return Taken::Done;
                }
            }
            Act::Get(names) => {
                let column = |name| text(name).cloned().map_or(Column::Nil, Column::Text);
                names.iter().map(column).for_each(|column| row.push(column));
            }
            Act::GetAll => row.push(content.column()),
            Act::Follow { field, by_key } => {
                let Some(value) = content.field(field) else {
                    skip(out, Skipped { missing_field: 1, ..Skipped::default() });
                    return Taken::Done;
                };
                let at = LinkAt::Field(field.clone());
                let link = LinkPlace { key: row.item.place.key.clone(), at };
                match Item::behind(value, *by_key, Some(link)) {
                    Ok(item) => row.item = item,
                    Err(skipped) => {
                        out.charge(&skipped);
                        return Taken::Done;
                    }
                }
                out.charge(&Explain { hops: 1, ..Explain::default() });
            }
        }
        out.push(Next::Row(row));
        Taken::Done
    }

    fn want(&self, row: &Row) -> Option<Want> {
        let is_needed = row.item.content.is_none();
        let fields = || self.fields.clone();
        is_needed.then(|| Want::Item { place: row.item.place.clone(), fields: fields() })
    }
}

/// A row for each field that is a link, from the next one on.
fn fields(
    by_key: bool,
    next: &mut usize,
    (row, content): (Row, &Content),
    out: &mut dyn Output,
) -> Taken {
    let mut moved = false;
    while out.has_room() {
        let Some((name, value)) = content.fields().get(*next) else {
            *next = 0;
            return Taken::Done;
        };
        *next += 1;
        moved = true;
        let at = LinkAt::Field(name.clone());
        let link = LinkPlace { key: row.item.place.key.clone(), at };
        match Item::behind(value, by_key, Some(link)) {
            Err(skipped) => out.charge(&Explain { elements: 1, ..skipped }),
            Ok(item) => {
                out.charge(&Explain { elements: 1, hops: 1, ..Explain::default() });
                out.push(Next::Row(row.moved(item)));
            }
        }
    }
    Taken::Back { row, moved }
}

fn once(remembered: &mut Remembered, row: Row, out: &mut dyn Output) -> Taken {
    match remembered.meet(&row.item.place.key) {
        Meeting::New => out.push(Next::Row(row)),
        Meeting::Before => skip(out, Skipped { met_before: 1, ..Skipped::default() }),
        Meeting::Full => {
            out.push(Next::End(Limit::Remembered));
            return Taken::Stop;
        }
    }
    Taken::Done
}
