//! One client alone with a server, in virtual time: its requests, the requests that it can avoid,
//! and their costs.

use crate::alone::{Alone, MS, alone, alone_by, alone_with_disk, read};
use remora_client_core::{
    Counts, Error, Path, PointerCacheKind, Policy, Predicate, Query, Rect, ServedBy, Session,
    SetOptions, TreeSettings,
};
use remora_layout::arena_header::ARENA_HEADER_BYTES;
use remora_layout::bucket::BUCKET_BYTES;
use remora_layout::frame::frame_bytes;
use remora_layout::limits::{LEASE_MIN_S, MAX_IN_FLIGHT, MAX_KEY_BYTES, READ_LEASE_MS, RING_BYTES};
use remora_protocol::message::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Status};
use remora_protocol::{Command, Condition, Expiry, Reply};
use std::collections::BTreeSet;

/// Alone with a session that reads by pointers or by walks, one key or a batch.
fn each_way(body: fn(&Alone, &mut Session, bool)) {
    for pointers in [PointerCacheKind::Private, PointerCacheKind::Off] {
        for in_batch in [false, true] {
            alone(pointers, move |alone| body(alone, &mut alone.session(), in_batch));
        }
    }
}

fn set(session: &mut Session, expiry: Expiry) {
    let options = SetOptions { condition: Condition::Always, expiry };
    session.set(b"key", b"value", options).expect("room");
}

/// Reads once in a while, for so long; gives the cost of all.
fn read_for(alone: &Alone, session: &mut Session, in_batch: bool, path: Path, ns: u64) -> Counts {
    let (mut counts, until_ns) = (Counts::default(), alone.world.now_ns() + ns);
    while alone.world.now_ns() < until_ns {
        let seen = read(session, b"key", in_batch, path);
        assert_eq!(seen.value.as_deref(), Some(&b"value"[..]));
        counts.add(&seen.counts);
        alone.pause(5 * MS);
    }
    counts
}

/// The client's clock goes out by WRITEs, and heartbeats bring it back: that
/// is all that the read lease needs.
#[test]
fn who_only_reads_never_has_to_ask() {
    each_way(|alone, session, in_batch| {
        set(session, Expiry::Never);
        let counts = read_for(alone, session, in_batch, Path::Read, 10 * READ_LEASE_MS * MS);
        assert_eq!((counts.asked, counts.read_lease_lapsed), (0, 0), "{counts:?}");
        assert!(counts.operations > 300, "{counts:?}");
    });
}

#[test]
fn without_heartbeats_the_read_lease_ends_and_reads_do_not_count() {
    each_way(|alone, session, in_batch| {
        set(session, Expiry::Never);
        for is_stalled in [false, true, false] {
            if is_stalled {
                alone.stall_server((READ_LEASE_MS + 50) * MS);
                alone.pause(READ_LEASE_MS * MS);
            }
            let seen = read(session, b"key", in_batch, Path::Read);
            assert_eq!(seen.value.as_deref(), Some(&b"value"[..]));
            assert_eq!(seen.counts.read_lease_lapsed, is_stalled as u64);
            assert_eq!(
                seen.served_by,
                if is_stalled { ServedBy::AskedAfterRead } else { ServedBy::Read }
            );
        }
        let seen = read(session, b"absent", in_batch, Path::Read);
        assert_eq!((seen.value, seen.counts.read_lease_lapsed, seen.counts.asked), (None, 0, 1));
        assert_eq!(seen.counts.undecided, 1);
    });
}

/// The server stands still, so that it removes nothing by itself meanwhile.
#[test]
fn what_may_have_expired_is_asked_for() {
    each_way(|alone, session, in_batch| {
        let at = alone.unix_ms() + 100;
        set(session, Expiry::At(at));
        let mut read_before = 0;
        while alone.unix_ms() < at {
            let seen = read(session, b"key", in_batch, Path::Read);
            assert!(seen.value.is_some() || alone.unix_ms() >= at);
            read_before += seen.counts.read;
            alone.pause(MS);
            if alone.unix_ms() == at - 60 {
                alone.stall_server(100 * MS);
            }
        }
        assert!(read_before > 20, "{read_before}");
        alone.pause(2 * MS);
        let seen = read(session, b"key", in_batch, Path::Read);
        assert_eq!((seen.value, seen.counts.asked, seen.counts.read_lease_lapsed), (None, 1, 0));
        assert_eq!(seen.counts.undecided, 1);
    });
}

/// A write that is under way is not overtaken by a read of its own session.
#[test]
fn who_has_written_sees_it() {
    each_way(|_, session, in_batch| {
        for (round, path) in [Path::Read, Path::Choose].into_iter().enumerate() {
            set(session, Expiry::Never);
            let (value, expiry) = ([round as u8], Expiry::Never);
            let condition = Condition::Always;
            let new = Command::Set { key: b"key", value: &value, condition, expiry, get: false };
            session.submit(&new).expect("it goes out");
            let seen = read(session, b"key", in_batch, path);
            assert_eq!(
                (seen.value.as_deref(), seen.served_by),
                (Some(&value[..]), ServedBy::Asked)
            );
            assert_eq!((seen.counts.behind_writes, seen.counts.undecided), (1, 0));
            assert!(session.next_reply(&mut |_, _| {}).expect("the write's"));
        }
    });
}

/// By pointers and without, a batch of one costs the same as a single read.
#[test]
fn a_batch_of_one_costs_what_a_single_read_does() {
    for (pointers, path) in [
        (PointerCacheKind::Private, Path::Read),
        (PointerCacheKind::Private, Path::Choose),
        (PointerCacheKind::Off, Path::Choose),
    ] {
        alone(pointers, move |alone| {
            let (mut reader, mut writer) = (alone.session(), alone.session());
            for is_stale in [false, true] {
                let [single, batch] = [false, true].map(|in_batch| {
                    set(&mut reader, Expiry::Never);
                    if is_stale {
                        set(&mut writer, Expiry::Never);
                    }
                    read(&mut reader, b"key", in_batch, path)
                });
                assert_eq!((single.value, single.counts), (batch.value, batch.counts));
                assert_eq!(single.served_by, batch.served_by);
                let hits = (pointers == PointerCacheKind::Private) as u64;
                let Counts { hits: found, stale, asked, .. } = single.counts;
                assert_eq!((found, stale), (hits, hits * is_stale as u64));
                let reads = hits == 1 && (path == Path::Read || !is_stale);
                assert_eq!(asked == 0, reads);
                assert!(single.counts.bytes > 0 && single.counts.round_trips > 0);
            }
        });
    }
}

/// A popular key's lease is renewed in its last eighth, by asking once, so that it never ends; a
/// client that only reads does not ask.
#[test]
fn the_lease_of_a_popular_key_is_renewed_before_it_ends() {
    const TERMS: u64 = 8;
    for in_batch in [false, true] {
        alone(PointerCacheKind::Private, move |alone| {
            let mut session = alone.session();
            set(&mut session, Expiry::Never);
            let ns = TERMS * LEASE_MIN_S * 1_000 * MS;
            let counts = read_for(alone, &mut session, in_batch, Path::Choose, ns);
            assert_eq!((counts.lease_expired, counts.read_lease_lapsed), (0, 0), "{counts:?}");
            assert_eq!(counts.hits, counts.operations, "{counts:?}");
            // Terms grow with a key's popularity.
            assert!((1..=TERMS * 8 / 7).contains(&counts.asked), "{counts:?}");
            assert_eq!(counts.renewals, counts.asked, "{counts:?}");
            let counts = read_for(alone, &mut session, in_batch, Path::Read, 2 * ns);
            assert_eq!((counts.asked, counts.read_lease_lapsed), (0, 0), "{counts:?}");
            assert!(counts.lease_expired > 0, "{counts:?}");
        });
    }
}

/// A session's view of the table is as old as the connection: walks find out that it has grown, and
/// a batch of one costs the same as a single read.
#[test]
fn walks_follow_a_table_that_has_grown() {
    const KEYS: u32 = 600;
    alone(PointerCacheKind::Off, |alone| {
        let keys: Vec<[u8; 4]> = (0..KEYS).map(u32::to_le_bytes).collect();
        let mut writer = alone.session();
        for key in &keys {
            writer.set(key, key, SetOptions::default()).expect("room");
        }
        drop(writer);
        // A heartbeat echoes the client's clock: that is a read lease for all.
        alone.pause(20 * MS);
        let names: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut each = |at: usize, value: Option<&[u8]>, _| assert_eq!(value, Some(names[at]));
        let counts = alone.session().get_batch(&names, Path::Read, &mut each).expect("answers");
        assert_eq!((counts.read, counts.asked), (KEYS as u64, 0), "{counts:?}");
        let mut costs = BTreeSet::new();
        for key in &names[..40] {
            let one = |in_batch| read(&mut alone.session(), key, in_batch, Path::Read);
            let (single, batch) = (one(false), one(true));
            assert_eq!(single, batch);
            assert_eq!(single.value.as_deref(), Some(*key));
            let Counts { round_trips, bytes, retries, .. } = single.counts;
            assert_eq!(
                single.served_by,
                if retries == 0 { ServedBy::Read } else { ServedBy::ReadAfter(1) }
            );
            costs.insert((round_trips, retries, bytes));
        }
        // Bucket and record; for some the header page and another bucket too.
        let least = costs.first().expect("there are keys").2;
        let more = (ARENA_HEADER_BYTES + BUCKET_BYTES) as u64;
        assert_eq!(costs, BTreeSet::from([(2, 0, least), (4, 1, least + more)]));
    });
}

/// READs of absent keys conclude nothing. They take the time of the READs and
/// of the requests that follow, so that reading them gains nothing.
#[test]
fn keys_that_are_absent_are_asked_for() {
    alone_by(Policy::Cost, PointerCacheKind::Private, |alone| {
        let absent: Vec<[u8; 2]> = (0..16).map(u16::to_le_bytes).collect();
        let absent: Vec<&[u8]> = absent.iter().map(|key| &key[..]).collect();
        let mut session = alone.session();
        let [mut asked, mut read] = [0, 0];
        let mut each = |_, value: Option<&[u8]>, via| {
            assert_eq!(value, None);
            *if via == ServedBy::Asked { &mut asked } else { &mut read } += 1;
        };
        for _ in 0..4_000 {
            session.get_batch(&absent, Path::Choose, &mut each).expect("answers");
        }
        // By the READs alone, a small part of the whole, nearly all would be read.
        assert!(read < asked / 9, "{asked} asked, {read} read without a result");
    });
}

/// Requests and replies that no ring holds: the thread that makes them takes
/// replies to get room, and finds them later, in order.
#[test]
fn one_thread_fills_both_rings_with_gathered_requests() {
    const REQUESTS: usize = MAX_IN_FLIGHT - 24;
    const { assert!(REQUESTS * 1_500 > 4 * RING_BYTES) }
    let key = |number: usize| format!("{number:0width$}", width = 1_500 + number % 7).into_bytes();
    let value = |number: usize| vec![number as u8; 1_500 + number % 11];
    alone(PointerCacheKind::Private, move |alone| {
        let mut session = alone.session();
        for number in 0..REQUESTS {
            session.set(&key(number), &value(number), SetOptions::default()).expect("room");
        }
        for number in 0..REQUESTS {
            session.submit(&Command::Get { key: &key(number) }).expect("it goes out");
        }
        assert_eq!(session.in_flight(), REQUESTS);
        // Others of the process make room for themselves, and keep its replies.
        assert_eq!(alone.session().exists(&[b'-'; MAX_KEY_BYTES]), Ok(false));
        for number in 0..REQUESTS {
            let mut is_right = false;
            let mut take = |_, reply: &Reply<'_>| {
                is_right = reply.value == Some(&value(number)[..]);
            };
            assert!(session.next_reply(&mut take).expect("an answer"));
            assert!(is_right, "reply {number}");
        }
        assert_eq!(session.in_flight(), 0);
    });
}

/// Requests sent before a pair that is refused are answered, and later ones are sent: nothing stays
/// behind that would keep the session from reading.
#[test]
fn one_of_many_pairs_is_refused() {
    alone(PointerCacheKind::Private, |alone| {
        let mut session = alone.session();
        let long = vec![0; MAX_KEY_BYTES + 1];
        let pairs: [(&[u8], &[u8]); 3] = [(b"before", b"1"), (&long, b"2"), (b"after", b"3")];
        assert_eq!(session.set_many(&pairs), Err(Error::KeyTooLong));
        for (key, value) in [pairs[0], pairs[2]] {
            let seen = read(&mut session, key, false, Path::Read);
            assert_eq!((seen.value.as_deref(), seen.served_by), (Some(value), ServedBy::Read));
        }
    });
}

#[test]
fn asking_costs_two_frames() {
    alone(PointerCacheKind::Private, |alone| {
        let mut session = alone.session();
        let (key, value) = ([b'k'; 70], [b'v'; 700]);
        session.set(&key, &value, SetOptions::default()).expect("room");
        let bytes = frame_bytes(REQUEST_HEADER_BYTES + 770) + frame_bytes(REPLY_HEADER_BYTES);
        let one = |bytes: u64| {
            let mut one = Counts::default();
            (one.operations, one.round_trips, one.asked, one.bytes) = (1, 1, 1, bytes);
            one
        };
        assert_eq!(session.totals(), one(bytes as u64));
        let bytes = frame_bytes(REQUEST_HEADER_BYTES + 70) + frame_bytes(REPLY_HEADER_BYTES + 700);
        for in_batch in [false, true] {
            let seen = read(&mut session, &key, in_batch, Path::Ask);
            assert_eq!((seen.counts, seen.served_by), (one(bytes as u64), ServedBy::Asked));
        }
    });
}

/// A disk that hangs stops writes and reads that depend on them, not all reads.
#[test]
fn while_a_disk_hangs_only_what_was_changed_since_waits() {
    for pointers in [PointerCacheKind::Private, PointerCacheKind::Off] {
        alone_with_disk(pointers, |alone| {
            let (mut writer, mut reader) = (alone.session(), alone.session());
            let set = |session: &mut Session, key: &[u8], value: &[u8]| {
                session.set(key, value, SetOptions::default())
            };
            for key in [&b"kept"[..], b"changed", b"removed"] {
                assert_eq!(set(&mut writer, key, b"old"), Ok(true));
            }
            // A change of a tree may change each of its nodes: one stays, one does not.
            for tree in [&b"kept tree"[..], b"changed tree"] {
                let point = Rect::point(1.0, 1.0).expect("finite");
                assert_eq!(writer.create_tree(tree, &TreeSettings::default()), Ok(true));
                assert_eq!(writer.put_place(tree, 1, point, None), Ok(true));
            }
            let window = Rect::new(0.0, 2.0, 0.0, 2.0).expect("finite");
            let query = Query::Window { window, predicate: Predicate::Intersects };
            let [mut kept, mut changed] = [&b"kept tree"[..], b"changed tree"]
                .map(|tree| reader.open_tree(tree).expect("an answer").expect("it is there"));
            alone.hang_disk();
            for change in 0..4 {
                let point = Rect::point(1.0, 0.5).expect("finite");
                // Each in a session of its own: replies to one wait for each other.
                let mut writer = alone.session();
                let timed_out = match change {
                    0 => set(&mut writer, b"changed", b"new").map(drop),
                    1 => set(&mut writer, b"new", b"new").map(drop),
                    2 => writer.del(b"removed").map(drop),
                    _ => writer.put_place(b"changed tree", 1, point, None).map(drop),
                };
                assert_eq!(timed_out, Err(Error::TimedOut));
            }
            for in_batch in [false, true] {
                for (path, via) in [(Path::Ask, ServedBy::Asked), (Path::Read, ServedBy::Read)] {
                    let seen = read(&mut reader, b"kept", in_batch, path);
                    assert_eq!((seen.value.as_deref(), seen.served_by), (Some(&b"old"[..]), via));
                }
                let seen = read(&mut reader, b"absent", in_batch, Path::Read);
                assert_eq!((seen.value, seen.counts.asked), (None, 1));
            }
            for (path, via) in [(Path::Ask, ServedBy::Asked), (Path::Read, ServedBy::Read)] {
                let found = reader.search_tree(&mut kept, &query, path).expect("an answer");
                assert_eq!((found.objects.len(), found.served_by), (1, via));
            }
            // No client sees changed or removed objects.
            let found = reader.search_tree(&mut changed, &query, Path::Read).map(drop);
            assert_eq!(found, Err(Error::TimedOut));
            for key in [&b"changed"[..], b"new", b"removed"] {
                for path in [Path::Ask, Path::Read] {
                    let got = alone.session().get(key, path).map(drop);
                    assert_eq!(got, Err(Error::TimedOut), "{path:?}");
                }
            }
            assert_eq!(
                read(&mut alone.session(), b"kept", false, Path::Ask).served_by,
                ServedBy::Asked
            );
        });
    }
}

/// The root alone says that a tree has ended: its nodes stand until their memory comes
/// back.
#[test]
fn a_tree_that_has_ended_gives_nothing_though_its_nodes_still_stand() {
    alone(PointerCacheKind::Off, |alone| {
        alone.release_in_ticks();
        let (mut reader, mut writer) = (alone.session(), alone.session());
        let settings = TreeSettings { capacity: 4, ..TreeSettings::default() };
        assert_eq!(writer.create_tree(b"t", &settings), Ok(true));
        for id in 0..40 {
            let point = Rect::point(id as f64, 0.0).expect("finite");
            writer.put_place(b"t", id, point, None).expect("room");
        }
        let window = Rect::new(-1.0, 50.0, -1.0, 1.0).expect("finite");
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let mut tree = reader.open_tree(b"t").expect("an answer").expect("it is there");
        for _ in 0..2 {
            let found = reader.search_tree(&mut tree, &query, Path::Read).expect("an answer");
            assert_eq!((found.objects.len(), found.served_by), (40, ServedBy::Read));
        }
        assert_eq!(writer.drop_tree(b"t"), Ok(true));
        let found = reader.search_tree(&mut tree, &query, Path::Read);
        let found = found.map(|found| found.objects.len());
        assert_eq!(found, Err(Error::Refused(Status::NoTree)));
        assert_eq!(tree.events().header_gone, 1);
    });
}
