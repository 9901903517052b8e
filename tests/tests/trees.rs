//! Trees of places through the real binary: against a list, on every path, and
//! under readers while they change.

use remora_client_core::{
    Client, Error, Issue, Object, OpenTree, Options, Path, Predicate, Query, Rect, ServedBy,
    Session, TreeKind, TreeRead, TreeSettings, Wanted,
};
use remora_layout::node::node_bytes;
use remora_layout::record::state_offset;
use remora_protocol::message::Status;
use remora_tests::{Random, Role, ServerProcess, Value, role, wait_for, wait_until};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

const NAME: &[u8] = b"couriers";
const KINDS: [TreeKind; 3] = [TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert];
/// Ways to search: a path, READs at a time, bytes kept.
const WAYS: [(Path, Issue, usize); 5] = [
    (Path::Ask, Issue::Multi, 0),
    (Path::Read, Issue::Single, 0),
    (Path::Read, Issue::Multi, 0),
    (Path::Read, Issue::Multi, 4_000),
    (Path::Read, Issue::Multi, 1 << 20),
];

fn coordinate(random: &mut Random) -> f64 {
    random.below(1000) as f64 / 1000.0
}

fn rect(random: &mut Random, most: f64) -> Rect {
    let (x, y) = (coordinate(random), coordinate(random));
    let (width, height) = (coordinate(random) * most, coordinate(random) * most);
    Rect::new(x, x + width, y, y + height).unwrap()
}

/// A tree by several views, and what is in it.
struct Fixture {
    session: Session,
    views: Vec<(Path, OpenTree)>,
    list: BTreeMap<u64, (Rect, Option<Vec<u8>>)>,
    random: Random,
}

impl Fixture {
    fn new(mut session: Session, settings: &TreeSettings, seed: u64) -> Self {
        assert!(session.create_tree(NAME, settings).unwrap());
        assert!(!session.create_tree(NAME, settings).unwrap());
        let mut view = |(path, issue, cache_bytes)| {
            let tree = session.open_tree(NAME).unwrap().expect("it was made");
            (path, tree.reading(TreeRead { issue, cache_bytes }))
        };
        let views = WAYS.map(&mut view).into();
        Self { session, views, list: BTreeMap::new(), random: Random::new(seed) }
    }

    fn change(&mut self, ids: usize) {
        let id = self.random.below(ids) as u64;
        match self.random.below(10) {
            0..3 => {
                let was_there = self.list.remove(&id).is_some();
                assert_eq!(self.session.remove_place(NAME, id).unwrap(), was_there);
            }
            3 => {
                let place = self.session.place(NAME, id).unwrap();
                let known = self.list.get(&id).map(|(rect, data)| (*rect, data.as_deref()));
                assert_eq!(place.map(|place| (place.rect, place.data)), known);
            }
            _ => {
                let rect = rect(&mut self.random, 0.05);
                let bytes = self.random.below(300);
                let data = (self.random.below(3) == 0).then(|| self.random.bytes(bytes));
                let is_new = self.session.put_place(NAME, id, rect, data.as_deref()).unwrap();
                let known = self.list.entry(id);
                assert_eq!(is_new, matches!(known, std::collections::btree_map::Entry::Vacant(_)));
                let known = known.or_insert((rect, None));
                known.0 = rect;
                if let Some(data) = data {
                    known.1 = Some(data).filter(|data| !data.is_empty());
                }
            }
        }
    }

    fn search(&mut self, way: usize) {
        let window = rect(&mut self.random, 0.3);
        let predicate = match self.random.below(3) {
            0 => Predicate::Intersects,
            1 => Predicate::Within,
            _ => Predicate::Contains,
        };
        let all = self.list.iter().map(|(&id, (rect, _))| Object { rect: *rect, word: id });
        let expected: Vec<Object> = all.filter(|o| predicate.holds(&o.rect, &window)).collect();
        let count = self.session.count_places(NAME, window, predicate).unwrap();
        assert_eq!(count, expected.len() as u64);
        let (path, tree) = &mut self.views[way];
        let query = Query::Window { window, predicate };
        let found = self.session.search_tree(tree, &query, *path).unwrap();
        let mut objects = found.objects.to_vec();
        objects.sort_by_key(|object| object.word);
        assert_eq!(objects, expected, "{:?}", WAYS[way]);
        let (read, asked) = (found.counts.read, found.counts.asked);
        assert_eq!(read + asked, 1);
        // A search whose read lease lapses again and again is asked after all.
        let is_read = *path == Path::Read && (read == 1 || found.counts.read_lease_lapsed == 0);
        assert_eq!(read == 1, is_read, "{found:?}");
    }

    fn nearest(&mut self, way: usize) {
        let (x, y) = (coordinate(&mut self.random), coordinate(&mut self.random));
        let wanted = self.random.below(30);
        let (path, tree) = &mut self.views[way];
        let query = Query::Nearest { x, y, wanted };
        let found = self.session.search_tree(tree, &query, *path).unwrap();
        let all = self.list.iter();
        let mut expected: Vec<(f64, u64)> =
            all.map(|(&id, (rect, _))| (rect.distance_squared(x, y), id)).collect();
        expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
        expected.truncate(wanted);
        let ids: Vec<u64> = found.objects.iter().map(|object| object.word).collect();
        assert_eq!(ids, expected.iter().map(|&(_, id)| id).collect::<Vec<_>>());
    }
}

fn history(transport: Wanted, kind: TreeKind, capacity: usize, steps: usize) {
    let flags = ["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    let session = server.session_with(&Options { transport, ..remora_tests::options() });
    let settings = TreeSettings { kind, capacity, ..TreeSettings::default() };
    let mut fixture = Fixture::new(session, &settings, capacity as u64);
    for step in 0..steps {
        fixture.change(600);
        if step % 3 == 0 {
            fixture.search(step / 3 % WAYS.len());
        }
        if step % 13 == 0 {
            fixture.nearest(step / 13 % WAYS.len());
        }
    }
    let info = fixture.session.tree_info(NAME).unwrap().unwrap();
    assert_eq!(info.objects, fixture.list.len() as u64);
    let with_data = fixture.list.values().filter(|(_, data)| data.is_some()).count();
    assert_eq!((info.with_data, info.kind), (with_data as u64, kind));
    assert!(fixture.session.drop_tree(NAME).unwrap() && !fixture.session.drop_tree(NAME).unwrap());
    assert!(fixture.session.tree_info(NAME).unwrap().is_none());
    for (path, tree) in &mut fixture.views {
        let query = Query::Nearest { x: 0.0, y: 0.0, wanted: 1 };
        assert!(fixture.session.search_tree(tree, &query, *path).is_err(), "the tree has gone");
    }
    assert_eq!(server.resp().info("sessions_violated"), 0);
}

#[test]
fn histories_over_shared_memory_agree_with_a_list() {
    for (kind, capacity) in KINDS.into_iter().zip([4, 15, 30]) {
        history(Wanted::Shm, kind, capacity, 4_000);
    }
}

#[test]
fn histories_over_tcp_agree_with_a_list() {
    for (kind, capacity) in KINDS.into_iter().zip([30, 4, 9]) {
        history(Wanted::Tcp, kind, capacity, 1_500);
    }
}

fn everything() -> Query {
    let window = Rect::new(f64::MIN, f64::MAX, f64::MIN, f64::MAX).unwrap();
    Query::Window { window, predicate: Predicate::Intersects }
}

fn objects(count: u64, seed: u64) -> Vec<(u64, Rect)> {
    let mut random = Random::new(seed);
    let mut number = || random.bits() as f64 / u64::MAX as f64;
    (0..count)
        .map(|id| {
            let (x, y) = (number(), number());
            (id, Rect::new(x, x + number() * 1e-4, y, y + number() * 1e-4).unwrap())
        })
        .collect()
}

#[test]
fn a_loaded_tree_gives_every_object_in_as_many_replies_as_it_takes() {
    let flags = ["--shards=2", "--max-memory=128MiB", "--fabric-address=127.0.0.1:0"];
    let server = ServerProcess::start(&flags);
    let all = objects(100_000, 7);
    for transport in [Wanted::Shm, Wanted::Tcp] {
        let mut session = server.session_with(&Options { transport, ..remora_tests::options() });
        session.create_tree(NAME, &TreeSettings::default()).unwrap();
        let mut told = 0;
        let loaded = session.load_tree(NAME, &mut all.iter().copied(), &mut |sent| told = sent);
        assert_eq!((loaded, told), (Ok(100_000), 100_000));
        for (path, issue, cache_bytes) in WAYS {
            let tree = session.open_tree(NAME).unwrap().unwrap();
            let mut tree = tree.reading(TreeRead { issue, cache_bytes });
            let found = session.search_tree(&mut tree, &everything(), path).unwrap();
            let found: BTreeSet<u64> = found.objects.iter().map(|object| object.word).collect();
            assert!(found.into_iter().eq(0..100_000), "{path:?} {issue:?}");
        }
        // A second load is refused, and harms nothing.
        let again = session.load_tree(NAME, &mut all.iter().copied(), &mut |_| {});
        assert!(again.is_err());
        let twice = [all[0], all[1], all[0]];
        assert!(session.create_tree(b"twice", &TreeSettings::default()).unwrap());
        assert!(session.load_tree(b"twice", &mut twice.into_iter(), &mut |_| {}).is_err());
        let info = session.tree_info(b"twice").unwrap().unwrap();
        assert_eq!((info.objects, info.staged), (0, 0));
        assert!(session.drop_tree(NAME).unwrap() && session.drop_tree(b"twice").unwrap());
    }
}

#[test]
fn round_trips_are_the_nodes_the_height_or_two() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=128MiB"]);
    let mut session = server.session();
    session.create_tree(NAME, &TreeSettings::default()).unwrap();
    session.load_tree(NAME, &mut objects(100_000, 7).into_iter(), &mut |_| {}).unwrap();
    let height = session.tree_info(NAME).unwrap().unwrap().height as u64;
    assert_eq!(height, 4);
    let mut random = Random::new(3);
    let windows: Vec<Query> = (0..400)
        .map(|_| {
            let window = rect(&mut random, 0.01);
            Query::Window { window, predicate: Predicate::Intersects }
        })
        .collect();
    for (_, issue, cache_bytes) in &WAYS[1..] {
        let tree = session.open_tree(NAME).unwrap().unwrap();
        let mut tree = tree.reading(TreeRead { issue: *issue, cache_bytes: *cache_bytes });
        for (round, window) in windows.iter().chain(&windows).enumerate() {
            // To renew a right that has lapsed takes trips too: then it is searched
            // again, the first time by a view that knows nothing.
            let (counts, visited, is_empty) = wait_for("a search within the read lease", || {
                if round == 0 {
                    let fresh = session.open_tree(NAME).unwrap().unwrap();
                    let settings = TreeRead { issue: *issue, cache_bytes: *cache_bytes };
                    tree = fresh.reading(settings);
                }
                let found = session.search_tree(&mut tree, window, Path::Read).unwrap();
                let (counts, visited) = (found.counts, found.nodes_visited);
                (counts.read_lease_lapsed == 0).then_some((
                    counts,
                    visited,
                    found.objects.is_empty(),
                ))
            });
            // The first search has read the header too.
            let trips = counts.round_trips - (round == 0) as u64;
            let kept = tree.cache_bytes();
            match (issue, *cache_bytes) {
                // Where no leaf is read, the root is read by itself.
                (Issue::Single, _) if is_empty && trips > visited => {
                    assert_eq!((trips, counts.nodes), (visited + 1, visited))
                }
                (Issue::Single, _) => assert_eq!((trips, counts.nodes), (visited, visited)),
                (Issue::Multi, 0) => assert!(trips <= height && counts.nodes == visited),
                (_, bytes) => assert!(trips <= height && kept <= bytes),
            }
            if *cache_bytes == 1 << 20 && round >= windows.len() {
                assert!(trips <= 1 + (kept < 150_000) as u64, "{counts:?}, {kept} kept");
                assert!(counts.nodes < visited);
                if trips == 1 {
                    // Kept nodes by their first words, and once the root record: its
                    // header, the key, the tree's header.
                    let (cached, root) = (visited - counts.nodes, state_offset(NAME.len()) + 80);
                    let bytes = counts.nodes * node_bytes(30) as u64 + cached * 16;
                    assert_eq!((counts.bytes, counts.retries), (bytes + root as u64, 0));
                }
            }
        }
    }
}

/// A view that has read a tree is used on after the tree has expired, gone, or given
/// its name to a string: by every way to search, what it keeps counts no more.
#[test]
fn views_of_a_tree_that_ends_give_nothing() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=128MiB"]);
    let (mut session, mut resp) = (server.session(), server.resp());
    let all = objects(20_000, 11);
    let long = [b'n'; 500];
    for name in [NAME, &long] {
        let key = String::from_utf8(name.to_vec()).unwrap();
        let ends = ["PEXPIRE @ 1", "EXPIRE @ -1", "UNLINK @", "SET @ x", "FLUSHALL"];
        for (way, end) in ends.into_iter().enumerate() {
            session.create_tree(name, &TreeSettings::default()).unwrap();
            session.load_tree(name, &mut all.iter().copied(), &mut |_| {}).unwrap();
            let mut views = WAYS.map(|(path, issue, cache_bytes)| {
                let tree = session.open_tree(name).unwrap().unwrap();
                (path, tree.reading(TreeRead { issue, cache_bytes }))
            });
            let window = Rect::new(0.2, 0.3, 0.2, 0.3).unwrap();
            let query = Query::Window { window, predicate: Predicate::Intersects };
            let mut search = |path, tree: &mut _| {
                let found = session.search_tree(tree, &query, path)?;
                Ok((found.objects.len(), found.counts.read))
            };
            // One that will expire is read as it was before.
            for round in 0..2 {
                for (path, tree) in &mut views {
                    let reads = u64::from(*path == Path::Read);
                    let found = wait_for("a search within the read lease", || {
                        let found = search(*path, tree).unwrap();
                        (found.1 == reads).then_some(found.0)
                    });
                    assert!(found > 100, "{found}");
                }
                if round == 0 {
                    assert_eq!(resp.call(&format!("EXPIRE {key} 1000")), Value::Integer(1));
                }
            }
            assert!(!resp.call(&end.replace('@', &key)).is_error());
            if way == 0 {
                wait_until("it has expired", || {
                    resp.call(&format!("EXISTS {key}")) == Value::Integer(0)
                });
            }
            for (path, tree) in &mut views {
                let why = if way == 3 { Status::WrongType } else { Status::NoTree };
                assert_eq!(search(*path, tree), Err(Error::Refused(why)), "{end} {path:?}");
            }
            resp.call(&format!("DEL {key}"));
        }
    }
}

#[test]
fn every_shards_thread_answers_searches_of_one_tree() {
    const SHARDS: usize = 3;
    let server = ServerProcess::start(&["--shards=3", "--max-memory=64MiB"]);
    let client = Client::connect(&server.socket(), &remora_tests::options()).unwrap();
    let mut sessions: Vec<_> = (0..SHARDS).map(|_| client.session().unwrap()).collect();
    sessions[0].create_tree(NAME, &TreeSettings::default()).unwrap();
    let all = objects(20_000, 9);
    sessions[0].load_tree(NAME, &mut all.iter().copied(), &mut |_| {}).unwrap();
    let mut resp = server.resp();
    let before = resp.info("ring_frames_least");
    for (number, session) in sessions.iter_mut().enumerate() {
        let mut tree = session.open_tree(NAME).unwrap().unwrap();
        let found = session.search_tree(&mut tree, &everything(), Path::Ask).unwrap();
        assert_eq!((found.objects.len(), found.served_by), (all.len() + number, ServedBy::Asked));
        for round in 0..100 {
            // A session sees its own writes, whichever side answers.
            let id = 1_000_000 + number as u64;
            let rect = Rect::point(2.0 + round as f64, 2.0).unwrap();
            session.put_place(NAME, id, rect, None).unwrap();
            let query = Query::Window { window: rect, predicate: Predicate::Within };
            let found = session.search_tree(&mut tree, &query, Path::Ask).unwrap();
            assert!(found.objects.iter().any(|object| object.word == id));
            assert_eq!((found.counts.asked, found.counts.round_trips), (1, 1));
        }
    }
    // All objects lie in one shard, and each thread has answered its share.
    wait_until("each thread has counted what it answered", || {
        resp.info("ring_frames_least") > before + 100
    });
    // The owner says that a tree has gone.
    let mut trees: Vec<_> =
        sessions.iter_mut().map(|session| session.open_tree(NAME).unwrap().unwrap()).collect();
    sessions[1].drop_tree(NAME).unwrap();
    for (session, tree) in sessions.iter_mut().zip(&mut trees) {
        let gone = session.search_tree(tree, &everything(), Path::Ask).unwrap_err();
        assert_eq!(gone, Error::Refused(Status::NoTree));
        assert!(session.put_place(NAME, 7, Rect::point(0.0, 0.0).unwrap(), None).is_ok());
        let found = session.search_tree(tree, &everything(), Path::Ask).unwrap();
        assert_eq!(found.objects.len(), 1, "the one of that name now");
        session.drop_tree(NAME).unwrap();
    }
}

/// Where an object that goes to and fro is.
fn homes(id: u64) -> [Rect; 2] {
    let at = |x: f64, y: f64| Rect::point(x, y).unwrap();
    let (x, y) = ((id % 40) as f64 / 40.0, (id / 40) as f64 / 40.0);
    [at(x, y), at(1.0 - y, x)]
}

const STABLE: u64 = 1_000_000;
/// Searches of each process, at least, and changes of the tree meanwhile.
const SEARCHES: u64 = 1_000;
const CHANGES: u64 = 20_000;

#[test]
fn plays_its_part() {
    let Some((name, arguments)) = role() else { return };
    let socket = std::path::PathBuf::from(&arguments[0]);
    let transport = if arguments[1] == "tcp" { Wanted::Tcp } else { Wanted::Shm };
    let options = Options { transport, ..remora_tests::options() };
    let mut session = Session::connect(socket.as_path(), &options).unwrap();
    match name.as_str() {
        "searcher" => {
            let mut views: Vec<_> = WAYS
                .iter()
                .map(|&(path, issue, cache_bytes)| {
                    let tree = session.open_tree(NAME).unwrap().unwrap();
                    (path, tree.reading(TreeRead { issue, cache_bytes }))
                })
                .collect();
            Role::say("ready");
            let is_told = Arc::new(AtomicBool::new(false));
            std::thread::spawn({
                let is_told = Arc::clone(&is_told);
                move || {
                    Role::wait_for_word();
                    is_told.store(true, Ordering::Relaxed);
                }
            });
            let (mut random, mut searches, mut read, mut retries) =
                (Random::new(arguments[2].parse().unwrap()), 0, 0, 0);
            while searches < SEARCHES || read == 0 || !is_told.load(Ordering::Relaxed) {
                searches += 1;
                let way = random.below(views.len());
                let (path, tree) = &mut views[way];
                let window = rect(&mut random, 0.4);
                let predicate = Predicate::Intersects;
                let query = Query::Window { window, predicate };
                let found = session.search_tree(tree, &query, *path).unwrap();
                read += found.counts.read;
                retries += found.counts.retries;
                let mut ids: HashMap<u64, Rect> = HashMap::new();
                for object in found.objects {
                    assert!(ids.insert(object.word, object.rect).is_none(), "twice");
                    assert!(predicate.holds(&object.rect, &window));
                    if object.word < STABLE {
                        assert!(homes(object.word).contains(&object.rect), "never there");
                    }
                }
                for id in 0..1600 {
                    let [home, other] = homes(id);
                    if window.contains(&home) && window.contains(&other) {
                        assert!(ids.contains_key(&id), "{id} was there all the time: way {way}");
                    }
                    if window.contains(&home) {
                        assert!(ids.contains_key(&(STABLE + id)), "{id} never moved: way {way}");
                    }
                }
            }
            Role::say(&format!("done: {searches} searches, {read} read, {retries} retries"));
        }
        other => panic!("no such part: {other}"),
    }
}

#[test]
fn processes_search_while_one_changes_the_tree_at_full_speed() {
    for kind in KINDS {
        let flags = ["--shards=1", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
        let server = ServerProcess::start(&flags);
        let mut session = server.session();
        let settings = TreeSettings { kind, capacity: 6, ..TreeSettings::default() };
        session.create_tree(NAME, &settings).unwrap();
        for id in 0..1600 {
            session.put_place(NAME, id, homes(id)[0], None).unwrap();
            session.put_place(NAME, STABLE + id, homes(id)[0], None).unwrap();
        }
        let socket = server.socket();
        let socket = socket.to_str().unwrap();
        let mut searchers = [("shm", "1"), ("tcp", "2")].map(|(transport, seed)| {
            Role::start(module_path!(), "searcher", &[socket, transport, seed])
        });
        for searcher in &mut searchers {
            assert_eq!(searcher.hear().as_deref(), Some("ready"));
        }
        let ended = std::thread::scope(|scope| {
            let (sender, told) = channel();
            let hearing = scope.spawn(move || {
                // Once the tree has changed often enough; they search on until then.
                let _ = told.recv();
                searchers.each_mut().map(|searcher| {
                    searcher.give_word();
                    searcher.hear()
                })
            });
            let (mut random, mut changes) = (Random::new(5), 0u64);
            while !hearing.is_finished() {
                if changes == CHANGES {
                    sender.send(()).unwrap();
                }
                let id = random.below(1600) as u64;
                let home = homes(id)[random.below(2)];
                session.put_place(NAME, id, home, None).unwrap();
                // Others come and go, so that nodes split and condense.
                let other = 2 * STABLE + random.below(500) as u64;
                if random.below(2) == 0 {
                    session.put_place(NAME, other, rect(&mut random, 0.1), None).unwrap();
                } else {
                    session.remove_place(NAME, other).unwrap();
                }
                changes += 2;
            }
            println!("{kind:?}: {changes} changes");
            hearing.join().unwrap()
        });
        for said in ended {
            let said = said.expect("a searcher that found a fault has ended");
            println!("{kind:?}: {said}");
            assert!(said.starts_with("done"), "{said}");
        }
    }
}
