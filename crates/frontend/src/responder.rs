//! The reply side of one connection: it keeps replies in the order of their requests, those that
//! wait for shards or for an earlier one, and the output that is not sent yet. Waiting replies are
//! counted until they are in the output.

use crate::counts::ConnectionCounts;
use crate::in_flight::{InFlight, Question};
use crate::job::{Job, Order, OwnedReply, Token};
use crate::many_keys::ManyKeys;
use crate::output::Output;
use crate::pending::{Pending, Piece, Waiting, Writing};
use crate::port::ShardPort;
use crate::protocol::{Dialect, Protocol, ReplyForm, ShardAnswer};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    CONNECTION_MAX_OUTPUT_BYTES, CONNECTION_MAX_PUSHED_BYTES, CONNECTION_PAUSE_JOB_BYTES,
    CONNECTION_PAUSE_OUTPUT_BYTES, CONNECTION_PAUSE_PENDING, MAX_REPLY_BYTES,
};
use remora_protocol::message::Status;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::Write;
use std::net::SocketAddr;

/// A connection that waits for nothing keeps no more capacity for waiting replies.
const KEEP_PENDING: usize = 32;

/// Why no further requests are executed, beside the bounds of what is under way. The number is that
/// of the request that has to be the first pending one before they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Intake {
    /// They are.
    Open,
    /// An earlier question is large.
    Behind(u64),
    /// An earlier request waits for its keys, perhaps for ever.
    Blocked(u64),
}

/// See the module's text.
pub struct Responder<P: Protocol> {
    peer: SocketAddr,
    slot: usize,
    serial: u64,
    /// The client's own statements about itself.
    pub client: P::Client,
    /// The database that it has selected.
    pub database: Database,
    output: Output,
    pending: VecDeque<Pending<P::Form>>,
    /// Parts of waiting requests, and bytes of replies that wait for an earlier one: not
    /// yet output, but as good as.
    held_parts: usize,
    held_bytes: usize,
    /// Bytes of its jobs that are not answered.
    job_bytes: usize,
    /// Number of the first pending request.
    first_pending: u64,
    intake: Intake,
    in_flight: InFlight,
    /// The rest of a long reply, to be asked for.
    rest_due: Option<Token>,
    /// Why a reply cannot be written to its end.
    broken_off: Option<Status>,
    /// Nothing that was read behind the present request is executed.
    has_quit: bool,
    /// It is told what happens ([`Responder::push`]).
    takes_pushes: bool,
    /// Messages that answer no request, and wait until no reply does.
    pushes: Vec<u8>,
    /// Bytes of such messages since the client had read all of its output.
    pushed_bytes: usize,
}

impl<P: Protocol> Responder<P> {
    /// The state of a fresh connection.
    pub fn new(peer: SocketAddr, serial: u64) -> Self {
        Self {
            peer,
            slot: 0,
            serial,
            client: P::Client::default(),
            database: Database::ZERO,
            output: Output::default(),
            pending: VecDeque::new(),
            held_parts: 0,
            held_bytes: 0,
            job_bytes: 0,
            first_pending: 0,
            intake: Intake::Open,
            in_flight: InFlight::default(),
            rest_due: None,
            broken_off: None,
            has_quit: false,
            takes_pushes: false,
            pushes: Vec::new(),
            pushed_bytes: 0,
        }
    }

    /// The client's address.
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection's number in the server; also its id for clients.
    #[inline]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// The connection's slot in its thread.
    #[inline]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// The thread has this slot for the connection.
    pub(crate) const fn set_slot(&mut self, slot: usize) {
        self.slot = slot;
    }

    /// The dialect of its replies.
    #[inline]
    pub fn dialect(&self) -> Dialect<P> {
        P::dialect(&self.client)
    }

    /// Appends a reply that is known at once.
    #[inline]
    pub fn reply(&mut self, write: impl FnOnce(&mut Vec<u8>, Dialect<P>)) {
        let dialect = self.dialect();
        if self.pending.is_empty() {
            write(self.output.bytes_mut(), dialect);
        } else {
            let mut bytes = Vec::new();
            write(&mut bytes, dialect);
            self.held_bytes += bytes.len();
            self.pending.push_back(Pending::Ready(bytes));
        }
    }

    /// Appends the reply that one answer makes.
    #[inline]
    pub fn reply_answer(&mut self, form: P::Form, answer: ShardAnswer<'_>) {
        self.reply(|out, dialect| form.write(out, dialect, &[answer]));
    }

    /// Whether the client is to be told what happens, by [`Executor::push`](crate::Executor::push).
    /// Its connection stays in its thread meanwhile.
    pub const fn take_pushes(&mut self, takes: bool) {
        self.takes_pushes = takes;
    }

    pub(crate) const fn takes_pushes(&self) -> bool {
        self.takes_pushes
    }

    /// Appends a message that answers no request, behind all replies that wait. A client that leaves
    /// more than [`CONNECTION_MAX_PUSHED_BYTES`] of them unread loses its connection.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>, Dialect<P>)) {
        let (dialect, before) = (self.dialect(), self.pushes.len());
        write(&mut self.pushes, dialect);
        self.pushed_bytes += self.pushes.len() - before;
        self.settle();
    }

    /// Moves messages into the output: no reply waits.
    #[cold]
    fn settle_pushes(&mut self) {
        self.output.bytes_mut().append(&mut self.pushes);
        self.pushes = Vec::new();
    }

    /// Whether a reply that waits for its own shard can be written at once: nothing waits before
    /// it.
    pub fn may_hold(&self) -> bool {
        self.pending.is_empty()
    }

    /// The reply that was written just now, at once ([`Responder::may_hold`]), waits until this
    /// sequence of the thread's own shard is durable.
    pub fn hold(&mut self, sequence: u64) {
        self.output.hold(sequence);
    }

    /// The thread's own shard is durable up to here. Whether something may be sent that might not
    /// before.
    pub(crate) fn release(&mut self, durable: u64) -> bool {
        self.output.release(durable)
    }

    /// Whether [`Responder::release`] would release something.
    pub(crate) fn may_release(&self, durable: u64) -> bool {
        self.output.may_release(durable)
    }

    /// Replies that are held in the output.
    pub(crate) fn held_replies(&self) -> usize {
        self.output.held_replies()
    }

    /// Adds a request with missing parts.
    pub fn wait(&mut self, waiting: Waiting<P::Form>) {
        self.held_parts += waiting.parts.len();
        self.held_bytes += waiting.bytes;
        self.job_bytes += waiting.job_bytes;
        let dialect = self.dialect();
        self.pending.push_back(Pending::Waiting(waiting, dialect));
    }

    /// Adds a request with missing keys.
    pub fn wait_for_keys(&mut self, many: ManyKeys<P::Form>) {
        self.held_parts += many.keys();
        self.held_bytes += many.value_bytes();
        self.job_bytes += many.job_bytes();
        let dialect = self.dialect();
        self.pending.push_back(Pending::Keys(many, dialect));
    }

    /// Takes the last request out again, if a further turn is to take keys of it.
    pub(crate) fn take_keys_left(&mut self) -> Option<ManyKeys<P::Form>> {
        if !self.has_keys_left() {
            return None;
        }
        let Some(Pending::Keys(many, _)) = self.pending.pop_back() else { return None };
        self.held_parts -= many.keys();
        self.held_bytes -= many.value_bytes();
        self.job_bytes -= many.job_bytes();
        Some(many)
    }

    /// Whether a further turn is to take keys of the last request.
    pub(crate) fn has_keys_left(&self) -> bool {
        matches!(self.pending.back(), Some(Pending::Keys(many, _)) if many.has_left())
    }

    /// Takes no more input, and executes no more of the input that was read.
    pub const fn quit(&mut self) {
        self.has_quit = true;
    }

    pub(crate) const fn has_quit(&self) -> bool {
        self.has_quit
    }

    /// The request that is about to wait moves a large value: the requests behind it are
    /// not executed before it is answered.
    pub fn expect_large(&mut self) {
        self.intake = Intake::Behind(self.next_request() + 1);
    }

    /// The request that is about to wait may do so for ever: the requests behind it are not executed
    /// before it is answered, but the stream is read, so that its end is found.
    pub fn block(&mut self) {
        self.intake = Intake::Blocked(self.next_request() + 1);
    }

    /// Whether it waits for a request that may wait for ever ([`Responder::block`]).
    pub const fn is_blocked(&self) -> bool {
        matches!(self.intake, Intake::Blocked(until) if self.first_pending < until)
    }

    /// Whether this connection may read the key with this hash from its shard's memory.
    #[inline]
    pub fn may_read(&self, shard: usize, hash: KeyHash) -> bool {
        self.in_flight.may_read(shard, hash)
    }

    /// Whether it waits for nothing of this shard.
    #[inline]
    pub fn is_quiet(&self, shard: usize) -> bool {
        self.in_flight.is_quiet(shard)
    }

    /// Notes that a part of the next request was sent to its shard. `shards` is the number of
    /// shards.
    pub fn ask(&mut self, asked: Question, shards: usize) {
        self.in_flight.ask(asked, shards);
    }

    /// Number that the next waiting request will have.
    pub fn next_request(&self) -> u64 {
        self.first_pending + self.pending.len() as u64
    }

    /// Names a part of the request that the connection will next wait for, for a shard.
    pub fn token(&self, home: usize, shard: usize, part: usize) -> Token {
        let (serial, request) = (self.serial, self.next_request());
        Token { home, connection: self.slot, serial, request, part, shard }
    }

    /// Takes a part's reply from a shard.
    pub fn answer(&mut self, token: Token, mut reply: OwnedReply) {
        let Some(at) = token.request.checked_sub(self.first_pending) else { return };
        let waiting = match self.pending.get_mut(at as usize) {
            Some(Pending::Waiting(waiting, _)) => waiting,
            Some(Pending::Keys(many, _)) => {
                self.held_bytes -= many.value_bytes();
                self.job_bytes -= many.job_bytes();
                many.take(token.part, reply, |asked| self.in_flight.answered(asked));
                self.held_bytes += many.value_bytes();
                self.job_bytes += many.job_bytes();
                return self.settle();
            }
            Some(Pending::Writing(writing)) => {
                self.held_bytes -= writing.bytes();
                self.broken_off = writing.take(reply).err();
                self.held_bytes += writing.bytes();
                return self.settle();
            }
            _ => return,
        };
        let asked = waiting.asked[token.part];
        self.in_flight.answered(asked);
        waiting.job_bytes -= asked.bytes;
        self.job_bytes -= asked.bytes;
        waiting.missing -= 1;
        waiting.rest = Some(token).filter(|_| reply.has_more);
        let bytes = reply.value_bytes();
        // The shard bounds the size of one part.
        if waiting.bytes > 0 && waiting.bytes + bytes > MAX_REPLY_BYTES {
            reply = OwnedReply::status(Status::TooLarge);
        } else {
            waiting.bytes += bytes;
            self.held_bytes += bytes;
        }
        waiting.parts[token.part] = Some(reply);
        self.settle();
    }

    /// Moves the replies that are due into the output; of one that is written
    /// piece by piece one piece, so that other connections are served between
    /// two, and only as fast as the client reads.
    pub(crate) fn settle(&mut self) {
        loop {
            match self.pending.front_mut() {
                Some(Pending::Ready(bytes)) => {
                    self.held_bytes -= bytes.len();
                    self.output.bytes_mut().append(bytes);
                }
                Some(Pending::Waiting(waiting, dialect)) if waiting.missing == 0 => {
                    let dialect = *dialect;
                    self.held_parts -= waiting.parts.len();
                    if let [Some(part)] = &waiting.parts[..]
                        && !waiting.form.is_long()
                    {
                        self.held_bytes -= waiting.bytes;
                        let answer = [ShardAnswer::from(part)];
                        waiting.form.write(self.output.bytes_mut(), dialect, &answer);
                        self.pending.pop_front();
                        self.first_pending += 1;
                        continue;
                    }
                    let parts = std::mem::take(&mut waiting.parts).into_iter().flatten();
                    let mut parts: SmallVec<[OwnedReply; 1]> = parts.collect();
                    if let [OwnedReply { status, number, value, .. }] = &mut parts[..]
                        && let Some(long) = waiting.form.long_reply((*status, *number), value)
                    {
                        let writing = Writing::new(long, dialect, waiting.rest);
                        self.pending[0] = Pending::Writing(writing);
                        continue;
                    }
                    self.held_bytes -= waiting.bytes;
                    let answers: SmallVec<[ShardAnswer<'_>; 1]> =
                        parts.iter().map(ShardAnswer::from).collect();
                    waiting.form.write(self.output.bytes_mut(), dialect, &answers);
                }
                Some(Pending::Keys(many, dialect)) if many.is_complete() => {
                    self.held_parts -= many.keys();
                    self.held_bytes -= many.value_bytes();
                    many.write(self.output.bytes_mut(), *dialect);
                }
                Some(Pending::Writing(writing)) => {
                    if !self.output.may_write() || !writing.can_go_on() {
                        return;
                    }
                    match writing.write_piece(self.output.bytes_mut()) {
                        Piece::Some => return,
                        Piece::Ask(token) => {
                            self.rest_due = Some(token);
                            return;
                        }
                        Piece::Last => self.held_bytes -= writing.bytes(),
                    }
                }
                None if !self.pushes.is_empty() => return self.settle_pushes(),
                _ => return,
            }
            self.pending.pop_front();
            self.first_pending += 1;
        }
    }

    /// Asks for the rest of a long reply, if that is due.
    pub(crate) fn order_rest(&mut self, port: &mut impl ShardPort) {
        if let Some(token) = self.rest_due.take() {
            port.hand(token.shard, Job::new(Order::Continue, token));
        }
    }

    /// The connection is closed: no shard keeps the rest of a reply for it.
    pub(crate) fn abandon(&self, port: &mut impl ShardPort) {
        let rest = self.pending.iter().filter_map(|pending| match pending {
            Pending::Writing(writing) => writing.rest(),
            Pending::Waiting(waiting, _) => waiting.rest,
            Pending::Ready(_) | Pending::Keys(..) => None,
        });
        rest.for_each(|token| port.hand(token.shard, Job::new(Order::Abandon, token)));
    }

    /// Whether a reply is being written that the next turn can continue.
    pub(crate) fn writes_on(&self) -> bool {
        matches!(
            self.pending.front(),
            Some(Pending::Writing(writing)) if writing.can_go_on() && self.output.may_write()
        )
    }

    /// Whether nothing waits and nothing is unsent.
    pub(crate) fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.output.is_empty()
    }

    /// Whether so much output waits or is unsent that no more requests are executed
    /// (back-pressure).
    pub(crate) fn is_paused(&self) -> bool {
        self.unsent_bytes() > CONNECTION_PAUSE_OUTPUT_BYTES
            || self.pending.len() + self.held_parts + self.held_replies() > CONNECTION_PAUSE_PENDING
            || self.job_bytes > CONNECTION_PAUSE_JOB_BYTES
            || self.is_behind()
    }

    /// Whether an earlier request keeps later ones from being executed.
    const fn is_behind(&self) -> bool {
        match self.intake {
            Intake::Open => false,
            Intake::Behind(until) | Intake::Blocked(until) => self.first_pending < until,
        }
    }

    /// Whether the jobs under way leave room for others.
    pub(crate) const fn may_ask(&self) -> bool {
        self.job_bytes <= CONNECTION_PAUSE_JOB_BYTES
    }

    /// Bytes of its jobs that are not answered, and of replies that wait for a shard or for
    /// an earlier reply.
    pub const fn pending_bytes(&self) -> usize {
        self.job_bytes + self.held_bytes
    }

    /// Bytes of replies that the client has not been sent.
    pub(crate) const fn unsent_bytes(&self) -> usize {
        self.output.unsent() + self.held_bytes
    }

    /// Memory of replies that are not sent, and of jobs.
    pub(crate) const fn buffered_bytes(&self) -> usize {
        self.output.capacity() + self.pending_bytes()
    }

    /// Frees memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        if self.pending.is_empty() {
            self.in_flight.settle();
            if self.pending.capacity() > KEEP_PENDING {
                self.pending = VecDeque::new();
            }
        }
    }

    /// See [`Output`].
    pub(crate) const fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Sends as much as the stream takes, up to a turn's limit. False if the connection is over:
    /// its stream is broken, it reads too little, or a reply cannot be written to its end.
    pub(crate) fn flush(&mut self, stream: &mut impl Write, counts: &ConnectionCounts) -> bool {
        let is_sent = self.output.send(stream, counts);
        if self.output.is_empty() && self.pushes.is_empty() {
            self.pushed_bytes = 0;
        }
        let goes_on = is_sent
            && self.unsent_bytes() <= CONNECTION_MAX_OUTPUT_BYTES
            && self.pushed_bytes <= CONNECTION_MAX_PUSHED_BYTES
            && self.broken_off.is_none();
        if !goes_on {
            self.count_over(counts);
        }
        goes_on
    }

    /// The connection is over; whether that was our doing is counted.
    #[cold]
    fn count_over(&self, counts: &ConnectionCounts) {
        let (serial, peer, unread) = (self.serial, self.peer, self.unsent_bytes());
        if unread > CONNECTION_MAX_OUTPUT_BYTES || self.pushed_bytes > CONNECTION_MAX_PUSHED_BYTES {
            counts.output_cut_off.add(1);
            tracing::info!(serial, unread, "a connection that does not read was cut off");
        }
        if let Some(why) = self.broken_off {
            counts.output_cut_off.add(1);
            tracing::warn!(
                serial, %peer, unread, ?why,
                "a connection was cut off: what it reads changed faster than it reads"
            );
        }
    }
}
