//! One connection: bytes in, replies out, in order. Its stream of bytes is handed in
//! whenever it is served.
//!
//! Invariant: a connection reads only while it holds no whole request, as far as it knows
//! (back-pressure); while a request of it waits for keys, up to [`BLOCKED_INPUT_BYTES`]. So it holds less than one request and the bytes that one turn reads, however
//! fast its client sends, and a turn does not move the bytes left by earlier ones.

use crate::ahead::{Next, parse_ahead};
use crate::counts::ConnectionCounts;
use crate::executor::Executor;
use crate::input::Input;
use crate::port::ShardPort;
use crate::protocol::{ParsedRequest, Protocol};
use crate::responder::Responder;
use crate::stream::ByteStream;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    BLOCKED_INPUT_BYTES, CONNECTION_KEYS_PER_TURN, CONNECTION_REQUESTS_AHEAD,
    CONNECTION_REQUESTS_PER_TURN, MAX_REQUEST_BYTES, STALL_BYTES, UNAUTHENTICATED_REQUEST_BYTES,
};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;

/// The state of a connection after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It waits for the next event.
    Go,
    /// It has more to do, although no event will say so.
    Again,
    /// The caller closes it.
    Close,
}

/// The result of the first half of a turn.
#[derive(Clone, Copy, Default)]
pub struct Taken {
    /// Bytes that were read.
    pub bytes: usize,
    /// The caller closes the connection.
    is_over: bool,
}

/// Buffers that are lent to one connection after another: idle ones have none.
pub struct Lent<R> {
    /// State of the request that is being parsed.
    request: R,
    /// Requests that are parsed and not executed.
    ahead: Vec<Next<R>>,
    /// Buffer for replies.
    output: Vec<u8>,
}

impl<R: Default> Default for Lent<R> {
    fn default() -> Self {
        Self { request: R::default(), ahead: Vec::new(), output: Vec::new() }
    }
}

/// A connection.
pub struct Connection<P: Protocol> {
    responder: Responder<P>,
    input: Input,
    /// Bytes below which parsing again is useless.
    need: usize,
    request: P::Request,
    /// The rest of an abandoned request.
    given_up: Option<<P::Request as ParsedRequest>::Skip>,
    /// Seconds since bytes came last, as far as they are counted.
    idle_s: u64,
    /// The request at the front of the input, if it has keys that no turn has taken.
    keys_left: Option<KeysLeft<P::Request>>,
    /// The connection takes no more input; it closes once everything is answered.
    is_closing: bool,
    /// The peer has closed its side: there is an end to be read.
    end_announced: bool,
    /// No reply arrives any more.
    is_gone: bool,
    /// The kernel may have unread bytes: an event reported them, and no read has found the socket
    /// empty since. A turn that only a reply caused reads nothing.
    may_have_more: bool,
}

/// A request at the front of the input that has more keys than a turn takes: it stays
/// there until the last of its keys is taken, so that nothing of it is copied. The
/// connection reads nothing more meanwhile ([`Responder::expect_large`]).
struct KeysLeft<R> {
    request: R,
    /// Its length.
    bytes: usize,
}

/// The progress of a turn in the bytes that were read.
struct Turn {
    /// The first byte that it has not taken.
    from: usize,
    /// Requests that it has taken.
    requests: usize,
    /// Nothing behind is a request that counts.
    ended: bool,
}

impl<P: Protocol> Connection<P> {
    /// A fresh connection, which no thread serves yet.
    pub fn new(peer: SocketAddr, serial: u64) -> Self {
        Self {
            responder: Responder::new(peer, serial),
            input: Input::default(),
            need: 1,
            request: P::Request::default(),
            given_up: None,
            idle_s: 0,
            keys_left: None,
            is_closing: false,
            end_announced: false,
            is_gone: false,
            may_have_more: true,
        }
    }

    /// The same, of a client of which this is known before its first byte.
    #[must_use]
    pub fn of_client(mut self, client: P::Client) -> Self {
        self.responder.client = client;
        self
    }

    /// Its reply side.
    #[inline]
    pub const fn responder(&self) -> &Responder<P> {
        &self.responder
    }

    /// The same, to give it answers.
    #[inline]
    pub(crate) const fn responder_mut(&mut self) -> &mut Responder<P> {
        &mut self.responder
    }

    /// Something has happened to the stream: there may be bytes to be read.
    pub(crate) const fn announce(&mut self) {
        self.may_have_more = true;
    }

    /// The peer has closed its side, and does not take replies any more if it is gone.
    pub(crate) const fn announce_end(&mut self, is_gone: bool) {
        self.end_announced = true;
        self.is_gone |= is_gone;
        self.may_have_more = true;
    }

    /// Whether its peer has closed its side.
    pub(crate) const fn has_ended(&self) -> bool {
        self.is_closing || self.end_announced
    }

    /// Takes no more input.
    pub(crate) const fn stop_reading(&mut self) {
        self.is_closing = true;
    }

    /// The last turn in which it reads: send, read the available bytes, also behind requests that
    /// wait, execute, send.
    pub(crate) fn serve_last<E: Executor<Protocol = P>>(
        &mut self,
        stream: &mut impl ByteStream,
        executor: &mut E,
        (lent, scratch): (&mut Lent<P::Request>, &mut [u8]),
    ) -> Flow {
        self.may_have_more = true;
        let taken = self.take_up(stream, executor.port().counts(), scratch, true);
        self.go_on(stream, executor, taken, (lent, &scratch[..taken.bytes]))
    }

    /// The first half of a turn: sends the rest of the output, and reads unless whole requests
    /// wait.
    pub(crate) fn take(
        &mut self,
        stream: &mut impl ByteStream,
        counts: &ConnectionCounts,
        scratch: &mut [u8],
    ) -> Taken {
        self.take_up(stream, counts, scratch, false)
    }

    fn take_up(
        &mut self,
        stream: &mut impl ByteStream,
        counts: &ConnectionCounts,
        scratch: &mut [u8],
        behind_requests: bool,
    ) -> Taken {
        self.responder.output().begin_turn();
        if !self.responder.flush(stream, counts) {
            return Taken { is_over: true, ..Taken::default() };
        }
        // Bytes that are not read now raise no event later: the flag stays set.
        let waits = self.may_parse() && !behind_requests;
        let reads = match self.responder.is_blocked() {
            true => self.input.len() < BLOCKED_INPUT_BYTES,
            false => !self.responder.is_paused() && !waits,
        };
        if !self.may_have_more || self.is_closing || !reads {
            return Taken::default();
        }
        match self.read(stream, scratch) {
            Ok(bytes) => Taken { bytes, is_over: false },
            Err(()) => Taken { is_over: true, ..Taken::default() },
        }
    }

    /// Reads the available bytes, up to a turn's worth, into `scratch`; an error if the connection
    /// is broken.
    fn read(&mut self, stream: &mut impl ByteStream, scratch: &mut [u8]) -> Result<usize, ()> {
        loop {
            match stream.read(scratch) {
                Ok(0) => {
                    // A client may send, close its side and wait for replies.
                    self.is_closing = true;
                    self.may_have_more = false;
                    return Ok(0);
                }
                Ok(read) => {
                    self.idle_s = 0;
                    // The read returned less than requested: the socket is empty, and later bytes
                    // are a new edge; but an end that was already announced is not announced again.
                    self.may_have_more =
                        read == scratch.len() || self.end_announced || stream.has_more();
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.may_have_more = stream.has_more();
                    return Ok(0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
    }

    /// The first key of the request that `fresh` begins, with its database. `None` if `fresh`
    /// continues an earlier request.
    pub(crate) fn peek<'a>(&self, fresh: &'a [u8]) -> Option<(Database, &'a [u8])> {
        let begins = self.input.is_empty() && self.given_up.is_none();
        let key = P::Request::peek_key(fresh).filter(|_| begins)?;
        Some((self.responder.database, key))
    }

    /// The second half: executes, and sends.
    pub(crate) fn go_on<E: Executor<Protocol = P>>(
        &mut self,
        stream: &mut impl ByteStream,
        executor: &mut E,
        taken: Taken,
        (lent, fresh): (&mut Lent<P::Request>, &[u8]),
    ) -> Flow {
        if taken.is_over {
            return Flow::Close;
        }
        self.responder.output().lend(&mut lent.output);
        let flow = self.execute_and_send(stream, executor, (lent, fresh));
        self.responder.output().give_back(&mut lent.output);
        self.responder.rest();
        flow
    }

    fn execute_and_send<E: Executor<Protocol = P>>(
        &mut self,
        stream: &mut impl Write,
        executor: &mut E,
        (lent, fresh): (&mut Lent<P::Request>, &[u8]),
    ) -> Flow {
        self.take_in(executor, (lent, fresh));
        self.responder.settle();
        self.responder.order_rest(executor.port_mut());
        if !self.responder.flush(stream, executor.port().counts()) {
            return Flow::Close;
        }
        let sends_on = self.responder.output().sends_on();
        if self.responder.writes_on() || sends_on || self.may_take_keys() {
            return Flow::Again;
        }
        let is_left = self.is_closing || self.end_announced;
        if self.responder.is_blocked() && is_left && executor.has_parked(&self.responder) {
            // Nobody is there for whom something might be taken.
            return Flow::Close;
        }
        let parse_more = self.may_parse();
        if self.is_closing && self.responder.is_answered() && !parse_more {
            return Flow::Close;
        }
        // Was it paused by replies that have been taken meanwhile?
        let read_more = self.may_have_more && !self.is_closing;
        let goes_on = match self.responder.is_blocked() {
            true => read_more && self.input.len() < BLOCKED_INPUT_BYTES,
            false => (read_more || parse_more) && !self.responder.is_paused(),
        };
        match goes_on {
            true => Flow::Again,
            // It might wait for long, as for a disk that fails, and keep another client out.
            false if self.is_gone => Flow::Close,
            false => Flow::Go,
        }
    }

    /// Takes in fresh bytes, and executes whole requests. Only incomplete requests, and those
    /// beyond a turn, are kept.
    fn take_in<E: Executor<Protocol = P>>(
        &mut self,
        executor: &mut E,
        (lent, fresh): (&mut Lent<P::Request>, &[u8]),
    ) {
        if self.input.is_empty() {
            if self.given_up.is_none() {
                self.request = std::mem::take(&mut lent.request);
            }
            let taken = self.execute(executor, &mut lent.ahead, fresh);
            self.input.add(&fresh[taken..], self.need);
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.add(fresh, self.need);
            let taken = self.execute(executor, &mut lent.ahead, input.rest());
            input.take(taken);
            self.input = input;
        }
        if self.input.is_empty() {
            lent.request = std::mem::take(&mut self.request);
        }
    }

    /// Whether parsing the bytes that were read can give a request.
    const fn may_parse(&self) -> bool {
        self.input.len() >= self.need
    }

    /// Whether another thread may continue it: it waits for no shard, no reply is unsent, and it is
    /// told nothing: each thread tells its own connections.
    pub(crate) fn may_move(&self) -> bool {
        self.responder.is_answered() && !self.is_closing && !self.responder.takes_pushes()
    }

    /// Executes whole requests, as many as a turn may. The bytes that they took.
    fn execute<E: Executor<Protocol = P>>(
        &mut self,
        executor: &mut E,
        ahead: &mut Vec<Next<P::Request>>,
        input: &[u8],
    ) -> usize {
        if self.keys_left.is_some() {
            return self.go_on_with_keys(executor, input);
        }
        let mut turn = Turn { from: 0, requests: 0, ended: false };
        while !turn.ended
            && turn.requests < CONNECTION_REQUESTS_PER_TURN
            && input.len() - turn.from >= self.need
            && !self.responder.is_paused()
        {
            if self.given_up.is_none() {
                self.execute_some(executor, input, ahead, &mut turn);
                continue;
            }
            turn.requests += 1;
            match self.pass_over(&input[turn.from..]) {
                Ok(passed) => turn.from += passed,
                Err(error) => {
                    self.violation(executor.port().counts(), &error.to_string());
                    turn.ended = true;
                }
            }
        }
        if turn.ended {
            self.request.reset();
            return input.len();
        }
        turn.from
    }

    /// Parses some requests, and then executes them.
    fn execute_some<E: Executor<Protocol = P>>(
        &mut self,
        executor: &mut E,
        input: &[u8],
        ahead: &mut Vec<Next<P::Request>>,
        turn: &mut Turn,
    ) {
        let most = CONNECTION_REQUESTS_AHEAD.min(CONNECTION_REQUESTS_PER_TURN - turn.requests);
        let (parsed, behind) = parse_ahead(&input[turn.from..], &mut self.request, ahead, most);
        self.need = 1;
        let (input, requests) = (&input[turn.from..], &mut ahead[..parsed]);
        if parsed > 1 {
            self.fetch_ahead(executor, input, requests);
        }
        let begun = turn.from;
        for Next { request, bytes, at } in requests {
            if self.responder.is_paused() || turn.requests >= CONNECTION_REQUESTS_PER_TURN {
                // Later requests are parsed again in their turn.
                ahead.clear();
                return self.request.reset();
            }
            let words = request.words();
            // One of many keys takes the time of several.
            turn.requests += 1 + words / (CONNECTION_KEYS_PER_TURN / CONNECTION_REQUESTS_PER_TURN);
            if words > 0 {
                executor.request(&mut self.responder, (request, &input[bytes.clone()]), *at);
                if self.responder.has_keys_left() {
                    self.keys_left =
                        Some(KeysLeft { request: std::mem::take(request), bytes: bytes.len() });
                    turn.from = begun + bytes.start;
                    ahead.clear();
                    return self.request.reset();
                }
                request.shrink();
            }
            turn.from = begun + bytes.end;
            if self.responder.has_quit() {
                self.is_closing = true;
                turn.ended = true;
                ahead.clear();
                return;
            }
        }
        match behind {
            Ok(None) => {}
            Ok(Some(need)) if need <= UNAUTHENTICATED_REQUEST_BYTES => self.need = need,
            Ok(Some(need)) => {
                let is_too_long = (need > MAX_REQUEST_BYTES).then_some(P::TOO_LONG);
                match is_too_long.or_else(|| executor.refuses_long(&mut self.responder)) {
                    None => self.need = need,
                    Some(error) => {
                        self.violation(executor.port().counts(), error);
                        turn.ended = true;
                    }
                }
            }
            Err(error) => {
                self.violation(executor.port().counts(), &error.to_string());
                turn.ended = true;
            }
        }
    }

    /// Prefetches the memory that these requests will read. If a word is no key, or the memory
    /// changes meanwhile, the prefetch has no effect.
    fn fetch_ahead<E: Executor<Protocol = P>>(
        &self,
        executor: &mut E,
        input: &[u8],
        requests: &mut [Next<P::Request>],
    ) {
        let mut keys = [(KeyHash(0), 0); CONNECTION_REQUESTS_AHEAD];
        let mut count = 0;
        for next in requests.iter_mut().take(CONNECTION_REQUESTS_AHEAD) {
            let key = next.request.first_key(&input[next.bytes.clone()]);
            if !key.is_empty() {
                keys[count] = executor.port().route(self.responder.database, key);
                next.at = Some(keys[count]);
                count += 1;
            }
        }
        executor.fetch_ahead(&keys[..count]);
    }

    /// Answers with a protocol error and stops reading.
    fn violation(&mut self, counts: &ConnectionCounts, text: &str) {
        counts.protocol_errors.add(1);
        self.end_with(text);
    }

    /// Answers with an error, and takes nothing more.
    fn end_with(&mut self, text: &str) {
        self.responder.reply(|out, _| P::write_error(out, text));
        self.responder.quit();
        self.is_closing = true;
    }

    /// Whether a turn may take further keys. While the jobs about earlier ones take too
    /// much memory it may not; an answer to one of them makes room.
    const fn may_take_keys(&self) -> bool {
        self.keys_left.is_some() && self.responder.may_ask()
    }

    /// Takes further keys of the request at the front of the input. The bytes that
    /// it took: none before its last key.
    fn go_on_with_keys<E: Executor<Protocol = P>>(
        &mut self,
        executor: &mut E,
        input: &[u8],
    ) -> usize {
        if !self.may_take_keys() {
            return 0;
        }
        let Some(KeysLeft { request, bytes }) = self.keys_left.take() else { return 0 };
        if let Some(many) = self.responder.take_keys_left() {
            executor.go_on_with_keys(&mut self.responder, many, (&request, &input[..bytes]));
        }
        if self.responder.has_keys_left() {
            self.keys_left = Some(KeysLeft { request, bytes });
            return 0;
        }
        bytes
    }

    /// Memory that its buffers take.
    pub(crate) fn held_bytes(&self) -> usize {
        let keys_left = self.keys_left.as_ref().map_or(0, |of| of.request.memory());
        let requests = self.request.memory() + keys_left;
        self.input.capacity() + requests + self.responder.buffered_bytes()
    }

    /// Its buffers may not take as much memory as they do: it ends, with an error if nothing stands before
    /// that in the order of replies.
    #[cold]
    pub(crate) fn refuse_memory(&mut self, text: &str) -> Flow {
        if !self.responder.is_answered() {
            return Flow::Close;
        }
        (self.input, self.need) = (Input::default(), 1);
        (self.request, self.given_up) = (P::Request::default(), None);
        self.end_with(text);
        Flow::Again
    }

    /// Whether the input holds more than [`STALL_BYTES`] of an incomplete request.
    pub(crate) fn keeps_part(&self) -> bool {
        let is_part = self.input.len() > STALL_BYTES && self.input.len() < self.need;
        is_part && !self.is_closing && !self.responder.is_paused()
    }

    /// Counts one more second. A request without new bytes for longer than `upload_idle_s` is
    /// refused: its memory is freed, and the rest of it is skipped, so that the connection
    /// continues with the next request.
    pub(crate) fn count_idle(&mut self, upload_idle_s: u64, counts: &ConnectionCounts) -> Flow {
        self.idle_s += 1;
        if self.idle_s <= upload_idle_s || !self.keeps_part() {
            return Flow::Go;
        }
        let Some((position, rest)) = self.request.give_up() else { return Flow::Go };
        let held = std::mem::take(&mut self.input);
        (self.request, self.given_up) = (P::Request::default(), Some(rest));
        counts.requests_abandoned.add(1);
        let text = format!(
            "the request was given up: no more of it came for {upload_idle_s} s; send it again"
        );
        self.responder.reply(|out, _| P::write_error(out, &text));
        match self.pass_over(&held.rest()[position..]) {
            Ok(passed) => self.input.add(&held.rest()[position + passed..], 1),
            Err(error) => self.violation(counts, &error.to_string()),
        }
        Flow::Again
    }

    /// Skips the available part of an abandoned request. Returns the number of bytes of the buffer.
    fn pass_over(
        &mut self,
        buffer: &[u8],
    ) -> Result<usize, <P::Request as ParsedRequest>::Violation> {
        let rest = self.given_up.as_mut().expect("asked by the caller");
        let skipped = P::Request::pass(rest, buffer)?;
        self.need = if skipped.is_whole {
            self.given_up = None;
            1
        } else {
            buffer.len() - skipped.bytes + 1
        };
        Ok(skipped.bytes)
    }
}
