//! MongoDB's protocol as the frontend's connections speak it: a message is a request, and a reply is a
//! message that whoever executes requests has made whole.

use crate::limits::MAX_MESSAGE_BYTES;
use crate::reply::{CommandError, Envelope, ErrorCode};
use crate::scram::Conversation;
use crate::wire::{Compressor, Fatal, HEADER_BYTES, Header};
use remora_acl::Login;
use remora_frontend::{self as frontend, LongReply, Parsed, ParsedRequest, ShardAnswer, Skipped};
use remora_protocol::message::Status;

/// The protocol of MongoDB and its drivers.
pub enum Mongo {}

/// What is known of a client.
#[derive(Default)]
pub struct MongoClient {
    /// Its user.
    pub login: Login,
    /// Its login, if one has begun.
    pub conversation: Option<Box<Conversation>>,
    /// With what replies are compressed, once the client has sent a compressed message.
    pub compressor: Option<Compressor>,
    /// The number of the last reply.
    pub last_reply: i32,
}

impl MongoClient {
    /// The number of the next reply.
    pub fn next_reply(&mut self) -> i32 {
        self.last_reply = self.last_reply.checked_add(1).unwrap_or(1);
        self.last_reply
    }
}

impl frontend::Protocol for Mongo {
    type Request = MessageBytes;
    type Form = WholeReply;
    type Client = MongoClient;

    const TOO_LONG: &'static str = "a message is longer than maxMessageSizeBytes";

    fn dialect(_: &MongoClient) {}

    /// An error that answers no message: drivers close the connection then.
    fn write_error(out: &mut Vec<u8>, text: &str) {
        let error = CommandError::new(ErrorCode::ProtocolError, text.to_owned());
        Envelope::to_no_message().write_error(out, &error);
    }
}

/// How much of a message has come. A message is parsed when it is executed: its header says where it ends.
#[derive(Default)]
pub struct MessageBytes {
    /// Bytes of the whole message, once its header is there.
    whole: usize,
}

impl ParsedRequest for MessageBytes {
    type Violation = Fatal;
    /// Bytes that are still to be passed over.
    type Skip = usize;

    fn parse(&mut self, input: &[u8]) -> Result<Parsed, Fatal> {
        let Some(head) = input.first_chunk::<HEADER_BYTES>() else {
            return Ok(Parsed::Incomplete { need: HEADER_BYTES });
        };
        let bytes = Header::read(head).map_err(Fatal::Length)?.bytes;
        debug_assert!(bytes <= MAX_MESSAGE_BYTES);
        self.whole = bytes;
        Ok(match input.len() < bytes {
            true => Parsed::Incomplete { need: bytes },
            false => Parsed::Request { consumed: bytes },
        })
    }

    fn reset(&mut self) {
        self.whole = 0;
    }

    fn shrink(&mut self) {}

    fn memory(&self) -> usize {
        0
    }

    fn words(&self) -> usize {
        1
    }

    fn first_key<'a>(&'a self, _: &'a [u8]) -> &'a [u8] {
        &[]
    }

    fn announced_words(_: &[u8]) -> usize {
        1
    }

    fn peek_key(_: &[u8]) -> Option<&[u8]> {
        None
    }

    fn give_up(&self) -> Option<(usize, usize)> {
        (self.whole > 0).then_some((0, self.whole))
    }

    fn pass(skip: &mut usize, input: &[u8]) -> Result<Skipped, Fatal> {
        let bytes = input.len().min(*skip);
        *skip -= bytes;
        Ok(Skipped { bytes, is_whole: *skip == 0 })
    }
}

/// The form of replies: the answer's value is the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeReply;

/// No reply is written piece by piece: a batch of documents is as long as the longest document at most.
pub enum NeverLong {}

impl frontend::ReplyForm for WholeReply {
    type Dialect = ();
    type Long = NeverLong;

    fn write(self, out: &mut Vec<u8>, (): (), answers: &[ShardAnswer<'_>]) {
        answers.iter().filter_map(|answer| answer.value).for_each(|of| out.extend_from_slice(of));
    }

    fn is_long(self) -> bool {
        false
    }

    fn is_written_at_once(self, _: usize) -> bool {
        true
    }

    fn long_reply(self, _: (Status, i64), _: &mut Option<Vec<u8>>) -> Option<NeverLong> {
        None
    }
}

impl LongReply for NeverLong {
    type Dialect = ();

    fn bytes(&self) -> usize {
        match *self {}
    }

    fn write_piece(&mut self, _: &mut Vec<u8>, (): ()) -> bool {
        match *self {}
    }

    fn go_on(&mut self, _: Vec<u8>) -> bool {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_where_its_header_says() {
        let bytes = b"\x15\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0";
        let mut request = MessageBytes::default();
        for cut in 0..bytes.len() {
            let need = if cut < HEADER_BYTES { HEADER_BYTES } else { bytes.len() };
            assert_eq!(request.parse(&bytes[..cut]), Ok(Parsed::Incomplete { need }));
        }
        assert_eq!(request.parse(bytes), Ok(Parsed::Request { consumed: bytes.len() }));
        assert!(request.parse(&[0; HEADER_BYTES]).is_err());
        let (from, mut skip) = request.give_up().expect("its length is known");
        assert_eq!((from, skip), (0, bytes.len()));
        let passed = MessageBytes::pass(&mut skip, &bytes[..20]);
        assert_eq!(passed, Ok(Skipped { bytes: 20, is_whole: false }));
        let passed = MessageBytes::pass(&mut skip, bytes);
        assert_eq!(passed, Ok(Skipped { bytes: 1, is_whole: true }));
    }
}
