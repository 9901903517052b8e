//! Any bytes as a record that was read from a peer's memory: never a panic,
//! and what is accepted holds when it is checked again by hand.
//!
//! Checksums cannot be guessed, so half of the inputs get a right one: the
//! first byte says which of guardian and checksum are repaired.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_layout::hash::checksum;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::record::{
    CHECKED_FROM, Guardian, Lengths, RECORD_HEADER_BYTES, State, checksum_seed, verify,
};

const SECRET: u64 = 0x5ec2_e7ed_0000_0001;
const REGION: u32 = 3;
const SLOT: u32 = 77;

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().unwrap())
}

/// Makes guardian and checksum right, as far as the lengths allow.
fn repair(bytes: &mut [u8], guardian_too: bool) {
    if bytes.len() < RECORD_HEADER_BYTES {
        return;
    }
    if guardian_too {
        let generation = word(bytes, 0) as u32;
        let guardian = Guardian { generation, state: State::Live, class: 1 };
        bytes[..8].copy_from_slice(&guardian.to_word().to_le_bytes());
        // Lengths that fit are as rare as checksums: keep their low bits, and the kind.
        let lengths = word(bytes, 3) & 0xff00_00ff | (word(bytes, 3) >> 32 & 0xff) << 32;
        bytes[24..32].copy_from_slice(&lengths.to_le_bytes());
    }
    let Some(lengths) = Lengths::from_word(word(bytes, 3)) else { return };
    if let Some(checked) = bytes.get(CHECKED_FROM..lengths.record_bytes()) {
        let sum = checksum(checked, checksum_seed(SECRET, REGION, SLOT, word(bytes, 0) as u32));
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let mut bytes = rest.to_vec();
    if choice & 1 != 0 {
        repair(&mut bytes, choice & 2 != 0);
    }
    let guessed = |bytes: &[u8]| {
        let lengths = Lengths::from_word(word(bytes, 3))?;
        let key = RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + lengths.key_bytes as usize;
        bytes.get(key).map(<[u8]>::to_vec)
    };
    let key = match choice & 4 {
        0 if bytes.len() >= RECORD_HEADER_BYTES => guessed(&bytes).unwrap_or_default(),
        _ => b"key".to_vec(),
    };
    let generation = (choice & 8 != 0).then_some(u32::from(choice));
    // Half of the readers come for what the record says that it is.
    let kind = match choice & 16 {
        0 => Kind::STRING,
        _ => bytes.get(27).map_or(Kind::STRING, |&byte| Kind(byte)),
    };
    let Ok(found) = verify(&bytes, SECRET, REGION, SLOT, generation, kind, &key) else { return };

    let guardian = Guardian::from_word(word(&bytes, 0)).expect("a guardian that was accepted");
    assert_eq!(guardian.state, State::Live);
    assert!(generation.is_none_or(|generation| generation == guardian.generation));
    let lengths = Lengths::from_word(word(&bytes, 3)).expect("lengths that were accepted");
    assert_eq!(lengths.kind, kind);
    let end = lengths.record_bytes();
    assert!(lengths.key_bytes as usize <= MAX_KEY_BYTES);
    assert!(lengths.value_bytes as usize <= MAX_VALUE_BYTES);
    let seed = checksum_seed(SECRET, REGION, SLOT, guardian.generation);
    assert_eq!(checksum(&bytes[CHECKED_FROM..end], seed), word(&bytes, 2));
    assert_eq!(&bytes[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + key.len()], key);
    assert_eq!(key.len(), lengths.key_bytes as usize);
    assert_eq!(found.value, &bytes[end - lengths.value_bytes as usize..end]);
    assert_eq!(found.pointer.length as usize, end);
    assert_eq!(
        (found.pointer.region, found.pointer.slot, found.pointer.generation),
        (REGION, SLOT, guardian.generation)
    );
    // The same record in another place or of another generation is none.
    assert!(verify(&bytes, SECRET, REGION, SLOT + 1, generation, kind, &key).is_err());
    let other = Some(guardian.generation.wrapping_add(1));
    assert!(verify(&bytes, SECRET, REGION, SLOT, other, kind, &key).is_err());
    let another = Kind(kind.0.wrapping_add(1));
    assert!(verify(&bytes, SECRET, REGION, SLOT, generation, another, &key).is_err());
    assert!(verify(&bytes, !SECRET, REGION, SLOT, generation, kind, &key).is_err());
});
