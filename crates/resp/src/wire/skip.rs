//! The rest of a request that is not to be executed.
//!
//! Invariant: however the rest is cut into pieces, the parser finds the next request, and keeps
//! none of the rest except an incomplete line.

use super::args::{Args, Progress};
use super::parse::{LINE_END_BYTES, bulk_line};
use super::protocol_error::ProtocolError;
use remora_frontend::Skipped;

/// The position in the rest of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skip {
    /// Bulk strings of which nothing was skipped yet.
    left: usize,
    /// Bytes that are missing of the present one, its line end included.
    bytes: usize,
}

impl Skip {
    /// For the request that was parsed last, which is incomplete: the start of its first incomplete
    /// bulk string, and the state that skips it and the others. `None` for an inline request.
    pub fn of(args: &Args) -> Option<(usize, Self)> {
        match args.progress {
            Progress::Array { position, left } => Some((position, Self { left, bytes: 0 })),
            Progress::Start | Progress::Inline { .. } => None,
        }
    }

    /// Skips the available part of the rest. The next call must pass the bytes that follow the
    /// skipped ones.
    ///
    /// # Errors
    /// Bytes that are no bulk string; see [`ProtocolError`].
    pub fn pass(&mut self, buffer: &[u8]) -> Result<Skipped, ProtocolError> {
        let mut at = 0;
        loop {
            let taken = self.bytes.min(buffer.len() - at);
            at += taken;
            self.bytes -= taken;
            if self.bytes > 0 || self.left == 0 {
                return Ok(Skipped { bytes: at, is_whole: self.bytes == 0 });
            }
            let Some((length, from)) = bulk_line(buffer, at)? else {
                return Ok(Skipped { bytes: at, is_whole: false });
            };
            at = from;
            self.bytes = length + LINE_END_BYTES;
            self.left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Parsed, parse};

    const REQUEST: &[u8] =
        b"*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nfour*4$4\r\n\r\n\r\n$2\r\nEX\r\n$0\r\n\r\n";
    const NEXT: &[u8] = b"*1\r\n$4\r\nPING\r\n";

    /// Gives a request up after so many bytes; the rest comes in pieces.
    fn rest_of(given_up_at: usize, piece: usize) {
        let stream = [REQUEST, NEXT].concat();
        let mut args = Args::new();
        let parsed = parse(&stream[..given_up_at], &mut args);
        assert!(matches!(parsed, Ok(Parsed::Incomplete { .. })), "{given_up_at}");
        let Some((position, mut skip)) = Skip::of(&args) else {
            assert!(given_up_at < 4, "an array is known once its first line is there");
            return;
        };
        args.reset();
        let mut held = stream[position..given_up_at].to_vec();
        let mut to_come = stream[given_up_at..].chunks(piece);
        loop {
            let passed = skip.pass(&held).unwrap();
            held.drain(..passed.bytes);
            if passed.is_whole {
                break;
            }
            assert!(held.len() <= 4, "no more than a line is kept");
            held.extend_from_slice(to_come.next().expect("it ends with the request"));
        }
        to_come.for_each(|piece| held.extend_from_slice(piece));
        assert_eq!(held, NEXT, "given up at {given_up_at}, in pieces of {piece}");
    }

    #[test]
    fn the_next_request_is_found_wherever_one_is_given_up() {
        for given_up_at in 0..REQUEST.len() {
            for piece in [1, 2, 3, 7, 1_000] {
                rest_of(given_up_at, piece);
            }
        }
    }

    #[test]
    fn a_rest_that_is_none_is_an_error() {
        let mut args = Args::new();
        assert!(parse(b"*3\r\n$3\r\nSET\r\n$9\r\n", &mut args).is_ok());
        let (_, skip) = Skip::of(&args).unwrap();
        assert_eq!({ skip }.pass(b"+OK\r\n"), Err(ProtocolError::ExpectedBulk(b'+')));
        assert_eq!({ skip }.pass(b"$x\r\n"), Err(ProtocolError::InvalidBulkLength));
        args.reset();
        let inline = parse(b"SET k half", &mut args);
        assert!(matches!(inline, Ok(Parsed::Incomplete { .. })));
        assert_eq!(Skip::of(&args), None);
    }
}
