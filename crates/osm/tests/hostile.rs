//! Files that lie, break off, or are meant to take all memory.

use crate::write::{Block, bytes, file, framed, header, list, number, raw, town, zlib};
use proptest::prelude::*;
use remora_osm::{Broken, Error, Limits, read};
use std::io::Cursor;

const LIMITS: Limits = Limits { kept_bytes: 1 << 20 };

fn result(bytes: &[u8]) -> Result<usize, Error> {
    let mut objects = 0;
    read(Cursor::new(bytes), &[], LIMITS, &mut |_, object| {
        objects += usize::from(object.is_ok());
        Ok(())
    })?;
    Ok(objects)
}

fn broken(bytes: &[u8]) -> Broken {
    match result(bytes) {
        Err(Error::Broken { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn after_header(blobs: Vec<u8>) -> Vec<u8> {
    [header(&["OsmSchema-V0.6"]), blobs].concat()
}

#[test]
fn a_file_that_breaks_off_is_told() {
    let whole = town();
    assert_eq!(result(&whole).unwrap(), 7);
    // Where a blob ends the file may end; what is missing then is told as such.
    let good = (0..whole.len()).filter(|&length| result(&whole[..length]).is_ok()).count();
    assert_eq!(good, 4, "after the header and the first three blocks");
    assert_eq!(broken(&[]), Broken::NoHeader);
}

#[test]
fn what_is_no_such_file_is_told() {
    assert_eq!(broken(b"<?xml version='1.0'?><osm>"), Broken::NoHeader);
    assert_eq!(broken(&raw("OSMData", &[])), Broken::NoHeader);
    let strange = header(&["OsmSchema-V0.6", "HistoricalInformation"]);
    assert_eq!(broken(&strange), Broken::Feature("HistoricalInformation".into()));
    let unknown = after_header(raw("SomethingElse", &[0xff; 9]));
    assert_eq!(result(&unknown).unwrap(), 0, "blobs of other kinds are passed over");
}

#[test]
fn lengths_that_lie_are_told() {
    let mut long_header = after_header(Vec::new());
    long_header.extend([0xff; 9]);
    assert_eq!(broken(&long_header), Broken::TooLong);
    for size in [32 << 20 | 1, 1 << 40, u64::MAX] {
        let mut head = Vec::new();
        bytes(&mut head, 1, b"OSMData");
        number(&mut head, 3, size);
        let mut blob = (head.len() as u32).to_be_bytes().to_vec();
        blob.extend(head);
        assert_eq!(broken(&after_header(blob)), Broken::TooLong, "{size}");
    }
    let mut blob = Vec::new();
    bytes(&mut blob, 1, &[0; 10]);
    number(&mut blob, 2, 11);
    assert_eq!(broken(&after_header(framed("OSMData", &blob))), Broken::Size);
    assert_eq!(broken(&after_header(framed("OSMData", &[]))), Broken::Size);
    for method in 4..=7 {
        let mut blob = Vec::new();
        number(&mut blob, 2, 3);
        bytes(&mut blob, method, &[1, 2, 3]);
        assert_eq!(broken(&after_header(framed("OSMData", &blob))), Broken::Packing);
    }
}

#[test]
fn bombs_are_not_unpacked_beyond_what_they_say() {
    let zeros = vec![0; 40 << 20];
    for (says, why) in [
        (zeros.len() as u64, Broken::TooLong),
        (1000, Broken::Size),
        (32 << 20, Broken::Size),
        (u64::MAX, Broken::TooLong),
    ] {
        assert_eq!(broken(&after_header(zlib("OSMData", &zeros, says))), why, "{says}");
    }
    assert_eq!(broken(&after_header(zlib("OSMData", &[0; 10], 11))), Broken::Size);
}

#[test]
fn blocks_that_lie_are_told() {
    let broken_group = |field, element: &[u8]| {
        let (mut group, mut block) = (Vec::new(), Vec::new());
        bytes(&mut group, field, element);
        bytes(&mut block, 2, &group);
        broken(&after_header(raw("OSMData", &block)))
    };
    let mut way = Vec::new();
    list(&mut way, 2, [1]);
    list(&mut way, 3, [2]);
    assert_eq!(broken_group(3, &way), Broken::Text, "texts that are not there");
    let mut way = Vec::new();
    list(&mut way, 2, [1]);
    assert_eq!(broken_group(3, &way), Broken::Lists, "a key without a value");
    let mut way = Vec::new();
    list(&mut way, 8, [1]);
    list(&mut way, 8, [1]);
    assert_eq!(broken_group(3, &way), Broken::SplitList);
    let mut dense = Vec::new();
    list(&mut dense, 1, [2, 2]);
    list(&mut dense, 8, [2, 2]);
    list(&mut dense, 9, [2]);
    assert_eq!(broken_group(2, &dense), Broken::Lists);
    let mut dense = Vec::new();
    for field in [1, 8, 9] {
        list(&mut dense, field, [u64::MAX - 1, u64::MAX - 1]);
    }
    assert_eq!(broken_group(2, &dense), Broken::Overflow);
    assert_eq!(broken_group(4, &[0x52, 1, 9]), Broken::Lists, "a kind without a member");
    let tags: Vec<(&str, &str)> = vec![("k", "v"); 10_001];
    assert_eq!(broken(&file(&[Block::default().node(1, 0.0, 0.0, &tags)])), Broken::Tags);
}

/// A block of 100 KB whose element would have 1 GB of tags or roles.
#[test]
fn one_long_text_cannot_be_many() {
    let text = "x".repeat(100 << 10);
    let keys: Vec<String> = (0..10_000).map(|key| key.to_string()).collect();
    let tags: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), text.as_str())).collect();
    let members = vec![(1, 1, text.as_str()); 10_000];
    for block in [
        Block::default().node(1, 0.0, 0.0, &tags),
        Block::default().dense(&[(1, 0.0, 0.0, &tags)]),
        Block::default().way(1, &[1, 2], &tags),
        Block::default().relation(1, &members, &[]),
    ] {
        assert_eq!(broken(&file(&[block])), Broken::LongTexts);
    }
    let few = Block::default().node(1, 0.0, 0.0, &tags[..5]);
    assert_eq!(result(&file(&[few])).unwrap(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever stands in a block, it is read or told.
    #[test]
    fn any_bytes_in_a_block(block in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = result(&after_header(raw("OSMData", &block)));
    }

    /// A file in which some bytes are others.
    #[test]
    fn a_town_with_other_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let bytes = plain_town();
        let mut bytes = bytes.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = result(&bytes);
    }
}

/// The town without packing, so that changed bytes reach the blocks.
fn plain_town() -> Vec<u8> {
    let park = [("type", "multipolygon"), ("leisure", "park")];
    let nodes: Vec<(i64, f64, f64, crate::write::Tags<'_>)> =
        (0..9).map(|id| (id, id as f64 % 3.0, (id / 3) as f64, &[("k", "v")][..])).collect();
    let block = Block::default()
        .dense(&nodes)
        .way(1, &[0, 2, 8, 6, 0], &[("building", "yes")])
        .way(2, &[4, 5, 8, 4], &[])
        .relation(1, &[(1, 1, "outer"), (1, 2, "inner")], &park);
    after_header(raw("OSMData", &block.bytes()))
}
