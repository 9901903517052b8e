//! The product's rings, one conversation's: frames, sequence, checksum, credit.

use super::ends::{Broken, Ends, MAILBOX, Receiving, Sending, Side, Writer};
use remora_arena::ReadView;
use remora_layout::frame::{frame_bytes, ring_seed};
use remora_layout::limits::{CREDIT_BYTES, MAX_IN_FLIGHT, RING_BYTES};
use remora_layout::session::{credit_word, ring_offset};
use remora_ring::{Poll, Receiver, SendError, Sender};

struct RingReceiving {
    receiver: Receiver,
    /// Gives credit.
    writer: Writer,
    credit_offset: usize,
}

struct RingSending {
    sender: Sender,
    writer: Writer,
    /// The peer's credit.
    credits: ReadView,
    credit_word: usize,
    longest_frame: usize,
}

/// Both ends of one side.
pub fn ends(side: &Side, message_bytes: usize) -> Ends {
    use super::ends::Role;
    let ring = ring_offset(side.shard);
    let (inward, outward) = match side.role {
        Role::Server => (0, 1),
        Role::Client => (1, 0),
    };
    let seed = |direction| ring_seed(side.seed, side.shard, direction);
    let receiving = RingReceiving {
        receiver: Receiver::new(side.peer.clone(), ring, seed(inward)),
        writer: Writer::new(side.own.clone()),
        credit_offset: credit_word(side.shard) * 8,
    };
    let sending = RingSending {
        sender: Sender::new(MAILBOX, ring as u64, seed(outward)),
        writer: Writer::new(side.own.clone()),
        credits: side.peer.clone(),
        credit_word: credit_word(side.shard),
        longest_frame: frame_bytes(message_bytes),
    };
    (Box::new(receiving), Box::new(sending))
}

impl Receiving for RingReceiving {
    #[inline]
    fn has_message(&self) -> bool {
        self.receiver.has_frame()
    }

    #[inline]
    fn take(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        into.clear();
        match self.receiver.poll(into) {
            Poll::Frame(_) => Ok(true),
            Poll::Empty | Poll::Torn => Ok(false),
            Poll::Violated(_) => Err(Broken("a frame of an impossible length")),
        }
    }

    #[inline]
    fn release(&mut self) -> Result<(), Broken> {
        match self.receiver.credit_due() {
            Some(consumed) => self.writer.post([(self.credit_offset, &consumed.to_le_bytes())]),
            None => Ok(()),
        }
    }
}

impl Sending for RingSending {
    #[inline]
    fn try_send(&mut self, parts: &[&[u8]]) -> Result<bool, Broken> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if !self.sender.has_room(bytes) {
            let credit = self.credits.load_acquire(self.credit_word);
            let taken = self.sender.take_credit(credit);
            taken.map_err(|_| Broken("a credit that makes no sense"))?;
        }
        match self.sender.send(self.writer.link(), parts) {
            Ok(()) => {}
            Err(SendError::Full) => return Ok(false),
            Err(SendError::TooLong(_)) => return Err(Broken("a message longer than a frame")),
            Err(SendError::Link(_)) => return Err(Broken("its link failed")),
        }
        self.writer.finish()?;
        Ok(true)
    }

    fn wire_bytes(&self, payload_bytes: usize) -> usize {
        frame_bytes(payload_bytes)
    }

    /// A quarter of the ring may be consumed before credit is given, and a frame's length may be
    /// left over at the end.
    fn most_outstanding(&self) -> usize {
        let room = RING_BYTES - CREDIT_BYTES - self.longest_frame;
        (room / self.longest_frame).clamp(1, MAX_IN_FLIGHT)
    }
}
