//! A ring full of hostile bytes: the receiver never panics, never takes what
//! no sender sent, and stops.

#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_arena::{Mapping, Words};
use remora_layout::frame::{MAX_PAYLOAD_BYTES, first_word, frame_checksum};
use remora_layout::limits::RING_BYTES;
use remora_ring::{Poll, Receiver};

const SEED: u64 = 7;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (kind, bytes) = input;
    let words = Words::new(Mapping::heap(RING_BYTES));
    words.copy_in(0, &bytes[..bytes.len().min(RING_BYTES)]);
    if kind & 1 == 1 && bytes.len() >= 16 {
        // The first word fits, so that the rest is looked at; with the second
        // bit the checksum fits too, and the frame must be taken.
        let claimed = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        let claimed = if kind & 2 == 2 { (bytes.len() - 16) as u32 } else { claimed };
        let word = first_word(0, claimed, SEED);
        words.store(0, word);
        if kind & 2 == 2 && bytes.len() - 16 <= MAX_PAYLOAD_BYTES {
            words.store(1, frame_checksum(word, &bytes[16..], SEED));
            let mut taken = Vec::new();
            let mut receiver = Receiver::new(words.view(), 0, SEED);
            assert_eq!(receiver.poll(&mut taken), Poll::Frame(bytes.len() - 16));
            assert_eq!(taken, &bytes[16..]);
            return;
        }
    }
    let mut receiver = Receiver::new(words.view(), 0, SEED);
    let mut taken = Vec::new();
    let poll = receiver.poll(&mut taken);
    assert!(!matches!(poll, Poll::Frame(_)), "a frame that nobody sent");
    assert!(taken.is_empty());
});
