//! A pointer that leads to a whole record of the key, but of another kind: the
//! name of a member that has a place and the id of a tree's object may equal a key.

use remora_arena::{Mapping, ReadView, Words};
use remora_client_core::{
    Options, Path, PointerCacheKind, ServedBy, SetOptions, SharedPointers, Wake,
};
use remora_layout::arena_header::word;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::POINTER_TABLE_BYTES;
use remora_layout::pointer::RemotePointer;
use remora_layout::pointer_table::Hint;
use remora_layout::record::{Guardian, Lengths, RECORD_HEADER_BYTES, State};
use remora_layout::rect::Rect;
use remora_tests::{RawSession, ServerProcess, by_pointers, wait_until};
use std::os::fd::AsFd;
use std::time::Duration;

/// As long as an object's id.
const KEY: &[u8; 8] = b"whatever";

/// The pointer to the live record of this kind whose key is [`KEY`].
fn find(arena: &ReadView, kind: Kind) -> Option<RemotePointer> {
    (0..arena.bytes() / 16 - 3).find_map(|slot| {
        let guardian = Guardian::from_word(arena.load(slot * 2))?;
        let lengths = Lengths::from_word(arena.load(slot * 2 + 3))?;
        let is_it = guardian.state == State::Live
            && lengths.kind == kind
            && lengths.key_bytes as usize == KEY.len();
        is_it.then_some(())?;
        let mut key = [0; KEY.len()];
        arena.copy_out(slot * 16 + RECORD_HEADER_BYTES, &mut key);
        (key == *KEY).then_some(RemotePointer {
            region: arena.load(word::REGION) as u32,
            slot: slot as u32,
            length: lengths.record_bytes() as u32,
            generation: guardian.generation,
        })
    })
}

#[test]
fn a_pointer_to_a_record_of_another_kind_is_not_believed() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=16MiB"]);
    let raw = RawSession::connect(&server.socket());
    let arena = &raw.connected.arenas[0];
    let fd = raw.connected.pointer_table.as_ref().expect("it is granted").as_fd();
    let table = Mapping::of_peer(fd, POINTER_TABLE_BYTES).unwrap();
    let seed = raw.connected.hello.pointer_table_seed.get();
    let table = SharedPointers::new(Words::new(table), seed);
    let hash_seed = raw.connected.hello.hash_seed.get();
    let hash = KeyHash::of(KEY, hash_seed);
    let lease = Some(Duration::from_secs(3600));
    let pointer_cache = PointerCacheKind::Shared;
    let options = Options { wake: Wake::Event, pointer_cache, lease, ..by_pointers() };
    let mut session = server.session_with(&options);

    // A large set, which gets places once it is searched.
    let mut resp = server.resp();
    resp.call("GEOADD places 13 38 whatever");
    for at in 0..300 {
        resp.call(&format!("GEOADD places 13 38 m{at}"));
    }
    resp.call("GEOSEARCH places FROMLONLAT 13 38 BYRADIUS 1 km");
    let rect = Rect::new(0.0, 1.0, 0.0, 1.0).unwrap();
    session.put_place(b"tree", u64::from_le_bytes(*KEY), rect, Some(b"bytes")).unwrap();
    wait_until("places", || find(arena, Kind::SORTED_PLACE).is_some());
    let parts = [Kind::SORTED_PLACE, Kind::OBJECT].map(|kind| find(arena, kind).expect("written"));
    // A lease that runs on the clients' clock: that of another key.
    session.set(b"other", b"", SetOptions::default()).unwrap();
    session.get(b"other", Path::Ask).unwrap();
    let other = table.find(KeyHash::of(b"other", hash_seed)).expect("its pointer was told");
    let lead_to = |pointer| {
        let (lease_end_ns, term_ms) = (other.lease_end_ns(), 1 << 20);
        table.put(&Hint { hash, pointer, lease_end_ns, term_ms }, lease_end_ns - 1);
    };

    for value in [None, Some(&b"the string"[..])] {
        if let Some(value) = value {
            session.set(KEY, value, SetOptions::default()).unwrap();
        }
        for (part, path) in parts.iter().flat_map(|part| [(part, Path::Read), (part, Path::Choose)])
        {
            lead_to(*part);
            let got = session.get(KEY, path).unwrap();
            assert_eq!(
                (got.value, got.served_by),
                (value, ServedBy::AskedAfterRead),
                "{part:?} {path:?}"
            );
            lead_to(*part);
            let mut batch = None;
            let mut see = |_: usize, value: Option<&[u8]>, via| {
                batch = Some((value.map(<[u8]>::to_vec), via));
            };
            session.get_batch(&[KEY], path, &mut see).unwrap();
            let asked = (value.map(<[u8]>::to_vec), ServedBy::AskedAfterRead);
            assert_eq!(batch, Some(asked), "{part:?} {path:?}");
        }
    }
}
