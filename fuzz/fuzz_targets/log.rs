//! The log: any bytes as frames, and a log that was written and damaged. What
//! is taken for a frame is one that was written, where it was written; nothing
//! panics, and no entry comes out that did not go in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_log::{Assembler, Frames, Log, LogKey, LogOptions, OwnedEntry, Part};

fn entries(bytes: &[u8], key: LogKey) -> Vec<OwnedEntry> {
    let mut assembler = Assembler::new(1, 1 << 16);
    let mut entries = Vec::new();
    for frame in Frames::new(bytes, key) {
        let Ok(frame) = frame else { break };
        match assembler.take(frame) {
            Ok(entry) => entries.extend(entry.map(|entry| entry.to_owned())),
            Err(_) => break,
        }
    }
    entries
}

fuzz_target!(|input: (Vec<(u8, Vec<u8>)>, Vec<(u16, u8)>, u16, Vec<u8>)| {
    let (operations, damage, cut, foreign) = input;
    let key = LogKey::new(0x5ec2_e7, 3);
    assert!(entries(&foreign, key).is_empty(), "a frame that no log wrote");
    let options = LogOptions { piece_bytes: 64, ..LogOptions::new(key, 3, 1) };
    let mut log = Log::new(options);
    let mut cursor = log.oldest_cursor();
    let mut bytes = Vec::new();
    for (at, (parts, operation)) in operations.iter().enumerate() {
        let own = Part::new(3, at as u64 + 1);
        let (head, rest) = operation.split_at(operation.len() / 2);
        if parts & 1 == 0 {
            log.append([head, rest, &[]]);
        } else {
            log.append_part(&[Part::new(9, 7), own], [head, &[], rest]);
        }
        log.read(&mut cursor, usize::MAX, &mut bytes).expect("it was not yet dropped");
    }
    let whole = entries(&bytes, key);
    assert_eq!(whole.len(), operations.len());
    for (entry, (_, operation)) in whole.iter().zip(&operations) {
        assert_eq!(entry.operation(), operation);
    }
    if !bytes.is_empty() {
        for (at, with) in damage {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= with;
        }
        bytes.truncate(bytes.len() - usize::from(cut) % bytes.len());
    }
    bytes.extend_from_slice(&foreign);
    let kept = entries(&bytes, key);
    assert_eq!(kept, whole[..kept.len()]);
});
