//! One RESP connection: bytes in, replies out, in order. Its stream of bytes
//! is handed in whenever it is served.

mod input;
mod keys_left;
mod output;
mod replies;
mod stalled;

use super::ahead::{Next, parse_ahead};
use super::execute::Executor;
use super::host::Host;
use super::pending::Pending;
use super::unanswered::{Asked, Unanswered};
use crate::jobs::{Order, Token};
use crate::thread_counts::ThreadCounts;
use input::Input;
use keys_left::KeysLeft;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    RESP_KEYS_PER_TURN, RESP_MAX_QUERY_BYTES, RESP_PAUSE_JOB_BYTES, RESP_PAUSE_OUTPUT_BYTES,
    RESP_PAUSE_PENDING, RESP_REQUESTS_AHEAD, RESP_REQUESTS_PER_TURN, RESP_SEND_BYTES_PER_TURN,
};
use remora_protocol::message::Status;
use remora_resp::wire::{Args, Protocol, Skip, encode, peek_key};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::SocketAddr;

/// A connection that waits for nothing keeps no more room for what waits.
const KEEP_PENDING: usize = 32;

/// What becomes of a connection after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It waits for the next event.
    Go,
    /// It has more to do, although no event will say so.
    Again,
    /// It is to be closed.
    Close,
}

/// What the first half of a turn has found.
#[derive(Clone, Copy, Default)]
pub struct Taken {
    /// Bytes that were read.
    pub bytes: usize,
    /// The connection is to be closed.
    is_over: bool,
}

/// A connection.
pub struct Connection {
    /// Where the client is.
    pub peer: SocketAddr,
    /// Its slot in its thread.
    pub slot: usize,
    /// Its number in the server; also its id for clients.
    pub serial: u64,
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// The database that it has selected.
    pub database: Database,
    /// Its name, as the client set it.
    pub name: Vec<u8>,
    /// Library name and version, as the client set them.
    pub library: [Vec<u8>; 2],
    input: Input,
    /// Bytes below which parsing again is useless.
    need: usize,
    args: Args,
    /// What is left of a request that was given up.
    skip: Option<Skip>,
    /// Seconds since bytes came last, as far as they are counted.
    idle_s: u64,
    output: Vec<u8>,
    sent: usize,
    /// Bytes of it that the present turn may still send.
    may_send: usize,
    pending: VecDeque<Pending>,
    /// Parts of waiting requests, and bytes of replies that wait for an
    /// earlier one: not yet output, but as good as.
    held_parts: usize,
    held_bytes: usize,
    /// Bytes of its jobs that are not answered.
    job_bytes: usize,
    /// The request at the front of the input, if it has keys that no turn has taken.
    keys_left: Option<KeysLeft>,
    /// Number of the first pending request.
    first_pending: u64,
    /// No request is executed before the one with this number is the first
    /// pending one: what is asked before it is large.
    large_until: u64,
    unanswered: Unanswered,
    /// The rest of a long reply, to be asked for.
    rest_due: Option<Token>,
    /// Why a reply cannot be written to its end.
    broken_off: Option<Status>,
    /// No more input is taken; closes when everything is answered.
    closing: bool,
    /// What was read behind a QUIT is not executed.
    quit: bool,
    /// The peer has closed its side: there is an end to be read.
    end_announced: bool,
    /// The kernel may have bytes that were not read: an event told of them, and no read
    /// has found the socket empty since. A turn that only a reply asked for reads nothing.
    may_have_more: bool,
}

/// How far a turn has come with what was read.
struct Turn {
    /// The first byte that it has not taken.
    from: usize,
    /// Requests that it has taken.
    requests: usize,
    /// Nothing behind is a request that counts.
    ended: bool,
}

impl Connection {
    /// A fresh connection, which no thread serves yet.
    pub fn new(peer: SocketAddr, serial: u64) -> Self {
        Self {
            peer,
            slot: 0,
            serial,
            protocol: Protocol::Resp2,
            database: Database::ZERO,
            name: Vec::new(),
            library: [Vec::new(), Vec::new()],
            input: Input::default(),
            need: 1,
            args: Args::new(),
            skip: None,
            idle_s: 0,
            output: Vec::new(),
            sent: 0,
            may_send: 0,
            pending: VecDeque::new(),
            held_parts: 0,
            held_bytes: 0,
            job_bytes: 0,
            keys_left: None,
            first_pending: 0,
            large_until: 0,
            unanswered: Unanswered::default(),
            rest_due: None,
            broken_off: None,
            closing: false,
            quit: false,
            end_announced: false,
            may_have_more: true,
        }
    }

    /// Something has happened to the stream: there may be bytes to be read.
    pub const fn announce(&mut self) {
        self.may_have_more = true;
    }

    /// The peer has closed its side.
    pub fn announce_end(&mut self) {
        self.end_announced = true;
        self.may_have_more = true;
    }

    /// Takes no more input.
    pub fn stop_reading(&mut self) {
        self.closing = true;
    }

    /// Takes no more input, and executes nothing more of what was read.
    pub fn quit(&mut self) {
        self.closing = true;
        self.quit = true;
    }

    /// The last turn in which it reads: send, read what has arrived, also behind requests
    /// that wait, execute, send.
    pub fn serve_last<H: Host>(
        &mut self,
        stream: &mut (impl Read + Write),
        executor: &mut Executor<H>,
    ) -> Flow {
        let mut scratch = std::mem::take(&mut executor.scratch);
        self.may_have_more = true;
        let taken = self.take_up(stream, executor.counts(), &mut scratch, true);
        let flow = self.go_on(stream, executor, taken, &scratch[..taken.bytes]);
        executor.scratch = scratch;
        flow
    }

    /// The first half of a turn: sends what is left, and reads unless whole requests wait.
    pub fn take(
        &mut self,
        stream: &mut (impl Read + Write),
        counts: &ThreadCounts,
        scratch: &mut [u8],
    ) -> Taken {
        self.take_up(stream, counts, scratch, false)
    }

    fn take_up(
        &mut self,
        stream: &mut (impl Read + Write),
        counts: &ThreadCounts,
        scratch: &mut [u8],
        behind_requests: bool,
    ) -> Taken {
        self.may_send = RESP_SEND_BYTES_PER_TURN;
        if !self.flush(stream, counts) {
            self.count_over(counts);
            return Taken { is_over: true, ..Taken::default() };
        }
        // What is not read now raises no event of its own later: it stays noted.
        let waits = self.may_parse() && !behind_requests;
        if !self.may_have_more || self.closing || self.is_paused() || waits {
            return Taken::default();
        }
        match self.read(stream, scratch) {
            Ok(bytes) => Taken { bytes, is_over: false },
            Err(()) => Taken { is_over: true, ..Taken::default() },
        }
    }

    /// The key that the first of these fresh bytes name, in its database, if a request
    /// begins with them.
    pub fn peek<'a>(&self, fresh: &'a [u8]) -> Option<(Database, &'a [u8])> {
        let begins = self.input.is_empty() && self.skip.is_none();
        let key = peek_key(fresh).filter(|_| begins)?;
        Some((self.database, key))
    }

    /// The second half: executes, and sends.
    pub fn go_on<H: Host>(
        &mut self,
        stream: &mut (impl Read + Write),
        executor: &mut Executor<H>,
        taken: Taken,
        fresh: &[u8],
    ) -> Flow {
        if taken.is_over {
            return Flow::Close;
        }
        if self.output.is_empty() {
            self.output = std::mem::take(&mut executor.spare.output);
        }
        let flow = self.execute_and_send(stream, executor, fresh);
        if self.output.is_empty() {
            executor.spare.output = std::mem::take(&mut self.output);
        }
        if self.pending.is_empty() {
            self.unanswered.settle();
            if self.pending.capacity() > KEEP_PENDING {
                self.pending = VecDeque::new();
            }
        }
        flow
    }

    fn execute_and_send<H: Host>(
        &mut self,
        stream: &mut impl Write,
        executor: &mut Executor<H>,
        fresh: &[u8],
    ) -> Flow {
        self.take_in(executor, fresh);
        self.settle();
        if let Some(token) = self.rest_due.take() {
            executor.order(token, Order::Continue);
        }
        if !self.flush(stream, executor.counts()) || self.broken_off.is_some() {
            self.count_over(executor.counts());
            return Flow::Close;
        }
        let goes_on = matches!(
            self.pending.front(),
            Some(Pending::Writing(writing)) if writing.can_go_on() && self.may_write()
        );
        if goes_on || self.sends_on() || self.may_take_keys() {
            return Flow::Again;
        }
        let parse_more = self.may_parse();
        let answered = self.pending.is_empty() && self.sent == self.output.len();
        if self.closing && answered && !parse_more {
            return Flow::Close;
        }
        // Was it paused by replies that have been taken meanwhile?
        let read_more = self.may_have_more && !self.closing;
        if (read_more || parse_more) && !self.is_paused() { Flow::Again } else { Flow::Go }
    }

    /// It is closed: no shard keeps the rest of a reply for it.
    pub fn abandon<H: Host>(&self, executor: &mut Executor<H>) {
        let rest = self.pending.iter().filter_map(|pending| match pending {
            Pending::Writing(writing) => writing.rest(),
            Pending::Waiting(waiting, _) => waiting.rest,
            Pending::Ready(_) | Pending::Keys(..) => None,
        });
        rest.for_each(|token| executor.order(token, Order::Abandon));
    }

    /// Whether another thread may go on with it: it waits for no shard, and no reply
    /// is unsent.
    pub fn may_move(&self) -> bool {
        self.pending.is_empty() && self.output.is_empty() && !self.closing
    }

    fn is_paused(&self) -> bool {
        self.unsent_bytes() > RESP_PAUSE_OUTPUT_BYTES
            || self.pending.len() + self.held_parts > RESP_PAUSE_PENDING
            || self.job_bytes > RESP_PAUSE_JOB_BYTES
            || self.first_pending < self.large_until
    }

    /// The request that is about to wait moves a large value: the requests
    /// behind it are not executed before it is answered.
    pub fn expect_large(&mut self) {
        self.large_until = self.next_request() + 1;
    }

    /// Executes whole requests, as many as a turn may. The bytes that they took.
    fn execute<H: Host>(&mut self, executor: &mut Executor<H>, input: &[u8]) -> usize {
        if self.keys_left.is_some() {
            return self.go_on_with_keys(executor, input);
        }
        let mut ahead = std::mem::take(&mut executor.spare.ahead);
        let mut turn = Turn { from: 0, requests: 0, ended: false };
        while !turn.ended
            && turn.requests < RESP_REQUESTS_PER_TURN
            && input.len() - turn.from >= self.need
            && !self.is_paused()
        {
            if self.skip.is_none() {
                self.execute_some(executor, input, &mut ahead, &mut turn);
                continue;
            }
            turn.requests += 1;
            match self.pass_over(&input[turn.from..]) {
                Ok(passed) => turn.from += passed,
                Err(error) => {
                    self.protocol_error(executor, &error.to_string());
                    turn.ended = true;
                }
            }
        }
        executor.spare.ahead = ahead;
        if turn.ended {
            self.args.reset();
            return input.len();
        }
        turn.from
    }

    /// Parses some requests, and then executes them.
    fn execute_some<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        input: &[u8],
        ahead: &mut Vec<Next>,
        turn: &mut Turn,
    ) {
        let most = RESP_REQUESTS_AHEAD.min(RESP_REQUESTS_PER_TURN - turn.requests);
        let (parsed, behind) = parse_ahead(&input[turn.from..], &mut self.args, ahead, most);
        self.need = 1;
        let (input, requests) = (&input[turn.from..], &mut ahead[..parsed]);
        if parsed > 1 {
            executor.fetch_ahead(self.database, input, requests);
        }
        let begun = turn.from;
        for Next { args, bytes, at } in requests {
            if self.is_paused() || turn.requests >= RESP_REQUESTS_PER_TURN {
                // What is behind is parsed again when its turn has come.
                ahead.clear();
                return self.args.reset();
            }
            // One of many keys takes the time of several.
            turn.requests += 1 + args.len() / (RESP_KEYS_PER_TURN / RESP_REQUESTS_PER_TURN);
            if !args.is_empty() {
                executor.request(self, args, &input[bytes.clone()], *at);
                if self.has_keys_left() {
                    self.keys_left = Some(KeysLeft::new(std::mem::take(args), bytes.len()));
                    turn.from = begun + bytes.start;
                    ahead.clear();
                    return self.args.reset();
                }
                args.shrink();
            }
            turn.from = begun + bytes.end;
            if self.quit {
                turn.ended = true;
                ahead.clear();
                return;
            }
        }
        match behind {
            Ok(None) => {}
            Ok(Some(need)) if need <= RESP_MAX_QUERY_BYTES => self.need = need,
            Ok(Some(_)) => {
                self.protocol_error(executor, "Protocol error: too big request");
                turn.ended = true;
            }
            Err(error) => {
                self.protocol_error(executor, &error.to_string());
                turn.ended = true;
            }
        }
    }

    fn protocol_error<H: Host>(&mut self, executor: &Executor<H>, text: &str) {
        executor.counts().protocol_errors.add(1);
        self.reply(|out, _| encode::error(out, &format!("ERR {text}")));
        self.quit();
    }

    /// Whether this connection may read the key with this hash from its
    /// shard's memory.
    pub fn may_read(&self, shard: usize, hash: KeyHash) -> bool {
        self.unanswered.may_read(shard, hash)
    }

    /// Whether it waits for nothing of this shard.
    #[inline]
    pub fn is_quiet(&self, shard: usize) -> bool {
        self.unanswered.is_quiet(shard)
    }

    /// A part of the next request is asked of its shard, one of so many.
    pub fn ask(&mut self, asked: Asked, shards: usize) {
        self.unanswered.ask(asked, shards);
    }

    /// Number that the next waiting request will have.
    pub fn next_request(&self) -> u64 {
        self.first_pending + self.pending.len() as u64
    }
}
