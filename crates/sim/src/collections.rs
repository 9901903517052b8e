//! Collections in a world: a seed's choices for them, and their documents.
//!
//! Documents of a collection are registers, as fields of a hash are. The number of one is in the document, and
//! so are an indexed group and indexed tags, which follow from the number: a search for a group is judged as
//! a look at a range of numbers.

use crate::values::{HashName, Lengths, Register, encode};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, cstr, rawdoc};
use remora_document::encode_id;
use remora_fabric::sim::Random;
use std::ops::RangeInclusive;

/// Mixed into the seed: the draws for collections change no other draws.
const SALT: u64 = 0x636f_6c6c_6563_7421;
/// Operations of a world with collections at most.
pub const COLLECTION_OPERATIONS: u64 = 1_500;
/// Bytes of each arena at least: there are three trees beside that of the `_id`s.
pub const COLLECTION_ARENA_BYTES: usize = 4 << 20;
/// Numbers of two groups differ by this at least.
const GROUP_UNIT: i64 = 1_000_000_000_000;
/// A document's second tag is its group and this.
const TAG: i64 = 1_000;
/// Documents beside the judged ones have numbers below: more than are indexed in one step.
pub const FILLERS: u64 = 1_000;

/// The indexes that clients make and drop: their names, the indexed field, and whether they are unique.
pub const INDEXES: [(&str, &str, bool); 3] =
    [("g_1", "g", false), ("t_1", "t", false), ("n_1", "n", true)];

/// A seed's choice of collections.
#[derive(Clone, Copy, Debug)]
pub struct CollectionSwarm {
    /// Collections of each database.
    pub collections: u8,
    /// Documents of a collection have numbers below.
    pub documents: u32,
    /// Groups of documents.
    pub groups: u64,
    /// How long values are.
    pub lengths: Lengths,
    /// Documents of one insertion at most.
    pub most_at_once: u64,
    /// For so many ns clients mostly add documents, and then mostly remove them for the same time.
    pub tide_ns: u64,
    /// How many of a hundred operations are about collections.
    pub percent: u64,
    /// How many of a hundred operations on a collection make or drop an index.
    pub indexing_percent: u64,
    /// Operations, of a thousand on a collection, that remove it or let it expire.
    pub ends: u64,
}

impl CollectionSwarm {
    /// A seed's draw.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        Self {
            collections: one_of([1, 1, 2, 3]) as u8,
            documents: one_of([4, 20, 60, 150]) as u32,
            groups: one_of([1, 4, 20, 100]),
            lengths: Lengths { most_bytes: one_of([0, 20, 200, 1_000]), one_for_each_key: false },
            most_at_once: one_of([1, 4, 20, 40]),
            tide_ns: one_of([200_000, 2_000_000, 50_000_000, 2_000_000_000]),
            percent: one_of([50, 70, 90, 90]),
            indexing_percent: one_of([2, 5, 5, 15]),
            ends: one_of([0, 3, 10, 30]),
        }
    }
}

/// The number of a document in a group that no document had.
pub fn number_in(group: u64, new: i64) -> i64 {
    group as i64 * GROUP_UNIT + new
}

/// The numbers of the documents of some groups.
pub fn numbers_of(groups: &RangeInclusive<u64>) -> RangeInclusive<i64> {
    let (first, last) = (*groups.start() as i64, *groups.end() as i64);
    first * GROUP_UNIT..=last * GROUP_UNIT + (GROUP_UNIT - 1)
}

/// The filter of some groups: of one by its tag, or by a range of groups.
pub fn filter_of(groups: &RangeInclusive<u64>, by_tag: bool) -> RawDocumentBuf {
    let (first, last) = (*groups.start() as i64, *groups.end() as i64);
    match (by_tag, first == last) {
        (true, true) => rawdoc! { "t": first + TAG },
        // Without it one tag might be above the first bound, and the other one below the second.
        (true, false) => {
            rawdoc! { "t": { "$elemMatch": { "$gte": first + TAG, "$lte": last + TAG } } }
        }
        (false, true) => rawdoc! { "g": first },
        (false, false) => rawdoc! { "g": { "$gte": first, "$lte": last } },
    }
}

/// The `_id` of a document.
pub fn id_of(document: Register) -> i32 {
    document.number as i32
}

/// The name of a document's record.
pub fn record_name(id: i32) -> Vec<u8> {
    encode_id(RawBsonRef::Int32(id)).expect("a number is an _id")
}

/// The fields of a document that stands for a number, all but its `_id`.
pub fn fields(document: Register, number: i64, lengths: Lengths) -> RawDocumentBuf {
    let group = number.div_euclid(GROUP_UNIT);
    let mut fields = rawdoc! { "g": group, "n": number, "t": [group, group + TAG, group + TAG] };
    let bytes = encode(document, number, lengths);
    fields.append(cstr!("v"), Binary { subtype: BinarySubtype::Generic, bytes });
    fields
}

/// The document that stands for a number.
pub fn document(of: Register, number: i64, lengths: Lengths) -> RawDocumentBuf {
    let mut made = rawdoc! { "_id": id_of(of) };
    for (name, value) in fields(of, number, lengths).iter().flatten() {
        made.append(name, value);
    }
    made
}

/// A document that no search is to find.
pub fn filler(number: u64) -> RawDocumentBuf {
    let number = number as i64;
    rawdoc! { "_id": format!("filler:{number}"), "g": -1_i64, "n": -1 - number, "t": -1_i64 }
}

/// The number that a document stands for; `None` if no client wrote it.
pub fn number_of(of: Register, found: &RawDocument, lengths: Lengths) -> Option<i64> {
    let number = found.get_i64("n").ok()?;
    (document(of, number, lengths).as_bytes() == found.as_bytes()).then_some(number)
}

/// The register of a document that was found; `None` if no client adds such a document.
pub fn register_found(
    database: u8,
    collection: HashName,
    found: &RawDocument,
    below: u32,
) -> Option<Register> {
    let number = u32::try_from(found.get_i32("_id").ok()?).ok().filter(|number| *number < below)?;
    Some(Register { database, hash: Some(collection), number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_tells_its_number_and_is_in_its_group() {
        let lengths = Lengths { most_bytes: 50, one_for_each_key: false };
        let register =
            |number| Register { database: 1, hash: Some(HashName::Collection(2)), number };
        for (at, group) in [(0, 0), (1, 0), (5, 7), (18, 99)] {
            let number = number_in(group, 3_000_000);
            let made = document(register(at), number, lengths);
            assert_eq!(number_of(register(at), &made, lengths), Some(number));
            assert_eq!(number_of(register(at + 2), &made, lengths), None);
            assert!(numbers_of(&(group..=group)).contains(&number));
            assert!(!numbers_of(&(group + 1..=group + 2)).contains(&number));
            assert_eq!(register_found(1, HashName::Collection(2), &made, 19), Some(register(at)));
            assert_eq!(register_found(1, HashName::Collection(2), &made, at), None);
        }
        assert_eq!(register_found(1, HashName::Collection(2), &filler(3), 19), None);
    }
}
