//! Any bytes as frames of the TCP transport: what is accepted encodes to the
//! same bytes and keeps to the limits, and the walk over a stream of frames
//! ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_fabric::tcp::{Frame, parse};
use remora_layout::limits::{MAX_WRITE_BYTES, TCP_PIECE_BYTES};
use remora_layout::wire::WIRE_HEADER_BYTES;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Some((header, behind)) = rest.split_first_chunk::<WIRE_HEADER_BYTES>() {
        let Ok(frame) = parse(header) else { return };
        assert_eq!(&frame.header(), header);
        let payload = match frame {
            Frame::Write { bytes, .. } => {
                assert!(bytes <= MAX_WRITE_BYTES);
                bytes
            }
            Frame::Data { bytes, .. } => {
                assert!(bytes <= TCP_PIECE_BYTES);
                bytes
            }
            Frame::Read { bytes, .. } => {
                assert!(bytes <= TCP_PIECE_BYTES);
                0
            }
            Frame::Done(_) | Frame::Fail { .. } => 0,
        };
        rest = &behind[payload.min(behind.len())..];
    }
});
