//! Any bytes as an OSM PBF file: as they are, and as a block behind a good
//! header, so that they need no length in front of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_osm::{Limits, read};
use std::io::Cursor;

/// The first blob of a file: an empty OSMHeader.
const HEADER: &[u8] = b"\0\0\0\x0d\x0a\x09OSMHeader\x18\x02\x0a\0";

fuzz_target!(|bytes: &[u8]| {
    let mut see = |_, object: Result<remora_osm::Object<'_>, _>| {
        if let Ok(object) = object {
            assert!(serde_json::from_slice::<serde_json::Value>(object.tags).is_ok());
        }
        Ok(())
    };
    let limits = Limits { kept_bytes: 1 << 16 };
    let _ = read(Cursor::new(bytes), &[], limits, &mut see);
    // A blob that is not packed.
    let mut file = HEADER.to_vec();
    let mut blob = vec![0x0a];
    push_varint(&mut blob, bytes.len());
    blob.extend_from_slice(bytes);
    let mut head = b"\x0a\x07OSMData\x18".to_vec();
    push_varint(&mut head, blob.len());
    file.extend_from_slice(&(head.len() as u32).to_be_bytes());
    file.extend_from_slice(&head);
    file.extend_from_slice(&blob);
    let _ = read(Cursor::new(&file), &[], limits, &mut see);
});

fn push_varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
