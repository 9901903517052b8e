//! The handshake.

use crate::fixture::{body, msg, op_msg, op_query, whole};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use remora_mongo::hello::{HelloReply, HelloRequest, MAX_WIRE_VERSION};
use remora_mongo::scram::SaslReply;
use remora_mongo::wire::Compressor;
use remora_mongo::{Command, CommandError, Envelope};

/// The first message of PyMongo 4 on a connection, written by hand from the specification: OP_QUERY
/// with `ismaster`, the client's description and its compressors.
const PYMONGO: &str = "\
    2301000067458b6b00000000d40700000000000061646d696e2e24636d640000000000fffffffffc00000010\
    69736d617374657200010000000868656c6c6f4f6b000103636c69656e74009f00000003647269766572002b\
    000000026e616d65000800000050794d6f6e676f000276657273696f6e0007000000342e31352e340000036f\
    73003e000000027479706500060000004c696e757800026e616d6500060000004c696e757800026172636869\
    7465637475726500070000007838365f3634000002706c6174666f726d001700000043507974686f6e20332e\
    31322e332e66696e616c2e30000004636f6d7072657373696f6e002b000000023000050000007a7374640002\
    3100050000007a6c69620002320007000000736e61707079000000";

/// The bytes of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

fn reply(request: &HelloRequest<'_>, speculative: Option<&SaslReply>) -> RawDocumentBuf {
    let ping = msg(0, &[body(rawdoc! { "ping": 1, "$db": "d" }.as_bytes())]);
    let mut out = Vec::new();
    let reply = HelloReply { local_time_ms: 1_700_000_000_000, connection_id: 3, speculative };
    let envelope = Envelope::to(&whole(&ping), 1);
    envelope.write_ok(&mut out, |fields| reply.write(request, fields)).unwrap();
    op_msg(&whole(&out)).body.to_owned()
}

fn of(document: &RawDocument, look: impl FnOnce(Result<HelloRequest<'_>, CommandError>)) {
    let bytes = msg(0, &[body(document.as_bytes())]);
    look(HelloRequest::of(&Command::of(&op_msg(&whole(&bytes))).unwrap()));
}

#[test]
fn pymongo_is_understood() {
    let bytes = hex(PYMONGO);
    let message = whole(&bytes);
    assert_eq!(message.header.request_id, 1_804_289_383);
    let command = Command::of_query(&op_query(&message)).unwrap();
    assert!(HelloRequest::is_name(command.name()));
    let request = HelloRequest::of(&command).unwrap();
    assert!(!request.is_hello && request.hello_ok);
    let driver = request.client.unwrap().get_document("driver").unwrap();
    assert_eq!(driver.get_str("name").ok(), Some("PyMongo"));
    assert_eq!(request.compressors, [Some(Compressor::Zlib), Some(Compressor::Snappy)]);
    let expected = rawdoc! {
        "helloOk": true, "ismaster": true, "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
        "localTime": bson::DateTime::from_millis(1_700_000_000_000),
        "logicalSessionTimeoutMinutes": 30, "connectionId": 3,
        "minWireVersion": 0, "maxWireVersion": MAX_WIRE_VERSION, "readOnly": false,
        "compression": ["zlib", "snappy"], "ok": 1.0,
    };
    assert_eq!(reply(&request, None).as_bytes(), expected.as_bytes());
}

#[test]
fn hello_says_what_was_asked() {
    let document = rawdoc! {
        "hello": 1, "$db": "admin", "saslSupportedMechs": "admin.user",
        "compression": ["lz4", 5, "snappy", "snappy"],
        "speculativeAuthenticate": { "saslStart": 1 },
    };
    of(&document, |request| {
        let request = request.unwrap();
        assert_eq!(request.mechanisms_of, Some("admin.user"));
        assert!(request.speculative.is_some());
        let first = SaslReply { done: false, payload: b"r=x".to_vec() };
        let found = reply(&request, Some(&first));
        assert_eq!(found.get_bool("isWritablePrimary").ok(), Some(true));
        assert!(found.get("ismaster").unwrap().is_none());
        assert!(found.get("helloOk").unwrap().is_none());
        assert!(found.get("setName").unwrap().is_none());
        assert!(found.get("topologyVersion").unwrap().is_none());
        let names = |key| {
            let names = found.get_array(key).unwrap().into_iter();
            names.map(|name| name.unwrap().as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("saslSupportedMechs"), ["SCRAM-SHA-256"]);
        assert_eq!(names("compression"), ["snappy"]);
        let first = found.get_document("speculativeAuthenticate").unwrap();
        assert_eq!(first.get_i32("conversationId").ok(), Some(1));
        assert_eq!(first.get_bool("done").ok(), Some(false));
        assert_eq!(first.get_binary("payload").unwrap().bytes, b"r=x");
    });
    of(&rawdoc! { "hello": 1, "$db": "admin" }, |request| {
        let found = reply(&request.unwrap(), None);
        for absent in ["compression", "saslSupportedMechs", "speculativeAuthenticate"] {
            assert!(found.get(absent).unwrap().is_none());
        }
    });
    of(&rawdoc! { "hello": 1, "$db": "admin", "client": 1 }, |request| assert!(request.is_err()));
}
