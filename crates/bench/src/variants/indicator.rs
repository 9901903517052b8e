//! Indicator-encapsulated messages, as strict as the paper has them (HydraDB
//! 4.2.1, H14 to H16).
//!
//! ```text
//!    0           4          8                       8 + payload, in whole words
//!    +-----------+----------+-----------------------+-----------+----------+
//!    | indicator | size 4 B | payload, zero-filled  | indicator | 0        |
//!    +-----------+----------+-----------------------+-----------+----------+
//! ```
//! One request buffer and one response buffer for each connection, one message
//! at a time. The receiver polls the first word; once it is set it certifies
//! the size, and the receiver polls the word behind that many bytes. After
//! processing it zeroes the buffer.
//!
//! It relies on a WRITE's bytes arriving in order. Shared memory on x86-64 is
//! that good; no transport promises it, which is why this form stays in the
//! bench (docs/decisions/0002-frames.md). And it relies on the receiver being
//! able to zero the response buffer: both buffers lie in the mailbox that the
//! client may write, the one that the server made.

use super::ends::{Broken, Ends, Receiving, Role, Sending, Side, Writer};
use remora_arena::Words;
use remora_layout::frame::MAX_PAYLOAD_BYTES;
use remora_layout::limits::{RING_BYTES, WORD_BYTES};
use remora_layout::session::ring_offset;

/// Set, in the low half of a word. Any value but 0 would do.
const INDICATOR: u32 = 0x5245_4d21;
/// Bytes of each of the two buffers.
const BUFFER_BYTES: usize = RING_BYTES / 2;
/// Zeroes a buffer by pieces of this length.
const ZEROS: [u8; 512] = [0; 512];

const _: () = assert!(2 * WORD_BYTES + MAX_PAYLOAD_BYTES.next_multiple_of(8) <= BUFFER_BYTES);

/// The word that opens a message.
const fn first_word(payload_bytes: u32) -> u64 {
    INDICATOR as u64 | (payload_bytes as u64) << 32
}

/// Byte offset of the closing word, from the beginning of the message.
const fn closing_offset(payload_bytes: usize) -> usize {
    WORD_BYTES + payload_bytes.next_multiple_of(WORD_BYTES)
}

/// The receiving end of one buffer.
struct IndicatorReceiving {
    words: Words,
    base: usize,
    /// Bytes of the message that was taken and must be zeroed.
    taken: usize,
}

/// The sending end of one buffer.
struct IndicatorSending {
    writer: Writer,
    words: Words,
    base: usize,
    message: Vec<u8>,
}

/// Both ends of one side.
pub fn ends(side: &Side) -> Ends {
    let requests = ring_offset(side.shard);
    let responses = requests + BUFFER_BYTES;
    let (inward, outward) = match side.role {
        Role::Server => (requests, responses),
        Role::Client => (responses, requests),
    };
    let words = side.to_server.clone();
    let receiving = IndicatorReceiving { words: words.clone(), base: inward, taken: 0 };
    let sending = IndicatorSending {
        writer: Writer::new(words.clone()),
        words,
        base: outward,
        message: Vec::new(),
    };
    (Box::new(receiving), Box::new(sending))
}

impl Receiving for IndicatorReceiving {
    #[inline]
    fn has_message(&self) -> bool {
        self.words.load_acquire(self.base / WORD_BYTES) as u32 != 0
    }

    #[inline]
    fn take(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let first = self.words.load_acquire(self.base / WORD_BYTES);
        if first as u32 == 0 {
            return Ok(false);
        }
        let payload = (first >> 32) as usize;
        if first as u32 != INDICATOR || payload > MAX_PAYLOAD_BYTES {
            return Err(Broken("a message of an impossible length"));
        }
        let closing = closing_offset(payload);
        // x86-ordering: the words of a message become visible in one order, the first one last.
        if self.words.load_acquire((self.base + closing) / WORD_BYTES) != INDICATOR as u64 {
            return Ok(false);
        }
        into.clear();
        into.resize(payload, 0);
        self.words.copy_out(self.base + WORD_BYTES, into);
        self.taken = closing + WORD_BYTES;
        Ok(true)
    }

    #[inline]
    fn release(&mut self) -> Result<(), Broken> {
        let mut at = 0;
        while at < self.taken {
            let piece = (self.taken - at).min(ZEROS.len());
            self.words.copy_in(self.base + at, &ZEROS[..piece]);
            at += piece;
        }
        self.taken = 0;
        Ok(())
    }
}

impl Sending for IndicatorSending {
    #[inline]
    fn try_send(&mut self, parts: &[&[u8]]) -> Result<bool, Broken> {
        if self.words.load_acquire(self.base / WORD_BYTES) != 0 {
            // The peer has not zeroed the former message.
            return Ok(false);
        }
        self.message.clear();
        self.message.extend_from_slice(&[0; WORD_BYTES]);
        for part in parts {
            self.message.extend_from_slice(part);
        }
        let payload = self.message.len() - WORD_BYTES;
        if payload > MAX_PAYLOAD_BYTES {
            return Err(Broken("a message longer than the buffer"));
        }
        self.message.resize(closing_offset(payload), 0);
        self.message.extend_from_slice(&u64::from(INDICATOR).to_le_bytes());
        self.message[..WORD_BYTES].copy_from_slice(&first_word(payload as u32).to_le_bytes());
        self.writer.post([(self.base, &self.message)])?;
        Ok(true)
    }

    fn wire_bytes(&self, payload_bytes: usize) -> usize {
        closing_offset(payload_bytes) + WORD_BYTES
    }

    fn most_outstanding(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::sides_on_the_heap;
    use super::*;

    /// Stores the words of a message one by one, in order, as the paper's
    /// adapters do.
    #[test]
    fn a_message_is_not_taken_before_its_last_word_has_come() {
        for payload_bytes in [0usize, 1, 8, 9, 100] {
            // Ones in the payload must not be taken for the closing word.
            let payload = vec![0xff; payload_bytes];
            let mut message = first_word(payload_bytes as u32).to_le_bytes().to_vec();
            message.extend_from_slice(&payload);
            message.resize(closing_offset(payload_bytes), 0);
            message.extend_from_slice(&u64::from(INDICATOR).to_le_bytes());
            let (server, _client) = sides_on_the_heap();
            let (mut requests, _) = ends(&server);
            let mut taken = Vec::new();
            let first = ring_offset(0) / WORD_BYTES;
            for (at, word) in message.chunks_exact(WORD_BYTES).enumerate() {
                assert!(!requests.take(&mut taken).unwrap(), "{at} words of {payload_bytes} bytes");
                assert_eq!(requests.has_message(), at > 0);
                let word = u64::from_le_bytes(word.try_into().unwrap());
                server.to_server.store_release(first + at, word);
            }
            assert!(requests.take(&mut taken).unwrap());
            assert_eq!(taken, payload);
        }
    }

    #[test]
    fn a_buffer_takes_one_message_and_is_zero_after_it() {
        let (server, client) = sides_on_the_heap();
        let (mut requests, _) = ends(&server);
        let (_, mut asks) = ends(&client);
        let mut taken = Vec::new();
        // The second one's closing word falls on words that the first has used.
        for length in [1_000usize, 40, 2_000] {
            let message = vec![0xab; length];
            assert!(asks.try_send(&[&message]).unwrap());
            assert!(!asks.try_send(&[&message]).unwrap(), "it is occupied");
            assert!(requests.take(&mut taken).unwrap());
            assert!(!asks.try_send(&[&message]).unwrap(), "it is not zeroed yet");
            requests.release().unwrap();
            let first = ring_offset(0) / WORD_BYTES;
            let words = first..first + BUFFER_BYTES / WORD_BYTES;
            assert!(words.into_iter().all(|word| server.to_server.load(word) == 0));
        }
    }

    #[test]
    fn what_no_honest_peer_writes_is_an_error() {
        for word in [first_word(MAX_PAYLOAD_BYTES as u32 + 1), first_word(u32::MAX), 1] {
            let (server, _client) = sides_on_the_heap();
            let (mut requests, _) = ends(&server);
            server.to_server.store(ring_offset(0) / WORD_BYTES, word);
            assert!(requests.take(&mut Vec::new()).is_err(), "{word:x}");
        }
    }
}
