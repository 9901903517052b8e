//! The documents of a run. Each is made of its number, so that every byte of a found one can be checked.

use crate::workload::Scatter;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, cstr, rawdoc};
use remora_layout::hash::mix;

/// `{ _id: NUMBER, code: N, raised: N, value: BYTES }`. `code` is another order of the same numbers, and is
/// indexed; `raised` says how often the document was updated.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    codes: Scatter,
    value_bytes: usize,
}

impl Contents {
    /// Documents of numbers below `count`.
    pub fn new(count: usize, value_bytes: usize) -> Self {
        Self { codes: Scatter::over(count as u32), value_bytes }
    }

    /// The `_id` of a document.
    pub fn id(number: u32) -> i64 {
        i64::from(number)
    }

    /// The indexed field of a document. No other document has the same.
    pub fn code(&self, number: u32) -> i64 {
        i64::from(self.codes.place(number))
    }

    /// The document, after so many updates.
    pub fn make(&self, number: u32, raised: u32) -> RawDocumentBuf {
        let mut bytes = Vec::with_capacity(self.value_bytes + size_of::<u64>());
        let mut word = 0;
        while bytes.len() < self.value_bytes {
            bytes.extend_from_slice(&mix(u64::from(number), word).to_le_bytes());
            word += 1;
        }
        bytes.truncate(self.value_bytes);
        let mut document = rawdoc! {
            "_id": Self::id(number),
            "code": self.code(number),
            "raised": i64::from(raised),
        };
        document.append(cstr!("value"), Binary { subtype: BinarySubtype::Generic, bytes });
        document
    }

    /// Whether this is the document, after so many updates.
    pub fn is_it(&self, number: u32, raised: u32, found: &RawDocument) -> bool {
        self.make(number, raised).as_bytes() == found.as_bytes()
    }
}

/// What an update does with a document.
pub fn raise() -> RawDocumentBuf {
    rawdoc! { "$inc": { "raised": 1_i64 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_told_from_others_and_from_its_former_self() {
        for value_bytes in [0, 1, 9, 100] {
            let contents = Contents::new(300, value_bytes);
            let document = contents.make(258, 3);
            assert!(contents.is_it(258, 3, &document));
            assert!(!contents.is_it(258, 2, &document) && !contents.is_it(259, 3, &document));
            assert_eq!(document.get_binary("value").unwrap().bytes.len(), value_bytes);
        }
    }

    #[test]
    fn every_document_has_a_code_of_its_own() {
        let contents = Contents::new(1_000, 0);
        let mut codes: Vec<i64> = (0..1_000).map(|number| contents.code(number)).collect();
        codes.sort_unstable();
        assert!(codes.into_iter().eq(0..1_000));
    }
}
