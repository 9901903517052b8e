//! Links followed by READs: what a chase costs, and that it never gives other data.

use remora_client_core::{
    Counts, Link, Options, Path, ServedBy, Session, SetOptions, Target, Transport, Wake, Wanted,
};
use remora_tests::{Random, Resp, ServerProcess, Value, options, while_read_lease_lapses};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FLAGS: [&str; 2] = ["--max-memory=64MiB", "--fabric-address=127.0.0.1:0"];
const TRANSPORTS: [Wanted; 2] = [Wanted::Shm, Wanted::Tcp];

fn server(shards: &str) -> ServerProcess {
    ServerProcess::start(&[&FLAGS[..], &[shards]].concat())
}

fn session(server: &ServerProcess, transport: Wanted) -> Session {
    let session = server.session_with(&Options { transport, wake: Wake::Event, ..options() });
    let is = session.transport();
    assert_eq!(is == Transport::Tcp, transport == Wanted::Tcp, "{is:?}");
    session
}

fn call(resp: &mut Resp, line: &str) -> Value {
    let value = resp.call(line);
    assert!(!value.is_error(), "{line}: {value:?}");
    value
}

/// People, each with a name and a supervisor, who was there before.
fn write(resp: &mut Resp, people: u64) {
    for number in 0..people {
        call(resp, &format!("HSET person:{number} name p{number} group g{}", number % 7));
        let supervisor = number.saturating_sub(1) / 3;
        if number > 0 {
            call(resp, &format!("LINK.SET person:{number} boss person:{supervisor}"));
        }
    }
}

/// A link, as it is read.
fn link(session: &mut Session, key: &str, field: &str) -> Link {
    let mut open = session.open_hash(key.as_bytes()).unwrap();
    let link = while_read_lease_lapses(session, |session| {
        session.link_get(&mut open, field.as_bytes(), Path::Read).unwrap()
    });
    link.unwrap_or_else(|| panic!("{key} has no link {field}"))
}

/// What a chase found, and what it cost.
fn chase(session: &mut Session, link: &Link, path: Path) -> (Option<String>, ServedBy, Counts) {
    let chased = session.chase(link, path).unwrap();
    (text(&chased.target), chased.served_by, chased.counts)
}

/// The fields of a hash, sorted; a string; `None`: there is nothing.
fn text(target: &Target<'_>) -> Option<String> {
    match target {
        Target::Hash(hash) => {
            let fields: BTreeMap<_, _> =
                hash.iter().map(|(name, value)| (name, value.value)).collect();
            let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let fields =
                fields.iter().map(|(name, value)| format!("{}={}", utf8(name), utf8(value)));
            Some(fields.collect::<Vec<_>>().join(" "))
        }
        Target::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
        Target::Gone => None,
        other => Some(format!("{other:?}")),
    }
}

#[test]
fn a_chase_is_one_read_and_many_are_one_batch() {
    let server = server("--shards=1");
    write(&mut server.resp(), 300);
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        let mut at = link(&mut session, "person:299", "boss");
        for boss in [99, 32, 10, 3] {
            let name = format!("person:{boss}");
            assert_eq!((&*at.key, at.hint.is_some()), (name.as_bytes(), true));
            let (found, served_by, cost) =
                while_read_lease_lapses(&mut session, |session| chase(session, &at, Path::Read));
            let next = (boss - 1) / 3;
            assert_eq!(found, Some(format!("boss=person:{next} group=g{} name=p{boss}", boss % 7)));
            assert_eq!((cost.round_trips, cost.nodes, cost.stale_hints), (1, 1, 0), "{cost:?}");
            assert_eq!((cost.read, cost.asked, served_by), (1, 0, ServedBy::Read));
            assert!(cost.bytes <= 160, "no more than the record's slot: {}", cost.bytes);
            let chased = session.chase(&at, Path::Read).unwrap();
            let Target::Hash(hash) = chased.target else { panic!() };
            let next = hash.link(b"boss").unwrap();
            at = next;
        }
        let links: Vec<Link> = (1..300)
            .map(|number| link(&mut session, &format!("person:{number}"), "boss"))
            .collect();
        let cost = while_read_lease_lapses(&mut session, |session| {
            let mut found = BTreeMap::new();
            let cost = session.chase_batch(&links, Path::Read, &mut |number, chased| {
                found.insert(number, text(&chased.target).unwrap());
            });
            for (number, text) in &found {
                let name = format!("name=p{}", number / 3);
                assert!(text.ends_with(&name), "{number}: {text}");
            }
            assert_eq!(found.len(), 299);
            cost.unwrap()
        });
        assert_eq!((cost.round_trips, cost.nodes, cost.read), (1, 299, 299), "{cost:?}");
        assert_eq!((cost.asked, cost.stale_hints, session.stale_links()), (0, 0, 0));
    }
}

#[test]
fn a_target_that_changed_is_found_again_and_its_link_is_remembered() {
    let server = server("--shards=1");
    let mut resp = server.resp();
    write(&mut resp, 20);
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        let old = link(&mut session, "person:9", "boss");
        let read = |session: &mut Session| chase(session, &old, Path::Read);
        call(&mut resp, "HSET person:2 name new");
        let (found, served_by, cost) = while_read_lease_lapses(&mut session, read);
        assert_eq!(found.unwrap(), "boss=person:0 group=g2 name=new");
        assert_eq!((cost.stale_hints, cost.nodes, cost.asked), (1, 3, 0), "{cost:?}");
        assert_eq!(served_by, ServedBy::ReadAfter(1));
        assert_eq!(session.stale_links(), 1);
        // Its owner mends it where it stands, and says so once.
        assert_eq!(session.mend_links(10), Ok(1));
        let mended = link(&mut session, "person:9", "boss");
        let (_, _, cost) =
            while_read_lease_lapses(&mut session, |session| chase(session, &mended, Path::Read));
        assert_eq!((cost.stale_hints, cost.nodes, session.stale_links()), (0, 1, 0));
        // Gone: only the server says so.
        call(&mut resp, "DEL person:2");
        let (found, served_by, cost) = read(&mut session);
        assert_eq!((found, served_by, cost.asked), (None, ServedBy::AskedAfterRead, 1));
        assert_eq!(session.stale_links(), 0, "there is nothing to mend");
        // Another key takes its place; then it is made anew as something else.
        for other in 0..50 {
            call(&mut resp, &format!("HSET other:{other} name p2 group g2"));
        }
        assert_eq!(read(&mut session).0, None);
        session.set(b"person:2", b"a text", SetOptions::default()).unwrap();
        assert_eq!(read(&mut session).0.unwrap(), "a text");
        assert_eq!(chase(&mut session, &old, Path::Ask).0.unwrap(), "a text");
        call(&mut resp, "DEL person:2");
        call(&mut resp, "RPUSH person:2 a b c");
        for path in [Path::Read, Path::Ask] {
            assert_eq!(read(&mut session).0.unwrap(), "OtherType", "{path:?}");
        }
        call(&mut resp, "DEL person:2");
        call(&mut resp, "HSET person:2 name p2 group g2 boss person:0");
        call(&mut resp, "LINK.SET person:2 boss person:0");
        call(&mut resp, "LINK.SET person:9 boss person:2");
    }
}

#[test]
fn a_large_hash_is_asked_for_and_its_fields_are_links_too() {
    let server = server("--shards=1");
    let mut resp = server.resp();
    write(&mut resp, 20);
    let fields: Vec<String> = (0..20).map(|number| format!("m{number} person:{number}")).collect();
    call(&mut resp, &format!("HSET large note {}", "x".repeat(500)));
    call(&mut resp, &format!("LINK.SET large {}", fields.join(" ")));
    call(&mut resp, "LINK.SET person:1 club large");
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        let club = link(&mut session, "person:1", "club");
        let chased = session.chase(&club, Path::Read).unwrap();
        let Target::Hash(hash) = chased.target else { panic!("{chased:?}") };
        assert_eq!((hash.iter().count(), chased.served_by), (21, ServedBy::AskedAfterRead));
        assert_eq!(&*hash.link(b"m7").unwrap().key, b"person:7");
        assert_eq!((hash.link(b"note"), hash.get(b"note").unwrap().value.len()), (None, 500));
        // A field of it is a record of its own, and has a hint.
        let member = link(&mut session, "large", "m7");
        assert!(member.hint.is_some());
        let (found, served_by, _) =
            while_read_lease_lapses(&mut session, |session| chase(session, &member, Path::Read));
        assert_eq!((found.unwrap().ends_with("name=p7"), served_by), (true, ServedBy::Read));
        let mut open = session.open_hash(b"large").unwrap();
        for path in [Path::Read, Path::Ask, Path::Choose] {
            assert_eq!(session.link_get(&mut open, b"note", path).unwrap(), None);
            assert_eq!(session.link_get(&mut open, b"nowhere", path).unwrap(), None);
            let link = session.link_get(&mut open, b"m3", path).unwrap().unwrap();
            assert_eq!(&*link.key, b"person:3");
        }
    }
}

#[test]
fn links_of_lists_are_read_with_their_hints_whole_or_in_chunks() {
    let server = server("--shards=1");
    let mut resp = server.resp();
    write(&mut resp, 20);
    for (list, length) in [("few", 5), ("many", 450)] {
        call(&mut resp, &format!("RPUSH {list} plain"));
        for number in 1..length {
            call(&mut resp, &format!("LINK.PUSH {list} person:{}", number % 20));
        }
        for transport in TRANSPORTS {
            let mut session = session(&server, transport);
            let mut open = session.open_list(list.as_bytes()).unwrap();
            for path in [Path::Read, Path::Ask] {
                let read =
                    |session: &mut Session| session.link_range(&mut open, (0, -1), path).unwrap();
                let links = while_read_lease_lapses(&mut session, read);
                assert_eq!((links.len(), &links[0]), (length, &None));
                let links: Vec<Link> = links.into_iter().flatten().collect();
                assert_eq!(links.len(), length - 1);
                let is_read = path == Path::Read;
                assert!(links.iter().all(|link| link.hint.is_some() == is_read), "{links:?}");
                assert!(links.iter().all(|link| link.link.is_some() == is_read));
                let cost = while_read_lease_lapses(&mut session, |session| {
                    let cost = session.chase_batch(&links, Path::Read, &mut |number, chased| {
                        let text = text(&chased.target).unwrap();
                        assert!(text.ends_with(&format!("name=p{}", (number + 1) % 20)), "{text}");
                    });
                    cost.unwrap()
                });
                assert!(!is_read || (cost.round_trips, cost.stale_hints) == (1, 0), "{cost:?}");
            }
            // An element's hint is mended where it stands.
            call(&mut resp, "HSET person:3 name p3");
            let third = session.link_range(&mut open, (3, 3), Path::Read).unwrap();
            let [Some(third)] = &third[..] else { panic!("{third:?}") };
            let (_, _, cost) = chase(&mut session, third, Path::Read);
            assert_eq!((cost.stale_hints, session.mend_links(10)), (1, Ok(1)), "{cost:?}");
            let mended = session.link_range(&mut open, (3, 3), Path::Read).unwrap();
            assert_ne!(mended[0].as_ref().unwrap().hint, third.hint);
            // The other hints to the same person are stale, too.
            for number in 0..length {
                let links =
                    session.link_range(&mut open, (number as i64, number as i64), Path::Read);
                if let Some(link) = &links.unwrap()[0] {
                    chase(&mut session, link, Path::Read);
                    session.mend_links(10).unwrap();
                }
            }
        }
    }
}

#[test]
fn links_lead_to_all_shards_and_one_without_a_hint_is_found_by_its_key() {
    let server = server("--shards=4");
    let mut resp = server.resp();
    for number in 0..60 {
        // Those targets are not there yet.
        call(&mut resp, &format!("LINK.SET early:{number} to person:{number}"));
    }
    write(&mut resp, 60);
    for number in 0..60 {
        call(&mut resp, &format!("LINK.SET late:{number} to person:{number}"));
    }
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        let mut links = |from: &str| -> Vec<Link> {
            (0..60).map(|number| link(&mut session, &format!("{from}:{number}"), "to")).collect()
        };
        let (early, late) = (links("early"), links("late"));
        assert!(late.iter().all(|link| link.hint.is_some()), "hints to other shards, too");
        let all = |session: &mut Session, links: &[Link]| {
            let mut count = 0;
            let cost = session.chase_batch(links, Path::Read, &mut |number, chased| {
                let text = text(&chased.target).unwrap();
                assert!(text.ends_with(&format!("name=p{number}")), "{number} {text}");
                count += 1;
            });
            assert_eq!(count, 60);
            cost.unwrap()
        };
        let cost = while_read_lease_lapses(&mut session, |session| all(session, &late));
        assert_eq!((cost.round_trips, cost.nodes, cost.stale_hints), (1, 60, 0), "{cost:?}");
        if early[0].hint.is_some() {
            assert_eq!(transport, Wanted::Tcp, "the first session had them mended");
            continue;
        }
        assert!(early.iter().all(|link| link.hint.is_none()), "{early:?}");
        let cost = while_read_lease_lapses(&mut session, |session| all(session, &early));
        assert!(cost.round_trips <= 3 && cost.asked == 0, "{cost:?}");
        let cost = while_read_lease_lapses(&mut session, |session| all(session, &early));
        assert_eq!((cost.round_trips, cost.nodes, cost.hits), (1, 60, 60), "{cost:?}");
        while session.stale_links() > 0 {
            session.mend_links(64).unwrap();
        }
        let mended = link(&mut session, "early:7", "to");
        assert!(mended.hint.is_some_and(|hint| Some(hint) == late[7].hint));
    }
}

#[test]
fn any_64_bits_in_a_hint_cost_a_read_and_nothing_else() {
    let server = server("--shards=2");
    write(&mut server.resp(), 40);
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        let mut random = Random::new(7);
        let honest: Vec<Link> =
            (1..40).map(|number| link(&mut session, &format!("person:{number}"), "boss")).collect();
        for _ in 0..200 {
            let forged: Vec<Link> = honest
                .iter()
                .map(|link| {
                    let other = honest[random.below(honest.len())].hint.unwrap_or(1);
                    let own = link.hint.unwrap_or(0);
                    let hint = match random.below(5) {
                        0 => other,
                        // Its own signature, anything else.
                        1 => own & !0 << 48 | random.bits() >> 16,
                        2 => own ^ 1 << random.below(64),
                        3 => own & !0 << 48 | other & !0 >> 16,
                        _ => random.bits(),
                    };
                    Link { hint: Some(hint), ..link.clone() }
                })
                .collect();
            let one = random.below(forged.len());
            let (found, _, cost) = chase(&mut session, &forged[one], Path::Read);
            assert!(found.unwrap().ends_with(&format!("name=p{}", one / 3)));
            assert!(cost.nodes <= 4 + 3 * cost.retries, "{cost:?}");
            let cost = session.chase_batch(&forged, Path::Read, &mut |number, chased| {
                let text = text(&chased.target).unwrap();
                assert!(text.ends_with(&format!("name=p{}", number / 3)), "{number} {text}");
            });
            assert!(cost.unwrap().stale_hints > 10);
        }
    }
}

/// Writers update, remove and make targets anew; a reader that follows links sees each as it was at one
/// moment, and never another key's.
#[test]
fn beside_writers_a_chase_never_gives_other_data() {
    let server = server("--shards=2");
    let mut resp = server.resp();
    for number in 0..40 {
        call(&mut resp, &format!("HSET t:{number} me t:{number} one 0 two 0"));
        call(&mut resp, &format!("LINK.SET from to{number} t:{number}"));
    }
    for transport in TRANSPORTS {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut resp = server.resp();
                let mut random = Random::new(3);
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    let key = format!("t:{}", random.below(40));
                    if random.one_in(8) {
                        call(&mut resp, &format!("DEL {key}"));
                    }
                    let pad = "x".repeat(random.below(60));
                    let text = format!("HSET {key} me {key} one {round} two {round} pad {pad}.");
                    call(&mut resp, &text);
                }
            });
            let mut session = session(&server, transport);
            let (mut stale, mut good, mut gone) = (0, 0, 0);
            let until = Instant::now() + Duration::from_secs(60);
            while (stale < 200 || good < 200) && Instant::now() < until {
                let links: Vec<Link> = (0..40)
                    .map(|number| link(&mut session, "from", &format!("to{number}")))
                    .collect();
                let before = session.totals();
                let mut check = |number: usize, target: &Target<'_>| match target {
                    Target::Gone => gone += 1,
                    Target::Hash(hash) => {
                        let value = |name: &[u8]| hash.get(name).unwrap().value;
                        assert_eq!(value(b"me"), format!("t:{number}").as_bytes());
                        assert_eq!(value(b"one"), value(b"two"));
                    }
                    other => panic!("{other:?}"),
                };
                session
                    .chase_batch(&links, Path::Read, &mut |number, chased| {
                        check(number, &chased.target);
                    })
                    .unwrap();
                for (number, link) in links.iter().enumerate().step_by(7) {
                    check(number, &session.chase(link, Path::Choose).unwrap().target);
                }
                let cost = session.totals().since(&before);
                stale += cost.stale_hints;
                good += cost.read;
                call(&mut server.resp(), "LINK.SET from to1 t:1 to2 t:2 to3 t:3 to4 t:4");
            }
            over.store(true, Ordering::Relaxed);
            assert!(stale >= 200 && good >= 200, "{stale} stale, {good} read, {gone} gone");
        });
    }
}
