//! Any bytes as the first exchange of a session.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_layout::hello::{ClientHello, Refusal, ServerHello, text_field, text_of};
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((hello, _)) = ClientHello::read_from_prefix(bytes) {
        assert_eq!(hello.as_bytes(), &bytes[..size_of::<ClientHello>()]);
    }
    if let Ok((hello, _)) = ServerHello::read_from_prefix(bytes) {
        assert_eq!(hello.as_bytes(), &bytes[..size_of::<ServerHello>()]);
        if let Some(refusal) = Refusal::from_number(hello.refusal.get()) {
            assert_eq!(refusal as u32, hello.refusal.get());
            assert!(!refusal.to_string().is_empty());
        }
        for field in [&hello.socket_path[..], &hello.tcp_address[..]] {
            if let Some(text) = text_of(field) {
                assert_eq!(text_of(&text_field::<108>(text).unwrap()), Some(text));
            }
        }
    }
});
