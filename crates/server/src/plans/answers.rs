//! Answers to wants on their way between threads.
//!
//! ```text
//! answers   answer ...                           in the order of the wants
//! answer    what 1 | bytes 4 | body
//! body      0 GONE, 1 OTHER                      -
//!           2 TEXT                               the text
//!           3 NAMED                              the values of the wanted fields, as Items
//!           4 ALL                                names and values, as Items
//!           5 LIST                               total 8 | the elements, as Items
//!           6 OBJECTS                            next 8, 0 for none | for each object, as Items:
//!                                                its id, and the values of the wanted fields
//!           7 NO_MORE_NEAREST                    -
//!           8 ENTRIES                            1 if there may be more 1 | keys and values, as Items
//!           9 DOCUMENTS                          where the next step begins, and for each document its
//!                                                fields, as `split_rows` takes them
//! ```

use remora_layout::packed::Field;
use remora_plan::{Bytes, Fields, Given, Object, Value, Want};
use remora_protocol::Items;
use remora_protocol::collection::split_rows;

/// What an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum What {
    Gone,
    Other,
    Text,
    Named,
    All,
    List,
    Objects,
    NoMoreNearest,
    Entries,
    Documents,
}

const ALL: [What; 10] = [
    What::Gone,
    What::Other,
    What::Text,
    What::Named,
    What::All,
    What::List,
    What::Objects,
    What::NoMoreNearest,
    What::Entries,
    What::Documents,
];

/// Appends an answer with this body.
pub fn push(answers: &mut Vec<u8>, what: What, body: &[&[u8]]) {
    answers.push(what as u8);
    let bytes: usize = body.iter().map(|part| part.len()).sum();
    answers.extend_from_slice(&(bytes as u32).to_le_bytes());
    body.iter().for_each(|part| answers.extend_from_slice(part));
}

/// What an answer is, and its body.
type Answer<'a> = (What, &'a [u8]);

/// Takes the first answer.
pub fn split(answers: &[u8]) -> Option<(Answer<'_>, &[u8])> {
    let (&what, rest) = answers.split_first()?;
    let (&bytes, rest) = rest.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(u32::from_le_bytes(bytes) as usize)?;
    Some(((*ALL.get(usize::from(what))?, body), rest))
}

/// What is given for a want.
pub fn given(want: &Want, (what, body): (What, &[u8])) -> Option<Given> {
    Some(match (what, want) {
        (What::Gone, _) => Given::Gone,
        (What::Other, _) => Given::OtherType,
        (What::NoMoreNearest, _) => Given::NoMoreNearest,
        (What::Text, _) => Given::Text(body.into()),
        (What::Named, Want::Item { fields: Fields::Some(names), .. }) => {
            let values = Items::parse(body)?.fields();
            let pair = |(name, value): (_, Option<Field<'_>>)| Some((name, value_of(value?)));
            Given::Hash(names.iter().cloned().zip(values).filter_map(pair).collect())
        }
        (What::All, _) => Given::Hash(pairs_of(body)?),
        (What::Entries, _) => {
            let (goes_on, items) = body.split_first()?;
            Given::Entries { entries: pairs_of(items)?, goes_on: *goes_on == 1 }
        }
        (What::Documents, _) => {
            let (next, documents) = split_rows(body)?;
            let documents = documents.map(|fields| pairs_of(fields.bytes()));
            let next = (!next.is_empty()).then(|| next.into());
            Given::Documents { documents: documents.collect::<Option<_>>()?, next }
        }
        (What::List, _) => {
            let (total, items) = body.split_first_chunk()?;
            let elements = Items::parse(items)?.fields().flatten().map(value_of).collect();
            Given::List { elements, total: u64::from_le_bytes(*total) }
        }
        (What::Objects, Want::Objects { fields, .. }) => {
            let (next, items) = body.split_first_chunk()?;
            let mut items = Items::parse(items)?.iter();
            let mut objects = Vec::new();
            while let Some(id) = items.next() {
                let mut values = Vec::new();
                for name in fields.iter() {
                    if let Some(value) = items.next()? {
                        values.push((name.clone(), value.into()));
                    }
                }
                objects.push(Object { id: id?.into(), fields: values });
            }
            let next = (u64::from_le_bytes(*next) > 0).then(|| (*next).into());
            Given::Objects { objects, next }
        }
        _ => return None,
    })
}

/// Names, or keys, with their values.
fn pairs_of(items: &[u8]) -> Option<Vec<(Bytes, Value)>> {
    let mut items = Items::parse(items)?.fields();
    let mut pairs = Vec::new();
    while let Some(name) = items.next() {
        pairs.push((name?.value.into(), value_of(items.next()??)));
    }
    Some(pairs)
}

/// A link has no hint here: the owner of its target looks that up by its key.
fn value_of(field: Field<'_>) -> Value {
    match field.is_link {
        true => Value::Link { key: field.value.into(), hint: None },
        false => Value::Plain(field.value.into()),
    }
}
