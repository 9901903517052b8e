//! Objects with geometries through the real binary: refined searches that are
//! asked, read, or sent by RESP, against a list; and under readers while the
//! objects change.

use remora_client_core::{
    Client, Error, Issue, OpenTree, Options, Path, Rect, Refine, ServedBy, Session, Shape,
    TreeRead, TreeSettings, Wanted,
};
use remora_protocol::message::Status;
use remora_tests::{
    DEADLINE, Random, Resp, ServerProcess, Value, wait_until, while_read_lease_lapses,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

const NAME: &[u8] = b"land";
/// Ways to search: a path, READs at a time, bytes kept.
const WAYS: [(Path, Issue, usize); 3] = [
    (Path::Ask, Issue::Multi, 0),
    (Path::Read, Issue::Single, 0),
    (Path::Read, Issue::Multi, 1 << 20),
];

/// A polygon as coasts are: its border goes to and fro at every scale, around
/// a lake of the same form.
fn island(random: &mut Random, x: f64, y: f64, radius: f64, corners: usize) -> Shape {
    let mut arms = vec![1.0; corners];
    let mut step = corners;
    while step > 1 {
        let part = 0.3 * step as f64 / corners as f64;
        for from in (0..corners).step_by(step) {
            let by = part * (random.below(2_001) as f64 / 1_000.0 - 1.0);
            arms[from..corners.min(from + step)].iter_mut().for_each(|arm| *arm += by);
        }
        step /= 2;
    }
    let ring = |size: f64| {
        let corner = |at: usize| {
            let turn = (at % corners) as f64 / corners as f64 * std::f64::consts::TAU;
            let arm = radius * size * arms[at % corners].max(0.1);
            format!("{} {}", x + arm * turn.cos(), y + arm * turn.sin())
        };
        let corners: Vec<String> = (0..=corners).map(corner).collect();
        format!("({})", corners.join(", "))
    };
    Shape::from_wkt(&format!("POLYGON ({}, {})", ring(1.0), ring(0.4))).unwrap()
}

fn number(random: &mut Random) -> f64 {
    random.below(1_000) as f64 / 10.0
}

fn shape(random: &mut Random) -> Shape {
    let (x, y) = (number(random), number(random));
    let corners = [4, 16, 64, 1_000][random.below(4)];
    match random.below(4) {
        0 => Shape::from_wkt(&format!("POINT ({x} {y})")).unwrap(),
        1 => {
            let (dx, dy) = (number(random) / 10.0, number(random) / 10.0);
            let line = format!("LINESTRING ({x} {y}, {} {y}, {} {})", x + dx, x - dy, y + dy);
            Shape::from_wkt(&line).unwrap()
        }
        _ => {
            let radius = 1.0 + number(random) / 10.0;
            island(random, x, y, radius, corners)
        }
    }
}

fn refine(random: &mut Random) -> Refine {
    match random.below(4) {
        0 => Refine::Intersects(shape(random)),
        1 => {
            let (x, y) = (number(random), number(random));
            Refine::Within(island(random, x, y, 30.0, 500))
        }
        2 => {
            let (x, y) = (number(random), number(random));
            Refine::Contains(Shape::from_wkt(&format!("POINT ({x} {y})")).unwrap())
        }
        _ => Refine::DistanceAtMost { from: shape(random), most: number(random) / 5.0 },
    }
}

/// A tree by several views, and what is in it: shapes, or rectangles.
struct Fixture {
    session: Session,
    views: Vec<(Path, OpenTree)>,
    list: BTreeMap<u64, (Shape, bool)>,
    random: Random,
}

impl Fixture {
    fn new(mut session: Session, capacity: usize) -> Self {
        let settings = TreeSettings { capacity, ..TreeSettings::default() };
        assert!(session.create_tree(NAME, &settings).unwrap());
        let mut view = |(path, issue, cache_bytes)| {
            let tree = session.open_tree(NAME).unwrap().expect("it was made");
            (path, tree.reading(TreeRead { issue, cache_bytes }))
        };
        let views = WAYS.map(&mut view).into();
        Self { session, views, list: BTreeMap::new(), random: Random::new(capacity as u64) }
    }

    fn change(&mut self, ids: usize) {
        let id = self.random.below(ids) as u64;
        let shape = shape(&mut self.random);
        let data = [None, Some(&b"bytes"[..])][self.random.below(2)];
        match self.random.below(10) {
            0 => {
                let was_there = self.list.remove(&id).is_some();
                assert_eq!(self.session.remove_place(NAME, id).unwrap(), was_there);
            }
            1 => {
                let place = self.session.place(NAME, id).unwrap();
                let found = place.map(|place| (place.rect, place.geometry.map(<[u8]>::to_vec)));
                let known = self.list.get(&id);
                let known = known.map(|(shape, own)| (shape.bounds(), own.then(|| shape.to_wkb())));
                assert_eq!(found, known);
            }
            2 => {
                let rect = shape.bounds();
                self.session.put_place(NAME, id, rect, data).unwrap();
                self.list.insert(id, (Shape::of_rect(&rect), false));
            }
            _ => {
                self.session.put_shape(NAME, id, &shape, data).unwrap();
                self.list.insert(id, (shape, true));
            }
        }
    }

    fn search(&mut self, way: usize) {
        let refine = refine(&mut self.random);
        let fitting = self.list.iter().filter(|(_, (shape, _))| refine.holds(shape));
        let expected: Vec<(u64, Rect)> =
            fitting.map(|(&id, (own, _))| (id, own.bounds())).collect();
        let (path, tree) = &mut self.views[way];
        let found = self.session.search_refined(tree, &refine, *path).unwrap();
        let mut objects: Vec<(u64, Rect)> =
            found.objects.iter().map(|object| (object.word, object.rect)).collect();
        objects.sort_by_key(|object| object.0);
        assert_eq!(objects, expected, "{:?} {}", WAYS[way], refine.shape().to_wkt());
        assert!(found.candidates >= found.objects.len() as u64 && found.nodes_visited > 0);
        assert_eq!(found.counts.read + found.counts.asked, 1, "{found:?}");
        assert_eq!(found.counts.operations, 1);
        if *path == Path::Ask {
            assert_eq!((found.served_by, found.counts.nodes), (ServedBy::Asked, 0));
        }
        let counted = self.session.count_refined(tree, &refine, *path).unwrap();
        assert_eq!(counted.objects, expected.len() as u64, "{:?}", WAYS[way]);
        assert_eq!(counted.counts.read + counted.counts.asked, 1, "{counted:?}");
        assert!(
            *path != Path::Ask
                || (counted.served_by == ServedBy::Asked && counted.counts.nodes == 0)
        );
    }
}

fn history(transport: Wanted, capacity: usize, steps: usize) {
    let flags = ["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    let session = server.session_with(&Options { transport, ..remora_tests::options() });
    let mut fixture = Fixture::new(session, capacity);
    for step in 0..steps {
        fixture.change(300);
        if step % 3 == 0 {
            fixture.search(step / 3 % WAYS.len());
        }
    }
    let info = fixture.session.tree_info(NAME).unwrap().unwrap();
    let with_geometry = fixture.list.values().filter(|(_, own)| *own).count();
    assert_eq!(info.with_geometry, with_geometry as u64);
    assert!(fixture.session.drop_tree(NAME).unwrap());
    let everything = Refine::DistanceAtMost { from: shape(&mut fixture.random), most: 1e6 };
    for (path, tree) in &mut fixture.views {
        let gone = fixture.session.search_refined(tree, &everything, *path).unwrap_err();
        assert_eq!(gone, Error::Refused(Status::NoTree));
    }
    // Another tree of that name: its objects are found, not the old records.
    let point = Shape::from_wkt("LINESTRING (1 1, 2 2)").unwrap();
    fixture.session.put_shape(NAME, 5, &point, None).unwrap();
    for (path, tree) in &mut fixture.views {
        let found = fixture.session.search_refined(tree, &everything, *path).unwrap();
        assert_eq!(found.objects.iter().map(|object| object.word).collect::<Vec<_>>(), [5]);
    }
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

#[test]
fn histories_over_shared_memory_agree_with_a_list() {
    history(Wanted::Shm, 4, 3_000);
    history(Wanted::Shm, 30, 3_000);
}

#[test]
fn histories_over_tcp_agree_with_a_list() {
    history(Wanted::Tcp, 10, 1_500);
}

#[test]
fn a_reader_asks_once_about_what_it_does_not_know() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB"]);
    let mut session = server.session();
    let mut random = Random::new(7);
    session.create_tree(NAME, &TreeSettings::default()).unwrap();
    let mut tree = session.open_tree(NAME).unwrap().unwrap();
    let boxes: Vec<Rect> = (0..200).map(|_| shape(&mut random).bounds()).collect();
    for (id, rect) in boxes.iter().enumerate() {
        session.put_place(NAME, id as u64, *rect, None).unwrap();
    }
    let middle = Refine::Within(island(&mut random, 50.0, 50.0, 40.0, 200));
    // No object has a geometry: rectangles are all there is, and the tree says so.
    let mut search = |session: &mut Session, refine: &Refine| {
        let found = session.search_refined(&mut tree, refine, Path::Read).unwrap();
        (found.served_by, found.counts, found.candidates, found.objects.len())
    };
    for _ in 0..2 {
        let (_, counts, candidates, found) =
            while_read_lease_lapses(&mut session, |session| search(session, &middle));
        assert_eq!((counts.read, counts.asked), (1, 0), "{counts:?}");
        assert!(candidates > 10 && found > 0);
    }
    let mut shapes = 0;
    for id in 0..200 {
        let shape = shape(&mut random);
        shapes += u64::from(!shape.is_point());
        session.put_shape(NAME, id, &shape, None).unwrap();
    }
    let all = Refine::DistanceAtMost { from: shape(&mut random), most: 1e6 };
    // With a right that lapses it asks for the whole search, and learns nothing.
    let (via, first, _, found) =
        while_read_lease_lapses(&mut session, |session| search(session, &all));
    assert_eq!((via, first.hits, found), (ServedBy::AskedAfterRead, 0, 200));
    let (via, second, _, _) =
        while_read_lease_lapses(&mut session, |session| search(session, &all));
    assert_eq!((via, second.hits), (ServedBy::Read, shapes), "{second:?}");
    assert!(second.round_trips <= first.round_trips + 4);
    assert_eq!((second.asked, second.stale), (0, 0));
    // What has changed is asked about, and only that.
    let (via, third, _, found) = while_read_lease_lapses(&mut session, |session| {
        for id in 0..3 {
            session.put_shape(NAME, id, &island(&mut random, 9.0, 9.0, 5.0, 8), None).unwrap();
        }
        search(session, &all)
    });
    assert_eq!((via, found), (ServedBy::AskedAfterRead, 200));
    assert!(third.stale <= 3, "{third:?}");
    let (via, fourth, _, _) =
        while_read_lease_lapses(&mut session, |session| search(session, &all));
    assert_eq!((via, fourth.asked), (ServedBy::Read, 0));
}

/// Forms that an object goes to and fro between. Those of even ids meet the
/// middle, the others go around it, though all their rectangles contain it.
fn form(id: u64, turn: u64) -> Shape {
    let (x, y) = (10.0 + (id % 7) as f64, 12.0 + (turn % 5) as f64);
    let wkt = match (id % 2, turn % 3) {
        (0, 0) => format!("LINESTRING ({x} {y}, 50 50, 90 90)"),
        (0, 1) => format!("POLYGON (({x} {y}, 90 {y}, 90 90, {x} 90, {x} {y}))"),
        (0, _) => format!("MULTIPOINT ({x} {y}, 50 50, 90 90)"),
        (_, 0) => format!("LINESTRING ({x} {y}, 90 {y}, 90 90)"),
        (_, 1) => format!("MULTIPOINT ({x} {y}, 90 90)"),
        (_, _) => format!(
            "POLYGON (({x} {y}, 90 {y}, 90 90, {x} 90, {x} {y}), (40 40, 60 40, 60 60, 40 60, 40 40))"
        ),
    };
    Shape::from_wkt(&wkt).unwrap()
}

#[test]
fn each_object_is_judged_by_one_of_its_states_while_they_change() {
    const OBJECTS: u64 = 200;
    let flags = ["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    let mut writer = server.session();
    for id in 0..OBJECTS {
        writer.put_shape(NAME, id, &form(id, 0), None).unwrap();
    }
    let middle = Shape::from_wkt("POLYGON ((48 48, 52 48, 52 52, 48 52, 48 48))").unwrap();
    let middle = Refine::Intersects(middle);
    let ended = AtomicBool::new(false);
    // Readers that have met changes, or do not read.
    let content = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            [(Wanted::Shm, 0), (Wanted::Shm, 1), (Wanted::Tcp, 2), (Wanted::Shm, 2)]
                .into_iter()
                .map(|(transport, way)| {
                    let (server, ended, content, middle) = (&server, &ended, &content, &middle);
                    scope.spawn(move || {
                        let options = Options { transport, ..remora_tests::options() };
                        let mut session = server.session_with(&options);
                        let (path, issue, cache_bytes) = WAYS[way];
                        let tree = session.open_tree(NAME).unwrap().unwrap();
                        let mut tree = tree.reading(TreeRead { issue, cache_bytes });
                        let (mut searches, mut hits, mut stale) = (0, 0, 0);
                        let mut is_content = false;
                        while !ended.load(Ordering::Relaxed) || searches < 20 {
                            let found = session.search_refined(&mut tree, middle, path).unwrap();
                            let mut ids: Vec<u64> =
                                found.objects.iter().map(|object| object.word).collect();
                            ids.sort_unstable();
                            let even: Vec<u64> = (0..OBJECTS).step_by(2).collect();
                            assert_eq!(ids, even, "{transport:?} {path:?}");
                            hits += found.counts.hits;
                            stale += found.counts.stale;
                            let counted = session.count_refined(&mut tree, middle, path).unwrap();
                            assert_eq!(counted.objects, OBJECTS / 2, "{transport:?} {path:?}");
                            searches += 1;
                            let is_met = path == Path::Ask || (hits > 0 && stale > 0);
                            if is_met && !std::mem::replace(&mut is_content, true) {
                                content.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
                })
                .collect();
        let began = Instant::now();
        for turn in 1.. {
            for id in 0..OBJECTS {
                writer.put_shape(NAME, id, &form(id, turn), None).unwrap();
            }
            let has_failed = readers.iter().any(|reader| reader.is_finished());
            let all_content = content.load(Ordering::Relaxed) == readers.len();
            if has_failed || (turn >= 30 && all_content) || began.elapsed() > DEADLINE {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(content.load(Ordering::Relaxed), 4, "all have met changes");
    });
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

fn call(resp: &mut Resp, words: &[&str]) -> Value {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    resp.try_call(&words).unwrap()
}

fn ids(value: &Value) -> Vec<i64> {
    let Value::Array(items) = value else { panic!("no array: {value:?}") };
    let id = |item: &Value| match item {
        Value::Integer(id) => *id,
        other => panic!("no id: {other:?}"),
    };
    let mut ids: Vec<i64> = items.iter().map(id).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn resp_clients_put_search_and_get_geometries() {
    let mut server = ServerProcess::start(&["--shards=2", "--max-memory=64MiB"]);
    let mut resp = server.resp();
    let polygon = "POLYGON((0 0,10 0,10 10,0 10,0 0),(4 4,6 4,6 6,4 6,4 4))";
    let json = r#"{"type":"LineString","coordinates":[[5,5],[20,20]]}"#;
    assert_eq!(call(&mut resp, &["RTREE.ADD", "t", "1", "GEOMETRY", polygon]), Value::Integer(1));
    let add = ["RTREE.ADD", "t", "2", "GEOMETRY", json, "DATA", "hi"];
    assert_eq!(call(&mut resp, &add), Value::Integer(1));
    assert_eq!(call(&mut resp, &["RTREE.ADDPOINT", "t", "3", "5", "5"]), Value::Integer(1));
    assert_eq!(call(&mut resp, &["RTREE.ADD", "t", "4", "12", "0", "14", "2"]), Value::Integer(1));
    let mut search = |words: &[&str]| {
        let found = ids(&call(&mut resp, &[&["RTREE.SEARCH", "t", "GEOMETRY"], words].concat()));
        let counted = call(&mut resp, &[&["RTREE.COUNT", "t", "GEOMETRY"], words].concat());
        match words.contains(&"LIMIT") {
            true => assert_eq!(counted, Value::Error("ERR syntax error".into())),
            false => assert_eq!(counted, Value::Integer(found.len() as i64), "{words:?}"),
        }
        found
    };
    assert_eq!(search(&["INTERSECTS", "POINT (5 5)"]), [2, 3], "1 has a hole there");
    assert_eq!(search(&["INTERSECTS", "POINT (4 4)"]), [1]);
    assert_eq!(search(&["WITHIN", "POLYGON ((0 0, 14 0, 14 2, 14 14, 0 14, 0 0))"]), [1, 3, 4]);
    assert_eq!(search(&["CONTAINS", "LINESTRING (1 1, 1 9, 9 9)"]), [1]);
    assert_eq!(search(&["CONTAINS", "LINESTRING (13 1, 13 2)"]), [4]);
    assert_eq!(search(&["DWITHIN", "POINT (5 5)", "0.99"]), [2, 3]);
    assert_eq!(search(&["DWITHIN", "POINT (5 5)", "1"]), [1, 2, 3]);
    assert_eq!(search(&["DWITHIN", json, "1e9", "LIMIT", "2"]).len(), 2);
    let text = |text: &str| Value::bulk(text);
    let got = call(&mut resp, &["RTREE.GET", "t", "2", "WITHGEOMETRY"]);
    let wkt = text("LINESTRING(5 5,20 20)");
    let line = vec![text("5"), text("5"), text("20"), text("20"), text("hi"), wkt];
    assert_eq!(got, Value::Array(line));
    let got = call(&mut resp, &["RTREE.GET", "t", "3", "WITHGEOMETRY"]);
    let Value::Array(items) = got else { panic!("{got:?}") };
    assert_eq!(items[4], items[5], "neither data nor a geometry");
    // Without a geometry it is its rectangle again; its data stays.
    assert_eq!(
        call(&mut resp, &["RTREE.ADD", "t", "2", "30", "30", "40", "40"]),
        Value::Integer(0)
    );
    let found = call(&mut resp, &["RTREE.SEARCH", "t", "GEOMETRY", "WITHIN", "POINT (31 31)"]);
    assert_eq!(ids(&found), [] as [i64; 0]);
    let found = call(&mut resp, &["RTREE.SEARCH", "t", "GEOMETRY", "CONTAINS", "POINT (31 31)"]);
    assert_eq!(ids(&found), [2]);
    for words in [
        &["RTREE.ADD", "t", "9", "GEOMETRY", "POLYGON ((0 0, 1 1))"][..],
        &["RTREE.ADD", "t", "9", "GEOMETRY", "POINT (1e400 0)"],
        &["RTREE.SEARCH", "t", "GEOMETRY", "WITHIN", "POLYGON EMPTY"],
        &["RTREE.SEARCH", "t", "GEOMETRY", "DWITHIN", "POINT (0 0)", "-1"],
        &["RTREE.SEARCH", "none", "GEOMETRY", "WITHIN", "POINT (0 0)"],
        &["RTREE.COUNT", "none", "GEOMETRY", "WITHIN", "POINT (0 0)"],
        &["RTREE.COUNT", "t", "GEOMETRY", "WITHIN"],
    ] {
        assert!(call(&mut resp, words).is_error(), "{words:?}");
    }
    let nested =
        format!("{}POINT (0 0){}", "GEOMETRYCOLLECTION (".repeat(9_000), ")".repeat(9_000));
    assert!(call(&mut resp, &["RTREE.ADD", "t", "9", "GEOMETRY", &nested]).is_error());
    assert!(server.is_alive() && !server.log().contains("panic"), "{}", server.log());
    wait_until("counts of trees", || server.resp().info("tree_objects") == 4);
    // The client's paths say the same.
    let client = Client::connect(&server.socket(), &remora_tests::options()).unwrap();
    let mut session = client.session().unwrap();
    let mut tree = session.open_tree(b"t").unwrap().unwrap();
    let near = Refine::DistanceAtMost { from: Shape::from_wkt("POINT (5 5)").unwrap(), most: 1.0 };
    for path in [Path::Ask, Path::Read, Path::Read] {
        let found = session.search_refined(&mut tree, &near, path).unwrap();
        let mut ids: Vec<u64> = found.objects.iter().map(|object| object.word).collect();
        ids.sort_unstable();
        assert_eq!(ids, [1, 3]);
    }
}
