//! RESP as the frontend's connections speak it.

use crate::form::ReplyForm;
use crate::subscriptions::Subscriptions;
use crate::wire::{Args, ProtocolError, RespVersion, Skip, encode, parse, peek_key, peek_words};
use remora_acl::Login;
use remora_frontend::{self as frontend, Parsed, ParsedRequest, Skipped};

/// The protocol of Redis and its clients.
pub enum Resp {}

/// A RESP client's own statements about itself.
#[derive(Default)]
pub struct RespClient {
    /// The dialect that it speaks.
    pub version: RespVersion,
    /// Its name.
    pub name: Vec<u8>,
    /// Its library's name and version.
    pub library: [Vec<u8>; 2],
    /// Its user.
    pub login: Login,
    /// It has said READONLY: a replica of a cluster may answer its reads.
    pub reads_replicas: bool,
    /// When the first of its last requests was refused as another server's, Unix ms; `None` if the last
    /// one about keys was carried out here.
    pub refused_since_ms: Option<u64>,
    /// What it is subscribed to; `None` for nothing.
    pub subscriptions: Option<Box<Subscriptions>>,
}

impl frontend::Protocol for Resp {
    type Request = Args;
    type Form = ReplyForm;
    type Client = RespClient;

    const TOO_LONG: &'static str = "Protocol error: too big request";

    #[inline]
    fn dialect(client: &RespClient) -> RespVersion {
        client.version
    }

    fn write_error(out: &mut Vec<u8>, text: &str) {
        encode::error(out, &format!("ERR {text}"));
    }
}

impl ParsedRequest for Args {
    type Violation = ProtocolError;
    type Skip = Skip;

    #[inline]
    fn parse(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        parse(input, self)
    }

    fn reset(&mut self) {
        Self::reset(self);
    }

    #[inline]
    fn shrink(&mut self) {
        Self::shrink(self);
    }

    fn memory(&self) -> usize {
        Self::memory(self)
    }

    #[inline]
    fn words(&self) -> usize {
        self.len()
    }

    /// All commands of one key name it first.
    #[inline]
    fn first_key<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        self.get(1, bytes)
    }

    #[inline]
    fn announced_words(input: &[u8]) -> usize {
        peek_words(input).unwrap_or_default()
    }

    #[inline]
    fn peek_key(input: &[u8]) -> Option<&[u8]> {
        peek_key(input)
    }

    fn give_up(&self) -> Option<(usize, Skip)> {
        Skip::of(self)
    }

    fn pass(skip: &mut Skip, input: &[u8]) -> Result<Skipped, ProtocolError> {
        skip.pass(input)
    }
}
