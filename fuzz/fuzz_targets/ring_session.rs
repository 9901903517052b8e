//! A client by script against a production ring session and its shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_tests::scripted::ring;

fuzz_target!(|script: &[u8]| {
    ring::run(script);
});
