//! What a peer of the fabric sends, by script.

use super::model::{REGIONS, WITHDRAWN};
use crate::scripted::Script;
use remora_fabric::tcp::Frame;
use remora_layout::limits::{MAX_WRITE_BYTES, TCP_PIECE_BYTES};
use remora_layout::wire::kind;
use std::collections::VecDeque;

const NUMBERS: [u32; 12] = [0, 0, 1, 1, 2, 2, 3, 3, WITHDRAWN, 5, 300, u32::MAX];
const LENGTHS: [usize; 9] = [0, 1, 7, 8, 13, 64, 100, 4_096, 8_192];
const LONG_LENGTHS: [usize; 5] = [40 << 10, 72 << 10, TCP_PIECE_BYTES, MAX_WRITE_BYTES, 1 << 25];
/// Frames of one script at most, and bytes.
const FRAMES: usize = 200;
pub const STREAM_BYTES: usize = 2 << 20;

/// What the peer sends.
pub fn stream(script: &mut Script<'_>, mut flights: VecDeque<Option<usize>>) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut answered = 0;
    for _ in 0..FRAMES {
        if script.is_over() || stream.len() > STREAM_BYTES {
            break;
        }
        match script.below(16) {
            0..=4 => request(script, kind::READ, &mut stream),
            5..=10 => request(script, kind::WRITE, &mut stream),
            11 | 12 => match flights.pop_front() {
                Some(Some(bytes)) => {
                    stream.extend(Frame::Data { number: answered, bytes }.header());
                    stream.resize(stream.len() + bytes, script.byte() | 1);
                    answered += 1;
                }
                wanted => {
                    answered += wanted.is_some() as u64;
                    stream.extend(Frame::Done(answered).header());
                }
            },
            13 if script.one_in(16) => odd_answer(script, &mut stream),
            14 if script.one_in(64) => stream.extend_from_slice(script.bytes()),
            _ => {
                // The end of what came before is missing, or a bit is wrong.
                if script.one_in(32) {
                    stream.truncate(stream.len().saturating_sub(script.below(256)));
                } else if script.one_in(32) && !stream.is_empty() {
                    let at = stream.len() - 1 - script.below(256).min(stream.len() - 1);
                    stream[at] ^= 1 << script.below(8);
                }
            }
        }
    }
    stream
}

/// An answer that may fit nothing.
fn odd_answer(script: &mut Script<'_>, stream: &mut Vec<u8>) {
    let (number, bytes) = (script.below(10) as u64, script.below(128));
    match script.below(3) {
        0 => {
            stream.extend(Frame::Data { number, bytes }.header());
            stream.resize(stream.len() + bytes, 1);
        }
        1 => stream.extend(Frame::Done(number).header()),
        _ => {
            // As a FAIL with that reason stands on the wire.
            let mut header = Frame::Done(number).header();
            header[0] = kind::FAIL;
            header[20] = bytes as u8 % 7;
            stream.extend(header);
        }
    }
}

fn request(script: &mut Script<'_>, of: u8, stream: &mut Vec<u8>) {
    // Most of them fit, or the first few would be all.
    let fits = script.byte() >= 4;
    let number = script.pick(&NUMBERS);
    let (region, length) = if fits {
        let first = if of == kind::READ { 0 } else { 2 };
        let region = first + number as usize % 2;
        (region as u32, REGIONS[region].1)
    } else {
        (number, 4_096)
    };
    let most = if of == kind::READ { TCP_PIECE_BYTES } else { MAX_WRITE_BYTES };
    let mut bytes = script.pick(&LENGTHS);
    if script.one_in(16) {
        bytes = script.pick(&LONG_LENGTHS);
    }
    let mut offset = script.pick(&[0, 8, 64, length as u64 / 2, length as u64 - 8, length as u64]);
    if fits {
        bytes = bytes.min(most).min(length - offset as usize);
    } else {
        offset = script.pick(&[offset, 4, u64::MAX - 7, 1 << 40]);
        if script.one_in(8) {
            bytes = bytes.min(most);
        } else {
            bytes %= 128;
        }
    }
    if of == kind::READ {
        return stream.extend(Frame::Read { region, offset, bytes }.header());
    }
    let imm = script.one_in(3).then(|| script.byte() as u32);
    let is_signalled = !script.one_in(3);
    stream.extend(Frame::Write { region, offset, bytes, imm, is_signalled }.header());
    let fill = script.byte();
    stream.extend((0..bytes.min(STREAM_BYTES)).map(|at| fill ^ (at / 3) as u8));
}
