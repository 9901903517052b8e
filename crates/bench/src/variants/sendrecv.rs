//! Two-sided messages, as Send and Receive of verbs are (HydraDB 6.2, H18).
//!
//! ```text
//!  receiver writes            sender's processor, in place of the adapter
//!  1 receive queue: a buffer
//!    doorbell: posted + 1     2 takes the oldest posted buffer
//!                             3 copies the message into it
//!  5 polls the completion  <- 4 completion queue: sequence, bytes, buffer
//!  6 handles the message
//!  7 posts the buffer again
//! ```
//! The area of one mailbox holds its writer's data: completions and buffers of the messages that it
//! sends, the receive queue for those that it gets. The doorbell is in the place of the ring's
//! credit.
//!
//! The sender's work request and its own completion are left out: sends are
//! unsignalled, and the buffer is free when the copy is done.
//!
//! ```text
//! area     0  completions 64 words | 512  receive queue 64 words | 1024  buffers
//! completion  0 sequence 4 | bytes 3 | buffer 1
//! ```

use super::ends::{Broken, Ends, Receiving, Sending, Side, Writer};
use remora_arena::{ReadView, Words};
use remora_layout::limits::{CACHE_LINE_BYTES, RING_BYTES, WORD_BYTES};
use remora_layout::session::{credit_word, ring_offset};

/// Most buffers of one direction: as many as one line of work keeps busy.
const MAX_DEPTH: usize = 64;
const RECEIVE_QUEUE_OFFSET: usize = MAX_DEPTH * WORD_BYTES;
const BUFFERS_OFFSET: usize = 2 * MAX_DEPTH * WORD_BYTES;
/// Largest number of bytes in a completion.
const MAX_MESSAGE_BYTES: usize = (1 << 24) - 1;

const _: () = assert!(MAX_DEPTH <= 1 << 8 && RING_BYTES <= MAX_MESSAGE_BYTES);

/// How an area is divided: the same for both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Division {
    area: usize,
    depth: usize,
    buffer_bytes: usize,
    doorbell_word: usize,
}

impl Division {
    fn new(shard: usize, message_bytes: usize) -> Self {
        let buffer_bytes = message_bytes.max(1).next_multiple_of(CACHE_LINE_BYTES);
        let depth = ((RING_BYTES - BUFFERS_OFFSET) / buffer_bytes).min(MAX_DEPTH);
        assert!(depth > 0, "messages are shorter than an area");
        Self { area: ring_offset(shard), depth, buffer_bytes, doorbell_word: credit_word(shard) }
    }

    fn slot(self, count: u64) -> usize {
        (count % self.depth as u64) as usize
    }

    fn completion_offset(self, count: u64) -> usize {
        self.area + self.slot(count) * WORD_BYTES
    }

    fn receive_word(self, count: u64) -> usize {
        (self.area + RECEIVE_QUEUE_OFFSET) / WORD_BYTES + self.slot(count)
    }

    fn buffer_offset(self, buffer: usize) -> usize {
        self.area + BUFFERS_OFFSET + buffer * self.buffer_bytes
    }
}

/// The sequence that the completion of the message after `count` others has:
/// never 0 in a fresh queue, and another in each lap.
const fn sequence_after(count: u64) -> u32 {
    (count as u32).wrapping_add(1)
}

const fn completion(count: u64, bytes: usize, buffer: usize) -> u64 {
    sequence_after(count) as u64 | (bytes as u64) << 32 | (buffer as u64) << 56
}

struct QueueReceiving {
    division: Division,
    /// The area that the sender writes.
    arrivals: ReadView,
    /// The area of the receive queue, and the doorbell's mailbox.
    own: Words,
    taken: u64,
    posted: u64,
    /// The buffer of the message that was taken.
    held: Option<usize>,
}

struct QueueSending {
    division: Division,
    writer: Writer,
    /// The receiver's mailbox, with receive queue and doorbell.
    peer: ReadView,
    sent: u64,
    message: Vec<u8>,
}

/// Both ends of one side. Its receive buffers are posted when this returns.
pub fn ends(side: &Side, message_bytes: usize) -> Ends {
    let division = Division::new(side.shard, message_bytes);
    let mut receiving = QueueReceiving {
        division,
        arrivals: side.peer.clone(),
        own: side.own.clone(),
        taken: 0,
        posted: 0,
        held: None,
    };
    for buffer in 0..division.depth {
        receiving.post(buffer);
    }
    let sending = QueueSending {
        division,
        writer: Writer::new(side.own.clone()),
        peer: side.peer.clone(),
        sent: 0,
        message: Vec::new(),
    };
    (Box::new(receiving), Box::new(sending))
}

impl QueueReceiving {
    #[inline]
    fn post(&mut self, buffer: usize) {
        self.own.store(self.division.receive_word(self.posted), buffer as u64);
        self.posted += 1;
        self.own.store_release(self.division.doorbell_word, self.posted);
    }

    #[inline]
    fn next_completion(&self) -> Option<u64> {
        let offset = self.division.completion_offset(self.taken);
        let word = self.arrivals.load_acquire(offset / WORD_BYTES);
        (word as u32 == sequence_after(self.taken)).then_some(word)
    }
}

impl Receiving for QueueReceiving {
    #[inline]
    fn has_message(&self) -> bool {
        self.next_completion().is_some()
    }

    #[inline]
    fn take(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let Some(word) = self.next_completion() else { return Ok(false) };
        let (bytes, buffer) = ((word >> 32) as usize & MAX_MESSAGE_BYTES, (word >> 56) as usize);
        if bytes > self.division.buffer_bytes || buffer >= self.division.depth {
            return Err(Broken("a completion that makes no sense"));
        }
        into.clear();
        into.resize(bytes, 0);
        self.arrivals.copy_out(self.division.buffer_offset(buffer), into);
        self.taken += 1;
        self.held = Some(buffer);
        Ok(true)
    }

    #[inline]
    fn release(&mut self) -> Result<(), Broken> {
        if let Some(buffer) = self.held.take() {
            self.post(buffer);
        }
        Ok(())
    }
}

impl Sending for QueueSending {
    #[inline]
    fn try_send(&mut self, parts: &[&[u8]]) -> Result<bool, Broken> {
        let division = self.division;
        let posted = self.peer.load_acquire(division.doorbell_word);
        if posted < self.sent || posted - self.sent > division.depth as u64 {
            return Err(Broken("a doorbell that makes no sense"));
        }
        if posted == self.sent {
            return Ok(false);
        }
        let buffer = self.peer.load(division.receive_word(self.sent)) as usize;
        if buffer >= division.depth {
            return Err(Broken("a posted buffer that does not exist"));
        }
        self.message.clear();
        for part in parts {
            self.message.extend_from_slice(part);
        }
        if self.message.len() > division.buffer_bytes {
            return Err(Broken("a message longer than the buffer"));
        }
        let done = completion(self.sent, self.message.len(), buffer).to_le_bytes();
        self.writer.post([
            (division.buffer_offset(buffer), &self.message),
            (division.completion_offset(self.sent), &done),
        ])?;
        self.sent += 1;
        Ok(true)
    }

    /// Completion and receive queues do not leave the receiver's host.
    fn wire_bytes(&self, payload_bytes: usize) -> usize {
        payload_bytes.next_multiple_of(WORD_BYTES)
    }

    fn most_outstanding(&self) -> usize {
        self.division.depth
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::sides_on_the_heap;
    use super::*;
    use std::collections::VecDeque;

    const BYTES: usize = 64;

    /// Against a plain queue, with a few thousand messages over 64 buffers.
    #[test]
    fn messages_come_in_order_around_the_queue() {
        let (server, client) = sides_on_the_heap();
        let (mut requests, _) = ends(&server, BYTES);
        let (_, mut asks) = ends(&client, BYTES);
        let depth = asks.most_outstanding();
        let mut under_way: VecDeque<u64> = VecDeque::new();
        let (mut next, mut taken, mut refused) = (0u64, Vec::new(), 0);
        for step in 0..10_000u64 {
            // Waves: the sender is ahead for a while, then the receiver.
            if step / 100 % 2 == 0 || step % 3 == 0 {
                let sent = asks.try_send(&[&next.to_le_bytes()]).unwrap();
                assert_eq!(sent, under_way.len() < depth, "room is what was posted");
                if sent {
                    under_way.push_back(next);
                    next += 1;
                }
                refused += u64::from(!sent);
            } else {
                let came = requests.take(&mut taken).unwrap();
                let expected = under_way.pop_front();
                assert_eq!(came, expected.is_some());
                if let Some(expected) = expected {
                    assert_eq!(taken, expected.to_le_bytes());
                    requests.release().unwrap();
                }
            }
        }
        assert!(next > 20 * depth as u64 && refused > 0, "{next} sent, {refused} refused");
    }

    #[test]
    fn nothing_is_sent_into_a_buffer_that_is_not_posted() {
        let (server, client) = sides_on_the_heap();
        let (_, mut asks) = ends(&client, BYTES);
        assert!(!asks.try_send(&[b"x"]).unwrap(), "the receiver has posted none");
        let (mut requests, _) = ends(&server, BYTES);
        let depth = asks.most_outstanding() as u64;
        for count in 0..depth {
            assert!(asks.try_send(&[&count.to_le_bytes()]).unwrap());
        }
        assert!(!asks.try_send(&[b"overrun"]).unwrap());
        // Taken but not posted again: still no room, and nothing overwritten.
        let mut taken = Vec::new();
        for count in 0..depth {
            assert!(requests.take(&mut taken).unwrap());
            assert_eq!(taken, count.to_le_bytes());
            assert!(!asks.try_send(&[b"overrun"]).unwrap());
            requests.release().unwrap();
            assert!(asks.try_send(&[b"later"]).unwrap());
        }
    }

    #[test]
    fn what_no_honest_peer_writes_is_an_error() {
        let division = Division::new(0, BYTES);
        for word in [completion(0, BYTES + 1, 0), completion(0, 1, division.depth)] {
            let (server, _client) = sides_on_the_heap();
            let (mut requests, _) = ends(&server, BYTES);
            server.to_server.store(division.completion_offset(0) / WORD_BYTES, word);
            assert!(requests.take(&mut Vec::new()).is_err(), "{word:x}");
        }
        for (doorbell, buffer) in [(u64::MAX, 0), (division.depth as u64 + 1, 0), (1, 200)] {
            let (server, client) = sides_on_the_heap();
            let (_, mut asks) = ends(&client, BYTES);
            server.own.store(division.doorbell_word, doorbell);
            server.own.store(division.receive_word(0), buffer);
            assert!(asks.try_send(&[b"x"]).is_err(), "{doorbell} {buffer}");
        }
    }
}
