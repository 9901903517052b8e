//! What a link leads to, as bytes that the session holds.

use remora_layout::chain::{Entry, TextBuffer, encoded};
use remora_layout::kind::Kind;
use remora_layout::link::Linked;
use remora_layout::packed::{self, Field};
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_plan::{LinkAt, LinkPlace, Place as Link, Value};
use remora_protocol::Items;

/// What the key of a link holds.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'s> {
    /// A hash.
    Hash(HashContent<'s>),
    /// A string.
    Text(&'s [u8]),
    /// Nothing. Only the owner of the key says so.
    Gone,
    /// An object of another type.
    OtherType,
}

/// All fields of a hash, as they were at one moment.
#[derive(Clone, Copy, Debug)]
pub struct HashContent<'s> {
    key: &'s [u8],
    fields: Encoded<'s>,
}

#[derive(Clone, Copy, Debug)]
enum Encoded<'s> {
    /// Of a record; the hints of its links.
    Packed(&'s [u8], Option<Linked<'s>>),
    /// Of a reply: names and values in turn, without hints.
    Items(&'s [u8]),
}

/// A field's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FieldValue<'s> {
    /// Its bytes: of a link the key that it names.
    pub value: &'s [u8],
    /// Whether it is a link.
    pub is_link: bool,
    /// Of a link: where the record of its target lay, if that is known.
    pub hint: Option<u64>,
}

impl<'s> FieldValue<'s> {
    #[inline]
    fn of(field: Field<'s>, hint: u64) -> Self {
        let Field { value, is_link } = field;
        Self { value, is_link, hint: (is_link && hint != 0).then_some(hint) }
    }

    /// The link that it is, if it is one, in this field of the hash at this key, as it was read there.
    pub(crate) fn link(self, key: &[u8], name: &[u8]) -> Option<Link> {
        let at = LinkPlace { key: key.into(), at: LinkAt::Field(name.into()) };
        self.without_place().map(|link| Link { link: Some(at), ..link })
    }

    /// The same of an answer, which tells no hints: none of them is known to be stale.
    pub(crate) fn without_place(self) -> Option<Link> {
        let Self { value, is_link, hint } = self;
        is_link.then(|| Link { key: value.into(), hint, link: None })
    }
}

impl<'s> From<Field<'s>> for FieldValue<'s> {
    fn from(field: Field<'s>) -> Self {
        Self::of(field, 0)
    }
}

impl From<FieldValue<'_>> for Value {
    fn from(field: FieldValue<'_>) -> Self {
        let FieldValue { value, is_link, hint } = field;
        match is_link {
            true => Self::Link { key: value.into(), hint },
            false => Self::Plain(value.into()),
        }
    }
}

impl<'s> HashContent<'s> {
    /// The fields of a reply that has all of them.
    pub(crate) fn of_items(key: &'s [u8], items: &'s [u8]) -> Self {
        Self { key, fields: Encoded::Items(items) }
    }

    /// The hash's key.
    pub fn key(&self) -> &'s [u8] {
        self.key
    }

    /// Names and values, each name once, in no order.
    #[inline]
    pub fn iter(&self) -> HashFields<'s> {
        let (packed, linked, items) = match self.fields {
            Encoded::Packed(packed, linked) => (packed, linked, &[][..]),
            Encoded::Items(items) => (&[][..], None, items),
        };
        HashFields { packed: packed::fields(packed), linked, links: 0, items }
    }

    /// The value of a field.
    pub fn get(&self, name: &[u8]) -> Option<FieldValue<'s>> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The link in a field; none if the field is not there, or no link.
    pub fn link(&self, name: &[u8]) -> Option<Link> {
        let field = self.get(name)?;
        match self.fields {
            Encoded::Packed(..) => field.link(self.key, name),
            Encoded::Items(_) => field.without_place(),
        }
    }
}

/// See [`HashContent::iter`].
#[derive(Clone, Debug)]
pub struct HashFields<'s> {
    /// Of a record; else empty.
    packed: packed::Fields<'s>,
    linked: Option<Linked<'s>>,
    /// Links so far.
    links: usize,
    /// Of a reply; else empty.
    items: &'s [u8],
}

impl<'s> Iterator for HashFields<'s> {
    type Item = (&'s [u8], FieldValue<'s>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some((name, field)) = self.packed.next() {
            let hint =
                self.linked.filter(|_| field.is_link).map_or(0, |linked| linked.hint(self.links));
            self.links += usize::from(field.is_link);
            return Some((name, FieldValue::of(field, hint)));
        }
        let (name, after) = Items::split(self.items)?;
        let (field, after) = Items::split_field(after)?;
        self.items = after;
        Some((name?, FieldValue::of(field?, 0)))
    }
}

/// The elements of encoded entries.
pub(crate) fn values_of(entries: &[u8]) -> Vec<Value> {
    let mut buffer = TextBuffer::default();
    let all = encoded(entries).filter_map(Entry::split);
    let value = |(entry, _): (Entry<'_>, _)| match entry {
        Entry::Link { key, hint } => {
            Value::Link { key: key.into(), hint: (hint != 0).then_some(hint) }
        }
        plain => Value::Plain(plain.text(&mut buffer).into()),
    };
    all.map(value).collect()
}

/// What a whole record of a key holds, which has been verified. `None`: the object has parts.
pub(crate) fn target_of(kind: Kind, key_bytes: usize, record: &[u8]) -> Option<Target<'_>> {
    let (header, value) = record.split_at(RECORD_HEADER_BYTES + key_bytes);
    let linked = kind.has_links().then(|| Linked::of(value)).flatten();
    let text = linked.map_or(value, |linked| linked.text);
    const WHOLE_HASH: Kind = Kind::HASH.whole();
    match kind.plain() {
        Kind::STRING => Some(Target::Text(text)),
        WHOLE_HASH => {
            let fields = Encoded::Packed(text, linked);
            Some(Target::Hash(HashContent { key: &header[RECORD_HEADER_BYTES..], fields }))
        }
        Kind::HASH => None,
        _ => Some(Target::OtherType),
    }
}

/// The value of a field in the verified record that holds it: a part, or the whole hash.
pub(crate) fn field_of<'b>(
    kind: Kind,
    key_bytes: usize,
    record: &'b [u8],
    name: &[u8],
) -> Option<FieldValue<'b>> {
    if !kind.is_part() {
        let Target::Hash(content) = target_of(kind, key_bytes, record)? else { return None };
        return content.get(name);
    }
    let value = &record[RECORD_HEADER_BYTES + key_bytes..];
    let linked = kind.has_links().then(|| Linked::of(value)).flatten();
    Some(match linked {
        Some(linked) => FieldValue::of(Field { value: linked.text, is_link: true }, linked.hint(0)),
        None => FieldValue::of(Field::plain(value), 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_layout::link;

    /// A record as READs bring it: what stands in its header does not matter here.
    fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
        [&[0; RECORD_HEADER_BYTES][..], key, value].concat()
    }

    fn linked(key: &[u8], text: &[u8], hints: &[u64]) -> Vec<u8> {
        let mut value = Vec::new();
        link::make(&mut value, RECORD_HEADER_BYTES + key.len(), text, hints);
        record(key, &value)
    }

    #[test]
    fn each_link_of_a_whole_hash_has_its_own_hint() {
        let mut text = Vec::new();
        packed::push(&mut text, b"boss", Field { value: b"user:1", is_link: true });
        packed::push(&mut text, b"name", Field::plain(b"Ada"));
        packed::push(&mut text, b"team", Field { value: b"team:9", is_link: true });
        packed::push(&mut text, b"city", Field { value: b"city:3", is_link: true });
        let bytes = linked(b"user:7", &text, &[11, 0, 33]);
        let kind = Kind::HASH.whole().linked();
        let Some(Target::Hash(hash)) = target_of(kind, 6, &bytes) else { panic!() };
        let hints = hash.iter().map(|(_, field)| (field.is_link, field.hint));
        let expected = [(true, Some(11)), (false, None), (true, None), (true, Some(33))];
        assert_eq!(hints.collect::<Vec<_>>(), expected);
        assert_eq!(hash.get(b"name").unwrap().value, b"Ada");
        let boss = hash.link(b"boss").unwrap();
        let at = LinkAt::Field(b"boss"[..].into());
        assert_eq!(boss.link, Some(LinkPlace { key: b"user:7"[..].into(), at }));
        assert_eq!((&*boss.key, boss.hint), (&b"user:1"[..], Some(11)));
        assert_eq!((hash.link(b"name"), hash.link(b"else")), (None, None));
        assert_eq!(field_of(kind, 6, &bytes, b"city"), hash.get(b"city"));
    }

    #[test]
    fn a_part_is_one_field_and_a_root_has_none() {
        let kind = Kind::HASH_FIELD.linked();
        let bytes = linked(b"boss", b"user:1", &[5]);
        let field = field_of(kind, 4, &bytes, b"boss").unwrap();
        assert_eq!((field.value, field.is_link, field.hint), (&b"user:1"[..], true, Some(5)));
        let plain = record(b"boss", b"user:1");
        let field = field_of(Kind::HASH_FIELD, 4, &plain, b"boss").unwrap();
        assert_eq!((field.value, field.is_link, field.hint), (&b"user:1"[..], false, None));
        assert!(target_of(Kind::HASH, 4, &plain).is_none());
        assert!(matches!(target_of(Kind::LIST, 4, &plain), Some(Target::OtherType)));
        assert!(matches!(target_of(Kind::STRING, 4, &plain), Some(Target::Text(b"user:1"))));
    }

    #[test]
    fn fields_of_a_reply_have_marks_and_no_hints() {
        let mut list = Vec::new();
        Items::push(&mut list, b"boss");
        Items::push_field(&mut list, Field { value: b"user:1", is_link: true });
        Items::push(&mut list, b"name");
        Items::push(&mut list, b"Ada");
        let hash = HashContent::of_items(b"user:7", &list);
        assert_eq!(hash.iter().count(), 2);
        let boss = hash.link(b"boss").unwrap();
        assert_eq!((&*boss.key, boss.hint, boss.link), (&b"user:1"[..], None, None));
        assert_eq!((hash.link(b"name"), hash.key()), (None, &b"user:7"[..]));
    }
}
