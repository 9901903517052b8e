//! Any words as a heartbeat: what is accepted encodes to the same words. The
//! first byte says whether the checksum is repaired, and the second half of the
//! input tears the words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_layout::lag::Lag;
use remora_layout::session::Heartbeat;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let mut words = [0u64; Heartbeat::WORDS];
    for (word, bytes) in words.iter_mut().zip(rest.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    if choice & 1 != 0 {
        let beat = Heartbeat {
            sequence: words[0],
            utilisation_ppm_plus_1: words[1] as u32,
            wait_ns: (words[1] >> 32) as u32,
            incarnation: words[2],
            epoch: words[3],
            server_unix_ms: words[4],
            echoed_client_clock_ns: words[5],
            session: words[6] & ((1 << 48) - 1),
            lag: Lag::of_code((words[6] >> 48) as u16),
        };
        words = beat.to_words();
        assert_eq!(Heartbeat::from_words(&words), (words[0] != 0).then_some(beat));
        // One changed word must not pass.
        let at = usize::from(choice >> 1) % Heartbeat::WORDS;
        let mut torn = words;
        torn[at] = torn[at].wrapping_add(1);
        assert_eq!(Heartbeat::from_words(&torn), None);
    }
    if let Some(beat) = Heartbeat::from_words(&words) {
        assert_eq!(beat.to_words(), words);
    }
});
