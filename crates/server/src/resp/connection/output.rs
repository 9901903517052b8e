//! Replies on their way to the client.

use super::Connection;
use crate::thread_counts::ThreadCounts;
use remora_layout::limits::{RESP_MAX_OUTPUT_BYTES, RESP_PAUSE_OUTPUT_BYTES};
use std::io::{ErrorKind, Write};

/// Buffers larger than this are given back when they are empty.
const KEEP_BYTES: usize = 256 << 10;

impl Connection {
    /// Sends what the stream takes, as much as a turn may. False if the connection is
    /// over.
    pub(super) fn flush(&mut self, stream: &mut impl Write, counts: &ThreadCounts) -> bool {
        while self.sent < self.output.len() && self.may_send > 0 {
            let end = self.output.len().min(self.sent + self.may_send);
            match stream.write(&self.output[self.sent..end]) {
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
        let unsent = self.output.len() - self.sent;
        if unsent == 0 {
            self.output.clear();
            self.sent = 0;
            if self.output.capacity() > KEEP_BYTES {
                self.output = Vec::new();
            }
        } else if self.sent > RESP_PAUSE_OUTPUT_BYTES && unsent <= RESP_PAUSE_OUTPUT_BYTES {
            // Little, and less than was sent since the last time.
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        self.unsent_bytes() <= RESP_MAX_OUTPUT_BYTES
    }

    /// Whether the next turn sends more although no event will say so: the stream is
    /// not known to be full.
    pub(super) const fn sends_on(&self) -> bool {
        self.may_send == 0 && self.sent < self.output.len()
    }

    /// Whether the stream takes replies as fast as they are written.
    pub(super) const fn may_write(&self) -> bool {
        self.output.len() - self.sent <= RESP_PAUSE_OUTPUT_BYTES
    }

    /// Bytes of replies that the client has not been sent.
    pub(super) const fn unsent_bytes(&self) -> usize {
        self.output.len() - self.sent + self.held_bytes
    }

    /// The connection is over; whether that was our doing is counted.
    pub(super) fn count_over(&self, counts: &ThreadCounts) {
        let (serial, unread) = (self.serial, self.output.len() - self.sent);
        if unread > RESP_MAX_OUTPUT_BYTES {
            counts.output_cut_off.add(1);
            tracing::info!(serial, unread, "a connection that does not read was cut off");
        }
        if let Some(why) = self.broken_off {
            counts.output_cut_off.add(1);
            let peer = self.peer;
            tracing::warn!(
                serial, %peer, unread, ?why,
                "a connection was cut off: what it reads changed faster than it reads"
            );
        }
    }
}

#[cfg(test)]
mod tests;
