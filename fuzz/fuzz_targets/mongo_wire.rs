//! Any bytes as messages of MongoDB's protocol: cut and whole they mean the same, and what is
//! accepted is read to its last document.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_mongo::hello::{HelloReply, HelloRequest};
use remora_mongo::scram::{ITERATIONS, SaslStart, UnknownUsers};
use remora_mongo::wire::{
    Body, Compressor, HEADER_BYTES, Message, Parsed, WireError, compress, parse,
};
use remora_mongo::{Command, CommandError, Envelope};

fuzz_target!(|data: &[u8]| {
    let mut bytes = data;
    loop {
        match parse(bytes) {
            Ok(Parsed::Incomplete { need }) => {
                assert!(need > bytes.len());
                return;
            }
            Ok(Parsed::Message { message, consumed }) => {
                assert!((HEADER_BYTES..=bytes.len()).contains(&consumed));
                let cut = parse(&bytes[..consumed - 1]);
                assert!(matches!(cut, Ok(Parsed::Incomplete { need }) if need >= HEADER_BYTES));
                take(&message, &bytes[..consumed]);
                bytes = &bytes[consumed..];
            }
            Err(WireError::Refused(refused)) => {
                let mut out = Vec::new();
                let error = CommandError::from(&refused);
                Envelope::to_refused(&refused, 1).write_error(&mut out, &error);
                bytes = &bytes[refused.consumed..];
            }
            Err(WireError::Fatal(_)) => return,
        }
    }
});

fn take(message: &Message<'_>, bytes: &[u8]) {
    let command = match &message.body {
        Body::Compressed(compressed) => {
            let mut buffer = Vec::new();
            if let Ok(inner) = compressed.decompress(&mut buffer) {
                assert!(!matches!(inner.body, Body::Compressed(_)));
                assert_eq!(inner.header.bytes, compressed.uncompressed_bytes());
            }
            return;
        }
        Body::Msg(msg) => {
            msg.sequences
                .for_each(|sequence| assert!(sequence.documents().all(|one| is_read(one))));
            assert!(is_read(msg.body));
            let mut packed = Vec::new();
            compress(bytes, Compressor::Snappy, &mut packed).unwrap();
            Command::of(msg)
        }
        Body::Query(query) => Command::of_query(query),
    };
    let mut out = Vec::new();
    let reply = Envelope::to(message, 1);
    let command = match command {
        Ok(command) => command,
        Err(error) => return reply.write_error(&mut out, &error),
    };
    if let Ok(documents) = command.documents("documents") {
        documents.flatten().for_each(|document| assert!(is_read(document)));
    }
    if let Ok(request) = HelloRequest::of(&command) {
        let hello = HelloReply { local_time_ms: 0, connection_id: 1, speculative: None };
        reply.write_ok(&mut out, |fields| hello.write(&request, fields)).unwrap();
    }
    if let Ok(start) = SaslStart::of(&command) {
        let unknown = UnknownUsers::new([1; 32], ITERATIONS);
        let (mut conversation, _) = start.begin(None, &unknown, "abcdefghijklmnopqr").unwrap();
        assert!(conversation.resume(&command).is_err());
    }
}

/// Whether bson reads all of a document.
fn is_read(document: &remora_mongo::bson::RawDocument) -> bool {
    remora_mongo::bson::Document::try_from(document).is_ok()
}
