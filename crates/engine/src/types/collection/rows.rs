//! Documents as plans take them: their fields as texts.

use super::failure::{Failure, Refusal, code};
use super::held::Collections;
use crate::store::{Now, Store};
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, cstr, rawdoc};
use remora_arena::Journal;
use remora_document::from_json;
use remora_protocol::Items;

/// The text of a value: of a string the string, of another one its JSON.
fn push_text(list: &mut Vec<u8>, value: RawBsonRef<'_>) {
    match value {
        RawBsonRef::String(of) => Items::push(list, of.as_bytes()),
        value => {
            let value = Bson::try_from(value).unwrap_or(Bson::Null);
            Items::push(list, value.into_relaxed_extjson().to_string().as_bytes());
        }
    }
}

/// Appends the fields of a document.
fn push_fields(list: &mut Vec<u8>, document: &RawDocument) {
    let mut fields = Vec::new();
    for (name, value) in document.iter().flatten() {
        Items::push(&mut fields, name.as_str().as_bytes());
        push_text(&mut fields, value);
    }
    Items::push(list, &fields);
}

impl Collections {
    /// Some documents that match a filter; the reply's value goes into `reply`, and their number is given.
    pub(super) fn rows<J: Journal>(
        &self,
        store: &Store<J>,
        (root, now): (u32, Now),
        (filter, at, count): (&[u8], &[u8], u32),
        reply: &mut Vec<u8>,
    ) -> Result<i64, Refusal> {
        let filter = std::str::from_utf8(filter).map_err(|error| {
            Refusal::from(Failure::new(code::FAILED_TO_PARSE, error.to_string()))
        })?;
        let mut request = rawdoc! { "filter": from_json(filter)?, "limit": i64::from(count) };
        if !at.is_empty() {
            let at = Binary { subtype: BinarySubtype::Generic, bytes: at.to_vec() };
            request.append(cstr!("at"), at);
        }
        let mut found = Vec::new();
        let number = self.find(store, (Some(root), now), request.as_bytes(), &mut found)?;
        let mut items = Items::parse(&found).into_iter().flat_map(Items::iter).flatten();
        let head = items.next().and_then(|head| RawDocument::from_bytes(head).ok());
        let next = head.and_then(|head| head.get_binary("at").ok());
        Items::push(reply, next.map_or(&[], |next| next.bytes));
        let documents = items.filter_map(|document| RawDocument::from_bytes(document).ok());
        documents.for_each(|document| push_fields(reply, document));
        Ok(number)
    }
}
