//! The client of applications against a real server: each handle, each of its methods, by
//! either route; typed errors; a scan of all shards; GEO keys beside RESP.

use remora_client::{
    Address, Area, Around, CachePolicy, Client, ConnectFailure, Error, ExpireWhen, FatRootLimits,
    KeyForm, KeyType, NewObject, Options, OrderedCache, OrderedSettings, Path, Position, Predicate,
    Rect, Refine, Refusal, ServedBy, Session, SetOptions, Shape, Target, Transport, TreeKind,
    TreeReading, TreeSettings, Ttl, Wake, plan,
};
use remora_tests::{ServerProcess, Value};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

const PATHS: [Path; 3] = [Path::Ask, Path::Read, Path::Choose];

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards", "2", "--max-memory", "64MiB", "--wake", "event"])
}

fn session(server: &ServerProcess) -> Session {
    let options = Options::default().wake(Wake::Event).timeout(Duration::from_secs(20));
    Session::connect(&Address::unix(server.socket()), &options).expect("it runs")
}

fn point(x: f64, y: f64) -> Rect {
    Rect::point(x, y).expect("finite")
}

#[test]
fn a_value_that_was_set_is_one_read_away() {
    let server = server();
    let mut session = session(&server);
    let seen = (0..100).find_map(|_| {
        session.set(b"courier:7", b"free").expect("room");
        let got = session.string(b"courier:7").by(Path::Read).get().expect("an answer");
        assert_eq!(got.value, Some(&b"free"[..]));
        // The read lease lapses while a thread does not run.
        (got.counts.read_lease_lapsed == 0).then_some((got.served_by, got.counts))
    });
    let (served_by, counts) = seen.expect("a read while the lease holds");
    assert_eq!(served_by, ServedBy::Read);
    assert_eq!((counts.hits, counts.round_trips, counts.nodes), (1, 1, 1));
    assert_eq!((counts.read, counts.asked), (1, 0));
    assert!(session.counts().operations >= 2);
}

#[test]
fn links_are_followed_one_by_one_many_at_once_and_by_plans() {
    let server = server();
    let mut resp = server.resp();
    for number in 0..10 {
        for command in [
            format!("HSET zone:{number} name z{number}"),
            format!("HSET courier:{number} name c{number}"),
            format!("LINK.PUSH couriers courier:{number}"),
            format!("LINK.SET courier:{number} zone zone:{number}"),
        ] {
            assert!(!resp.call(&command).is_error(), "{command}");
        }
    }
    let words: Vec<&[u8]> = "FROM LIST couriers 2 3 GET name FOLLOW zone GET name"
        .split(' ')
        .map(str::as_bytes)
        .collect();
    let plan = plan::text::parse(&words).expect("a plan").plan;
    let mut session = session(&server);
    for path in PATHS {
        session.set_path(path);
        let zone = session.link_get(b"courier:7", b"zone").expect("an answer").expect("a link");
        assert_eq!(session.hash(b"courier:7").unwrap().link(b"name"), Ok(None));
        let chased = session.chase(&zone).expect("an answer");
        let Target::Hash(hash) = &chased.target else { panic!("{chased:?}") };
        assert_eq!((hash.key(), hash.get(b"name").unwrap().value), (&b"zone:7"[..], &b"z7"[..]));
        let couriers = session.link_range(b"couriers", 0, -1).expect("an answer");
        assert_eq!(couriers, session.list(b"couriers").unwrap().links(0, 9).expect("an answer"));
        let couriers: Vec<_> = couriers.into_iter().flatten().collect();
        let mut zones = Vec::new();
        let counts = session.chase_many(&couriers, &mut |number, chased| {
            let Target::Hash(hash) = &chased.target else { panic!("{chased:?}") };
            assert_eq!(hash.get(b"name").unwrap().value, format!("c{number}").as_bytes());
            zones.extend(hash.link(b"zone"));
        });
        assert_eq!((counts.expect("an answer").operations, zones.len()), (10, 10));
        let run = session.run_plan(&plan).expect("an answer");
        let row = |number| {
            ["c", "z"].map(|of| plan::Column::Text(format!("{of}{number}").into_bytes().into()))
        };
        assert_eq!(run.outcome.rows, [row(2), row(3)]);
    }
    // Their records moved when they got their links: their owners mend the hints of the list.
    assert!(session.mend_links(64).expect("an answer") > 0);
}

#[test]
fn strings_with_all_options_of_a_set() {
    let server = server();
    let mut session = session(&server);
    let mut set = |value: &[u8], options| session.string(b"k").set_with(value, options);
    assert_eq!(set(b"1", SetOptions::default().if_present()), Ok(false));
    assert_eq!(set(b"1", SetOptions::default().if_absent()), Ok(true));
    assert_eq!(set(b"2", SetOptions::default().if_absent()), Ok(false));
    let minute = Duration::from_secs(60);
    assert_eq!(set(b"2", SetOptions::default().if_present().expire(minute)), Ok(true));
    assert_eq!(set(b"3", SetOptions::default().keep_expiry()), Ok(true));
    // The server's clock may be a little behind.
    let most = minute + Duration::from_secs(1);
    let is_left = |ttl| matches!(ttl, Some(Ttl::Left(time)) if time <= most);
    assert!(is_left(session.ttl(b"k").expect("an answer")));
    let at = SystemTime::now() + minute;
    session.string(b"k").set_with(b"4", SetOptions::default().expire_at(at)).expect("room");
    assert!(is_left(session.ttl(b"k").expect("an answer")));
    let replaced = session.string(b"k").replace(b"5", SetOptions::default());
    assert_eq!(replaced, Ok(Some(&b"4"[..])));
    assert_eq!(session.ttl(b"k"), Ok(Some(Ttl::Never)));
    let refused = session.string(b"k").replace(b"6", SetOptions::default().if_absent());
    assert_eq!(refused, Ok(Some(&b"5"[..])), "the value, though the condition does not hold");
    assert_eq!(session.string(b"new").replace(b"6", SetOptions::default()), Ok(None));
    for path in PATHS {
        assert_eq!(session.string(b"k").by(path).get().expect("asked").value, Some(&b"5"[..]));
        assert_eq!(session.string(b"no").by(path).get().expect("asked").value, None);
    }
    assert_eq!(session.string(b"k").take(), Ok(Some(&b"5"[..])));
    assert_eq!(session.exists(b"k"), Ok(false));
    let large = vec![7u8; 3 << 20];
    session.string(b"large").set(&large).expect("room");
    assert_eq!(session.string(b"large").replace(b"", SetOptions::default()), Ok(Some(&large[..])));
}

#[test]
fn strings_in_pieces() {
    let server = server();
    let mut session = session(&server);
    assert_eq!(session.string(b"n").increment(41), Ok(41));
    assert_eq!(session.string(b"n").increment(1), Ok(42));
    assert_eq!(session.string(b"s").append(b"Hello"), Ok(5));
    assert_eq!(session.string(b"s").set_range(6, b"World"), Ok(11));
    assert_eq!(session.string(b"s").get_range(-5, -1), Ok(&b"World"[..]));
    assert_eq!(session.string(b"s").byte_len(), Ok(11));
    assert_eq!(session.string(b"b").set_bit(9, true), Ok(false));
    assert_eq!(session.string(b"b").get_bit(9), Ok(true));
    let minute = Some(Duration::from_secs(60));
    assert_eq!(session.string(b"n").get_and_expire(minute), Ok(Some(&b"42"[..])));
    assert!(session.expires_at(b"n").expect("an answer").is_some());
    session.set_many(&[(b"x", b"1"), (b"y", b"2")]).expect("room");
    let keys: [&[u8]; 3] = [b"x", b"y", b"z"];
    for path in PATHS {
        session.set_path(path);
        let mut values = vec![None; 3];
        let each = &mut |at: usize, value: Option<&[u8]>, _| values[at] = value.map(<[u8]>::to_vec);
        let counts = session.get_many(&keys, each).expect("answers");
        assert_eq!(counts.operations, 3);
        assert_eq!(values, [Some(b"1".to_vec()), Some(b"2".to_vec()), None]);
    }
}

#[test]
fn refusals_have_types() {
    let server = server();
    let mut session = session(&server);
    session.set(b"text", b"x").expect("room");
    let refused = |refusal| Error::Refused(refusal);
    assert_eq!(session.string(b"text").increment(1), Err(refused(Refusal::NotAnInteger)));
    assert_eq!(session.hash(b"text").unwrap().field_count(), Err(refused(Refusal::WrongType)));
    assert_eq!(session.geo(b"text").member_count(), Err(refused(Refusal::WrongType)));
    let tree = session.tree(b"none").unwrap().nearest(0.0, 0.0, 1);
    assert_eq!(tree.map(|found| found.len()), Err(refused(Refusal::NoTree)));
    assert_eq!(session.get(&vec![0; 100_000]).map(drop), Err(Error::KeyTooLong));
    let long = vec![0; 100_000];
    let fields = NewObject::new(1, point(0.0, 0.0)).fields([(&b"f"[..], &long[..])]);
    assert_eq!(session.tree(b"t").unwrap().put(&fields), Err(Error::BadFields));
    assert!(!refused(Refusal::WrongType).is_final() && Error::ServerGone.is_final());
    let nobody = Client::connect(&Address::unix("/nowhere/at/all"), &Options::default());
    assert_eq!(nobody.map(drop).unwrap_err().kind(), ConnectFailure::Unreachable);
    let verbs = Options::default().transport(Transport::Verbs);
    let none = Client::connect(&Address::unix(server.socket()), &verbs).map(drop);
    assert_eq!(none.unwrap_err().kind(), ConnectFailure::TransportUnavailable);
}

#[test]
fn keys_expire_and_tell_their_types() {
    let server = server();
    let mut session = session(&server);
    assert_eq!((session.ttl(b"k"), session.expires_at(b"k")), (Ok(None), Ok(None)));
    session.set(b"k", b"v").expect("room");
    let (soon, later) = (Duration::from_secs(60), SystemTime::now() + Duration::from_secs(600));
    assert_eq!(session.expire_at(b"k", later, ExpireWhen::IfSome), Ok(false));
    assert_eq!(session.expire(b"k", soon), Ok(true));
    assert_eq!(session.expire_at(b"k", later, ExpireWhen::IfNone), Ok(false));
    assert_eq!(session.expire_at(b"k", later, ExpireWhen::IfEarlier), Ok(false));
    assert_eq!(session.expire_at(b"k", later, ExpireWhen::IfLater), Ok(true));
    let at = session.expires_at(b"k").expect("an answer").expect("it expires");
    assert!(at.duration_since(later - Duration::from_secs(1)).is_ok());
    assert_eq!((session.persist(b"k"), session.persist(b"k")), (Ok(true), Ok(false)));
    assert_eq!(session.ttl(b"k"), Ok(Some(Ttl::Never)));
    assert_eq!(session.expire_at(b"k", SystemTime::UNIX_EPOCH, ExpireWhen::Always), Ok(true));
    assert_eq!((session.exists(b"k"), session.remove(b"k")), (Ok(false), Ok(false)));
    session.set(b"s", b"v").expect("room");
    session.hash(b"h").unwrap().set(&[(b"f", b"v")]).expect("room");
    session.tree(b"t").unwrap().insert(1, point(0.0, 0.0)).expect("room");
    let here = Position::new(2.0, 48.0).expect("on the globe");
    session.geo(b"g").add(&[(b"m", here)]).expect("room");
    let types = [KeyType::String, KeyType::Hash, KeyType::Tree, KeyType::SortedSet].map(Some);
    let keys: [&[u8]; 4] = [b"s", b"h", b"t", b"g"];
    assert_eq!(keys.map(|key| session.key_type(key).expect("an answer")), types);
    assert_eq!(session.key_type(b"none"), Ok(None));
}

#[test]
fn a_scan_finds_every_key_of_all_shards() {
    let server = server();
    let mut session = session(&server);
    assert!(session.scan().next().is_none());
    let mut all: BTreeSet<Vec<u8>> = (0..5_000).map(|n| format!("key:{n}").into_bytes()).collect();
    // Longer than what one reply is meant to hold.
    all.extend((0..20u8).map(|n| [&[n][..], &[b'x'; 60_000]].concat()));
    for key in &all {
        session.set(key, b"v").expect("room");
    }
    session.hash(b"key:hash").unwrap().set(&[(b"f", b"v")]).expect("room");
    all.insert(b"key:hash".to_vec());
    let found: Result<Vec<_>, _> = session.scan().collect();
    let found = found.expect("answers");
    let hash = found.iter().find(|found| found.key == b"key:hash");
    assert_eq!(hash.expect("it is there").key_type, KeyType::Hash);
    assert_eq!(found.into_iter().map(|found| found.key).collect::<BTreeSet<_>>(), all);
    let keys = session.scan().prefix(b"key:").count();
    assert_eq!(keys, 5_001);
}

#[test]
fn hashes_by_either_route() {
    let server = server();
    let mut session = session(&server);
    assert_eq!(session.hash(b"h").unwrap().field_count(), Ok(0));
    assert_eq!(session.hash(b"h").unwrap().set(&[(b"a", b"1"), (b"b", b"2")]), Ok(2));
    assert_eq!(session.hash(b"h").unwrap().increment(b"a", 41), Ok(42));
    for path in PATHS {
        for (name, value) in [(&b"a"[..], Some(&b"42"[..])), (b"b", Some(b"2")), (b"c", None)] {
            let got = session.hash(b"h").unwrap().by(path).get(name).expect("an answer");
            assert_eq!(got.value, value, "{path:?}");
        }
    }
    let values = session.hash(b"h").unwrap().get_many(&[b"b", b"no"]).expect("an answer");
    assert_eq!(values, [Some(b"2".to_vec()), None]);
    assert_eq!(session.hash(b"h").unwrap().all().expect("an answer").len(), 2);
    assert_eq!(session.hash(b"h").unwrap().remove(&[b"a", b"b", b"c"]), Ok(2));
    assert_eq!(session.exists(b"h"), Ok(false));
}

#[test]
fn trees_by_either_route() {
    let server = server();
    let mut session = session(&server);
    let settings = TreeSettings::default().kind(TreeKind::Hilbert).capacity(20);
    assert_eq!(session.tree(b"t").unwrap().create(settings), Ok(true));
    assert_eq!(session.tree(b"t").unwrap().create(settings), Ok(false));
    let grid = (0..2_500u64).map(|n| (n, point((n % 50) as f64, (n / 50) as f64)));
    let mut told = 0;
    assert_eq!(session.tree(b"t").unwrap().load(grid, |sent| told = sent), Ok(2_500));
    assert_eq!(told, 2_500);
    let info = session.tree(b"t").unwrap().info().expect("an answer").expect("it is there");
    assert_eq!((info.objects, info.kind, info.capacity), (2_500, TreeKind::Hilbert, 20));
    session.tree(b"t").unwrap().set_reading(TreeReading::default().one_at_a_time());
    let window = Rect::new(10.0, 19.0, 10.0, 19.0).expect("finite");
    for path in PATHS {
        let tree = session.tree(b"t").unwrap().by(path);
        let found = tree.search(window, Predicate::Intersects).expect("an answer");
        assert_eq!((found.len(), found.is_empty(), found.candidates), (100, false, None));
        let tree = session.tree(b"t").unwrap().by(path);
        let nearest = tree.nearest(10.2, 10.1, 2).expect("an answer");
        let ids: Vec<String> = nearest.iter().map(|hit| hit.id.to_string()).collect();
        assert_eq!(ids, ["510", "511"]);
    }
    assert_eq!(session.tree(b"t").unwrap().count(window, Predicate::Within), Ok(100));
    assert_eq!(session.tree(b"t").unwrap().remove_all(), Ok(true));
    assert_eq!(session.tree(b"t").unwrap().info(), Ok(None));
}

#[test]
fn objects_of_trees_with_what_they_carry() {
    let server = server();
    let mut session = session(&server);
    let minute = Duration::from_secs(60);
    let courier = NewObject::new("bike:4711", point(1.0, 1.0))
        .data(b"Anna")
        .fields([("state", "free"), ("zone", "north")])
        .expire(minute);
    assert_eq!(session.tree(b"t").unwrap().put(&courier), Ok(true));
    assert_eq!(session.tree(b"t").unwrap().put(&courier.clone().persist()), Ok(false));
    let set = session.tree(b"t").unwrap().set_fields("bike:4711", &[(b"state", b"busy")]);
    assert_eq!(set, Ok(Some(0)));
    let got = session.tree(b"t").unwrap().get("bike:4711").expect("an answer").expect("is there");
    assert_eq!((got.data, got.expires_at, got.geometry), (Some(&b"Anna"[..]), None, None));
    assert_eq!((got.field(b"state"), got.fields().count()), (Some(&b"busy"[..]), 2));
    assert_eq!(session.tree(b"t").unwrap().set_fields("no", &[(b"a", b"b")]), Ok(None));
    let road = Shape::from_wkt("LINESTRING (0 0, 4 4)").expect("a line");
    assert_eq!(session.tree(b"t").unwrap().put(&NewObject::with_shape("road", &road)), Ok(true));
    let zone = Shape::from_wkt("POLYGON ((1.5 2, 3 2, 3 3, 1.5 2))").expect("a polygon");
    for path in PATHS {
        let near = Refine::Intersects(zone.clone());
        let tree = session.tree(b"t").unwrap().by(path);
        let found = tree.search_shape(&near).expect("an answer");
        assert_eq!(found.iter().next().expect("the road").id.to_string(), "road");
        assert_eq!((found.len(), found.candidates), (1, Some(1)));
        let counted = session.tree(b"t").unwrap().by(path).count_shape(&near).expect("an answer");
        assert_eq!(counted.objects, 1);
    }
    assert_eq!(session.tree(b"t").unwrap().remove("road"), Ok(true));
    assert_eq!(session.tree(b"t").unwrap().insert("bike:4711", point(2.0, 2.0)), Ok(false));
    let got = session.tree(b"t").unwrap().get("bike:4711").expect("an answer").expect("is there");
    assert_eq!(
        (got.rect, got.data),
        (point(2.0, 2.0), Some(&b"Anna"[..])),
        "it carries what it did"
    );
}

#[test]
fn geo_keys_agree_with_resp() {
    let server = server();
    let mut session = session(&server);
    let at = |longitude, latitude| Position::new(longitude, latitude).expect("on the globe");
    let cities: [(&[u8], Position); 3] =
        [(b"Paris", at(2.35, 48.86)), (b"London", at(-0.13, 51.51)), (b"Rome", at(12.5, 41.9))];
    assert_eq!(session.geo(b"g").add(&cities), Ok(3));
    assert_eq!(
        (session.geo(b"g").member_count(), session.geo(b"no").member_count()),
        (Ok(3), Ok(0))
    );
    let positions = session.geo(b"g").positions(&[b"Rome", b"Atlantis"]).expect("an answer");
    assert!(positions[0].expect("it is there").distance_m(at(12.5, 41.9)) < 1.0);
    assert_eq!((positions[1], positions.len()), (None, 2));
    assert_eq!(session.geo(b"no").positions(&[b"x"]), Ok(vec![None]));
    let told = server.resp().call("GEODIST g Paris London");
    let metres = session.geo(b"g").distance_m(b"Paris", b"London").expect("an answer");
    assert_eq!(told, Value::bulk(format!("{:.4}", metres.expect("both are there"))));
    assert_eq!(session.geo(b"g").distance_m(b"Paris", b"Atlantis"), Ok(None));
    let area = Area::Circle { radius_m: 500_000.0 };
    let found = session.geo(b"g").search(Around::Member(b"Paris"), area).expect("an answer");
    let names: Vec<&[u8]> = found.iter().map(|member| &member.name[..]).collect();
    assert_eq!(names, [&b"Paris"[..], b"London"]);
    assert!((found[1].distance_m - metres.unwrap_or_default()).abs() < 0.001);
    let absent = session.geo(b"g").search(Around::Member(b"Atlantis"), area);
    assert_eq!(absent, Ok(Vec::new()));
    let wide = Area::Rectangle { width_m: 4e6, height_m: 4e6 };
    let found = session.geo(b"g").search(Around::Position(at(5.0, 47.0)), wide);
    assert_eq!(found.expect("an answer").len(), 3);
    assert_eq!(session.geo(b"g").remove(&[b"Rome", b"Atlantis"]), Ok(1));
    // A search with more members than one reply holds.
    let many: Vec<(String, Position)> =
        (0..6_000).map(|n| (format!("member:{n}"), at(f64::from(n) / 1_000.0, 10.0))).collect();
    let many: Vec<(&[u8], Position)> =
        many.iter().map(|(name, position)| (name.as_bytes(), *position)).collect();
    for some in many.chunks(500) {
        assert_eq!(session.geo(b"many").add(some), Ok(some.len() as u64));
    }
    let all = session.geo(b"many").search(Around::Position(at(3.0, 10.0)), wide);
    let all = all.expect("an answer");
    assert_eq!(all.len(), 6_000);
    assert!(all.is_sorted_by(|a, b| a.distance_m <= b.distance_m));
}

#[test]
fn it_tells_of_itself() {
    let server = server();
    let client = Client::connect(&Address::unix(server.socket()), &Options::default());
    let client = client.expect("it runs");
    assert_eq!(
        (client.transport(), client.shards(), client.rdma_device()),
        (Transport::Shm, 2, None)
    );
    assert!(client.data_buffers().bytes > 0 && format!("{client:?}").contains("Shm"));
    let mut session = client.session().expect("a free number");
    assert!(session.server_pid() > 0 && session.explanation().is_none());
    session.explain(true);
    session.get(b"k").expect("an answer");
    assert!(session.explanation().is_some() && format!("{session:?}").contains("Session"));
}

/// All ordered trees of a session share one bound, and the tree that is visited most has most of it.
#[test]
fn ordered_trees_keep_what_the_session_visits_most() {
    let server = server();
    let mut session = session(&server);
    let cache = OrderedCache {
        bytes: 20 << 10,
        policy: CachePolicy::Greedy(FatRootLimits::nodes(usize::MAX)),
    };
    session.keep_ordered(cache);
    let trees: [&[u8]; 3] = [b"hot", b"cold", b"own"];
    let settings = OrderedSettings { fan_out: 8, ..OrderedSettings::of(KeyForm::Integers) };
    for name in trees {
        let mut tree = session.ordered(name).expect("a short name");
        assert!(tree.create(settings).expect("room"));
        for key in 0..4_000u32 {
            assert!(tree.set(key.to_string().as_bytes(), b"v").expect("room"));
        }
    }
    session.ordered(b"own").expect("a short name").keep(OrderedCache { bytes: 4 << 10, ..cache });
    let mut get = |name: &[u8], key: u32| {
        let mut tree = session.ordered(name).expect("a short name").by(Path::Read);
        let got = tree.get(key.to_string().as_bytes()).expect("an answer");
        assert_eq!(got.value.expect("it is there").value, b"v");
        (tree.kept(), got.counts)
    };
    for turn in 0..6_000u32 {
        let key = turn.wrapping_mul(2_654_435_761) % 4_000;
        get(if turn % 16 == 0 { trees[1] } else { trees[0] }, key);
        get(b"own", key);
    }
    let of = trees.map(|name| get(name, 1).0);
    let [hot, cold, own] = of;
    assert!(hot.0 + cold.0 <= 20 << 10, "one bound: {of:?}");
    assert!(hot.1 > 2 * cold.1 && cold.1 > 0 && own.1 > 0, "{of:?}");
    assert!(own.0 <= 4 << 10, "a bound of its own: {of:?}");
    // The others' nodes count for less from now on.
    for turn in 0..24_000u32 {
        get(b"cold", turn.wrapping_mul(2_654_435_761) % 4_000);
    }
    let of = trees.map(|name| get(name, 1).0);
    assert!(of[1].1 > of[0].1, "{of:?}");
}

/// Iterators give what a range gives, however many entries they fetch at a time.
#[test]
fn entries_of_ordered_trees_come_one_after_the_other() {
    let server = server();
    let mut session = session(&server);
    for form in [KeyForm::Integers, KeyForm::Bytes] {
        let settings = OrderedSettings { fan_out: 8, ..OrderedSettings::of(form) };
        let name = format!("{form:?}");
        let mut tree = session.ordered(name.as_bytes()).expect("a short name");
        assert!(tree.create(settings).expect("room"));
        for key in 1_000..1_777u32 {
            tree.set(key.to_string().as_bytes(), b"v").expect("room");
        }
        for path in PATHS {
            let mut all = |from: u32, to: u32, is_reverse: bool| -> Vec<u32> {
                let (from, to) = (from.to_string(), to.to_string());
                let range = from.as_bytes()..to.as_bytes();
                let tree = session.ordered(name.as_bytes()).expect("a short name").by(path);
                let entries = match is_reverse {
                    false => tree.entries(range),
                    true => tree.reverse_entries(range),
                };
                let keys = entries.map(|entry| String::from_utf8(entry.expect("an answer").0));
                keys.map(|key| key.expect("digits").parse().expect("a number")).collect()
            };
            for (from, to) in
                [(1_000, 1_777), (1_100, 1_356), (1_100, 1_357), (1_776, 9_999), (1_500, 1_500)]
            {
                let expected: Vec<u32> = (from.max(1_000)..to.min(1_777)).collect();
                assert_eq!(all(from, to, false), expected, "{form:?} {path:?}");
                let reverse: Vec<u32> = expected.into_iter().rev().collect();
                assert_eq!(all(from, to, true), reverse, "{form:?} {path:?}");
            }
        }
    }
    session.set(b"other", b"v").expect("room");
    let mut entries = session.ordered(b"other").expect("a short name").entries(..);
    assert!(entries.next().expect("an error").is_err());
    assert!(entries.next().is_none(), "after an error there are no more");
}
