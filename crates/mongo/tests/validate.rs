//! The validator against `bson`'s own reading.

use crate::fixture::any_document;
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf};
use proptest::prelude::*;
use remora_mongo::limits::{MAX_BODY_DEPTH, MAX_DEPTH, MAX_WIRE_DOCUMENT_BYTES};
use remora_mongo::validate::{DocumentErrorKind, split_document, validate};

/// Reads all of a document by `bson`. Returns its levels.
fn levels(document: &RawDocument) -> Result<usize, bson::error::Error> {
    let mut deepest = 0;
    for element in document.iter_elements() {
        let inner = match element?.value()? {
            RawBsonRef::Document(inner) => levels(inner)?,
            RawBsonRef::Array(inner) => levels(RawDocument::from_bytes(inner.as_bytes())?)?,
            RawBsonRef::JavaScriptCodeWithScope(code) => levels(code.scope)?,
            _ => 0,
        };
        deepest = deepest.max(inner);
    }
    Ok(deepest + 1)
}

/// Both say the same of these bytes. Returns what they say.
fn compare(bytes: &[u8]) -> bool {
    let oracle = RawDocument::from_bytes(bytes).and_then(levels);
    let found = validate(bytes, MAX_DEPTH);
    match (&oracle, &found) {
        (Ok(levels), _) => assert_eq!(found.is_ok(), *levels <= MAX_DEPTH, "{bytes:?} {found:?}"),
        (Err(error), Ok(_)) => panic!("bson refuses {bytes:?}: {error}"),
        (Err(_), Err(_)) => {}
    }
    found.is_ok()
}

/// `{a: {a: .. {}}}` with so many levels.
fn nested(levels: usize) -> Vec<u8> {
    let mut bytes = vec![5, 0, 0, 0, 0];
    for _ in 1..levels {
        let length = (4 + 3 + bytes.len() + 1) as i32;
        bytes = [&length.to_le_bytes()[..], &[3, b'a', 0], &bytes, &[0]].concat();
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn documents_are_accepted(document in any_document()) {
        prop_assert!(compare(document.as_bytes()));
    }

    /// One to three bytes of a valid document are others.
    #[test]
    fn damaged_documents_are_judged_as_by_bson(
        document in any_document(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = document.into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        compare(&bytes);
    }

    /// The same with small steps, which keep lengths plausible.
    #[test]
    fn shifted_lengths_are_judged_as_by_bson(
        document in any_document(),
        at in any::<prop::sample::Index>(),
        step in -5i8..=5,
    ) {
        let mut bytes = document.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = bytes[at].wrapping_add_signed(step);
        compare(&bytes);
    }

    #[test]
    fn random_bytes_are_judged_as_by_bson(elements in prop::collection::vec(any::<u8>(), 0..64)) {
        compare(&elements);
        // In a frame, so that the elements are reached.
        let length = (elements.len() + 5) as i32;
        compare(&[&length.to_le_bytes()[..], &elements, &[0]].concat());
    }

    #[test]
    fn few_byte_values_are_judged_as_by_bson(
        elements in prop::collection::vec(
            prop_oneof![Just(0u8), 0u8..0x14, Just(b'a'), Just(0x80)], 0..48),
    ) {
        let length = (elements.len() + 5) as i32;
        compare(&[&length.to_le_bytes()[..], &elements, &[0]].concat());
    }

    #[test]
    fn cut_documents_are_refused(document in any_document(), at in any::<prop::sample::Index>()) {
        let bytes = document.as_bytes();
        prop_assert!(!compare(&bytes[..at.index(bytes.len())]));
    }

    #[test]
    fn what_follows_is_returned(document in any_document(), rest in any::<[u8; 7]>()) {
        let bytes = [document.as_bytes(), &rest].concat();
        let (found, behind) = split_document(&bytes, MAX_DEPTH).unwrap();
        prop_assert_eq!(found.as_bytes(), document.as_bytes());
        prop_assert_eq!(behind, &rest[..]);
        prop_assert!(validate(&bytes, MAX_DEPTH).is_err());
    }
}

/// Types that the generator has seldom or never, as bytes: each byte changes to each other one.
#[test]
fn rare_types_are_judged_as_by_bson() {
    let elements: [&[u8]; 5] = [
        // Binary data of the old subtype, with a second length inside.
        b"\x05a\0\x07\0\0\0\x02\x03\0\0\0xyz",
        // DBPointer.
        b"\x0ca\0\x04\0\0\0d.c\0abcdefghijkl",
        // Code with a scope.
        b"\x0fa\0\x15\0\0\0\x02\0\0\0f\0\x0b\0\0\0\x0axyzw\0\0",
        // A regular expression.
        b"\x0ba\0x*\0im\0",
        // Decimal128.
        b"\x13a\x000123456789abcdef",
    ];
    for element in elements {
        let length = (element.len() + 5) as i32;
        let bytes = [&length.to_le_bytes()[..], element, &[0]].concat();
        assert!(compare(&bytes), "{bytes:?}");
        for at in 0..bytes.len() {
            for byte in 0..=u8::MAX {
                let mut changed = bytes.clone();
                changed[at] = byte;
                compare(&changed);
            }
        }
        // An element shorter or longer than its type.
        for other in [&element[..element.len() - 1], &[element, &[0]].concat()] {
            let length = (other.len() + 5) as i32;
            compare(&[&length.to_le_bytes()[..], other, &[0]].concat());
        }
    }
}

#[test]
fn depth_is_bounded() {
    assert!(validate(&nested(MAX_DEPTH), MAX_DEPTH).is_ok());
    let error = validate(&nested(MAX_DEPTH + 1), MAX_DEPTH).unwrap_err();
    assert_eq!(error.kind, DocumentErrorKind::TooDeep(MAX_DEPTH));
    assert!(validate(&nested(MAX_BODY_DEPTH), MAX_BODY_DEPTH).is_ok());
    assert!(validate(&nested(MAX_BODY_DEPTH + 1), usize::MAX).is_err());
    // So deep that a recursion would overflow the stack.
    assert!(validate(&nested(20_000), MAX_DEPTH).is_err());
    assert!(validate(&nested(1), 0).is_err());
}

#[test]
fn length_is_bounded() {
    let fits = MAX_WIRE_DOCUMENT_BYTES;
    for (bytes, accepted) in [(fits, true), (fits + 1, false)] {
        let mut document = RawDocumentBuf::new();
        document.append(bson::cstr!("s"), "x".repeat(bytes - 13));
        assert_eq!(document.as_bytes().len(), bytes);
        assert_eq!(validate(document.as_bytes(), MAX_DEPTH).is_ok(), accepted);
    }
}

#[test]
fn mistakes_have_their_names() {
    use DocumentErrorKind as Kind;
    let cases: [(&[u8], usize, Kind); 12] = [
        (b"", 0, Kind::Truncated),
        (b"\x05\0\0\0", 0, Kind::Truncated),
        (b"\x04\0\0\0\0", 0, Kind::Length(4)),
        (b"\xff\xff\xff\xff\0", 0, Kind::Length(-1)),
        (b"\x05\0\0\0\0\0", 5, Kind::TrailingBytes),
        (b"\x05\0\0\0\x01", 4, Kind::Unterminated),
        (b"\x08\0\0\0\x0aab\0", 5, Kind::Unterminated),
        (b"\x08\0\0\0\x20a\0\0", 4, Kind::UnknownType(0x20)),
        (b"\x08\0\0\0\x0a\xff\0\0", 5, Kind::NotUtf8),
        (b"\x09\0\0\0\x08a\0\x02\0", 7, Kind::Boolean(2)),
        (b"\x0e\0\0\0\x02a\0\x02\0\0\0\x80\0\0", 11, Kind::NotUtf8),
        (b"\x0e\0\0\0\x02a\0\0\0\0\0a\0\0", 7, Kind::Length(0)),
    ];
    for (bytes, offset, kind) in cases {
        let error = validate(bytes, MAX_DEPTH).unwrap_err();
        assert_eq!((error.offset, error.kind), (offset, kind), "{bytes:?}");
        assert!(!compare(bytes));
    }
}
