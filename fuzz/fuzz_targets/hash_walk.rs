//! A walk that is fed hostile bytes, header pages included: it wants nothing
//! out of bounds, finds nothing that is not there, and ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_index::hash::{Lookup, TableRef};
use remora_layout::arena_header::{ARENA_HEADER_BYTES, word};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_walk::{Proof, Step, Walk};

const REGION_BYTES: u64 = 1 << 20;

/// A header page: the table's numbers, then the directory, from the input.
fn page(input: &[u8]) -> Vec<u8> {
    let mut page = vec![0; ARENA_HEADER_BYTES];
    let directory = word::DIRECTORY..ARENA_HEADER_BYTES / 8;
    let words = [word::TABLE_OFFSET, word::BUCKETS, word::BASE_BUCKETS].into_iter();
    for (at, bytes) in words.chain(directory).zip(input.chunks(8)) {
        page[at * 8..at * 8 + bytes.len()].copy_from_slice(bytes);
    }
    page
}

fuzz_target!(|input: (Vec<u8>, Vec<Vec<u8>>)| {
    let (first, feeds) = input;
    let mut good = page(&4096u64.to_le_bytes());
    for number in [word::BUCKETS, word::BASE_BUCKETS] {
        good[number * 8] = 64;
    }
    let mut table = TableRef::parse(1, REGION_BYTES, &page(&first))
        .or_else(|| TableRef::parse(1, REGION_BYTES, &good))
        .expect("a good page is a table");
    let mut walk = Lookup::begin(b"key", KeyHash::of(b"key", 3), Kind::STRING, &table);
    for turn in 0..64 {
        let want = walk.next_want().expect("it has not ended");
        assert!(want.offset + want.bytes as u64 <= REGION_BYTES);
        let mut bytes = feeds.get(turn).cloned().unwrap_or_default();
        bytes.resize(want.bytes, 0);
        match walk.feed(want, &bytes, Proof::Checksum) {
            Step::More => {}
            Step::Ask(_) => return,
            Step::Restart => {
                // What was fed serves as the page, too.
                if let Some(newer) = TableRef::parse(1, REGION_BYTES, &page(&bytes)) {
                    table = newer;
                }
                if walk.restart(&table).is_err() {
                    return;
                }
            }
            Step::Found(found) => {
                // Only a record with the right checksum for its place.
                assert_eq!(found.pointer.region, 1);
                return;
            }
        }
    }
    panic!("the walk does not end");
});
