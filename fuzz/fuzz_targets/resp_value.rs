//! Any bytes as a RESP value: what is accepted is written back and read again
//! as the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_resp::wire::ParsedValue;
use remora_resp::{RespVersion, Value};

fuzz_target!(|bytes: &[u8]| {
    match Value::parse(bytes) {
        Ok(ParsedValue::Value { value, consumed }) => {
            assert!(consumed > 0 && consumed <= bytes.len());
            let written = value.to_bytes();
            let Ok(ParsedValue::Value { value: again, consumed }) = Value::parse(&written) else {
                panic!("what was written is not a value");
            };
            assert_eq!(consumed, written.len());
            // As text: a double that is no number does not equal itself.
            assert_eq!(format!("{again:?}"), format!("{value:?}"));
            let mut resp2 = Vec::new();
            value.write(&mut resp2, RespVersion::Resp2);
            assert!(matches!(
                Value::parse(&resp2),
                Ok(ParsedValue::Value { consumed, .. }) if consumed == resp2.len()
            ));
        }
        Ok(ParsedValue::Incomplete { need }) => assert!(need > bytes.len()),
        Err(_) => {}
    }
});
