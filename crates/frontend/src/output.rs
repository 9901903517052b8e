//! Replies on their way to the client.
//!
//! A reply that shows a change that is not durable is written at once, and sent once the change is:
//! everything up to it waits, the replies of a turn together. So it costs as much as any other.
//!
//! Invariant: no byte of a held reply is sent before its sequence is durable; bytes are sent in order.

use crate::counts::ConnectionCounts;
use remora_layout::limits::{CONNECTION_PAUSE_OUTPUT_BYTES, CONNECTION_SEND_BYTES_PER_TURN};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};

/// Buffers larger than this are given back when they are empty.
const KEEP_BYTES: usize = 256 << 10;

/// Turns whose replies are held apart from each other; those of further turns join the last.
const HELD_TURNS: usize = 64;

/// Replies that wait for a sequence, and what was written before them.
struct Held {
    /// Where they end, counted from the connection's first byte.
    end: u64,
    /// What they wait for.
    sequence: u64,
    replies: usize,
}

/// Bytes of replies in their order.
#[derive(Default)]
pub struct Output {
    bytes: Vec<u8>,
    /// This many bytes at the start are sent.
    sent: usize,
    /// Bytes that the present turn may still send.
    may_send: usize,
    /// Bytes that were taken away from the start of `bytes`.
    gone: u64,
    /// Replies that wait, in their order.
    held: VecDeque<Held>,
    /// The end of those that no longer wait.
    released: u64,
    /// The last of `held` is of the present turn.
    joins: bool,
}

impl Output {
    /// A turn begins.
    pub const fn begin_turn(&mut self) {
        self.may_send = CONNECTION_SEND_BYTES_PER_TURN;
        self.joins = false;
    }

    /// The reply that was written last waits until this sequence is durable.
    pub fn hold(&mut self, sequence: u64) {
        let end = self.gone + self.bytes.len() as u64;
        let joins = self.joins || self.held.len() >= HELD_TURNS;
        match self.held.back_mut().filter(|_| joins) {
            Some(last) => {
                (last.end, last.sequence) = (end, last.sequence.max(sequence));
                last.replies += 1;
            }
            None => self.held.push_back(Held { end, sequence, replies: 1 }),
        }
        self.joins = true;
    }

    /// Everything up to this sequence is durable. Whether something may be sent that might not
    /// before.
    pub fn release(&mut self, durable: u64) -> bool {
        let before = self.released;
        while self.held.front().is_some_and(|held| held.sequence <= durable) {
            self.released = self.held.pop_front().map_or(self.released, |due| due.end);
        }
        self.released > before
    }

    /// Whether [`Output::release`] would release something.
    pub fn may_release(&self, durable: u64) -> bool {
        self.held.front().is_some_and(|held| held.sequence <= durable)
    }

    /// Replies that are held.
    pub fn held_replies(&self) -> usize {
        self.held.iter().map(|held| held.replies).sum()
    }

    /// The end of what may be sent.
    fn end(&self) -> usize {
        if self.held.is_empty() {
            return self.bytes.len();
        }
        // What was released may be sent, and have gone, since.
        self.released.saturating_sub(self.gone) as usize
    }

    /// Whether nothing is unsent.
    pub const fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Bytes that are not sent.
    pub const fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Memory that the buffer takes.
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
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
    pub fn sends_on(&self) -> bool {
        self.may_send == 0 && self.sent < self.end()
    }

    /// Works with this buffer, unless some of it is unsent.
    pub fn lend(&mut self, buffer: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = std::mem::take(buffer);
        }
    }

    /// Gives the buffer back, unless much of it is unsent: idle connections have none.
    pub fn give_back(&mut self, buffer: &mut Vec<u8>) {
        if self.bytes.is_empty() {
            *buffer = std::mem::take(&mut self.bytes);
        } else if self.bytes.len() < self.bytes.capacity() / 4 && buffer.capacity() == 0 {
            let own = self.bytes.to_vec();
            *buffer = std::mem::replace(&mut self.bytes, own);
            buffer.clear();
        }
    }

    /// Sends as much as the stream takes, up to a turn's limit. False if the stream is broken.
    pub fn send(&mut self, stream: &mut impl Write, counts: &ConnectionCounts) -> bool {
        let most = self.end();
        while self.sent < most && self.may_send > 0 {
            let end = most.min(self.sent + self.may_send);
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
            self.gone += self.bytes.len() as u64;
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
            self.gone += self.sent as u64;
            self.sent = 0;
            self.bytes.shrink_to(CONNECTION_PAUSE_OUTPUT_BYTES);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 10 << 20;

    #[test]
    fn what_is_held_is_sent_once_it_is_durable_and_not_before() {
        let (counts, mut stream) = (ConnectionCounts::default(), Vec::new());
        let mut output = Output::default();
        let mut turn = |output: &mut Output, replies: &[(&[u8], u64)], durable: u64| {
            output.begin_turn();
            for (reply, wait) in replies {
                output.bytes_mut().extend_from_slice(reply);
                if *wait > 0 {
                    output.hold(*wait);
                }
            }
            output.release(durable);
            assert!(output.send(&mut stream, &counts));
            String::from_utf8(stream.clone()).unwrap()
        };
        assert_eq!(turn(&mut output, &[(b"a", 0), (b"b", 1), (b"c", 2)], 0), "");
        // What does not wait stays behind what does.
        assert_eq!(turn(&mut output, &[(b"d", 0)], 1), "");
        assert_eq!((output.held_replies(), output.unsent()), (2, 4));
        assert_eq!(turn(&mut output, &[(b"e", 5)], 2), "abc");
        assert_eq!(turn(&mut output, &[(b"f", 9)], 5), "abcde");
        assert!(!output.is_empty() && !output.release(8) && output.release(9));
        assert_eq!(turn(&mut output, &[], 9), "abcdef");
        assert!(output.is_empty());
        // Bounded: replies of many turns wait together.
        for sequence in 10..1000 {
            turn(&mut output, &[(b"x", sequence)], 9);
        }
        assert_eq!((output.held.len(), output.held_replies()), (HELD_TURNS, 990));
        assert_eq!(turn(&mut output, &[], 999).len(), 6 + 990);
    }

    #[test]
    fn what_is_unsent_is_moved_only_when_it_is_little() {
        let all: Vec<u8> = (0..LARGE).map(|at| (at / 1_000) as u8).collect();
        let mut output = Output { bytes: all.clone(), ..Output::default() };
        let (counts, mut stream) = (ConnectionCounts::default(), Vec::new());
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
