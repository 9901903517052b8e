//! A walk that is fed hostile bytes: it wants nothing out of bounds, finds
//! nothing that is not there, and ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_index::hash::{Step, TableRef, Walk};
use remora_layout::hash::KeyHash;

const REGION_BYTES: u64 = 1 << 20;

fuzz_target!(|feeds: Vec<Vec<u8>>| {
    let table = TableRef::checked(1, REGION_BYTES, 4096, 64, 7).unwrap();
    let (mut walk, mut want) = Walk::begin(b"key", KeyHash::of(b"key", 3), table);
    for turn in 0..64 {
        assert!(want.offset + want.bytes as u64 <= REGION_BYTES);
        let mut bytes = feeds.get(turn).cloned().unwrap_or_default();
        bytes.resize(want.bytes, 0);
        match walk.feed(&bytes) {
            Step::Fetch(next) => want = next,
            Step::Ask(_) => return,
            Step::Found(found) => {
                // Only a record with the right checksum for its place.
                assert_eq!(found.pointer.region, 1);
                return;
            }
        }
    }
    panic!("the walk does not end");
});
