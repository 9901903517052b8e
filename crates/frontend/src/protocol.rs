//! The interface of a protocol to the connections that use it.

use crate::job::OwnedReply;
use remora_protocol::Reply;
use remora_protocol::message::Status;
use std::fmt::Display;

/// A protocol: how requests are parsed and replies are written. It does no I/O.
pub trait Protocol: 'static {
    /// A request, as far as it is parsed.
    type Request: ParsedRequest;
    /// How the answers of shards become a reply.
    type Form: ReplyForm;
    /// The client's own statements about itself.
    type Client: Default;

    /// The dialect in which this client wants its replies.
    fn dialect(client: &Self::Client) -> Dialect<Self>;

    /// The error for a request that is longer than the limit.
    const TOO_LONG: &'static str;

    /// Appends an error that is about the connection, with this text.
    fn write_error(out: &mut Vec<u8>, text: &str);
}

/// The dialect of a protocol's replies.
pub type Dialect<P> = <<P as Protocol>::Form as ReplyForm>::Dialect;

/// The progress of parsing a request, and the positions of its words in the bytes. It is used again
/// for the next request, so that parsing allocates nothing.
pub trait ParsedRequest: Default {
    /// A violation of the protocol. The start of the next request is unknown, so the
    /// connection ends.
    type Violation: Display;
    /// Skips the rest of an abandoned request.
    type Skip;

    /// Parses the request at the start of `input`. After [`Parsed::Incomplete`] the next
    /// call brings the same bytes with more behind them, or [`ParsedRequest::reset`] comes
    /// first.
    ///
    /// # Errors
    /// Bytes that are no request.
    fn parse(&mut self, input: &[u8]) -> Result<Parsed, Self::Violation>;

    /// Forgets everything.
    fn reset(&mut self);

    /// Gives back the memory that one huge request has left. The request may be lost.
    fn shrink(&mut self);

    /// Bytes of memory that it keeps, beside the bytes that were parsed.
    fn memory(&self) -> usize;

    /// Words of the request; 0 of one that has no reply.
    fn words(&self) -> usize;

    /// The key that it names first, or nothing. A hint.
    fn first_key<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8];

    /// Words that the request at the start of `input` announces, as far as they are known: the cost
    /// of parsing it. A hint.
    fn announced_words(input: &[u8]) -> usize;

    /// The first key of the request at the start of `input`, as far as its bytes have arrived. A
    /// hint.
    fn peek_key(input: &[u8]) -> Option<&[u8]>;

    /// The start of the incomplete part in the bytes, and the state that skips the rest. `None` if
    /// a request cannot be abandoned at this point.
    fn give_up(&self) -> Option<(usize, Self::Skip)>;

    /// Skips the available part of the rest.
    ///
    /// # Errors
    /// Bytes that are no part of a request.
    fn pass(skip: &mut Self::Skip, input: &[u8]) -> Result<Skipped, Self::Violation>;
}

/// The outcome of parsing a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// The request is not all there.
    Incomplete {
        /// Bytes of the whole buffer below which calling again is useless.
        need: usize,
    },
    /// The words are those of a whole request; none for an empty one.
    Request {
        /// Bytes that the request took from the start of the buffer.
        consumed: usize,
    },
}

/// The skipped part of an abandoned request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// Bytes at the start of the buffer that belong to the request.
    pub bytes: usize,
    /// Whether the request ends with them.
    pub is_whole: bool,
}

/// How the answers of shards become a reply: plain data that a request carries until they arrive.
pub trait ReplyForm: Copy {
    /// The choice that clients have.
    type Dialect: Copy;
    /// A reply that is written piece by piece.
    type Long: LongReply<Dialect = Self::Dialect>;

    /// Appends the reply that the answers make.
    fn write(self, out: &mut Vec<u8>, dialect: Self::Dialect, answers: &[ShardAnswer<'_>]);

    /// Whether a reply of this form may be one that is written piece by piece.
    fn is_long(self) -> bool;

    /// Whether an answer with a value of so many bytes is written at once by [`ReplyForm::write`],
    /// though others of this form are long.
    fn is_written_at_once(self, bytes: usize) -> bool;

    /// The reply that its only answer makes, if it is one that is written piece by piece: then
    /// it takes the value.
    fn long_reply(self, answer: (Status, i64), value: &mut Option<Vec<u8>>) -> Option<Self::Long>;
}

/// A reply that is written piece by piece.
pub trait LongReply {
    /// See [`ReplyForm::Dialect`].
    type Dialect;

    /// Bytes of its source.
    fn bytes(&self) -> usize;

    /// Appends the next piece. Returns whether it was the last available one.
    fn write_piece(&mut self, out: &mut Vec<u8>, dialect: Self::Dialect) -> bool;

    /// Continues with this value, after the written part; false if no shard sends such a reply in
    /// several answers.
    fn go_on(&mut self, value: Vec<u8>) -> bool;
}

/// One shard's answer, from which a reply is made. Mostly there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardAnswer<'a> {
    /// How it went.
    pub status: Status,
    /// The number.
    pub number: i64,
    /// The bytes, if there are any.
    pub value: Option<&'a [u8]>,
}

impl<'a> From<&Reply<'a>> for ShardAnswer<'a> {
    #[inline]
    fn from(reply: &Reply<'a>) -> Self {
        Self { status: reply.status, number: reply.number, value: reply.value }
    }
}

impl<'a> From<&'a OwnedReply> for ShardAnswer<'a> {
    #[inline]
    fn from(reply: &'a OwnedReply) -> Self {
        Self { status: reply.status, number: reply.number, value: reply.value.as_deref() }
    }
}

impl<'a> From<(Status, i64, Option<&'a [u8]>)> for ShardAnswer<'a> {
    #[inline]
    fn from((status, number, value): (Status, i64, Option<&'a [u8]>)) -> Self {
        Self { status, number, value }
    }
}
