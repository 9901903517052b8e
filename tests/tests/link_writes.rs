//! Links that a native session writes: read by sessions, and over RESP.

use remora_client::{
    Address, Client, Error, KeyType, Link, Options, Path, Refusal, Session, Target, Transport, Wake,
};
use remora_layout::limits::MAX_KEY_BYTES;
use remora_tests::{ServerProcess, Value, wait_for};
use std::time::Duration;

const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Tcp];

fn server() -> ServerProcess {
    let flags = ["--shards=2", "--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
    ServerProcess::start(&flags)
}

fn session(server: &ServerProcess, transport: Transport) -> Session {
    let options = Options::default().wake(Wake::Event).timeout(Duration::from_secs(20));
    let options = options.transport(transport);
    let client = Client::connect(&Address::unix(server.socket()), &options).expect("it runs");
    assert_eq!(client.transport(), transport);
    client.session().expect("there are few")
}

fn bulk(text: impl Into<String>) -> Value {
    Value::bulk(text.into())
}

fn links_of(server: &ServerProcess, command: &str) -> Value {
    server.resp().call(command)
}

/// What READs say of a link, as soon as the session may read.
fn read_link(session: &mut Session, key: &str, field: &str) -> Link {
    session.set_path(Path::Read);
    wait_for("a link is read with its hint", || {
        let link = session.link_get(key.as_bytes(), field.as_bytes()).expect("an answer")?;
        link.hint.is_some().then_some(link)
    })
}

/// The field `name` of the hash to which a link leads.
fn name_at(session: &mut Session, link: &Link) -> Option<String> {
    match &session.chase(link).expect("an answer").target {
        Target::Hash(hash) => {
            let name = hash.get(b"name").expect("each zone has a name").value;
            Some(String::from_utf8(name.to_vec()).expect("it is text"))
        }
        Target::Gone => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn fields_that_a_session_links_are_links_to_sessions_and_over_resp() {
    let server = server();
    for (round, transport) in TRANSPORTS.into_iter().enumerate() {
        let mut session = session(&server, transport);
        let key = |of: &str| format!("{of}:{round}");
        let [courier, zone, boss, large] = ["courier", "zone", "boss", "large"].map(key);
        session.hash(zone.as_bytes()).unwrap().set(&[(b"name", b"West")]).expect("room");
        session.hash(courier.as_bytes()).unwrap().set(&[(b"name", b"Ada")]).expect("room");
        let links: [(&[u8], &[u8]); 2] = [(b"zone", zone.as_bytes()), (b"boss", boss.as_bytes())];
        assert_eq!(session.link_set(courier.as_bytes(), &links), Ok(2));
        assert_eq!(session.link_set(courier.as_bytes(), &links), Ok(0), "none is new");
        // One link of each field, as LINK.GET sees it; other commands see the key's name.
        let told = links_of(&server, &format!("LINK.GET {courier} name zone boss"));
        assert_eq!(told, Value::Array(vec![Value::Null, bulk(&zone), bulk(&boss)]));
        assert_eq!(links_of(&server, &format!("HGET {courier} zone")), bulk(&zone));
        let link = read_link(&mut session, &courier, "zone");
        assert_eq!((&*link.key, link.link.is_some()), (zone.as_bytes(), true));
        for path in [Path::Ask, Path::Read, Path::Choose] {
            session.set_path(path);
            assert_eq!(name_at(&mut session, &link).as_deref(), Some("West"), "{path:?}");
            let got = session.link_get(courier.as_bytes(), b"boss").expect("an answer");
            let got = got.expect("it is a link");
            assert_eq!(&*got.key, boss.as_bytes());
            assert_eq!(name_at(&mut session, &got), None, "its target is not there yet");
        }
        // A large hash, whose fields are records of their own.
        let names: Vec<String> = (0..300).map(|number| format!("z{number}")).collect();
        let fields: Vec<(&[u8], &[u8])> =
            names.iter().map(|name| (name.as_bytes(), zone.as_bytes())).collect();
        let mut open = session.hash(large.as_bytes()).unwrap();
        assert_eq!(open.set_links(&fields), Ok(300));
        let link = read_link(&mut session, &large, "z299");
        assert_eq!(name_at(&mut session, &link).as_deref(), Some("West"));
        // LINK.DEL's counterpart takes links alone, and the hash ends with its last field.
        let gone = session.link_del(courier.as_bytes(), &[b"zone", b"name", b"none"]);
        assert_eq!(gone, Ok(1));
        assert_eq!(session.link_get(courier.as_bytes(), b"zone"), Ok(None));
        session.hash(courier.as_bytes()).unwrap().remove(&[b"name"]).expect("an answer");
        assert_eq!(session.hash(courier.as_bytes()).unwrap().remove_links(&[b"boss"]), Ok(1));
        assert_eq!(session.key_type(courier.as_bytes()), Ok(None));
        // What is set over a link is plain.
        session.hash(large.as_bytes()).unwrap().set(&[(b"z7", zone.as_bytes())]).expect("room");
        assert_eq!(session.link_get(large.as_bytes(), b"z7"), Ok(None));
    }
}

#[test]
fn elements_that_a_session_links_are_links_at_either_end() {
    let server = server();
    for (round, transport) in TRANSPORTS.into_iter().enumerate() {
        let mut session = session(&server, transport);
        let zones: Vec<String> = (0..400).map(|number| format!("zone:{round}:{number}")).collect();
        for (number, zone) in zones.iter().enumerate() {
            let name = format!("z{number}");
            let mut hash = session.hash(zone.as_bytes()).unwrap();
            hash.set(&[(b"name", name.as_bytes())]).expect("room");
        }
        // One that lies whole in its record, and one of chunks. Each has a plain element in between.
        for half in [3, 200] {
            let key = format!("zones:{round}:{half}");
            let all: Vec<&[u8]> = zones.iter().take(2 * half).map(|zone| zone.as_bytes()).collect();
            let (front, back) = all.split_at(half);
            let mut list = session.list(key.as_bytes()).unwrap();
            assert_eq!(list.push_back(&[b"plain"]), Ok(1));
            // One after the other: the last one is the first element then.
            let front: Vec<&[u8]> = front.iter().copied().rev().collect();
            assert_eq!(list.push_links_front(&front), Ok(half as u64 + 1));
            let length = session.link_push(key.as_bytes(), back).expect("room");
            assert_eq!(length, 2 * half as u64 + 1);
            let expected = |zone: &[u8]| Value::Bulk(zone.to_vec());
            let mut told: Vec<Value> = all.iter().map(|zone| expected(zone)).collect();
            told.insert(half, Value::Null);
            assert_eq!(links_of(&server, &format!("LINK.RANGE {key} 0 -1")), Value::Array(told));
            for path in [Path::Ask, Path::Read, Path::Choose] {
                session.set_path(path);
                let links = session.link_range(key.as_bytes(), 0, -1).expect("an answer");
                assert!(links[half].is_none());
                let links: Vec<Link> = links.into_iter().flatten().collect();
                let mut found = vec![String::new(); links.len()];
                let counts = session.chase_many(&links, &mut |number, chased| {
                    let Target::Hash(hash) = &chased.target else { panic!("{chased:?}") };
                    let name = hash.get(b"name").expect("it has a name").value.to_vec();
                    found[number] = String::from_utf8(name).expect("it is text");
                });
                assert_eq!(counts.expect("an answer").operations, 2 * half as u64);
                let names = (0..2 * half).map(|number| format!("z{number}"));
                assert_eq!(found, names.collect::<Vec<_>>(), "{path:?}");
            }
        }
    }
}

#[test]
fn a_link_that_cannot_be_is_refused_with_its_reason_and_changes_nothing() {
    let server = server();
    let long = vec![b'k'; MAX_KEY_BYTES + 1];
    let longest = &long[1..];
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        session.set(b"text", b"x").expect("room");
        let wrong = Err(Error::Refused(Refusal::WrongType));
        assert_eq!(session.link_set(b"text", &[(b"a", b"b")]), wrong);
        assert_eq!(session.link_del(b"text", &[b"a"]), wrong);
        assert_eq!(session.link_push(b"text", &[b"b"]), wrong);
        assert_eq!(session.list(b"text").unwrap().push_links_front(&[b"b"]), wrong);
        let malformed = Err(Error::Refused(Refusal::Malformed));
        assert_eq!(session.link_set(b"new", &[]), malformed);
        assert_eq!(session.link_del(b"new", &[]), malformed);
        assert_eq!(session.link_push(b"new", &[]), malformed);
        // A target is a key, and has the limit of keys; so has the name of a field, as the server says.
        let too_long = Err(Error::KeyTooLong);
        assert_eq!(session.link_set(b"new", &[(b"a", b"b"), (b"c", &long)]), too_long);
        assert_eq!(session.link_push(b"new", &[b"b", &long]), too_long);
        assert_eq!(session.list(b"new").unwrap().push_links_front(&[&long]), too_long);
        assert_eq!(session.link_set(&long, &[(b"a", b"b")]), too_long);
        let too_large = Err(Error::Refused(Refusal::TooLarge));
        assert_eq!(session.link_set(b"new", &[(&long, b"b")]), too_large);
        assert_eq!(session.key_type(b"new"), Ok(None), "nothing was changed");
        // The longest one is a link, and two of them are, which take more than one frame.
        let links: [(&[u8], &[u8]); 2] = [(b"a", longest), (b"b", longest)];
        assert_eq!(session.link_set(b"long", &links), Ok(2));
        let link = session.link_get(b"long", b"a").expect("an answer").expect("a link");
        assert_eq!(&*link.key, longest);
        assert_eq!(session.key_type(b"long"), Ok(Some(KeyType::Hash)));
        assert_eq!(session.remove(b"long"), Ok(true));
    }
}
