//! Sessions of users that may not do all: each request is looked at. A user that may not read everything reads
//! nothing by itself.

use crate::session_users::{refusal, session, start};
use remora_client_core::{
    ConnectError, Credentials, Error, Options, Path, PointerCacheKind, ServedBy, Session,
    SetOptions, Wanted, Why,
};
use remora_fabric::{Connected, Dialling, Link, RemoteAddress, Waited, Work, connect};
use remora_index::rtree::Query;
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word::RECORD_SECRET};
use remora_layout::database::Database;
use remora_layout::hello::Refusal;
use remora_layout::rect::{Predicate, Rect};
use remora_plan::text::parse;
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::message::Status;
use remora_protocol::ordered::OrderedRange;
use remora_protocol::sorted::{SortedRange, SortedRead};
use remora_protocol::{Command, Items};
use remora_tests::{RawSession, ServerProcess, Value, wait_until};
use std::ops::Bound;
use std::time::Duration;

const PATHS: [Path; 3] = [Path::Ask, Path::Read, Path::Choose];
const NO_PERMISSION: Error = Error::Refused(Status::NoPermission);

/// Everything that a session reads of the keys `a:*`, by one path, as text; and whether all was asked.
fn all_reads(session: &mut Session, path: Path) -> (Vec<String>, bool) {
    let (mut seen, mut asked) = (Vec::new(), true);
    let mut note = |what: String, served_by: ServedBy| {
        seen.push(what);
        asked &= served_by == ServedBy::Asked;
    };
    for key in [&b"a:s"[..], b"a:long", b"a:none"] {
        let got = session.get(key, path).unwrap();
        note(format!("{:?}", got.value.map(<[u8]>::len)), got.served_by);
    }
    let mut batch = Vec::new();
    let keys = [&b"a:s"[..], b"a:none", b"a:n"];
    session
        .get_batch(&keys, path, &mut |at, value, by| {
            batch.push((at, value.map(<[u8]>::to_vec), by))
        })
        .unwrap();
    batch.sort_by_key(|(at, ..)| *at);
    batch.into_iter().for_each(|(at, value, by)| note(format!("{at} {value:?}"), by));
    let mut hash = session.open_hash(b"a:h").unwrap();
    for name in [&b"f"[..], b"none"] {
        let got = session.hash_get(&mut hash, name, path).unwrap();
        note(format!("{:?}", got.value), got.served_by);
    }
    let link = session.link_get(&mut hash, b"to", path).unwrap().unwrap();
    let chased = session.chase(&link, path).unwrap();
    note(format!("{:?}", chased.target), chased.served_by);
    let mut set = session.open_set(b"a:set").unwrap();
    for member in [&b"m"[..], b"none"] {
        let got = session.set_has(&mut set, member, path).unwrap();
        note(format!("{:?}", got.value), got.served_by);
    }
    let mut list = session.open_list(b"a:l").unwrap();
    let items = session.list_range(&mut list, (0, -1), path).unwrap();
    note(format!("{:?}", items.items), items.served_by);
    let mut sorted = session.open_sorted(b"a:z").unwrap();
    let score = session.sorted_score(&mut sorted, b"m", path).unwrap();
    note(format!("{:?}", score.score), score.served_by);
    let range = SortedRange::Score { from: Bound::Unbounded, to: Bound::Included(2.0) };
    let read = SortedRead { range, is_reverse: false, offset: 0, limit: u64::MAX };
    let found = session.sorted_range(&mut sorted, read, path).unwrap();
    note(format!("{:?}", found.members), found.served_by);
    let mut ordered = session.open_ordered(b"a:b").unwrap();
    let got = session.ordered_get(&mut ordered, b"k", path).unwrap();
    note(format!("{:?}", got.value), got.served_by);
    let all = OrderedRange { from: Bound::Unbounded, to: Bound::Unbounded };
    let found = session.ordered_range(&mut ordered, all, (false, 10), path).unwrap();
    note(format!("{:?}", found.entries), found.served_by);
    let mut tree = session.open_tree(b"a:t").unwrap().unwrap();
    let window = Rect { min_x: 0.0, min_y: 0.0, max_x: 9.0, max_y: 9.0 };
    let query = Query::Window { window, predicate: Predicate::Intersects };
    let found = session.search_tree(&mut tree, &query, path).unwrap();
    note(format!("{:?}", found.objects), found.served_by);
    (seen, asked)
}

fn fill(session: &mut Session) {
    let options = SetOptions::default();
    session.set(b"a:s", b"v", options).unwrap();
    session.set(b"a:n", b"7", options).unwrap();
    session.set(b"a:long", &vec![b'x'; 300_000], options).unwrap();
    session.set(b"b:s", b"hidden", options).unwrap();
    let hash = session.open_hash(b"a:h").unwrap();
    session.hash_set(&hash, &[(b"f", b"w")]).unwrap();
    session.link_set(&hash, &[(b"to", b"a:s")]).unwrap();
}

#[test]
fn who_may_not_read_everything_asks_and_gets_the_same_answers() {
    let (server, mut admin, [shm, tcp]) = start(&[]);
    assert_eq!(admin.call("ACL SETUSER part on >pass ~a:* +@all"), Value::ok());
    for make in [
        "SADD a:set m n",
        "RPUSH a:l one two",
        "ZADD a:z 1 m 2 n 3 o",
        "BTREE.SET a:b k v",
        "RTREE.ADD a:t 7 1 1 2 2",
        "SADD b:set m",
    ] {
        assert!(!admin.call(make).is_error(), "{make}");
    }
    let top = Credentials::new("", "top");
    fill(&mut session(&shm, top.clone()).unwrap());
    let part = Credentials::new("part", "pass");
    // Memory that is read without the server is not for this user, and the server says where to ask.
    assert_eq!(refusal(session(&shm, part.clone())), Refusal::RestrictedUser);
    let auto = (Wanted::Auto, shm.1.clone());
    for way in [&tcp, &auto] {
        let mut own = session(way, part.clone()).unwrap();
        assert_eq!(own.transport().name(), "tcp");
        let mut all = session(&tcp, top.clone()).unwrap();
        own.explain(true);
        for path in PATHS {
            let (seen, asked) = all_reads(&mut own, path);
            assert!(asked, "{path:?}: {seen:?}");
            assert_eq!(seen, all_reads(&mut all, path).0, "{path:?}");
            own.get(b"a:s", path).unwrap();
            let explained = own.explanation().unwrap();
            assert_eq!(explained.why, Why::Rights);
            assert!(explained.to_string().starts_with("ask: this user may not read everything"));
        }
    }
    drop(server);
}

#[test]
fn each_request_of_a_session_is_looked_at() {
    let (server, mut admin, [_, tcp]) = start(&[]);
    for make in [
        "ACL SETUSER part on >pass ~a:* %R~r:* +@all -get -sadd -select",
        "SET r:s v",
        "RPUSH b:l x",
    ] {
        assert!(!admin.call(make).is_error(), "{make}");
    }
    let mut own = session(&tcp, Credentials::new("part", "pass")).unwrap();
    let options = SetOptions::default();
    own.set(b"a:s", b"v", options).unwrap();
    assert_eq!(own.get(b"a:s", Path::Choose).err(), Some(NO_PERMISSION));
    assert_eq!(own.strlen(b"r:s").unwrap(), 1);
    for key in [&b"b:s"[..], b"r:s"] {
        assert_eq!(own.set(key, b"v", options).err(), Some(NO_PERMISSION));
        // Before its value has come.
        assert_eq!(own.set(key, &vec![0; 300_000], options).err(), Some(NO_PERMISSION));
    }
    assert_eq!(own.set_many(&[(b"a:1", b"v"), (b"b:1", b"v")]).err(), Some(NO_PERMISSION));
    let set = own.open_set(b"a:set").unwrap();
    assert_eq!(own.set_add(&set, &[b"m"]).err(), Some(NO_PERMISSION));
    let list = own.open_list(b"a:l").unwrap();
    assert_eq!(own.list_push(&list, Side::Left, &[b"x"]).unwrap(), 1);
    // The name of the command is SORT's, which reads its first key: the list would be a destination.
    let mut items = Vec::new();
    Items::push(&mut items, b"x");
    let store = ListCommand::Store { items: Items::parse(&items).unwrap() };
    let store = Command::Of { key: b"r:s", request: store.request() };
    assert_eq!(own.ask(&store).err(), Some(NO_PERMISSION));
    // Keys beside the first.
    let moved = own.list_wait_to_move(&list, b"b:l", (Side::Left, Side::Left), None);
    assert_eq!(moved.err(), Some(NO_PERMISSION));
    let one = Some(Duration::from_millis(1));
    let waited = own.list_wait_any(&[b"a:none", b"b:l"], (Side::Left, 1), one);
    assert_eq!(waited.err(), Some(NO_PERMISSION));
    let query = parse(&["FROM", "KEYS", "1", "a:s", "GETALL"]).unwrap();
    assert_eq!(own.run_plan(&query.plan, Path::Choose).err(), Some(NO_PERMISSION));
    assert_eq!(own.get(b"a:s", Path::Read).err(), Some(NO_PERMISSION));
    assert_eq!(admin.call("LRANGE b:l 0 -1"), Value::Array(vec![Value::bulk("x")]));
    // GET twice and SADD.
    assert_eq!(admin.info("acl_access_denied_cmd"), 3);
    drop(server);
}

/// A client of its own making reads no arena, and not the secret by which records are known.
#[test]
fn a_session_that_asks_has_no_region_to_read() {
    let (_server, mut admin, [_, tcp]) = start(&[]);
    assert_eq!(admin.call("ACL SETUSER part on >pass ~a:* +@all"), Value::ok());
    let read = |user: &str, password: &str, offset: usize| {
        let credentials = Credentials::new(user, password);
        let dialling = Dialling { wanted: Wanted::Tcp, credentials, ..Dialling::default() };
        let Ok(Connected::Remote(made)) = connect(&tcp.1, &dialling) else { panic!("no session") };
        let mut link = made.link;
        link.reserve_landing(8);
        let from = RemoteAddress { region: 0, offset: offset as u64 };
        link.post(&[Work::Read { id: 1, from, into: 0, bytes: 8 }]);
        loop {
            if let Some(done) = link.poll() {
                return done.result.is_ok().then(|| link.landed(0, 8).to_vec());
            }
            assert!(link.wait(Some(Duration::from_secs(5))) != Waited::TimedOut);
        }
    };
    for (offset, of_all, of_part) in
        [(ARENA_HEADER_BYTES, true, false), (RECORD_SECRET * 8, true, true)]
    {
        assert_eq!(read("", "top", offset).is_some(), of_all);
        assert_eq!(read("part", "pass", offset).is_some(), of_part);
    }
    assert_eq!(read("part", "pass", RECORD_SECRET * 8), Some(vec![0; 8]));
    assert_ne!(read("", "top", RECORD_SECRET * 8), Some(vec![0; 8]));
}

#[test]
fn who_may_read_everything_reads_and_asks_for_the_rest() {
    let (_server, mut admin, ways) = start(&["--shm-users=named,default"]);
    for make in [
        "ACL SETUSER reader on >pass %R~* +@read -@dangerous +select",
        "ACL SETUSER named on >pass %R~* +@read +select",
        "SET k v",
    ] {
        assert_eq!(admin.call(make), Value::ok());
    }
    let [shm, tcp] = &ways;
    assert_eq!(refusal(session(shm, Credentials::new("reader", "pass"))), Refusal::RestrictedUser);
    for (way, user) in [(tcp, "reader"), (shm, "named")] {
        let mut own = session(way, Credentials::new(user, "pass")).unwrap();
        assert_eq!(own.get(b"k", Path::Read).unwrap().value, Some(&b"v"[..]));
        wait_until("it reads", || own.get(b"k", Path::Read).unwrap().served_by.is_read());
        assert_eq!(own.set(b"k", b"w", SetOptions::default()).err(), Some(NO_PERMISSION));
        assert_eq!(own.del(b"k").err(), Some(NO_PERMISSION));
        assert_eq!(own.get(b"k", Path::Ask).unwrap().value, Some(&b"v"[..]));
    }
    // A client that writes the table of shared pointers leads others' reads: users that may do all get it.
    let shared = |user: &str, password: &str| {
        let credentials = Credentials::new(user, password);
        let pointer_cache = PointerCacheKind::Shared;
        Session::connect(&shm.1, &Options { credentials, pointer_cache, ..Options::default() })
    };
    assert!(matches!(shared("named", "pass"), Err(ConnectError::NoPointerSharing { .. })));
    shared("", "top").unwrap();
}

#[test]
fn a_right_that_is_taken_away_is_gone_with_the_reply() {
    let (_server, mut admin, [_, tcp]) = start(&[]);
    assert_eq!(admin.call("ACL SETUSER part on >pass ~a:* +@all"), Value::ok());
    let mut own = session(&tcp, Credentials::new("part", "pass")).unwrap();
    let options = SetOptions::default();
    own.set(b"a:s", b"v", options).unwrap();
    // Fewer keys: the session goes on, and asks for what is left.
    assert_eq!(admin.call("ACL SETUSER part resetkeys ~b:*"), Value::ok());
    assert_eq!(own.get(b"a:s", Path::Choose).err(), Some(NO_PERMISSION));
    own.set(b"b:s", b"v", options).unwrap();
    // More rights than it had: it asks all the same.
    assert_eq!(admin.call("ACL SETUSER part ~a:* +@all"), Value::ok());
    assert_eq!(own.get(b"a:s", Path::Read).unwrap().served_by, ServedBy::Asked);
    assert_eq!(admin.call("ACL DELUSER part"), Value::Integer(1));
    assert!(own.get(b"a:s", Path::Ask).is_err());
    wait_until("the session ends", || own.get(b"a:s", Path::Ask).is_err_and(|e| e.is_final()));
}

/// A user that may not SELECT is refused other databases by every path: one that reads by itself reads all of
/// them, so such a user does not.
#[test]
fn databases_are_as_closed_to_reads_as_to_questions() {
    let (_server, mut admin, [shm, tcp]) = start(&[]);
    for make in [
        "ACL SETUSER first on >pass %R~* +@read",
        "ACL SETUSER one on >pass %R~* +@read +select|1",
        "SELECT 1",
        "SET k v",
    ] {
        assert_eq!(admin.call(make), Value::ok());
    }
    for (user, may) in [("first", false), ("one", true)] {
        let credentials = Credentials::new(user, "pass");
        assert_eq!(refusal(session(&shm, credentials.clone())), Refusal::RestrictedUser);
        let database = Database::new(1).unwrap();
        let options = Options { database, transport: tcp.0, credentials, ..Options::default() };
        let mut own = Session::connect(&tcp.1, &options).unwrap();
        for path in PATHS {
            let got = own.get(b"k", path);
            assert_eq!(got.is_ok(), may, "{user} {path:?}");
        }
    }
}

/// A SET in pieces is looked at when it begins and when it is whole.
#[test]
fn a_right_that_goes_while_a_value_comes_is_gone() {
    let server = ServerProcess::start(&["--shards=1", "--requirepass=top"]);
    let mut admin = server.resp();
    assert_eq!(admin.call("AUTH top"), Value::ok());
    assert_eq!(admin.call("ACL SETUSER u on >pass %R~* ~a:* +@all"), Value::ok());
    let mut raw = RawSession::connect_as(&server.socket(), Credentials::new("u", "pass"));
    let answer = |raw: &mut RawSession| {
        let mut reply = None;
        wait_until("a reply comes", || {
            reply = reply.take().or_else(|| raw.receive());
            reply.is_some()
        });
        Status::from_number(reply.unwrap()[0]).unwrap()
    };
    raw.announce_large(1, b"a:k", 180_000, 3);
    assert_eq!(answer(&mut raw), Status::Ok);
    raw.announce_large(2, b"b:k", 180_000, 3);
    assert_eq!(answer(&mut raw), Status::NoPermission);
    raw.announce_large(3, b"a:l", 180_000, 2);
    // It may still read everything, so its session goes on.
    assert_eq!(admin.call("ACL SETUSER u resetkeys %R~*"), Value::ok());
    raw.send_pieces(3, 1);
    assert_eq!(answer(&mut raw), Status::NoPermission);
    assert_eq!(admin.call("EXISTS a:k a:l b:k"), Value::Integer(1));
}

/// The log is all of the data: only a user that may do all can follow it.
#[test]
fn a_replica_whose_user_may_not_do_all_gets_no_data() {
    let (server, mut admin, ways) = start(&[]);
    for make in [
        "ACL SETUSER part on >pass ~a:* +@all",
        "ACL SETUSER reader on >pass %R~* +@read +select",
        "ACL SETUSER nearly on >pass ~* &* +@all -ping",
        "SET a:k v",
    ] {
        assert_eq!(admin.call(make), Value::ok());
    }
    let [(_, shm), (_, tcp)] = &ways;
    for (user, address) in [("part", tcp), ("reader", tcp), ("reader", shm), ("nearly", shm)] {
        let (of, as_user) = (format!("--replica-of={address}"), format!("--peer-user={user}"));
        let flags = ["--shards=2", "--replica-reads=stale", &of, &as_user, "--peer-password=pass"];
        let replica = ServerProcess::start(&flags);
        wait_until("it is refused", || {
            replica.log().contains("it refuses: the replica's user there may not do all")
        });
        let mut reader = replica.resp();
        assert_eq!(reader.info("slave_copies"), 0, "{user}");
        assert_ne!(reader.call("GET a:k"), Value::bulk("v"), "{user}");
        // As a primary it says what it has.
        assert_eq!(reader.call("REPLICAOF NO ONE"), Value::ok(), "{user}");
        assert_eq!(reader.call("DBSIZE"), Value::Integer(0), "{user}");
    }
    assert_eq!(admin.info("connected_slaves"), 0);
    drop(server);
}

/// A message of a server can make another one lead, or follow.
#[test]
fn messages_of_servers_come_from_users_who_may_do_all() {
    let (server, mut admin, _) = start(&[]);
    assert_eq!(admin.call("ACL SETUSER nearly on >pass ~* &* +@all -ping"), Value::ok());
    let mut nearly = server.resp();
    assert_eq!(nearly.call("AUTH nearly pass"), Value::ok());
    let told = "NOPERM messages of servers are taken from users that may do all";
    assert_eq!(nearly.call("MEMBER.DELIVER x"), Value::Error(told.into()));
    let other = admin.call("MEMBER.DELIVER x");
    assert!(matches!(&other, Value::Error(text) if !text.starts_with("NOPERM")), "{other:?}");
}
