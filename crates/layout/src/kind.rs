//! What a record is: the byte `kind` of its header, under its checksum.
//!
//! ```text
//!  0 .. 31     records that a key names, by the type of the object
//!  32 .. 63    the same types: the object lies whole in its record
//!  64 .. 127   parts: records that no key names, found through their object
//!  128 ..      the same once more: the value has links ([`crate::link`])
//! ```
//! A small object lies whole in its record; a change replaces that record, as it replaces a
//! string's. A larger object has a root record, which stays. A reader demands the kind that it
//! expects. Without that check a reader could take a pointer to one kind of record for a pointer to
//! another: the name of a member may equal a key, and the id of a tree's object may equal
//! either.

/// The bit of a key's record that holds a whole object of a type.
const WHOLE: u8 = 32;

/// The bit of a record whose value has links.
const LINKED: u8 = 128;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Kind(pub u8);

impl Kind {
    /// A string: the record's value is the key's.
    pub const STRING: Self = Self(0);
    /// The root record of a hash.
    pub const HASH: Self = Self(1);
    /// The root record of a list.
    pub const LIST: Self = Self(2);
    /// The root record of a set.
    pub const SET: Self = Self(3);
    /// The root record of a sorted set.
    pub const SORTED_SET: Self = Self(4);
    /// The root record of a tree of places.
    pub const RTREE: Self = Self(5);
    /// The root record of a collection, and the records with the headers of its indexes.
    pub const COLLECTION: Self = Self(7);

    /// The root record of an ordered tree.
    pub const ORDERED: Self = Self(8);

    /// What a reader expects that takes the record of a key whatever its type; no record has it.
    pub const ANY: Self = Self(31);

    /// The place of a sorted set's member: its name and score, as its R-tree finds it.
    pub const SORTED_PLACE: Self = Self(64);
    /// Geometry and bytes of a tree's object.
    pub const OBJECT: Self = Self(65);
    /// A field of a hash.
    pub const HASH_FIELD: Self = Self(66);
    /// A chunk of a list's entries.
    pub const LIST_CHUNK: Self = Self(67);
    /// Some members of a set.
    pub const SET_PART: Self = Self(68);
    /// A value of an ordered tree that is too long for a leaf.
    pub const ORDERED_VALUE: Self = Self(69);
    /// Some members of a sorted set.
    pub const SORTED_PART: Self = Self(70);
    /// A document of a collection.
    pub const DOCUMENT: Self = Self(71);

    /// The name that users know for a key of this kind.
    pub const fn name(self) -> &'static str {
        match self.of_type() {
            Self::STRING => "string",
            Self::HASH => "hash",
            Self::LIST => "list",
            Self::SET => "set",
            Self::SORTED_SET => "zset",
            Self::RTREE => "rtree",
            Self::COLLECTION => "collection",
            Self::ORDERED => "ordered",
            _ => "none",
        }
    }

    /// The kind of a record that holds a whole object of this type.
    pub const fn whole(self) -> Self {
        Self(self.0 | WHOLE)
    }

    /// The type of the object that a key's record belongs to: the kind of its root records. For a
    /// part: the part's own kind.
    #[inline(always)]
    pub const fn of_type(self) -> Self {
        let plain = self.plain();
        if plain.is_part() { plain } else { Self(plain.0 & !WHOLE) }
    }

    /// The kind of such a record whose value has links.
    pub const fn linked(self) -> Self {
        Self(self.0 | LINKED)
    }

    /// Whether its value has links, and hints that no checksum covers.
    #[inline(always)]
    pub const fn has_links(self) -> bool {
        self.0 & LINKED != 0
    }

    /// The kind without a word about links: what a reader expects.
    #[inline(always)]
    pub const fn plain(self) -> Self {
        Self(self.0 & !LINKED)
    }

    /// Whether such a record is the root of an object: it has a state block.
    #[inline(always)]
    pub const fn is_root(self) -> bool {
        self.0 != Self::STRING.0 && self.0 < WHOLE
    }

    /// Whether such a record is a part of an object: no bucket names it.
    #[inline(always)]
    pub const fn is_part(self) -> bool {
        self.plain().0 >= 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_number_on_its_side() {
        let keyed = [
            Kind::STRING,
            Kind::HASH,
            Kind::LIST,
            Kind::SET,
            Kind::SORTED_SET,
            Kind::RTREE,
            Kind::COLLECTION,
            Kind::ORDERED,
        ];
        let parts = [
            Kind::SORTED_PLACE,
            Kind::OBJECT,
            Kind::HASH_FIELD,
            Kind::LIST_CHUNK,
            Kind::SET_PART,
            Kind::ORDERED_VALUE,
            Kind::SORTED_PART,
            Kind::DOCUMENT,
        ];
        assert!(keyed.iter().all(|kind| !kind.is_part() && kind.whole().of_type() == *kind));
        assert!(keyed.iter().all(|kind| !kind.whole().is_root() && !kind.whole().is_part()));
        assert!(parts.iter().all(|kind| kind.is_part() && !kind.is_root()));
        let all: std::collections::BTreeSet<u8> =
            keyed.iter().chain(&parts).map(|kind| kind.0).collect();
        assert_eq!(all.len(), keyed.len() + parts.len());
        for kind in keyed.iter().flat_map(|kind| [*kind, kind.whole()]).chain(parts) {
            let linked = kind.linked();
            assert!(linked.has_links() && !kind.has_links() && linked.plain() == kind);
            assert_eq!((linked.of_type(), linked.is_part()), (kind.of_type(), kind.is_part()));
            assert!(!linked.is_root(), "a root record's value is its state block");
        }
    }
}
