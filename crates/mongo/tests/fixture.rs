//! Messages for tests, written byte by byte.

use bson::RawDocumentBuf;
use proptest::prelude::*;
use remora_mongo::wire::{Body, Message, OpMsg, OpQuery, Parsed, parse};

/// A message with this opcode and these bytes behind its header.
pub fn message(opcode: i32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [16 + rest.len() as i32, 77, 0, opcode] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// A section with a body.
pub fn body(document: &[u8]) -> Vec<u8> {
    [&[0], document].concat()
}

/// A section with a sequence.
pub fn sequence(name: &str, documents: &[&[u8]]) -> Vec<u8> {
    let documents = documents.concat();
    let size = (4 + name.len() + 1 + documents.len()) as i32;
    [&[1], &size.to_le_bytes()[..], name.as_bytes(), &[0], &documents].concat()
}

/// An OP_MSG without a checksum.
pub fn msg(flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    message(2013, &[&flags.to_le_bytes()[..], &sections.concat()].concat())
}

/// The same with a checksum.
pub fn summed(flags: u32, sections: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = msg(flags | 1, sections);
    let length = bytes.len() as i32 + 4;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let sum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// An OP_QUERY on a collection.
pub fn query(collection: &str, document: &[u8]) -> Vec<u8> {
    let mut rest = vec![4, 0, 0, 0];
    rest.extend_from_slice(collection.as_bytes());
    rest.extend_from_slice(&[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    rest.extend_from_slice(document);
    message(2004, &rest)
}

/// The whole message that all of `bytes` are.
pub fn whole(bytes: &[u8]) -> Message<'_> {
    match parse(bytes) {
        Ok(Parsed::Message { message, consumed }) if consumed == bytes.len() => message,
        other => panic!("{other:?}"),
    }
}

/// The OP_MSG that a message is.
pub fn op_msg<'a>(message: &Message<'a>) -> OpMsg<'a> {
    let Body::Msg(msg) = message.body else { panic!("{message:?}") };
    msg
}

/// The OP_QUERY that a message is.
pub fn op_query<'a>(message: &Message<'a>) -> OpQuery<'a> {
    let Body::Query(query) = message.body else { panic!("{message:?}") };
    query
}

/// Values of all types that drivers send, in documents of some levels.
pub fn any_document() -> impl Strategy<Value = RawDocumentBuf> {
    any_fields().prop_map(|document| RawDocumentBuf::try_from(&document).expect("no zero in keys"))
}

fn any_fields() -> impl Strategy<Value = bson::Document> {
    let key = "[a-zé$.]{0,4}";
    let value = any_leaf().prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(bson::Bson::Array),
            prop::collection::vec((key, inner.clone()), 0..4)
                .prop_map(|fields| bson::Bson::Document(fields.into_iter().collect())),
            prop::collection::vec((key, inner), 0..3).prop_map(|fields| {
                bson::Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                    code: "f()".to_owned(),
                    scope: fields.into_iter().collect(),
                })
            }),
        ]
    });
    prop::collection::vec((key, value), 0..6).prop_map(|fields| fields.into_iter().collect())
}

fn any_leaf() -> impl Strategy<Value = bson::Bson> {
    use bson::{Binary, Bson, DateTime, Decimal128, Timestamp, oid::ObjectId};
    let binary = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..9));
    prop_oneof![
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<f64>().prop_map(Bson::Double),
        any::<bool>().prop_map(Bson::Boolean),
        ".{0,6}".prop_map(Bson::String),
        ".{0,6}".prop_map(Bson::Symbol),
        ".{0,6}".prop_map(Bson::JavaScriptCode),
        any::<i64>().prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        any::<[u8; 12]>().prop_map(|id| Bson::ObjectId(ObjectId::from_bytes(id))),
        any::<[u8; 16]>().prop_map(|bytes| Bson::Decimal128(Decimal128::from_bytes(bytes))),
        (any::<u32>(), any::<u32>())
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        binary.prop_map(|(subtype, bytes)| Bson::Binary(Binary { subtype: subtype.into(), bytes })),
        Just(Bson::RegularExpression(bson::Regex {
            pattern: bson::cstr!("a.b").into(),
            options: bson::cstr!("i").into(),
        })),
        Just(Bson::Null),
        Just(Bson::Undefined),
        Just(Bson::MinKey),
        Just(Bson::MaxKey),
    ]
}
