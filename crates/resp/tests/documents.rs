//! Requests about documents by hand: what shards are asked, the words of every error, and the replies, byte by byte.

use bson::raw::RawDocumentBuf;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use remora_frontend::{OwnedReply, ReplyForm as _, ShardAnswer};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Items, Request as Question};
use remora_resp::steps::{Step, StepKey};
use remora_resp::wire::encode;
use remora_resp::{
    Args, CommandError, Made, Parsed, ReplyForm, Request, RespVersion, parse, request,
};

/// Parses one array of words and hands the outcome on.
fn with<T>(words: &[&str], look: impl FnOnce(Result<Request<'_>, CommandError>) -> T) -> T {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut bytes = Vec::new();
    encode::request(&mut bytes, &words);
    let mut args = Args::new();
    assert_eq!(parse(&bytes, &mut args), Ok(Parsed::Request { consumed: bytes.len() }));
    look(request(&args, &bytes, &Made::default(), 0))
}

fn error(words: &[&str]) -> String {
    with(words, |found| found.expect_err(words[0]).to_string())
}

/// What a command asks, with these answers, and its reply.
fn run(words: &[&str], answers: Vec<OwnedReply>) -> (Vec<String>, String) {
    with(words, |found| {
        let Ok(Request::Steps { mut steps, form, .. }) = found else {
            panic!("{words:?}: {found:?}")
        };
        let keys = [StepKey { key: (*b"c").into(), shard: 0 }];
        let (mut asked, mut answer) = (Vec::new(), None);
        let mut answers = answers.into_iter();
        loop {
            let mut note = |at: usize, question: Question<'_>| {
                assert_eq!(at, 0);
                asked.push(text_of(question));
            };
            match steps.next(&keys, answer.take(), &mut note) {
                Step::Asked => answer = Some(answers.next().expect("no more was to be asked")),
                Step::Done(reply) => {
                    assert_eq!(answers.next(), None, "more was to be asked");
                    return (asked, written(form, &reply));
                }
                other => panic!("{other:?}"),
            }
        }
    })
}

fn written(form: ReplyForm, reply: &OwnedReply) -> String {
    let mut out = Vec::new();
    let answer =
        ShardAnswer { status: reply.status, number: reply.number, value: reply.value.as_deref() };
    form.write(&mut out, RespVersion::Resp3, &[answer]);
    String::from_utf8(out).unwrap()
}

fn text_of(question: Question<'_>) -> String {
    let document = |bytes: &[u8]| Document::from_reader(bytes).unwrap();
    match CollectionCommand::of(question) {
        CollectionCommand::Create { options } => format!("create {}", document(options)),
        CollectionCommand::Insert { documents, ordered: true } => {
            let all: Vec<String> =
                documents.iter().flatten().map(|of| document(of).to_string()).collect();
            format!("insert {}", all.join(" "))
        }
        CollectionCommand::Write { request } => format!("write {}", document(request)),
        CollectionCommand::Find { request } => format!("find {}", document(request)),
        CollectionCommand::CreateIndex { request } => format!("index {}", document(request)),
        CollectionCommand::DropIndex { name } => format!("drop {}", name.escape_ascii()),
        CollectionCommand::Describe => "describe".to_owned(),
        other => panic!("{other:?}"),
    }
}

fn ok(number: i64, value: impl Into<Option<Vec<u8>>>) -> OwnedReply {
    OwnedReply { number, value: value.into(), ..OwnedReply::status(Status::Ok) }
}

fn bytes(document: &Document) -> Vec<u8> {
    RawDocumentBuf::try_from(document).unwrap().into_bytes()
}

fn list(documents: &[Document]) -> Vec<u8> {
    let mut list = Vec::new();
    documents.iter().for_each(|document| Items::push(&mut list, &bytes(document)));
    list
}

fn place() -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: vec![7] }
}

#[test]
fn documents_are_inserted() {
    let added = |number| ok(number, Vec::new());
    let words = [
        "DOC.INSERT",
        "c",
        r#"{"_id":1,"a":"x"}"#,
        r#"{"b":2,"_id":{"$oid":"000000000000000000000001"}}"#,
    ];
    let (asked, reply) = run(&words, vec![added(2)]);
    // The _id comes first.
    let wanted =
        r#"insert { "_id": 1, "a": "x" } { "_id": ObjectId("000000000000000000000001"), "b": 2 }"#;
    assert_eq!((asked, &reply[..]), (vec![wanted.to_owned()], ":2\r\n"));
    let failure = doc! { "index": 1, "code": 11000, "errmsg": "E11000 duplicate key error" };
    let told = ok(1, list(&[failure]));
    assert_eq!(run(&words, vec![told]).1, "-ERR E11000 duplicate key error\r\n");
    assert_eq!(error(&["DOC.INSERT", "c", r#"{"a":1}"#]), "ERR a document needs an _id");
    assert!(error(&["DOC.INSERT", "c", "{"]).starts_with("ERR "));
    assert!(error(&["DOC.INSERT", "c", "5"]).starts_with("ERR "));
    let arity = "ERR wrong number of arguments for 'doc.insert' command";
    assert_eq!(error(&["DOC.INSERT", "c"]), arity);
}

#[test]
fn documents_are_found_in_steps() {
    let found = |at: Option<Binary>, ids: &[i32]| {
        let mut all = vec![doc! { "sorted": true }];
        if let Some(at) = at {
            all[0].insert("at", at);
        }
        all.extend(ids.iter().map(|id| doc! { "_id": *id }));
        ok(ids.len() as i64, list(&all))
    };
    let words = ["doc.find", "c", r#"{"a":{"$gt":1}}"#, "LIMIT", "3"];
    let (asked, reply) =
        run(&words, vec![found(Some(place()), &[1, 2]), found(Some(place()), &[3])]);
    assert!(asked[0].contains(r#""limit": 3"#) && !asked[0].contains("at"), "{asked:?}");
    assert!(asked[1].contains(r#""limit": 1"#) && asked[1].contains("at"), "{asked:?}");
    let wanted = "*3\r\n$9\r\n{\"_id\":1}\r\n$9\r\n{\"_id\":2}\r\n$9\r\n{\"_id\":3}\r\n";
    assert_eq!(reply, wanted);
    let (asked, reply) = run(&["doc.find", "c", "{}"], vec![found(None, &[])]);
    assert!(asked[0].contains(r#""limit": 101"#), "{asked:?}");
    assert_eq!(reply, "*0\r\n");
    assert_eq!(error(&["doc.find", "c", "{}", "LIMIT"]), "ERR syntax error");
    assert_eq!(error(&["doc.find", "c", "{}", "FIRST", "3"]), "ERR syntax error");
    for limit in ["0", "-1", "x"] {
        assert!(error(&["doc.find", "c", "{}", "LIMIT", limit]).starts_with("ERR "), "{limit}");
    }
}

#[test]
fn documents_are_counted_changed_and_removed_in_steps() {
    let counted = |at: Option<Binary>, number| {
        let mut head = Document::new();
        head.extend(at.map(|at| ("at".to_owned(), bson::Bson::Binary(at))));
        ok(number, list(&[head]))
    };
    let (asked, reply) =
        run(&["doc.count", "c"], vec![counted(Some(place()), 4), counted(None, 3)]);
    assert_eq!((asked.len(), &reply[..]), (2, ":7\r\n"));
    let written = |at: Option<Binary>, number| {
        let mut told = doc! { "modified": number };
        told.extend(at.map(|at| ("at".to_owned(), bson::Bson::Binary(at))));
        ok(number, bytes(&told))
    };
    let update = ["doc.update", "c", r#"{"a":1}"#, r#"{"$set":{"b":2}}"#, "multi", "UPSERT"];
    let (asked, reply) = run(&update, vec![written(Some(place()), 4), written(None, 0)]);
    let first =
        r#"write { "q": { "a": 1 }, "u": { "$set": { "b": 2 } }, "multi": true, "upsert": true }"#;
    assert_eq!((&asked[0][..], asked.len(), &reply[..]), (first, 2, ":4\r\n"));
    let (asked, _) = run(&update[..4], vec![written(None, 1)]);
    let first = r#"write { "q": { "a": 1 }, "u": { "$set": { "b": 2 } }, "multi": false }"#;
    assert_eq!(asked, [first]);
    let (asked, _) = run(&["doc.del", "c", "{}"], vec![written(None, 1)]);
    assert_eq!(asked, [r#"write { "q": {}, "multi": false }"#]);
    for words in [
        &["doc.update", "c", "{}", "{}", "all"][..],
        &["doc.update", "c", "{}", "{}", "multi", "multi"],
        &["doc.update", "c", "{}", "{}", "upsert", "multi", "upsert"],
        &["doc.del", "c", "{}", "multi", "multi"],
        &["doc.count", "c", "{}", "{}"],
    ] {
        assert_eq!(error(words), "ERR syntax error", "{words:?}");
    }
    let failed = doc! { "modified": 1, "error": { "code": 2, "errmsg": "it is no number" } };
    let (_, reply) = run(&update, vec![ok(1, bytes(&failed))]);
    assert_eq!(reply, "-ERR it is no number\r\n");
}

#[test]
fn collections_and_indexes_are_made() {
    let (asked, reply) = run(&["doc.create", "c"], vec![ok(1, None)]);
    assert_eq!((&asked[0][..], &reply[..]), ("create {}", "+OK\r\n"));
    let there = OwnedReply::status(Status::NotDone);
    let (_, reply) = run(&["doc.create", "c"], vec![there]);
    assert_eq!(reply, "-ERR the collection exists already: DEL removes it\r\n");
    let step = ok(0, bytes(&doc! { "at": place() }));
    let made = ok(1, bytes(&Document::new()));
    let words = ["doc.index", "c", r#"{"a":1,"b.c":-1}"#, "unique"];
    let (asked, reply) = run(&words, vec![step, made]);
    let first = r#"index { "spec": { "key": { "a": 1, "b.c": -1 }, "name": "a_1_b.c_-1", "unique": true } }"#;
    assert_eq!((&asked[0][..], asked.len(), &reply[..]), (first, 2, "+OK\r\n"));
    let (asked, _) = run(&["doc.index", "c", "a_1", "DROP"], vec![ok(1, None)]);
    assert_eq!(asked, ["drop a_1"]);
    let gone = OwnedReply::status(Status::NotFound);
    let (_, reply) = run(&["doc.index", "c", "a_1", "DROP"], vec![gone]);
    assert_eq!(reply, "-ERR there is no such collection, or no such index\r\n");
    assert!(error(&["doc.index", "c", r#"{"a":true}"#]).contains("keys of an index"));
    assert_eq!(error(&["doc.index", "c", "", "DROP"]), "ERR syntax error");
    assert_eq!(error(&["doc.index", "c", r#"{"a":1}"#, "sparse"]), "ERR syntax error");
}

#[test]
fn a_collection_is_described() {
    let told = doc! { "options": {}, "count": 3_i64 };
    let (asked, reply) = run(&["doc.info", "c"], vec![ok(3, bytes(&told))]);
    assert_eq!(asked, ["describe"]);
    assert_eq!(reply, "$24\r\n{\"options\":{},\"count\":3}\r\n");
}

#[test]
fn refusals_are_errors() {
    let text = Some(b"unknown operator: $x".to_vec());
    let refused = OwnedReply { number: 2, value: text, ..OwnedReply::status(Status::Refused) };
    for words in [
        &["doc.find", "c", r#"{"$x":1}"#][..],
        &["doc.count", "c", r#"{"$x":1}"#],
        &["doc.update", "c", r#"{"$x":1}"#, "{}"],
        &["doc.insert", "c", r#"{"_id":1}"#],
    ] {
        let (_, reply) = run(words, vec![refused.clone()]);
        assert_eq!(reply, "-ERR unknown operator: $x\r\n", "{words:?}");
        let (_, reply) = run(words, vec![OwnedReply::status(Status::WrongType)]);
        assert!(reply.starts_with("-WRONGTYPE "), "{words:?}: {reply}");
        let (_, reply) = run(words, vec![OwnedReply::status(Status::OutOfMemory)]);
        assert!(reply.starts_with("-OOM "), "{words:?}: {reply}");
    }
}
