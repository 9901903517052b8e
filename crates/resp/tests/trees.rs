//! Requests about trees by hand: their parsed forms, the words of every error, and the replies,
//! byte by byte.

use remora_frontend::{ReplyForm as _, ShardAnswer};
use remora_geometry::{Refine, Shape, Wkb};
use remora_layout::limits::{
    MAX_FIELDS, MAX_FIELDS_BYTES, MAX_NEAREST, MAX_OBJECT_BYTES, MAX_OBJECT_ID_BYTES,
    MAX_REPLY_BYTES, NODE_ENTRIES, STREAM_BYTES,
};
use remora_layout::node::{ENTRY_BYTES, Entry};
use remora_layout::object::{Payload, SURROGATE};
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::{TreeInfo, TreeKind};
use remora_protocol::message::Status;
use remora_protocol::tree::{
    Fields, FoundObjects, ObjectId, Objects, PutObject, TreeCommand, TreeSettings,
};
use remora_protocol::{Expiry, Items};
use remora_resp::ReplyForm;
use remora_resp::commands::rtree::ObjectsReply;
use remora_resp::form::ObjectForm;
use remora_resp::wire::encode;
use remora_resp::{Args, CommandError, Made, Parsed, Request, RespVersion, parse, request};
use zerocopy::IntoBytes;

/// Parses one array of words and hands the outcome on.
fn with<T>(words: &[&[u8]], look: impl FnOnce(Result<Request<'_>, CommandError>) -> T) -> T {
    let mut bytes = Vec::new();
    encode::request(&mut bytes, words);
    let mut args = Args::new();
    assert_eq!(parse(&bytes, &mut args), Ok(Parsed::Request { consumed: bytes.len() }));
    look(request(&args, &bytes, &Made::default(), 0))
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

fn error(line: &str) -> String {
    with(&split(line), |found| found.expect_err(line).to_string())
}

/// Compares the parsed words with a command on tree `t`, and checks whose reply it has.
fn becomes(line: &str, expected: TreeCommand<'_>, reply: &str) {
    with(&split(line), |found| match found {
        Ok(Request::Object { key: b"t", request, form: ReplyForm::Object(form) }) => {
            assert_eq!((TreeCommand::of(request), form.command), (expected, reply), "{line}");
        }
        other => panic!("{line}: {other:?}"),
    });
}

/// Compares the parsed words with a search of tree `t`, and checks the form of its reply.
fn finds(line: &str, expected: TreeCommand<'_>, told: ObjectForm) {
    with(&split(line), |found| match found {
        Ok(Request::Object { key: b"t", request, form: ReplyForm::TreeObjects(form) }) => {
            assert_eq!((TreeCommand::of(request), form), (expected, told), "{line}");
        }
        other => panic!("{line}: {other:?}"),
    });
}

fn rect(min_x: f64, min_y: f64, max_x: f64, max_y: f64) -> Rect {
    Rect { min_x, max_x, min_y, max_y }
}

#[test]
fn commands_are_understood() {
    let settings = TreeSettings::default();
    becomes("rtree.create t", TreeCommand::Create(settings), "rtree.create");
    let bounds = rect(-180.0, -90.0, 180.0, 90.0);
    let settings = TreeSettings { kind: TreeKind::Hilbert, capacity: 1024, bounds };
    becomes(
        "RTree.Create t bounds -180 -90 180 9e1 Kind HILBERT CAPACITY 1024",
        TreeCommand::Create(settings),
        "rtree.create",
    );
    becomes("rtree.drop t", TreeCommand::Drop, "rtree.drop");
    let (id, window) = (i64::MAX as u64, rect(-1.5, -2.0, 3.0, 1e300));
    let numbers = "-1.5 -2 3 1e300";
    let added = "rtree.add";
    for (words, data) in [
        ("", None),
        (" data x", Some(&b"x"[..])),
        (" DATA data", Some(b"data")),
        (" DATA ", Some(b"")),
    ] {
        let put = TreeCommand::put(id, window, data, None);
        becomes(&format!("rtree.add t {id} {numbers}{words}"), put, added);
        let put = TreeCommand::put(0, rect(2.0, 3.0, 2.0, 3.0), data, None);
        becomes(&format!("rtree.addpoint t 0 2 3{words}"), put, added);
    }
    becomes("rtree.get t 7", TreeCommand::Get { id: 7.into() }, "rtree.get");
    becomes("rtree.info t", TreeCommand::Info, "rtree.info");
    let predicates = [
        ("", Predicate::Intersects),
        (" within", Predicate::Within),
        (" CONTAINS", Predicate::Contains),
    ];
    for (word, predicate) in predicates {
        let count = TreeCommand::Count { window, predicate };
        becomes(&format!("rtree.count t {numbers}{word}"), count, "rtree.count");
        let search = TreeCommand::Search { window, predicate };
        let plain = ObjectForm::default();
        finds(&format!("rtree.search t {numbers}{word}"), search, plain);
        let line = format!("rtree.search t {numbers} WithRect limit 5{word}");
        finds(&line, search, ObjectForm { rect: true, most: 5, ..plain });
    }
    let nearest = TreeCommand::Nearest { x: 1.0, y: -2.0, wanted: 2_000 };
    let form = ObjectForm { rect: true, distance_from: Some((1.0, -2.0)), most: 2_000 };
    finds("rtree.nearest t 1 -2 2000 withdist withrect", nearest, form);
    with(&split("rtree.rem t 3 0 3"), |found| match found {
        Ok(Request::EachPart { key: b"t", parts, request, form: ReplyForm::Sum }) => {
            let asked = parts.map(|part| TreeCommand::of(request(part)));
            let removal = |id| TreeCommand::Remove { id: ObjectId::Number(id) };
            assert!(asked.eq([3, 0, 3].map(removal)));
        }
        other => panic!("{other:?}"),
    });
}

#[test]
fn ids_fields_and_expiries_are_understood() {
    let rect = rect(2.0, 3.0, 2.0, 3.0);
    let added = "rtree.add";
    for (text, id) in [
        ("bike:7", ObjectId::Name(b"bike:7")),
        ("-1", ObjectId::Name(b"-1")),
        ("007", ObjectId::Name(b"007")),
        ("9223372036854775808", ObjectId::Name(b"9223372036854775808")),
        ("7", ObjectId::Number(7)),
    ] {
        let line = format!("rtree.addpoint t {text} 2 3");
        becomes(&line, TreeCommand::put(id, rect, None, None), added);
        becomes(&format!("rtree.get t {text}"), TreeCommand::Get { id }, "rtree.get");
    }
    // The test's clock stands at 0.
    for (words, expiry) in [
        ("ex 5", Expiry::At(5_000)),
        ("PX 5", Expiry::At(5)),
        ("exat 1700000000", Expiry::At(1_700_000_000_000)),
        ("pxat 1700000000000", Expiry::At(1_700_000_000_000)),
        ("Persist", Expiry::Never),
        ("data x", Expiry::Keep),
    ] {
        let data = (expiry == Expiry::Keep).then_some(&b"x"[..]);
        let put = PutObject { expiry, data, ..PutObject::new("x", rect) };
        becomes(&format!("rtree.addpoint t x 2 3 {words}"), TreeCommand::Put(put), added);
    }
    let made = |line: &str, expected: TreeCommand<'_>| {
        with(&split(line), |found| match found {
            Ok(Request::Object { key: b"t", request, .. }) => {
                assert_eq!(TreeCommand::of(request), expected, "{line}");
            }
            other => panic!("{line}: {other:?}"),
        });
    };
    let bytes = Fields::encode([(&b"b"[..], &b"2"[..]), (b"a", b"1")]).unwrap();
    let fields = Fields::parse(&bytes);
    let put = PutObject { fields, data: Some(b"d"), ..PutObject::new("x", rect) };
    let put = PutObject { expiry: Expiry::At(1), ..put };
    made("rtree.addpoint t x 2 3 px 1 fields 3 b 9 a 1 b 2 data d", TreeCommand::Put(put));
    let none = PutObject { fields: Some(Fields::default()), ..PutObject::new(7, rect) };
    made("rtree.add t 7 2 3 2 3 FIELDS 0", TreeCommand::Put(none));
    let set = TreeCommand::SetFields { id: "x".into(), fields: fields.unwrap() };
    made("rtree.fset t x b 2 a 1", set);
    let mut names = Vec::new();
    Items::push(&mut names, b"a");
    Items::push(&mut names, b"c");
    let names = Items::parse(&names).unwrap();
    made("rtree.fget t 7 a c", TreeCommand::GetFields { id: 7.into(), names });
    let pairs: String = (0..65).map(|field| format!(" {field} x")).collect();
    let text = "ERR more than 64 fields, or more than 8192 bytes of them";
    assert_eq!(error(&format!("rtree.fset t x{pairs}")), text);
    assert_eq!(error(&format!("rtree.add t 1 0 0 1 1 fields 65{pairs}")), text);
    assert_eq!(error(&format!("rtree.fset t x a {}", "x".repeat(8_192))), text);
    let long = "x".repeat(513);
    assert_eq!(error(&format!("rtree.get t {long}")), "ERR id is empty or longer than 512 bytes");
}

#[test]
fn geometries_are_understood() {
    let wkt = "POLYGON ((0 0, 4 0, 4 4, 0 0))";
    let json = r#"{"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4],[0,0]]]}"#;
    let polygon = Shape::from_wkt(wkt).unwrap();
    for text in [wkt, json] {
        for (rest, expected) in [(&[][..], None), (&["data", "x"], Some(&b"x"[..]))] {
            let words = [&["rtree.add", "t", "7", "Geometry", text], rest].concat();
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            with(&words, |found| match found {
                Ok(Request::Object { key: b"t", request, form: ReplyForm::Object(reply) }) => {
                    let TreeCommand::Put(put) = TreeCommand::of(request) else {
                        panic!("{request:?}")
                    };
                    let wkb = polygon.to_wkb();
                    let wanted = PutObject::new(7, polygon.bounds());
                    let wanted = PutObject {
                        data: expected,
                        geometry: Some(Wkb::known(&wkb, wanted.rect)),
                        ..wanted
                    };
                    assert_eq!((put, reply.command), (wanted, "rtree.add"));
                }
                other => panic!("{other:?}"),
            });
        }
        let near = Refine::DistanceAtMost { from: polygon.clone(), most: 2.5 };
        let limited = ObjectForm { rect: true, most: 5, ..ObjectForm::default() };
        for (word, distance, refine) in [
            ("intersects", None, Refine::Intersects(polygon.clone())),
            ("WITHIN", None, Refine::Within(polygon.clone())),
            ("contains", None, Refine::Contains(polygon.clone())),
            ("dwithin", Some("2.5"), near),
        ] {
            let words = ["rtree.count", "t", "geometry", word, text].into_iter();
            let words: Vec<&[u8]> = words.chain(distance).map(str::as_bytes).collect();
            with(&words, |found| match found {
                Ok(Request::Object { key: b"t", request, form: ReplyForm::Object(_) }) => {
                    let counted = TreeCommand::CountRefined { refine: &refine.to_bytes() };
                    assert_eq!(TreeCommand::of(request), counted);
                }
                other => panic!("{other:?}"),
            });
            let words: Vec<&[u8]> = words.into_iter().chain([&b"withrect"[..]]).collect();
            with(&words, |found| assert_eq!(found.unwrap_err(), CommandError::Syntax));
            for (options, form) in
                [(&[][..], ObjectForm::default()), (&["limit", "5", "withrect"], limited)]
            {
                let words = ["rtree.search", "t", "geometry", word, text].into_iter();
                let words = words.chain(distance).chain(options.iter().copied());
                let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
                with(&words, |found| match found {
                    Ok(Request::Object { key: b"t", request, form: told }) => {
                        let refine = &refine.to_bytes();
                        let searched = TreeCommand::Refine { refine, of: None };
                        assert_eq!(TreeCommand::of(request), searched);
                        assert_eq!(told, ReplyForm::TreeObjects(form));
                    }
                    other => panic!("{other:?}"),
                });
            }
        }
    }
    let get = TreeCommand::Get { id: 7.into() };
    becomes("rtree.get t 7 withexpiry withgeometry", get, "rtree.get");
}

const SYNTAX: &str = "ERR syntax error";
const COUNT: &str = "ERR FIELDS is not an integer from 0 to 9223372036854775807";

fn arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

fn are_refused(cases: &[(&str, &str)]) {
    for (line, text) in cases {
        assert_eq!(error(line), *text, "{line}");
    }
}

#[test]
fn errors_about_missing_words_and_geometries() {
    are_refused(&[
        ("rtree.add t 1 0", &arity("rtree.add")),
        ("rtree.add t 1 0 0 1", SYNTAX),
        ("rtree.addpoint t 1 0", &arity("rtree.addpoint")),
        ("rtree.rem t", &arity("rtree.rem")),
        ("rtree.get t 1 2", SYNTAX),
        ("rtree.drop", &arity("rtree.drop")),
        ("rtree.search t 0 0", &arity("rtree.search")),
        ("rtree.search t 0 0 1", SYNTAX),
        ("rtree.nearest t 0 0", &arity("rtree.nearest")),
        ("rtree.add t 1 geometry", &arity("rtree.add")),
        ("rtree.add t 1 geometry 0 0 1", "ERR not a geometry: Invalid WKT format"),
        (
            "rtree.add t 1 geometry point(1)",
            "ERR not a geometry: Missing closing parenthesis for type",
        ),
        (
            "rtree.add t 1 geometry {}",
            "ERR not a geometry: missing field `type` at line 1 column 2",
        ),
        ("rtree.search t geometry touches point(1)", SYNTAX),
        ("rtree.search t geometry dwithin point(1)", SYNTAX),
        (
            "rtree.search t geometry within point(1",
            "ERR not a geometry: Missing closing parenthesis for type",
        ),
    ]);
}

#[test]
fn errors_about_ids_fields_and_expiries() {
    are_refused(&[
        ("rtree.add t  0 0 1 1", "ERR id is empty or longer than 512 bytes"),
        ("rtree.rem t 1 ", "ERR id is empty or longer than 512 bytes"),
        ("rtree.get t 1 withfields withfields", SYNTAX),
        ("rtree.add t 1 0 0 1 1 fields x a b", COUNT),
        ("rtree.add t 1 0 0 1 1 fields 2 a b c", SYNTAX),
        ("rtree.add t 1 0 0 1 1 fields 0 fields 0", SYNTAX),
        ("rtree.add t 1 0 0 1 1 fields 9223372036854775807 a b", SYNTAX),
        ("rtree.add t 1 0 0 1 1 ex 1 px 1", SYNTAX),
        ("rtree.add t 1 0 0 1 1 persist ex 1", SYNTAX),
        ("rtree.add t 1 0 0 1 1 ex 0", "ERR invalid expire time in 'rtree.add' command"),
        ("rtree.addpoint t 1 0 0 px -1", "ERR invalid expire time in 'rtree.addpoint' command"),
        ("rtree.add t 1 0 0 1 1 ex x", "ERR value is not an integer or out of range"),
        ("rtree.fset t 1 a", &arity("rtree.fset")),
        ("rtree.fset t 1 a b c", SYNTAX),
        ("rtree.fget t 1", &arity("rtree.fget")),
    ]);
}

#[test]
fn errors_name_the_argument() {
    are_refused(&[
        ("rtree.add t 1 x 0 1 1", "ERR minx is not a number"),
        ("rtree.add t 1 0  1 1", "ERR miny is not a number"),
        ("rtree.add t 1 0 0 0x10 1", "ERR maxx is not a number"),
        ("rtree.add t 1 0 0 1 1,5", "ERR maxy is not a number"),
        ("rtree.add t 1 nan 0 1 1", "ERR minx is not finite"),
        ("rtree.search t 0 -inf 1 1", "ERR miny is not finite"),
        ("rtree.count t 0 0 1e999 1", "ERR maxx is not finite"),
        ("rtree.search t 0 0 1 Infinity", "ERR maxy is not finite"),
        ("rtree.search t 2 0 1 1", "ERR minx is greater than maxx"),
        ("rtree.add t 1 0 2 1 1", "ERR miny is greater than maxy"),
        ("rtree.addpoint t 1 NaN 0", "ERR x is not finite"),
        ("rtree.nearest t 0 y 1", "ERR y is not a number"),
        ("rtree.nearest t 0 0 0", "ERR count is not an integer from 1 to 2000"),
        ("rtree.nearest t 0 0 2001", "ERR count is not an integer from 1 to 2000"),
        ("rtree.nearest t 0 0 1 withdist withdist", SYNTAX),
        ("rtree.search t 0 0 1 1 limit", SYNTAX),
        (
            "rtree.search t 0 0 1 1 limit 0",
            "ERR LIMIT is not an integer from 1 to 9223372036854775807",
        ),
        ("rtree.search t 0 0 1 1 within within", SYNTAX),
        ("rtree.search t 0 0 1 1 limit 1 limit 2", SYNTAX),
        ("rtree.search t 0 0 1 1 withdist", SYNTAX),
        ("rtree.count t 0 0 1 1 limit 2", SYNTAX),
        ("rtree.count t 0 0 1 1 near", SYNTAX),
        ("rtree.add t 1 0 0 1 1 data", SYNTAX),
        ("rtree.add t 1 0 0 1 1 bytes x", SYNTAX),
        ("rtree.add t 1 0 0 1 1 data x y", SYNTAX),
        ("rtree.create t kind", SYNTAX),
        ("rtree.create t kind btree", "ERR KIND is not rstar, guttman or hilbert"),
        ("rtree.create t capacity 3", "ERR CAPACITY is not an integer from 4 to 1024"),
        ("rtree.create t capacity 1025", "ERR CAPACITY is not an integer from 4 to 1024"),
        ("rtree.create t capacity 9 capacity 9", SYNTAX),
        ("rtree.create t bounds 0 0 1", SYNTAX),
        ("rtree.create t bounds 0 0 -1 1", "ERR minx is greater than maxx"),
        ("rtree.create t size 9", SYNTAX),
    ]);
}

#[test]
fn numbers_and_data_have_a_longest_text() {
    let long = format!("rtree.add t 1 {}1 0 1 1", "0".repeat(2_000));
    assert_eq!(error(&long), "ERR minx is not a number");
    let longest = format!("rtree.add t 1 {}1 0 1 1", "0".repeat(1_000));
    with(&split(&longest), |found| assert!(found.is_ok()));
    let mut words = split("rtree.addpoint t 1 0 0 data x");
    let most = vec![7; MAX_OBJECT_BYTES + 1];
    words[6] = &most[1..];
    with(&words, |found| assert!(found.is_ok()));
    words[6] = &most;
    let text = with(&words, |found| found.unwrap_err().to_string());
    assert_eq!(text, "ERR DATA is longer than 16384 bytes");
    words[3] = b"\xff\xfe";
    let text = with(&words, |found| found.unwrap_err().to_string());
    assert_eq!(text, "ERR x is not a number");
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// The reply to a line, of an answer with this value and number.
fn reply(line: &str, version: RespVersion, value: Option<&[u8]>, number: i64) -> String {
    with(&split(line), |found| {
        let Ok(Request::Object { form, .. }) = found else { panic!("{line}: {found:?}") };
        let answer = ShardAnswer { status: Status::Ok, number, value };
        written(|out| form.write(out, version, &[answer]))
    })
}

#[test]
fn replies() {
    use RespVersion::{Resp2, Resp3};
    let mut found = Vec::new();
    Objects::push(&mut found, 3, &rect(0.5, -1.0, 2.0, 1e-9));
    let named = Entry { rect: rect(4.0, 4.0, 4.0, 4.0), word: SURROGATE | 1 };
    FoundObjects::push_named(&mut found, &named, b"18446744073709551615");
    let objects = |form, version| {
        written(|out| assert!(ObjectsReply::new(found.clone(), form).write_piece(out, version)))
    };
    let plain = ObjectForm::default();
    assert_eq!(objects(plain, Resp2), "*2\r\n:3\r\n$20\r\n18446744073709551615\r\n");
    let form = ObjectForm { rect: true, distance_from: Some((2.0, 0.0)), ..plain };
    assert_eq!(
        objects(form, Resp3),
        "*2\r\n*6\r\n:3\r\n,0\r\n,0.5\r\n,-1\r\n,2\r\n,1e-9\r\n\
         *6\r\n$20\r\n18446744073709551615\r\n,4.47213595499958\r\n,4\r\n,4\r\n,4\r\n,4\r\n"
    );
    let form = ObjectForm { rect: true, ..plain };
    assert!(objects(form, Resp2).starts_with("*2\r\n*5\r\n:3\r\n$3\r\n0.5\r\n$2\r\n-1\r\n"));
    let none =
        |out: &mut Vec<u8>| assert!(ObjectsReply::new(vec![], plain).write_piece(out, Resp2));
    assert_eq!(written(none), "*0\r\n");

    let value = |payload: Payload<'_>| {
        let mut value = rect(1.0, 2.0, 3.0, 4.0).as_bytes().to_vec();
        value.extend(1_700_000_000_000_u64.to_le_bytes());
        payload.write(&mut value);
        value
    };
    let object = |value, flags, version| reply("rtree.get t 1", version, value, flags);
    let plain = value(Payload::default());
    assert_eq!(object(None, 0, Resp3), "_\r\n");
    assert_eq!(object(Some(&plain), 0, Resp3), "*5\r\n,1\r\n,2\r\n,3\r\n,4\r\n_\r\n");
    let with_data = value(Payload { data: b"hi", ..Payload::default() });
    let text = "*5\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n$2\r\nhi\r\n";
    assert_eq!(object(Some(&with_data), 1, Resp2), text);
    let told = |value: &[u8], flags| {
        let told = reply("rtree.get t 1 withgeometry", Resp2, Some(value), flags);
        told.strip_prefix("*6\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n").unwrap().to_owned()
    };
    assert_eq!(told(&with_data, 1), "$2\r\nhi\r\n$-1\r\n");
    let shape = Shape::from_wkt("LINESTRING (1 2, 3 4)").unwrap();
    let wkb = shape.to_wkb();
    let fields = Fields::encode([(&b"b"[..], &b"2"[..]), (b"a", b"")]).unwrap();
    let whole = value(Payload { geometry: &wkb, data: b"hi", fields: &fields, id: b"" });
    assert_eq!(told(&whole, 3), "$2\r\nhi\r\n$19\r\nLINESTRING(1 2,3 4)\r\n");
    assert_eq!(object(Some(&whole), 3, Resp2), text, "not asked for");
    let rest = |value: &[u8], flags| {
        let told = reply("rtree.get t 1 withexpiry withfields", Resp3, Some(value), flags);
        told.strip_prefix("*7\r\n,1\r\n,2\r\n,3\r\n,4\r\n").unwrap().to_owned()
    };
    let told = "$2\r\nhi\r\n%2\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nb\r\n$1\r\n2\r\n:1700000000000\r\n";
    assert_eq!(rest(&whole, 15), told);
    assert_eq!(rest(&plain, 0), "_\r\n%0\r\n:-1\r\n");
    let facts = reply("rtree.info t", Resp3, Some(info().to_words().as_bytes()), 0);
    assert!(facts.starts_with("%12\r\n$4\r\nkind\r\n$7\r\nguttman\r\n$8\r\ncapacity\r\n:30\r\n"));
    assert!(facts.contains("$9\r\nwith_data\r\n:6\r\n$13\r\nwith_geometry\r\n:8\r\n"), "{facts}");
    assert!(facts.ends_with(":9\r\n$11\r\nwith_expiry\r\n:10\r\n$14\r\nwith_surrogate\r\n:11\r\n"));
    assert_eq!(reply("rtree.info t", Resp2, None, 0), "$-1\r\n");
}

fn info() -> TreeInfo {
    TreeInfo {
        at: remora_layout::node::NodeRef::from_word(0),
        kind: TreeKind::Guttman,
        capacity: 30,
        height: 1,
        objects: 2,
        nodes: 3,
        node_bytes: 4,
        index_bytes: 5,
        with_data: 6,
        with_geometry: 8,
        with_fields: 9,
        with_expiry: 10,
        with_surrogate: 11,
        staged: 7,
        bounds: Rect::default(),
    }
}

#[test]
fn a_long_reply_comes_in_pieces() {
    let mut found = Vec::new();
    for id in 0..10_000 {
        Objects::push(&mut found, id, &Rect::default());
    }
    let mut reply = ObjectsReply::new(found, ObjectForm::default());
    let (mut out, mut longest) = (Vec::new(), 0);
    let mut is_done = false;
    while !is_done {
        let before = out.len();
        is_done = reply.write_piece(&mut out, RespVersion::Resp2);
        longest = longest.max(out.len() - before);
    }
    let ids: String = (0..10_000).map(|id| format!(":{id}\r\n")).collect();
    assert_eq!(String::from_utf8(out).unwrap(), format!("*10000\r\n{ids}"));
    assert!(longest < 8_000, "{longest}");
}

/// The page shows limits as numbers.
#[test]
fn the_page_tells_the_limits() {
    let page = remora_resp::markdown::commands();
    for (limit, what) in [
        (MAX_OBJECT_BYTES, "up to # bytes of DATA"),
        (MAX_OBJECT_ID_BYTES, "any other 1 to # bytes"),
        (MAX_FIELDS, "up to # FIELDS"),
        (MAX_FIELDS_BYTES, "# bytes in all"),
        (MAX_NEAREST, "Count is 1 to #."),
        (NODE_ENTRIES, "# without it"),
        (MAX_REPLY_BYTES / ENTRY_BYTES, "More than # objects"),
        (STREAM_BYTES / ENTRY_BYTES, "more than # objects may come"),
    ] {
        let text = what.replace('#', &limit.to_string());
        assert!(page.contains(&text), "{text}");
    }
}
