//! Commands as typed views.

use crate::fixture::{body, msg, op_msg, op_query, query, sequence, whole};
use bson::{RawDocumentBuf, rawdoc};
use remora_mongo::limits::MAX_COMMAND_FIELDS;
use remora_mongo::{Command, CommandError, ErrorCode};

/// What a view of these sections says.
fn view<T>(sections: &[Vec<u8>], look: impl FnOnce(Result<Command<'_>, CommandError>) -> T) -> T {
    let bytes = msg(0, sections);
    look(Command::of(&op_msg(&whole(&bytes))))
}

fn code(document: &RawDocumentBuf) -> ErrorCode {
    view(&[body(document.as_bytes())], |command| command.unwrap_err().code().unwrap())
}

#[test]
fn fields_that_every_command_may_have() {
    let document = rawdoc! {
        "find": "c", "filter": { "x": 1 }, "limit": 5.0, "singleBatch": 1i64, "n": 1.5,
        "lsid": { "id": 1 }, "txnNumber": 4i64, "$db": "d",
        "readConcern": { "level": "local" }, "$readPreference": { "mode": "primary" },
    };
    view(&[body(document.as_bytes())], |command| {
        let command = command.unwrap();
        assert_eq!((command.name(), command.database()), ("find", "d"));
        assert_eq!(command.collection(), Ok("c"));
        assert_eq!(command.transaction(), Some(4));
        assert_eq!(command.session().unwrap().get_i32("id").ok(), Some(1));
        assert_eq!(command.read_concern().unwrap().get_str("level").ok(), Some("local"));
        assert_eq!(command.read_preference().unwrap().get_str("mode").ok(), Some("primary"));
        assert_eq!(command.i64("limit"), Ok(Some(5)));
        assert_eq!(command.bool("singleBatch"), Ok(Some(true)));
        assert_eq!(command.str("missing"), Ok(None));
        assert_eq!(command.i64("n").unwrap_err().code(), Some(ErrorCode::BadValue));
        let error = command.str("filter").unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::TypeMismatch));
        let text = "BSON field 'filter' is the wrong type 'object', expected type 'string'";
        assert_eq!(error.message, text);
    });
}

#[test]
fn wrong_commands() {
    assert_eq!(code(&rawdoc! {}), ErrorCode::FailedToParse);
    assert_eq!(code(&rawdoc! { "ping": 1 }), ErrorCode::MissingField);
    assert_eq!(code(&rawdoc! { "ping": 1, "$db": 5 }), ErrorCode::TypeMismatch);
    assert_eq!(code(&rawdoc! { "ping": 1, "$db": "d", "lsid": 5 }), ErrorCode::TypeMismatch);
    assert_eq!(code(&rawdoc! { "a": 1, "$db": "d", "txnNumber": 5 }), ErrorCode::TypeMismatch);
    let ping = rawdoc! { "ping": 1, "$db": "d" };
    view(&[body(ping.as_bytes())], |command| {
        let error = command.unwrap().collection().unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InvalidNamespace));
    });
}

#[test]
fn duplicates_are_refused() {
    let mut twice = rawdoc! { "insert": "c", "$db": "d", "ordered": true };
    twice.append(bson::cstr!("ordered"), false);
    assert_eq!(code(&twice), ErrorCode::DuplicateField);
    let insert = rawdoc! { "insert": "c", "$db": "d", "documents": [] };
    let beside = [body(insert.as_bytes()), sequence("documents", &[])];
    let code = view(&beside, |command| command.unwrap_err().code().unwrap());
    assert_eq!(code, ErrorCode::DuplicateField);
    let insert = rawdoc! { "insert": "c", "$db": "d" };
    let two = [sequence("a", &[]), body(insert.as_bytes()), sequence("a", &[])];
    let code = view(&two, |command| command.unwrap_err().code().unwrap());
    assert_eq!(code, ErrorCode::DuplicateField);
}

#[test]
fn fields_are_bounded() {
    for (more, accepted) in [(MAX_COMMAND_FIELDS - 2, true), (MAX_COMMAND_FIELDS - 1, false)] {
        let mut document = rawdoc! { "ping": 1, "$db": "d" };
        for index in 0..more {
            document
                .append(bson::raw::CString::try_from(format!("f{index}")).unwrap(), index as i32);
        }
        view(&[body(document.as_bytes())], |command| assert_eq!(command.is_ok(), accepted));
    }
}

#[test]
fn documents_are_the_same_in_body_and_sequence() {
    let (one, two) = (rawdoc! { "_id": 1 }, rawdoc! { "_id": 2 });
    let inside = rawdoc! {
        "insert": "c", "$db": "d", "documents": [one.clone(), two.clone()], "n": 1
    };
    let outside = rawdoc! { "insert": "c", "$db": "d", "n": 1 };
    let sections = [
        vec![body(inside.as_bytes())],
        vec![body(outside.as_bytes()), sequence("documents", &[one.as_bytes(), two.as_bytes()])],
    ];
    for sections in sections {
        view(&sections, |command| {
            let command = command.unwrap();
            let found: Vec<_> =
                command.documents("documents").unwrap().map(Result::unwrap).collect();
            assert_eq!(found, [&*one, &*two]);
            let missing = command.documents("updates").unwrap_err();
            assert_eq!(missing.code(), Some(ErrorCode::MissingField));
            let number = command.documents("n").unwrap_err();
            assert_eq!(number.code(), Some(ErrorCode::TypeMismatch));
        });
    }
    let numbers = rawdoc! { "insert": "c", "$db": "d", "documents": [{}, 5] };
    view(&[body(numbers.as_bytes())], |command| {
        let found = command.unwrap().documents("documents").unwrap();
        let found: Vec<_> = found.map(|document| document.is_ok()).collect();
        assert_eq!(found, [true, false]);
    });
}

#[test]
fn a_query_is_on_admin() {
    let document = rawdoc! { "isMaster": 1, "helloOk": true };
    let bytes = query("admin.$cmd", document.as_bytes());
    let command = Command::of_query(&op_query(&whole(&bytes))).unwrap();
    assert_eq!((command.name(), command.database()), ("isMaster", "admin"));
}
