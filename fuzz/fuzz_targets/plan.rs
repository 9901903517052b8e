//! Any bytes as a plan, as the words of one, and as an outcome: what is accepted is within the bounds, and has
//! one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_plan::{Outcome, bytes, text};

fuzz_target!(|input: &[u8]| {
    if let Some(plan) = bytes::decode(input) {
        assert_eq!(bytes::encode(&plan), input);
        let query = text::Query { plan, explain: false };
        assert_eq!(text::parse(&text::print(&query)), Ok(query));
    }
    if let Some(outcome) = Outcome::from_bytes(input) {
        assert_eq!(outcome.to_bytes(), input);
    }
    let words: Vec<&[u8]> = input.split(|byte| *byte == b' ').collect();
    match text::parse(&words) {
        Ok(query) => assert_eq!(bytes::decode(&bytes::encode(&query.plan)), Some(query.plan)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
