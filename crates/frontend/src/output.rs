//! Replies on their way to the client.

use crate::counts::Counts;
use remora_layout::limits::{CONNECTION_PAUSE_OUTPUT_BYTES, CONNECTION_SEND_BYTES_PER_TURN};
use std::io::{ErrorKind, Write};

/// Buffers larger than this are given back when they are empty.
const KEEP_BYTES: usize = 256 << 10;

/// Bytes of replies in their order.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// This many bytes at the start are sent.
    sent: usize,
    /// Bytes that the present turn may still send.
    may_send: usize,
}

impl Output {
    /// A turn begins.
    pub const fn begin_turn(&mut self) {
        self.may_send = CONNECTION_SEND_BYTES_PER_TURN;
    }

    /// Whether nothing is unsent.
    pub const fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Bytes that are not sent.
    pub const fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The buffer to which a reply is appended.
    #[inline]
    pub const fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether the client takes replies as fast as they are written.
    pub const fn may_write(&self) -> bool {
        self.unsent() <= CONNECTION_PAUSE_OUTPUT_BYTES
    }

    /// Whether the next turn sends more although no event will say so: the stream is
    /// not known to be full.
    pub const fn sends_on(&self) -> bool {
        self.may_send == 0 && self.sent < self.bytes.len()
    }

    /// Works with this buffer, unless some of it is unsent.
    pub fn lend(&mut self, buffer: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = std::mem::take(buffer);
        }
    }

    /// Gives the buffer back, unless some of it is unsent: idle connections have none.
    pub fn give_back(&mut self, buffer: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            *buffer = std::mem::take(&mut self.bytes);
        }
    }

    /// Sends as much as the stream takes, up to a turn's limit. False if the stream is broken.
    pub fn send(&mut self, stream: &mut impl Write, counts: &Counts) -> bool {
        while self.sent < self.bytes.len() && self.may_send > 0 {
            let end = self.bytes.len().min(self.sent + self.may_send);
            match stream.write(&self.bytes[self.sent..end]) {
                Ok(0) => return false,
                Ok(sent) => {
                    counts.writes.add(1);
                    counts.bytes_written.add(sent as u64);
                    self.sent += sent;
                    self.may_send -= sent;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes = Vec::new();
            }
        } else if self.sent > CONNECTION_PAUSE_OUTPUT_BYTES
            && self.unsent() <= CONNECTION_PAUSE_OUTPUT_BYTES
        {
            // Little, and less than was sent since the last time.
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 10 << 20;

    #[test]
    fn what_is_unsent_is_moved_only_when_it_is_little() {
        let all: Vec<u8> = (0..LARGE).map(|at| (at / 1_000) as u8).collect();
        let mut output = Output { bytes: all.clone(), ..Output::default() };
        let (counts, mut stream) = (Counts::default(), Vec::new());
        while !output.bytes.is_empty() {
            let (length, sent) = (output.bytes.len(), output.sent);
            output.may_send = 700_000;
            assert!(output.send(&mut stream, &counts));
            let unsent = LARGE - stream.len();
            assert_eq!(output.sends_on(), unsent > 0);
            assert_eq!(output.unsent(), unsent);
            let stays = output.bytes.len() == length && output.sent > sent;
            assert!(stays || unsent <= CONNECTION_PAUSE_OUTPUT_BYTES, "{unsent} bytes are moved");
            assert!(
                output.sent <= CONNECTION_PAUSE_OUTPUT_BYTES
                    || unsent > CONNECTION_PAUSE_OUTPUT_BYTES
            );
        }
        assert!(stream == all);
    }
}
