//! The control arm of the scripted sessions: with a planted bug they fail.
//! (A planted bug is one of the whole process, so this has one of its own.)

use remora_layout::plant::{Plant, choose};
use remora_tests::scripted::{client, ring};
use remora_tests::{Random, in_own_process};
use std::panic::catch_unwind;

/// Whether a promise is broken in one of some random sessions.
fn is_found(plant: Plant, play: fn(&[u8], &[u8])) -> bool {
    let mut random = Random::new(9);
    choose(Some(plant));
    let found = (0..3_000).any(|_| {
        let (one, other) = (random.bytes(200), random.bytes(800));
        catch_unwind(|| play(&one, &other)).is_err()
    });
    choose(None);
    found
}

#[test]
fn planted_bugs_are_found() {
    in_own_process(|| {
        assert!(is_found(Plant::CreditTooEarly, |_, script| _ = ring::run(script)));
        assert!(is_found(Plant::SkipRecordValidation, |application, server| {
            // It answers well, and meddles with its memory now and then.
            let server = [&[40], &server[1..]].concat();
            client::run(&client::script_of(application, &server));
        }));
    });
}
