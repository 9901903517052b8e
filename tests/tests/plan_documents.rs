//! Plans that take documents of a collection, and go on with the keys that these name.

use remora_client::bson::raw::RawDocument;
use remora_client::bson::{doc, rawdoc};
use remora_client::plan::{Column, text};
use remora_client::{Address, Options, Path, PlanRun, Session, Wake};
use remora_tests::{DEADLINE, ServerProcess, Value};

fn session(server: &ServerProcess, path: Path) -> Session {
    let options = Options::default().wake(Wake::Event).timeout(DEADLINE).path(path);
    Session::connect(&Address::unix(server.socket()), &options).expect("it runs")
}

fn run(session: &mut Session, words: &[&str]) -> Result<PlanRun, remora_client::Error> {
    session.run_plan(&text::parse(words).expect("a plan").plan)
}

/// The columns of the rows, as texts.
fn texts(run: &PlanRun) -> Vec<Vec<String>> {
    let text = |column: &Column| match column {
        Column::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
        other => format!("{other:?}"),
    };
    run.outcome.rows.iter().map(|row| row.iter().map(text).collect()).collect()
}

#[test]
fn a_plan_finds_documents_and_follows_what_their_fields_name() {
    let server = ServerProcess::start(&["--shards=3", "--max-memory=128MiB"]);
    let mut sessions = [Path::Ask, Path::Read, Path::Choose].map(|path| session(&server, path));
    let [writer, ..] = &mut sessions;
    for at in 0..10 {
        let (key, name) = (format!("maker:{at}"), format!("maker {at}"));
        writer.hash(key.as_bytes()).unwrap().set(&[(b"name", name.as_bytes())]).unwrap();
    }
    let all: Vec<_> = (0..3_000)
        .map(|at| {
            let maker = format!("maker:{}", at % 10);
            rawdoc! { "_id": at, "kind": at % 7, "maker": maker, "size": { "h": at % 3 } }
        })
        .collect();
    for some in all.chunks(500) {
        let some: Vec<&RawDocument> = some.iter().map(|document| &**document).collect();
        writer.collection("shop", "items").unwrap().insert(&some).unwrap();
    }
    let spec = rawdoc! { "key": { "kind": 1 }, "name": "kind" };
    writer.collection("shop", "items").unwrap().create_index(&spec).unwrap();
    let from = ["FROM", "KEYS", "2", "shop.items", "shop.none"];
    let filter = r#"{"kind": 3, "_id": {"$lt": 1000}}"#;
    let tail = ["WHERE", "_id", ">", "100", "GET", "_id", "size", "FOLLOW", "maker", "KEY"];
    let words = [&from[..], &["FIND", filter], &tail[..], &["GET", "name"]].concat();
    let expected: Vec<Vec<String>> = (101..1_000)
        .filter(|at| at % 7 == 3)
        .map(|at| {
            let size = doc! { "h": at % 3 };
            let size = remora_client::bson::Bson::Document(size).into_relaxed_extjson();
            vec![at.to_string(), size.to_string(), format!("maker {}", at % 10)]
        })
        .collect();
    for session in &mut sessions {
        let found = run(session, &words).unwrap();
        let mut rows = texts(&found);
        rows.sort_by_key(|row| row[0].parse::<i32>().unwrap());
        assert_eq!(rows, expected, "{:?}", found.served_by);
        assert_eq!(found.outcome.explain.skipped.gone, 1, "{:?}", found.outcome.explain);
        assert_eq!(found.outcome.explain.skipped.filtered, 14);
        // All documents, in several steps of a search; and a few.
        let whole = run(session, &["FROM", "KEYS", "1", "shop.items", "FIND", "{}", "GET", "_id"]);
        assert_eq!(whole.unwrap().outcome.rows.len(), 3_000);
        let words = ["FROM", "KEYS", "1", "shop.items", "FIND", "{}", "COUNT", "5", "GETALL"];
        let few = run(session, &words).unwrap();
        assert_eq!(few.outcome.rows.len(), 5);
        let Column::Fields(fields) = &few.outcome.rows[0][0] else { panic!("{few:?}") };
        assert_eq!(fields.len(), 4);
        let other = run(session, &["FROM", "KEYS", "1", "maker:1", "FIND", "{}", "GET", "_id"]);
        assert_eq!(other.unwrap().outcome.explain.skipped.other_type, 1);
        for wrong in ["{", r#"{"a": {"$wrong": 1}}"#] {
            let words = ["FROM", "KEYS", "1", "shop.items", "FIND", wrong, "GET", "_id"];
            assert!(run(session, &words).is_err(), "{wrong}");
        }
    }
    let mut resp = server.resp();
    let words = ["PLAN.RUN", "FROM", "KEYS", "1", "shop.items", "FIND", r#"{"_id": 7}"#];
    let words = [&words[..], &["GET", "maker"]].concat();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let row = Value::Array(vec![Value::Bulk(b"maker:7".to_vec())]);
    assert_eq!(resp.try_call(&words).unwrap(), Value::Array(vec![row]));
}
