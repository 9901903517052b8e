//! A server by script against the production client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_tests::scripted::client;

fuzz_target!(|script: &[u8]| {
    client::run(script);
});
