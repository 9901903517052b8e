//! Items of the applications (KELI 3.2; K1, K14): a key, and fields of which some name the keys of
//! other items. Stored as a hash with links, or as the same bytes under a key (K23).
//!
//! Both forms are the packed fields of [`remora_layout::packed`]; a hash has a hint for each of its
//! links behind them.

use remora_client_core::{FieldValue, HashContent, HashFields, Link, LinkAt, LinkPlace};
use remora_layout::packed::{self, Field};
use std::sync::Arc;

/// How items are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Hashes, whose links are links.
    Links,
    /// Strings of packed fields, whose links are plain names of keys: the baseline (K23).
    Keys,
}

/// An item to be stored.
#[derive(Clone, Default, Debug)]
pub struct NewItem {
    key: Vec<u8>,
    packed: Vec<u8>,
}

impl NewItem {
    /// Begins an item of this key; the fields follow.
    pub fn begin(&mut self, key: &str) {
        self.key.clear();
        self.key.extend_from_slice(key.as_bytes());
        self.packed.clear();
    }

    /// Adds a field that is no link.
    pub fn plain(&mut self, name: &str, value: &[u8]) {
        packed::push(&mut self.packed, name.as_bytes(), Field::plain(value));
    }

    /// Adds a field that links to a key.
    pub fn link(&mut self, name: &str, target: &str) {
        let field = Field { value: target.as_bytes(), is_link: true };
        packed::push(&mut self.packed, name.as_bytes(), field);
    }

    /// Its key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Its fields, packed.
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }
}

/// An item that was fetched.
#[derive(Clone, Copy, Debug)]
pub enum Item<'v> {
    /// Packed fields, of the form with keys.
    Packed(&'v [u8]),
    /// A hash.
    Hash(HashContent<'v>),
}

/// A field of an item.
#[derive(Clone, Copy, Debug)]
pub struct ItemField<'v> {
    /// Its name.
    pub name: &'v [u8],
    /// Its value: of a link the key of the target.
    pub value: &'v [u8],
    /// Whether it is a link.
    pub is_link: bool,
    hint: Option<u64>,
}

impl ItemField<'_> {
    /// The link, which stands in the item of this key.
    pub fn link(&self, holder: &Arc<[u8]>) -> Link {
        self.link_named(holder, self.name.into())
    }

    /// The same, with the field's name as it is already known.
    #[inline]
    pub fn link_named(&self, holder: &Arc<[u8]>, name: Arc<[u8]>) -> Link {
        let at = LinkAt::Field(name);
        let link = Some(LinkPlace { key: Arc::clone(holder), at });
        Link { key: self.value.into(), hint: self.hint, link }
    }
}

impl<'v> Item<'v> {
    /// The fields, in no order.
    #[inline]
    pub fn fields(&self) -> ItemFields<'v> {
        match *self {
            Self::Packed(packed) => ItemFields::Packed(packed::fields(packed)),
            Self::Hash(hash) => ItemFields::Hash(hash.iter()),
        }
    }

    /// A field's value.
    pub fn field(&self, name: &[u8]) -> Option<&'v [u8]> {
        self.fields().find(|field| field.name == name).map(|field| field.value)
    }
}

/// See [`Item::fields`].
#[derive(Debug)]
pub enum ItemFields<'v> {
    /// Of packed fields.
    Packed(packed::Fields<'v>),
    /// Of a hash.
    Hash(HashFields<'v>),
}

impl<'v> Iterator for ItemFields<'v> {
    type Item = ItemField<'v>;

    #[inline]
    fn next(&mut self) -> Option<ItemField<'v>> {
        Some(match self {
            Self::Packed(fields) => {
                let (name, Field { value, is_link }) = fields.next()?;
                ItemField { name, value, is_link, hint: None }
            }
            Self::Hash(fields) => {
                let (name, FieldValue { value, is_link, hint, .. }) = fields.next()?;
                ItemField { name, value, is_link, hint }
            }
        })
    }
}

/// The link by which an application begins: a key that it knows.
pub fn known(key: &str) -> Link {
    Link { key: key.as_bytes().into(), hint: None, link: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_its_fields_and_says_where_its_links_stand() {
        let (mut new, holder) = (NewItem::default(), Arc::from(&b"user:7"[..]));
        new.begin("user:7");
        new.plain("name", b"n");
        new.link("boss", "user:1");
        new.link("friend", "user:2");
        let item = Item::Packed(new.packed());
        assert_eq!(item.field(b"friend"), Some(&b"user:2"[..]));
        assert_eq!((item.field(b"name"), item.field(b"nothing")), (Some(&b"n"[..]), None));
        let links: Vec<Link> =
            item.fields().filter(|field| field.is_link).map(|field| field.link(&holder)).collect();
        let at =
            |name: &[u8]| Some(LinkPlace { key: holder.clone(), at: LinkAt::Field(name.into()) });
        assert_eq!((&links[0].key[..], &links[0].link), (&b"user:1"[..], &at(b"boss")));
        assert_eq!((&links[1].key[..], &links[1].link), (&b"user:2"[..], &at(b"friend")));
    }
}
