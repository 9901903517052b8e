//! A peer by script against a production connection of the TCP fabric.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_tests::scripted::fabric;

fuzz_target!(|script: &[u8]| {
    fabric::run(script);
});
