//! Any bytes as a ring's request: what is accepted keeps the limits and is
//! encoded to the same bytes again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_protocol::applied::AppliedEntry;
use remora_protocol::{Command, Pairs};
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

fuzz_target!(|bytes: &[u8]| {
    if let Some(pairs) = Pairs::parse(bytes) {
        let mut list = Vec::new();
        for (key, value) in pairs.iter() {
            assert!(key.len() <= MAX_KEY_BYTES && value.len() <= MAX_VALUE_BYTES);
            Pairs::push(&mut list, key, value);
        }
        assert_eq!(list, bytes);
    }
    if let Ok(AppliedEntry { step, position, operation }) = AppliedEntry::decode(bytes) {
        assert!(AppliedEntry::is(bytes) && Command::decode_within(bytes).is_err());
        let header = AppliedEntry::header(step, &position);
        assert_eq!([&header[..], operation].concat(), bytes);
    }
    if let Ok((database, command, id)) = Command::decode_within(bytes) {
        assert!(command.key().is_none_or(|key| key.len() <= MAX_KEY_BYTES));
        if let Command::Set { value, .. }
        | Command::Append { value, .. }
        | Command::SetRange { value, .. } = command
        {
            assert!(value.len() <= MAX_VALUE_BYTES);
        }
        let mut encoded = Vec::new();
        command.encode_within(database, id, &mut encoded);
        assert_eq!(encoded, bytes);
    }
});
