//! Sorted sets through the client's handles against a real server, over shared memory and TCP:
//! every method against a model, by either route; what READs cost; scores that move while others
//! read; keys with positions on the globe.

use remora_client::{
    AddWhen, Address, Area, Around, Client, Error, KeyType, Options, Page, Path, Position, Refusal,
    ServedBy, Session, SortedFound, SortedMember, Transport, Wake,
};
use remora_tests::{ServerProcess, Value};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PATHS: [Path; 3] = [Path::Ask, Path::Read, Path::Choose];
const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Tcp];
/// Members of a large set: its tree has three levels.
const MANY: usize = 5_000;
/// A step is taken so often until the read lease has held all the time.
const TRIES: usize = 100;

fn server() -> ServerProcess {
    let flags = ["--max-memory=256MiB", "--shards=2", "--fabric-address=127.0.0.1:0"];
    ServerProcess::start(&flags)
}

fn session(server: &ServerProcess, transport: Transport) -> Session {
    let options = Options::default();
    let options = options.transport(transport).wake(Wake::Event).timeout(Duration::from_secs(60));
    let client = Client::connect(&Address::unix(server.socket()), &options).expect("it runs");
    client.session().expect("a session")
}

fn members(found: &[SortedMember]) -> Vec<(&[u8], f64)> {
    found.iter().map(|of| (&of.member[..], of.score)).collect()
}

/// Member `number` of a large set.
fn name(number: usize) -> String {
    format!("m{number:05}")
}

/// Fills a key with members `m00000`... whose score is a tenth of their number.
fn fill(session: &mut Session, key: &[u8], count: usize) {
    for first in (0..count).step_by(100) {
        let names: Vec<_> = (first..count.min(first + 100)).map(name).collect();
        let scored = names.iter().zip(first..);
        let scored: Vec<_> =
            scored.map(|(name, number)| (name.as_bytes(), number as f64 / 10.0)).collect();
        assert_eq!(session.sorted_set(key).unwrap().add(&scored), Ok(scored.len() as u64));
    }
}

#[test]
fn changes_and_what_is_asked_are_as_in_redis() {
    let server = server();
    for transport in TRANSPORTS {
        let mut session = session(&server, transport);
        let mut set = session.sorted_set(b"s").expect("a short key");
        assert_eq!(set.add(&[(b"a", 1.0), (b"b", 2.0), (b"c", 3.0)]), Ok(3));
        assert_eq!(set.add(&[(b"a", 1.5), (b"d", 4.0)]), Ok(1));
        assert_eq!(set.add_if(AddWhen::IfNew, true, &[(b"a", 9.0), (b"e", 5.0)]), Ok(1));
        assert_eq!(set.add_if(AddWhen::IfPresent, true, &[(b"f", 9.0), (b"e", 6.0)]), Ok(1));
        assert_eq!(set.add_if(AddWhen::IfGreater, true, &[(b"e", 5.5), (b"d", 4.5)]), Ok(1));
        assert_eq!(set.add_if(AddWhen::IfLess, false, &[(b"e", 5.0)]), Ok(0));
        let lower = set.add_if(AddWhen::IfPresentAndLess, true, &[(b"x", 1.0), (b"e", 4.75)]);
        assert_eq!(lower, Ok(1));
        assert_eq!(set.add_if(AddWhen::IfPresentAndGreater, true, &[(b"e", 4.0)]), Ok(0));
        assert_eq!(set.increment(b"a", 0.25), Ok(1.75));
        assert_eq!(set.increment_if(AddWhen::IfNew, b"a", 1.0), Ok(None));
        assert_eq!(set.scores(&[b"a", b"x", b"e"]), Ok(vec![Some(1.75), None, Some(4.75)]));
        assert_eq!(
            (set.rank(b"b"), set.reverse_rank(b"b")),
            (Ok(Some((1, 2.0))), Ok(Some((3, 2.0))))
        );
        assert_eq!((set.rank(b"x"), set.member_count()), (Ok(None), Ok(5)));
        assert_eq!((set.count_by_score(2.0..4.5), set.count_by_member(..)), (Ok(2), Ok(5)));
        let best = set.reverse_range(0, 1).expect("an answer");
        assert_eq!(members(&best.members), [(&b"e"[..], 4.75), (b"d", 4.5)]);
        assert_eq!(set.random(3).expect("an answer").len(), 3);
        let (next, all) = set.scan(0, Some(b"[ab]"), 100).expect("an answer");
        assert_eq!((next, all.len()), (0, 2));
        assert_eq!(members(&set.pop_min(1).unwrap()), [(&b"a"[..], 1.75)]);
        assert_eq!(members(&set.pop_max(1).unwrap()), [(&b"e"[..], 4.75)]);
        assert_eq!(set.remove(&[b"b", b"x"]), Ok(1));
        assert_eq!(set.remove_range_by_score((Bound::Excluded(3.0), Bound::Unbounded)), Ok(1));
        assert_eq!(set.remove_range_by_member(&b"d"[..]..), Ok(0));
        assert_eq!(set.remove_range(0, -1), Ok(1));
        assert_eq!(set.member_count(), Ok(0));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let server = server();
    let mut session = session(&server, Transport::Shm);
    session.set(b"text", b"").expect("room");
    for path in PATHS {
        session.set_path(path);
        let wrong = Err(Error::Refused(Refusal::WrongType));
        let mut text = session.sorted_set(b"text").unwrap();
        assert_eq!(text.score(b"m").map(|_| ()), wrong);
        assert_eq!(text.range_by_score(.., Page::ALL).map(|_| ()), wrong);
        let mut none = session.sorted_set(b"none").unwrap();
        assert_eq!(none.score(b"m").map(|of| of.score), Ok(None));
        assert_eq!(none.range_by_score(.., Page::ALL).map(|of| of.members), Ok(Vec::new()));
    }
    let mut set = session.sorted_set(b"s").unwrap();
    let no_number = Err(Error::Refused(Refusal::NotANumber));
    assert_eq!(set.add(&[(b"m", f64::NAN)]), no_number);
    assert_eq!(set.add(&[(b"m", f64::INFINITY)]), Ok(1));
    assert_eq!(set.increment(b"m", f64::NEG_INFINITY).map(|_| 0), no_number);
    let long = vec![b'l'; 1 << 20];
    assert_eq!(set.add(&[(&long, 1.0)]), Err(Error::Refused(Refusal::TooLarge)));
    assert!(session.sorted_set(&long).is_err());
}

/// Ranges of the model, and what each route gives.
fn check_ranges(session: &mut Session, key: &[u8], count: usize) {
    let all: Vec<_> = (0..count).map(|at| (name(at).into_bytes(), at as f64 / 10.0)).collect();
    let last = count as f64 / 10.0;
    let bounds = [
        (Bound::Unbounded, Bound::Unbounded),
        (Bound::Included(1.0), Bound::Excluded(2.5)),
        (Bound::Excluded(0.5), Bound::Included(last / 2.0)),
        (Bound::Included(last + 1.0), Bound::Unbounded),
        (Bound::Included(2.0), Bound::Included(1.0)),
    ];
    let pages = [Page::ALL, Page::first(7), Page::last(9).skip(3), Page::last(u64::MAX).skip(1)];
    for (scores, page) in bounds.iter().flat_map(|of| pages.map(|page| (*of, page))) {
        let is_in = |of: &&(Vec<u8>, f64)| std::ops::RangeBounds::contains(&scores, &of.1);
        let mut model: Vec<_> = all.iter().filter(is_in).collect();
        if page.is_reverse {
            model.reverse();
        }
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let model = model.into_iter().skip(page.offset as usize).take(limit);
        let model: Vec<_> = model.map(|(member, score)| (&member[..], *score)).collect();
        for path in PATHS {
            let mut set = session.sorted_set(key).unwrap().by(path);
            let found = set.range_by_score(scores, page).expect("an answer");
            assert_eq!(members(&found.members), model, "{path:?} {scores:?} {page:?}");
        }
    }
}

#[test]
fn ranges_by_score_are_those_of_a_model_by_every_route() {
    let server = server();
    for (transport, key) in TRANSPORTS.into_iter().zip(["shm", "tcp"]) {
        let mut session = session(&server, transport);
        for count in [20, MANY] {
            let key = format!("{key}{count}").into_bytes();
            fill(&mut session, &key, count);
            check_ranges(&mut session, &key, count);
            assert_eq!(session.key_type(&key), Ok(Some(KeyType::SortedSet)));
        }
    }
}

#[test]
fn ranges_by_member_are_those_of_a_model_by_every_route() {
    let server = server();
    let mut session = session(&server, Transport::Shm);
    for (key, count) in [(&b"small"[..], 20), (b"large", 2_000)] {
        let names: Vec<_> = (0..count).map(name).collect();
        for names in names.chunks(100) {
            let scored: Vec<_> = names.iter().map(|name| (name.as_bytes(), -2.5)).collect();
            session.sorted_set(key).unwrap().add(&scored).expect("room");
        }
        for path in PATHS {
            let mut set = session.sorted_set(key).unwrap().by(path);
            let range = (Bound::Excluded(&b"m00003"[..]), Bound::Included(&b"m00012"[..]));
            let found = set.range_by_member(range, Page::ALL).expect("an answer");
            let expected: Vec<_> = names[4..=12].iter().map(|of| (of.as_bytes(), -2.5)).collect();
            assert_eq!(members(&found.members), expected, "{path:?}");
            let found = set.range_by_member(.., Page::last(5).skip(2)).expect("an answer");
            let last = names[count - 7..count - 2].iter().rev();
            let expected: Vec<_> = last.map(|of| (of.as_bytes(), -2.5)).collect();
            assert_eq!(members(&found.members), expected, "{path:?}");
            assert_eq!(set.range_by_member(&b"n"[..].., Page::ALL).unwrap().members, []);
        }
    }
}

/// The result of a step during which the read lease held.
fn with_lease<T>(session: &mut Session, mut step: impl FnMut(&mut Session) -> T) -> T {
    let held = (0..TRIES).find_map(|_| {
        let before = session.counts().read_lease_lapsed;
        let done = step(session);
        (session.counts().read_lease_lapsed == before).then_some(done)
    });
    held.expect("the read lease holds for a step")
}

fn by_score(session: &mut Session, key: &[u8], from: f64, page: Page) -> SortedFound {
    let mut set = session.sorted_set(key).unwrap().by(Path::Read);
    set.range_by_score(from.., page).expect("an answer")
}

#[test]
fn reads_cost_as_many_round_trips_as_documented() {
    let server = server();
    for (transport, key) in TRANSPORTS.into_iter().zip([&b"a"[..], b"b"]) {
        let mut session = session(&server, transport);
        fill(&mut session, b"small", 20);
        fill(&mut session, key, MANY);
        for (key, member, score) in [(&b"small"[..], &b"m00007"[..], 0.7), (key, b"m04321", 432.1)]
        {
            let found = with_lease(&mut session, |session| {
                let mut set = session.sorted_set(key).unwrap();
                assert_eq!(set.score(member).map(|of| of.score), Ok(Some(score)));
                session.sorted_set(key).unwrap().by(Path::Ask).score(member).expect("an answer");
                session.sorted_set(key).unwrap().by(Path::Read).score(member).expect("an answer")
            });
            assert_eq!((found.score, found.served_by), (Some(score), ServedBy::Read));
            let counts = found.counts;
            assert_eq!((counts.hits, counts.round_trips, counts.asked), (1, 1, 0), "{transport:?}");
        }
        // A small set is one record, also if a member is absent.
        let found = with_lease(&mut session, |session| {
            session.sorted_set(b"small").unwrap().by(Path::Read).score(b"absent").unwrap()
        });
        assert_eq!((found.score, found.counts.asked), (None, 0));
        let found =
            with_lease(&mut session, |session| by_score(session, b"small", 0.5, Page::first(9)));
        assert_eq!((found.served_by, found.counts.round_trips), (ServedBy::Read, 1));
        // Of a large one the upper nodes are kept: some leaves, and the root record behind them.
        let warm = with_lease(&mut session, |session| {
            by_score(session, key, 300.0, Page::first(50));
            by_score(session, key, 300.0, Page::first(50))
        });
        assert_eq!((warm.members.len(), warm.served_by), (50, ServedBy::Read));
        assert!(warm.counts.round_trips <= 3, "{transport:?}: {:?}", warm.counts);
        session.sorted_set(b"small").unwrap().remove_range(0, -1).expect("an answer");
    }
}

#[test]
fn members_that_a_key_of_the_tree_cannot_hold_are_asked_for() {
    let server = server();
    let mut session = session(&server, Transport::Shm);
    fill(&mut session, b"s", MANY);
    let long: Vec<_> = [b'x', b'y'].map(|last| [&[b'l'; 300][..], &[last]].concat()).into();
    let scored: Vec<_> = long.iter().map(|of| (&of[..], 1_000.0)).collect();
    assert_eq!(session.sorted_set(b"s").unwrap().add(&scored), Ok(2));
    for path in PATHS {
        let mut set = session.sorted_set(b"s").unwrap().by(path);
        let found = set.range_by_score(999.0.., Page::ALL).expect("an answer");
        let mut names: Vec<_> = found.members.iter().map(|of| &of.member[..]).collect();
        names.sort_unstable();
        assert_eq!(names, [&long[0][..], &long[1]]);
        assert!(!found.served_by.is_read());
        let score = set.score(&long[1]).expect("an answer");
        assert_eq!(score.score, Some(1_000.0));
    }
    let found = with_lease(&mut session, |session| {
        session.sorted_set(b"s").unwrap().by(Path::Read).score(&long[1]).expect("an answer")
    });
    assert_eq!((found.served_by, found.counts.round_trips), (ServedBy::Read, 1));
}

/// Moves one member between the ends of a set, through scores that it never keeps for long.
fn move_about(server: &ServerProcess, is_over: &AtomicBool) {
    let mut session = session(server, Transport::Shm);
    let mut turn = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        let score = if turn.is_multiple_of(2) { -1.0 } else { 1e6 };
        let mut set = session.sorted_set(b"s").unwrap();
        assert_eq!(set.add(&[(b"mover", score)]), Ok(0));
        turn += 1;
    }
}

#[test]
fn a_member_that_moves_is_in_each_range_at_most_once_and_the_others_always() {
    let server = server();
    let mut session = session(&server, Transport::Shm);
    fill(&mut session, b"s", 1_000);
    session.sorted_set(b"s").unwrap().add(&[(b"mover", -1.0)]).expect("room");
    let is_over = AtomicBool::new(false);
    let (mut read, mut first, mut last) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| move_about(&server, &is_over));
        for turn in 0..300 {
            let page = if turn % 2 == 0 { Page::ALL } else { Page::last(u64::MAX) };
            let found = by_score(&mut session, b"s", f64::NEG_INFINITY, page);
            read += u64::from(found.served_by.is_read());
            let movers = found.members.iter().filter(|of| of.member == b"mover");
            let scores: Vec<_> = movers.map(|of| of.score).collect();
            assert!(scores.len() <= 1, "{scores:?}");
            first += usize::from(scores == [-1.0]);
            last += usize::from(scores == [1e6]);
            let mut others: Vec<_> =
                found.members.iter().filter(|of| of.member != b"mover").collect();
            others.sort_by(|a, b| a.score.total_cmp(&b.score));
            assert_eq!(others.len(), 1_000);
            assert!(others.iter().enumerate().all(|(at, of)| of.member == name(at).as_bytes()));
            let mut set = session.sorted_set(b"s").unwrap().by(Path::Read);
            let score = set.score(b"mover").expect("an answer").score;
            assert!(score == Some(-1.0) || score == Some(1e6), "{score:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(read > 0 && first > 0 && last > 0, "{read} {first} {last}");
}

#[test]
fn a_set_that_grows_shrinks_and_goes_is_found_again() {
    let server = server();
    let mut reader = session(&server, Transport::Shm);
    let mut writer = session(&server, Transport::Shm);
    let check = |reader: &mut Session, count: usize| {
        let found = by_score(reader, b"s", 0.0, Page::ALL);
        assert_eq!(found.members.len(), count);
        let mut set = reader.sorted_set(b"s").unwrap().by(Path::Read);
        assert_eq!(set.score(b"m00003").unwrap().score, (count > 3).then_some(0.3));
    };
    for _ in 0..3 {
        for count in [20, MANY] {
            fill(&mut writer, b"s", count);
            check(&mut reader, count);
            check(&mut reader, count);
            writer.sorted_set(b"s").unwrap().remove_range(0, -1).expect("an answer");
            check(&mut reader, 0);
        }
    }
}

#[test]
fn a_key_with_positions_is_a_sorted_set() {
    let server = server();
    let mut session = session(&server, Transport::Shm);
    let paris = Position::new(2.35, 48.86).expect("on the globe");
    let london = Position::new(-0.13, 51.51).expect("on the globe");
    assert_eq!(session.geo(b"cities").add(&[(b"Paris", paris), (b"London", london)]), Ok(2));
    let resp = server.resp().call("ZSCORE cities Paris");
    let Value::Bulk(text) = &resp else { panic!("{resp:?}") };
    let text: f64 = std::str::from_utf8(text).unwrap().parse().expect("a number");
    for path in PATHS {
        let mut set = session.sorted_set(b"cities").unwrap().by(path);
        assert_eq!(set.score(b"Paris").map(|of| of.score), Ok(Some(text)));
        let all = set.range_by_score(.., Page::ALL).expect("an answer");
        assert_eq!(all.members.len(), 2);
    }
    let circle = Area::Circle { radius_m: 500_000.0 };
    let near = session.geo(b"cities").search(Around::Member(b"Paris"), circle).expect("an answer");
    assert_eq!(near.len(), 2);
    assert_eq!(session.sorted_set(b"cities").unwrap().remove(&[b"London"]), Ok(1));
    let near = session.geo(b"cities").search(Around::Member(b"Paris"), circle).expect("an answer");
    assert_eq!(near.iter().map(|of| &of.name[..]).collect::<Vec<_>>(), [b"Paris"]);
}
