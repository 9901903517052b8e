//! A RESP client by script against a whole server.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_tests::scripted::resp;

fuzz_target!(|script: &[u8]| {
    resp::run(script);
});
