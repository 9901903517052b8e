//! Requests that have timed out, and their late replies: a shard is busy with one long step while
//! heartbeats continue, or the whole server stops.

use crate::alone::{MS, alone, alone_with, read};
use remora_client_core::{
    Error, Path, PointerCacheKind, Predicate, Query, Rect, ServedBy, Session, SetOptions,
    TreeSettings,
};
use remora_layout::limits::{MAX_IN_FLIGHT, RING_BYTES, SERVER_SILENT_MS};
use remora_layout::slot::SlotTable;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

/// Longer than a session's time-out, which is 5 s.
const LONG: u64 = 6_000 * MS;

/// A key of this shard of two.
fn key_of(shard: usize) -> Vec<u8> {
    let keys = (0u32..).map(|number| format!("key:{number}").into_bytes());
    let slots = SlotTable::even(2);
    let mut of_shard = keys.filter(|key| slots.shard_of(key) == shard);
    of_shard.next().expect("half of the keys are its")
}

fn set(session: &mut Session, key: &[u8], value: &[u8]) -> Result<bool, Error> {
    session.set(key, value, SetOptions::default())
}

fn submit_get(session: &mut Session, key: &[u8]) {
    session.submit(&Command::Get { key }).expect("it goes out");
}

/// The value of the oldest submitted GET, or its error.
fn next_value(session: &mut Session) -> Result<Vec<u8>, Error> {
    let mut value = None;
    session.next_reply(&mut |_, reply| {
        assert_eq!(reply.status, Status::Ok);
        value = reply.value.map(<[u8]>::to_vec);
    })?;
    Ok(value.expect("there is one, with a value"))
}

#[test]
fn only_the_request_fails_and_a_write_of_unknown_outcome_is_not_read_past() {
    alone_with(2, true, PointerCacheKind::Private, |alone| {
        let (busy, free) = (key_of(0), key_of(1));
        let (mut writer, mut other) = (alone.session(), alone.session());
        for key in [&busy, &free] {
            set(&mut writer, key, b"old").expect("room");
            assert_eq!(read(&mut writer, key, false, Path::Read).served_by, ServedBy::Read);
        }
        alone.occupy_shard(0, 2 * LONG);
        let timed_out = set(&mut writer, &busy, b"new").unwrap_err();
        assert_eq!(timed_out, Error::TimedOut);
        assert!(!timed_out.is_final() && alone.client.session().is_ok());
        // The other shard serves it, and others read the first one's memory.
        assert_eq!(read(&mut writer, &free, false, Path::Read).served_by, ServedBy::Read);
        assert_eq!(set(&mut writer, &free, b"old"), Ok(true));
        let seen = read(&mut other, &busy, false, Path::Read);
        assert_eq!((seen.value.as_deref(), seen.served_by), (Some(&b"old"[..]), ServedBy::Read));
        // The writer has to ask, by itself and in a batch.
        assert_eq!(writer.get(&busy, Path::Read).unwrap_err(), Error::TimedOut);
        alone.pause(LONG);
        for in_batch in [false, true] {
            set(&mut writer, &busy, b"new").expect("the shard is free again");
            alone.occupy_shard(0, LONG);
            assert_eq!(set(&mut writer, &busy, b"newer"), Err(Error::TimedOut));
            alone.pause(LONG);
            let seen = read(&mut writer, &busy, in_batch, Path::Read);
            assert_eq!(
                (seen.value.as_deref(), seen.served_by),
                (Some(&b"newer"[..]), ServedBy::Asked)
            );
            assert_eq!(seen.counts.behind_writes, 1, "the write's reply had not been taken");
            let seen = read(&mut writer, &busy, in_batch, Path::Read);
            assert_eq!(
                (seen.value.as_deref(), seen.served_by),
                (Some(&b"newer"[..]), ServedBy::Read)
            );
        }
    });
}

/// A request is behind an abandoned one of its session, or its time is up
/// several times: each gets its own reply.
#[test]
fn a_late_reply_is_dropped_by_its_id() {
    alone(PointerCacheKind::Off, |alone| {
        let (mut late, mut other) = (alone.session(), alone.session());
        for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4")] {
            set(&mut late, key, value).expect("room");
        }
        for others_drain in [false, true] {
            submit_get(&mut late, b"a");
            submit_get(&mut late, b"b");
            alone.occupy_shard(0, LONG);
            let keys: [&[u8]; 2] = [b"c", b"d"];
            let asked = late.get_batch(&keys, Path::Ask, &mut |_, _, _| panic!("none has come"));
            assert_eq!(asked.unwrap_err(), Error::TimedOut);
            alone.pause(LONG);
            if others_drain {
                assert_eq!(other.exists(b"a"), Ok(true));
            }
            // Those that were not abandoned are answered, in order.
            assert_eq!(next_value(&mut late).as_deref(), Ok(&b"1"[..]));
            assert_eq!(late.get(b"d", Path::Ask).unwrap().value, Some(&b"4"[..]));
            assert_eq!(next_value(&mut late).as_deref(), Ok(&b"2"[..]));
            assert_eq!(late.in_flight(), 0);
        }
        // Of the submitted ones the oldest is no longer awaited.
        for key in [b"a", b"b", b"c"] {
            submit_get(&mut late, key);
        }
        late.flush().expect("room");
        alone.occupy_shard(0, LONG);
        submit_get(&mut late, b"d");
        late.flush().expect("room");
        let first = next_value(&mut late);
        let values: Vec<_> = (0..3).map(|_| next_value(&mut late)).collect();
        let expected = [b"2", b"3", b"4"].map(|value| Ok(value.to_vec()));
        match first {
            Err(error) => assert_eq!((error, values), (Error::TimedOut, expected.to_vec())),
            Ok(_) => panic!("the shard was busy"),
        }
    });
}

#[test]
fn a_late_reply_in_several_frames_is_dropped_whole() {
    const OBJECTS: u64 = 6_000;
    let point = |id: u64| Rect::point(id as f64, 0.0).expect("a point");
    alone(PointerCacheKind::Off, move |alone| {
        let (mut late, mut other) = (alone.session(), alone.session());
        late.create_tree(b"places", &TreeSettings::default()).expect("room");
        let mut objects = (0..OBJECTS).map(|id| (id, point(id)));
        assert_eq!(late.load_tree(b"places", &mut objects, &mut |_| {}), Ok(OBJECTS));
        let window = Rect::new(-1.0, 1e9, -1.0, 1.0).expect("a window");
        let all = Query::Window { window, predicate: Predicate::Intersects };
        let mut tree = late.open_tree(b"places").expect("an answer").expect("a tree");
        for others_drain in [false, true] {
            alone.occupy_shard(0, LONG);
            let asked = late.search_tree(&mut tree, &all, Path::Ask);
            assert_eq!(asked.unwrap_err(), Error::TimedOut);
            alone.pause(LONG);
            if others_drain {
                let count = other.count_places(b"places", window, Predicate::Intersects);
                assert_eq!(count, Ok(OBJECTS));
            }
            let count = late.count_places(b"places", window, Predicate::Intersects);
            assert_eq!(count, Ok(OBJECTS));
            let found = late.search_tree(&mut tree, &all, Path::Ask).expect("an answer");
            assert_eq!(found.objects.len() as u64, OBJECTS);
        }
    });
}

/// It is not given to anybody else while the reply may still be written there.
#[test]
fn memory_for_a_large_reply_comes_back_with_the_late_reply() {
    let value: Vec<u8> = (0..3_000_000u32).map(|at| at as u8 ^ (at >> 8) as u8).collect();
    alone_with(1, false, PointerCacheKind::Off, move |alone| {
        let busy = || alone.client.data_buffers().busy_bytes;
        let (mut late, mut other) = (alone.session(), alone.session());
        set(&mut other, b"large", &value).expect("room");
        for leaves in [false, true] {
            alone.occupy_during_large_reply(LONG);
            assert_eq!(late.get(b"large", Path::Ask).unwrap_err(), Error::TimedOut);
            assert_eq!(busy(), value.len().next_multiple_of(8), "the shard may write there");
            if leaves {
                // It leaves its number, and the memory stays.
                late = alone.session();
                assert!(busy() > 0);
            }
            alone.pause(LONG);
            assert_eq!(other.get(b"large", Path::Ask).unwrap().value, Some(&value[..]));
            assert_eq!(busy(), 0);
            assert_eq!(late.get(b"large", Path::Ask).unwrap().value, Some(&value[..]));
        }
    });
}

/// Nothing is left of it at the shard, which the audit at the end would find.
#[test]
fn a_value_that_was_sent_in_part_is_called_off() {
    let value = vec![7; 4 * RING_BYTES];
    alone_with(1, false, PointerCacheKind::Private, move |alone| {
        let (mut late, mut other) = (alone.session(), alone.session());
        for command in [
            Command::Set {
                key: b"key",
                value: &value,
                condition: Condition::Always,
                expiry: Expiry::Never,
                get: false,
            },
            Command::Append { key: b"key", value: &value },
        ] {
            set(&mut late, b"key", b"old").expect("room");
            alone.occupy_shard(0, LONG);
            assert_eq!(late.submit(&command), Err(Error::TimedOut), "the ring is full");
            alone.pause(LONG);
            assert_eq!(other.strlen(b"key"), Ok(3), "it was not carried out");
            let seen = read(&mut late, b"key", false, Path::Read);
            assert_eq!(
                (seen.value.as_deref(), seen.served_by),
                (Some(&b"old"[..]), ServedBy::Asked)
            );
            assert_eq!(read(&mut late, b"key", false, Path::Read).served_by, ServedBy::Read);
            alone.audit();
            // The next one goes its way.
            late.submit(&command).expect("it goes out");
            assert_eq!(
                late.next_reply(&mut |_, reply| assert_eq!(reply.status, Status::Ok)),
                Ok(true)
            );
            assert!(other.strlen(b"key").expect("an answer") >= value.len() as u64);
        }
        // A client that leaves calls off every request that it can.
        alone.occupy_shard(0, LONG);
        assert_eq!(set(&mut late, b"key", &value), Err(Error::TimedOut));
        alone.pause(LONG);
        drop(late);
        assert_eq!(alone.session().exists(b"key"), Ok(true));
        alone.audit();
    });
}

/// Abandoned requests take places of the window until their replies come.
#[test]
fn the_window_is_bounded_and_opens_again() {
    alone(PointerCacheKind::Off, |alone| {
        let mut late = alone.session();
        set(&mut late, b"key", b"value").expect("room");
        alone.occupy_shard(0, 40 * LONG);
        let mut refused = 0;
        let keys = vec![&b"key"[..]; 200];
        for _ in 0..MAX_IN_FLIGHT / keys.len() + 5 {
            let asked = late.get_batch(&keys, Path::Ask, &mut |_, _, _| panic!("none has come"));
            assert_eq!(asked.unwrap_err(), Error::TimedOut);
            refused += 1;
        }
        assert!(refused * keys.len() > MAX_IN_FLIGHT, "they would not all fit the window");
        alone.pause(40 * LONG);
        let mut values = 0;
        let mut each = |_, value: Option<&[u8]>, _| values += (value == Some(b"value")) as usize;
        late.get_batch(&keys, Path::Ask, &mut each).expect("answers");
        assert_eq!(values, keys.len());
    });
}

#[test]
fn without_heartbeats_the_connection_ends_for_all() {
    alone(PointerCacheKind::Private, |alone| {
        let (mut late, mut other) = (alone.session(), alone.session());
        set(&mut late, b"key", b"value").expect("room");
        alone.pause(SERVER_SILENT_MS * MS);
        alone.stall_server(2 * LONG);
        let error = set(&mut late, b"key", b"newer").unwrap_err();
        assert_eq!(error, Error::ServerSilent);
        assert!(error.is_final() && error.to_string().contains("connect again"), "{error}");
        assert_eq!(other.get(b"key", Path::Read).unwrap_err(), error);
        assert_eq!(alone.client.session().unwrap_err(), error);
        alone.pause(3 * LONG);
    });
}

/// They have not been missed for long enough when the first request's time is
/// up, so that it fails alone; the next one's time shows it.
#[test]
fn heartbeats_that_have_just_stopped_end_nothing_yet() {
    alone(PointerCacheKind::Off, |alone| {
        let mut late = alone.session();
        set(&mut late, b"key", b"value").expect("room");
        alone.occupy_shard(0, 3 * LONG);
        alone.stall_server_after(5_000 * MS - SERVER_SILENT_MS * MS / 2, 3 * LONG);
        assert_eq!(late.exists(b"key"), Err(Error::TimedOut));
        assert_eq!(late.exists(b"key"), Err(Error::ServerSilent));
        alone.pause(4 * LONG);
    });
}
