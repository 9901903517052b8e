//! Jobs, one at once or, if they move a large value, search a tree, add up a digest
//! or are about many keys, piece by piece.
//!
//! Invariant: one turn of the shard moves one piece of one large value, so that rings and other
//! jobs never wait for a whole one. The jobs of one RESP connection are executed in the order in
//! which they came, so those behind a large one run after it.
//!
//! It does no I/O: jobs come in, replies go out by [`LargeJobs::pop_reply`].

use crate::joint::{JointJobs, JointReply};
use crate::key_work::KeyWork;
use crate::plans::LookWork;
use crate::waits::Waits;
use remora_arena::Journal;
use remora_engine::{
    DigestRead, Download, LargeSet, LongRead, Now, Outcome, Served, Shard, Tried, Upload, WaitFor,
    WaiterName,
};
use remora_frontend::{Here, Job, Order, OwnedReply, PARKED, Token, Wanted};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    CONNECTION_PIECE_BYTES, JOBS_PER_TURN, MAX_REPLY_BYTES, RELEASED_REPLIES, STREAM_PIECE_BYTES,
};
use remora_layout::node::ENTRY_BYTES;
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::message::Status;
use std::collections::{BTreeMap, VecDeque};

/// One RESP connection: its thread, and its slot and number there.
type Origin = (usize, usize, u64);

fn origin_of(token: &Token) -> Origin {
    (token.home, token.connection, token.serial)
}

/// Whether a command is executed at once, in one step; others are begun as jobs.
pub fn is_one_step(command: &Command<'_>) -> bool {
    match command {
        Command::Set { value, .. } => value.len() <= STREAM_PIECE_BYTES,
        Command::Of { request, .. } => !request.is_long(),
        Command::Flush
        | Command::FlushAll
        | Command::Digest { key: None }
        | Command::Elements { .. } => false,
        _ => true,
    }
}

/// The rest of a large job.
enum Work {
    /// A SET: the encoded command, without the last bytes of its value.
    Upload { command: Vec<u8>, upload: Upload },
    /// A reply, the sequence that it waits for, and the copied part of its value.
    Download { reply: OwnedReply, wait: u64, value: Vec<u8>, download: Download },
    /// A read that goes in turns, its results so far, and the most parts of them that the reply may
    /// have. The results wait for a sequence.
    Read { read: LongRead, found: Vec<u8>, most: usize, wait: u64 },
    /// A read of which a part was sent.
    Paused(LongRead),
    /// The digest of all keys.
    Digest(Box<DigestRead>),
    /// A command for each of many keys.
    Keys(Box<KeyWork>),
    /// Looks for a plan's run.
    Look(Box<LookWork>),
}

struct LargeJob {
    token: Token,
    work: Work,
}

impl LargeJob {
    fn is_paused(&self) -> bool {
        matches!(self.work, Work::Paused { .. })
    }

    fn found_bytes(&self) -> usize {
        match &self.work {
            Work::Download { value, .. } => value.len(),
            Work::Read { found, .. } => found.len(),
            Work::Keys(keys) => keys.found_bytes(),
            Work::Look(look) => look.found_bytes(),
            Work::Upload { .. } | Work::Paused(_) | Work::Digest(_) => 0,
        }
    }
}

/// The jobs under way for one connection.
struct Line {
    origin: Origin,
    /// The large job; `None` once it is done.
    large: Option<LargeJob>,
}

/// Replies: those that may be sent, and those that are held back until the changes that they show
/// are durable. A connection has a bounded number of requests under way, and so of replies here. It
/// puts replies in order itself.
#[derive(Default)]
struct Replies {
    ready: VecDeque<(Token, OwnedReply)>,
    /// By the sequence that they wait for, then by number.
    held: BTreeMap<(u64, u64), (Token, OwnedReply)>,
    /// Bytes of their values.
    held_bytes: usize,
    number: u64,
    /// Some ready replies are not sent yet.
    has_due: bool,
}

impl Replies {
    /// Replies, now or once this sequence is durable.
    fn reply(&mut self, token: Token, reply: OwnedReply, wait: u64) {
        if wait == 0 {
            return self.ready.push_back((token, reply));
        }
        self.number += 1;
        self.held_bytes += reply.value_bytes();
        self.held.insert((wait, self.number), (token, reply));
    }

    /// Answers a request that may have waited for a key.
    fn reply_served(&mut self, served: Served) {
        let Served { name, status, number, value, wait } = served;
        self.reply(token_of(name), OwnedReply { status, number, value, has_more: false }, wait);
    }

    /// Releases a bounded number of the replies whose sequence is durable.
    fn release(&mut self, durable: u64) {
        for _ in 0..RELEASED_REPLIES {
            let due = self.held.first_entry().filter(|first| first.key().0 <= durable);
            self.has_due = due.is_some();
            let Some(due) = due.map(|due| due.remove()) else { return };
            self.held_bytes -= due.1.value_bytes();
            self.ready.push_back(due);
        }
    }
}

/// The large jobs under way, those that wait for them, and held replies.
#[derive(Default)]
pub struct LargeJobs {
    lines: VecDeque<Line>,
    /// The jobs behind the large one of each line.
    behind: BTreeMap<Origin, VecDeque<Job>>,
    /// Reads of which a piece was sent, until the connection asks for the next one.
    paused: BTreeMap<Origin, LargeJob>,
    replies: Replies,
    /// Requests that wait until changes are on disks or at replicas.
    awaited: Vec<Awaited>,
    /// The last change that is on the disk.
    synced: u64,
    /// Requests of the thread's own connections that wait for keys, of this shard and of others.
    pub waits: Waits,
    /// Changes of this shard and another one.
    pub joint: JointJobs,
}

/// The name of a request among the waiters of the shard that its token names.
fn name_of(token: &Token) -> WaiterName {
    let at = token.home as u64 | (token.shard as u64) << 32;
    [at, token.connection as u64, token.serial, token.request]
}

/// The token of such a request.
fn token_of([at, connection, serial, request]: WaiterName) -> Token {
    let (home, shard) = ((at & u64::from(u32::MAX)) as usize, (at >> 32) as usize);
    Token { home, connection: connection as usize, serial, request, part: 0, shard }
}

/// A request that waits until changes are on disks or at replicas. Jobs behind it do not wait: the
/// connection puts replies in order.
struct Awaited {
    token: Token,
    sequence: u64,
    /// Unix ms; 0 for never.
    until_ms: u64,
    wanted: Wanted,
}

impl Awaited {
    fn wants_replicas(&self) -> bool {
        matches!(self.wanted, Wanted::Replicas(of) | Wanted::Disks { replicas: of } if of > 0)
    }

    /// Whether it is as wanted, and how it stands.
    fn look<J: Journal>(&self, shard: &Shard<J>, synced: u64) -> (bool, i64) {
        match self.wanted {
            Wanted::Disks { replicas } => {
                let (own, of) = (self.sequence <= synced, shard.count_durable(self.sequence));
                (own && of >= replicas, 2 * of as i64 + i64::from(own))
            }
            Wanted::Replicas(replicas) => {
                let of = shard.count_stored(self.sequence);
                (of >= replicas, of as i64)
            }
        }
    }
}

impl LargeJobs {
    /// Whether there is work for the next turn.
    pub fn has_work(&self) -> bool {
        let has_lines = !self.lines.is_empty() && !self.joint.is_held();
        has_lines || self.replies.has_due || self.waits.has_output() || self.joint.has_work()
    }

    /// Whether there are replies that are to go.
    pub fn has_replies(&self) -> bool {
        !self.replies.ready.is_empty()
    }

    /// What replies and requests wait for does not come any more: the server becomes a replica. Held
    /// replies become errors. These are no refusals: the changes were executed, and one that lies at a
    /// replica may outlive the change of the role.
    ///
    /// Requests that wait for keys end without a change.
    pub fn give_up_waiting<J: Journal>(&mut self, shard: &mut Shard<J>) {
        self.waits.end_all(Status::WaitEnded);
        shard.withdraw_all();
        self.answer_awaited(shard, |_, _| true);
        self.replies.held_bytes = 0;
        for (_, (token, _)) in std::mem::take(&mut self.replies.held) {
            self.replies.ready.push_back((token, OwnedReply::status(Status::RoleChanged)));
        }
    }

    /// Replies that are held back.
    pub fn held_replies(&self) -> usize {
        self.replies.held.len()
    }

    /// Bytes that jobs have found and not replied yet: those under way, and replies that
    /// are held back.
    pub fn found_bytes(&self) -> usize {
        let jobs = self.lines.iter().filter_map(|line| line.large.as_ref());
        jobs.map(LargeJob::found_bytes).sum::<usize>() + self.replies.held_bytes
    }

    /// Executes a job, begins it if it is large, or lets it wait for an
    /// earlier one of its connection.
    pub fn execute<J: Journal>(&mut self, shard: &mut Shard<J>, job: Job, now: Now) {
        match job.order {
            Order::Part(part) => self.joint.make(shard, (*part, job.token), now),
            Order::PartAnswer(answer) => {
                let reply = self.joint.answered(shard, *answer);
                self.reply_joint(reply);
            }
            _ if self.joint.puts_off() => self.joint.put_off(job),
            _ => self.execute_next(shard, job, now),
        }
    }

    fn reply_joint(&mut self, reply: Option<JointReply>) {
        if let Some((token, reply, wait)) = reply {
            self.replies.reply(token, reply, wait);
        }
    }

    /// As [`LargeJobs::execute`], for the next job in the order in which they came.
    fn execute_next<J: Journal>(&mut self, shard: &mut Shard<J>, job: Job, now: Now) {
        let origin = origin_of(&job.token);
        match job.order {
            Order::Joint(_) if self.behind.contains_key(&origin) => {}
            Order::Joint(order) => {
                let reply = self.joint.begin(shard, (*order, job.token), now);
                return self.reply_joint(reply);
            }
            // They come before all others.
            Order::Part(_) | Order::PartAnswer(_) => return,
            Order::Execute(_) | Order::ExecuteEach(_) | Order::Look(_) | Order::WaitFor(_) => {}
            Order::Withdraw => return shard.withdraw(&name_of(&job.token)),
            Order::Unblock { serial, status } => {
                let waited =
                    self.waits.end(serial, status) || self.end_awaited(shard, serial, status);
                let reply = OwnedReply::from(Reply::number(waited.into()));
                return self.replies.reply(job.token, reply, 0);
            }
            Order::Continue => return self.resume(origin, job.token, true),
            Order::Abandon => return self.resume(origin, job.token, false),
            Order::Await { wanted, until_ms } => {
                let sequence = shard.last_sequence();
                if matches!(wanted, Wanted::Disks { .. }) && sequence > self.synced {
                    shard.want_sync();
                }
                self.awaited.push(Awaited { token: job.token, sequence, until_ms, wanted });
                if shard.is_applying() {
                    // A replica has no replicas.
                    self.answer_awaited(shard, |of, _| of.wants_replicas());
                }
                return self.release_awaited(shard);
            }
        }
        if let Some(behind) = self.behind.get_mut(&origin) {
            behind.push_back(job);
        } else if let Some(large) = begin(shard, job, &mut self.replies, now) {
            self.behind.insert(origin, VecDeque::new());
            self.put(Line { origin, large: Some(large) });
        }
    }

    /// Whether nothing is under way for the connection that this token names: no
    /// command of it would be overtaken by one that is executed at once.
    #[inline]
    pub fn is_free(&self, token: &Token) -> bool {
        let is_behind = || self.behind.contains_key(&origin_of(token));
        !self.joint.puts_off() && (self.behind.is_empty() || !is_behind())
    }

    /// Executes a command of one step ([`is_one_step`]) for a connection of the
    /// shard's own thread that waits for nothing else of this shard, and for which
    /// nothing is under way ([`LargeJobs::is_free`]). A read may turn out [too long](is_too_long).
    #[inline]
    pub fn execute_here<'s, J: Journal>(
        &mut self,
        shard: &'s mut Shard<J>,
        (command, hash): (&Command<'_>, KeyHash),
        (token, may_hold): (Token, bool),
        now: Now,
    ) -> Here<'s> {
        let outcome = shard.execute_or_stream(command, hash, now);
        if let Outcome::Reply(reply) = outcome
            && (reply.wait == 0 || may_hold || is_too_long(command, &reply))
        {
            return Here::Reply(reply);
        }
        let Some(large) = answer(outcome, token, &mut self.replies) else { return Here::Held };
        let origin = origin_of(&token);
        self.behind.insert(origin, VecDeque::new());
        self.put(Line { origin, large: Some(large) });
        Here::Large
    }

    /// Serves requests that wait for keys, as far as a turn goes, and takes the answers of those that
    /// were served since the last call.
    #[inline]
    pub fn serve_waiters<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) {
        if shard.has_waiters_due() && !self.joint.is_held() {
            shard.serve_waiters(now);
            while let Some(served) = shard.pop_served() {
                self.replies.reply_served(served);
            }
        }
        while let Some((token, reply)) = self.waits.pop_reply() {
            self.replies.reply(token, reply, 0);
        }
    }

    /// The next reply to send, and its request.
    pub fn pop_reply(&mut self) -> Option<(Token, OwnedReply)> {
        self.replies.ready.pop_front()
    }

    /// Changes up to this sequence are on the disk.
    pub fn set_synced<J: Journal>(&mut self, shard: &Shard<J>, sequence: u64) {
        self.synced = self.synced.max(sequence);
        self.release_awaited(shard);
    }

    /// Whether somebody waits for disks or replicas.
    #[inline]
    pub fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Answers those whose changes are where they are wanted.
    pub fn release_awaited<J: Journal>(&mut self, shard: &Shard<J>) {
        self.answer_awaited(shard, |_, is_there| is_there);
    }

    /// Answers those whose time is over.
    pub fn time_out<J: Journal>(&mut self, shard: &Shard<J>, now: Now) {
        self.answer_awaited(shard, |of, _| (1..=now.unix_ms).contains(&of.until_ms));
    }

    fn answer_awaited<J: Journal>(
        &mut self,
        shard: &Shard<J>,
        is_due: impl Fn(&Awaited, bool) -> bool,
    ) {
        let synced = self.synced;
        let due = |of: &mut Awaited| is_due(of, of.look(shard, synced).0);
        for of in self.awaited.extract_if(.., due) {
            let (_, stands) = of.look(shard, synced);
            self.replies.reply(of.token, OwnedReply::from(Reply::number(stands)), 0);
            self.replies.has_due = true;
        }
    }

    /// Ends the waits of a connection for disks or replicas: they are answered as they stand, or by an
    /// error. Whether there were any.
    fn end_awaited<J: Journal>(&mut self, shard: &Shard<J>, serial: u64, status: Status) -> bool {
        let synced = self.synced;
        let before = self.replies.ready.len();
        for of in self.awaited.extract_if(.., |of| of.token.serial == serial) {
            let reply = match status {
                Status::NotFound => Reply::number(of.look(shard, synced).1),
                error => Reply::status(error),
            };
            self.replies.reply(of.token, OwnedReply::from(reply), 0);
            self.replies.has_due = true;
        }
        self.replies.ready.len() > before
    }

    /// Continues a read that has paused, or only the jobs behind it.
    fn resume(&mut self, origin: Origin, token: Token, goes_on: bool) {
        let Some(paused) = self.paused.remove(&origin) else { return };
        if paused.token != token {
            self.paused.insert(origin, paused);
            return;
        }
        self.lines.push_back(Line { origin, large: Some(paused).filter(|_| goes_on) });
    }

    /// Puts a line where its large job is looked for.
    fn put(&mut self, line: Line) {
        match line.large {
            Some(large) if large.is_paused() => drop(self.paused.insert(line.origin, large)),
            large => self.lines.push_back(Line { large, ..line }),
        }
    }

    /// Moves one piece; after the last one continues with the jobs behind it. Releases replies that
    /// have become durable.
    pub fn turn<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) {
        self.serve_waiters(shard, now);
        if self.replies.has_due || !self.replies.held.is_empty() {
            self.replies.release(shard.durable_sequence());
        }
        for _ in 0..JOBS_PER_TURN {
            let Some(job) = self.joint.pop_put_off() else { break };
            self.execute_next(shard, job, now);
        }
        if self.joint.is_held() {
            return;
        }
        let Some(mut line) = self.lines.pop_front() else { return };
        if let Some(large) = line.large.take() {
            line.large = advance(shard, large, &mut self.replies, now);
        }
        let behind = self.behind.get_mut(&line.origin).expect("each line has its list");
        for _ in 0..JOBS_PER_TURN {
            if line.large.is_some() {
                break;
            }
            let Some(job) = behind.pop_front() else { break };
            if matches!(job.order, Order::Joint(_)) {
                self.joint.put_off(job);
                continue;
            }
            line.large = begin(shard, job, &mut self.replies, now);
        }
        if line.large.is_none() && behind.is_empty() {
            self.behind.remove(&line.origin);
        } else {
            self.put(line);
        }
    }
}

/// Tries what a request waits for, and replies, or parks it.
fn try_wait<J: Journal>(
    shard: &mut Shard<J>,
    token: Token,
    of: remora_frontend::WaitFor,
    replies: &mut Replies,
    now: Now,
) {
    let wait = WaitFor { name: name_of(&token), claim: of.claim, commands: of.commands };
    match shard.wait_for(wait, now) {
        Tried::Served(served) => replies.reply_served(served),
        Tried::Waits => {
            let parked = Token { part: PARKED, ..token };
            replies.reply(parked, OwnedReply::status(Status::Ok), 0);
        }
        Tried::Taken => {}
    }
}

/// Executes a job, or begins it if it moves a large value.
fn begin<J: Journal>(
    shard: &mut Shard<J>,
    job: Job,
    replies: &mut Replies,
    now: Now,
) -> Option<LargeJob> {
    let Job { order, token, most_objects, hash } = job;
    match order {
        Order::Execute(bytes) => {
            begin_command(shard, (bytes, hash), (token, most_objects), replies, now)
        }
        Order::ExecuteEach(batch) => {
            let is_small = batch.is_small();
            let large = LargeJob { token, work: Work::Keys(Box::new(KeyWork::new(*batch))) };
            if is_small { advance(shard, large, replies, now) } else { Some(large) }
        }
        Order::Look(look) => {
            let work = Box::new(LookWork::new(*look));
            let is_small = work.is_small();
            let large = LargeJob { token, work: Work::Look(work) };
            if is_small { advance(shard, large, replies, now) } else { Some(large) }
        }
        Order::WaitFor(wait) => {
            try_wait(shard, token, *wait, replies, now);
            None
        }
        // They are carried out when they come.
        Order::Continue
        | Order::Abandon
        | Order::Await { .. }
        | Order::Withdraw
        | Order::Joint(_)
        | Order::Part(_)
        | Order::PartAnswer(_)
        | Order::Unblock { .. } => None,
    }
}

/// The same for an encoded command, and the hash of its key if that is known.
fn begin_command<J: Journal>(
    shard: &mut Shard<J>,
    (bytes, known): (Vec<u8>, Option<KeyHash>),
    (token, most): (Token, usize),
    replies: &mut Replies,
    now: Now,
) -> Option<LargeJob> {
    let hash_of = |shard: &Shard<J>, database, command: &Command<'_>| {
        known.unwrap_or_else(|| shard.hash_of(database, command))
    };
    let outcome = match Command::decode_within(&bytes) {
        Ok((database, command @ Command::Set { key, value, condition, expiry, get }, _))
            if value.len() > STREAM_PIECE_BYTES =>
        {
            let (hash, value_bytes) = (hash_of(shard, database, &command), value.len());
            let set = LargeSet { key, hash, value_bytes, condition, expiry, get };
            match shard.begin_upload(set, now) {
                Ok(upload) => {
                    let work = Work::Upload { command: bytes, upload };
                    return Some(LargeJob { token, work });
                }
                Err(status) => Outcome::Reply(Reply::status(status)),
            }
        }
        Ok((database, command @ Command::Of { request, .. }, _)) if request.is_long() => {
            let hash = hash_of(shard, database, &command);
            return begin_long(shard, (&command, hash), (token, most), replies, now);
        }
        Ok((database, command @ Command::Elements { key, start, stop }, _)) => {
            let at = (key, hash_of(shard, database, &command));
            match shard.begin_elements(at, (start, stop), now) {
                Ok(read) => {
                    let work = Work::Read { read, found: Vec::new(), most, wait: 0 };
                    return advance(shard, LargeJob { token, work }, replies, now);
                }
                Err(reply) => Outcome::Reply(reply),
            }
        }
        Ok((_, Command::Digest { key: None }, _)) => {
            let work = Work::Digest(Box::default());
            return advance(shard, LargeJob { token, work }, replies, now);
        }
        Ok((database, command @ (Command::Flush | Command::FlushAll), _)) => {
            let only = matches!(command, Command::Flush).then_some(database);
            shard.serve_all_waiters(now);
            match shard.begin_flush(only) {
                Ok(read) => {
                    let work = Work::Read { read, found: Vec::new(), most: usize::MAX, wait: 0 };
                    return advance(shard, LargeJob { token, work }, replies, now);
                }
                Err(reply) => Outcome::Reply(reply),
            }
        }
        Ok((database, command, _)) => {
            let hash = hash_of(shard, database, &command);
            match shard.execute_or_stream(&command, hash, now) {
                Outcome::Reply(reply) if is_too_long(&command, &reply) => {
                    return begin_long(shard, (&command, hash), (token, most), replies, now);
                }
                outcome => outcome,
            }
        }
        Err((status, _)) => Outcome::Reply(Reply::status(status)),
    };
    answer(outcome, token, replies)
}

/// Whether a read that was executed in one step is too long for that: nothing was given. It is to be
/// begun as a job.
#[inline]
pub fn is_too_long(command: &Command<'_>, reply: &Reply<'_>) -> bool {
    reply.status == Status::NeedsBuffer
        && matches!(command, Command::Of { request, .. } if request.may_have_parts())
}

/// Begins an operation that goes in turns, and makes its first turn.
fn begin_long<J: Journal>(
    shard: &mut Shard<J>,
    (command, hash): (&Command<'_>, KeyHash),
    (token, most): (Token, usize),
    replies: &mut Replies,
    now: Now,
) -> Option<LargeJob> {
    let Command::Of { key, request } = *command else { return None };
    match shard.begin_read((key, hash), request, now) {
        Ok(read) => {
            let work = Work::Read { read, found: Vec::new(), most, wait: 0 };
            advance(shard, LargeJob { token, work }, replies, now)
        }
        Err(reply) => answer(Outcome::Reply(reply), token, replies),
    }
}

/// Sends a reply, or begins to copy its value.
fn answer(outcome: Outcome<'_>, token: Token, replies: &mut Replies) -> Option<LargeJob> {
    match outcome {
        Outcome::Reply(reply) => {
            replies.reply(token, reply.into(), reply.wait);
            None
        }
        Outcome::Stream(reply, download) => {
            let value = Vec::with_capacity(download.len());
            let work = Work::Download { reply: reply.into(), wait: reply.wait, value, download };
            Some(LargeJob { token, work })
        }
    }
}

/// Moves one piece of a large value. Returns the rest of the job.
fn advance<J: Journal>(
    shard: &mut Shard<J>,
    LargeJob { token, work }: LargeJob,
    replies: &mut Replies,
    now: Now,
) -> Option<LargeJob> {
    let left = match work {
        Work::Paused(read) => {
            read_on(shard, (read, Vec::new()), (usize::MAX, 0), (token, replies), now)
        }
        Work::Read { read, found, most, wait } => {
            read_on(shard, (read, found), (most, wait), (token, replies), now)
        }
        Work::Upload { command, mut upload } => {
            // The value is the end of the command.
            let from = command.len() - upload.missing();
            let to = command.len().min(from + STREAM_PIECE_BYTES);
            let taken = shard.upload(&mut upload, &command[from..to]);
            assert_eq!(taken, Ok(()), "as many bytes as were announced");
            if upload.missing() == 0 {
                return answer(shard.finish_upload(upload, now), token, replies);
            }
            Some(Work::Upload { command, upload })
        }
        Work::Download { mut reply, wait, mut value, download } => {
            value.extend_from_slice(shard.piece(&download, value.len(), STREAM_PIECE_BYTES));
            if value.len() == download.len() {
                shard.end_download(download, now);
                reply.value = Some(value);
                replies.reply(token, reply, wait);
                return None;
            }
            Some(Work::Download { reply, wait, value, download })
        }
        Work::Keys(mut keys) => {
            if let Some((reply, wait)) = keys.turn(shard, now) {
                replies.reply(token, reply, wait);
                return None;
            }
            Some(Work::Keys(keys))
        }
        Work::Look(mut look) => {
            if let Some((reply, wait)) = look.turn(shard, now) {
                replies.reply(token, reply, wait);
                return None;
            }
            Some(Work::Look(look))
        }
        Work::Digest(mut read) => match shard.digest_turn(&mut read) {
            Ok(None) => Some(Work::Digest(read)),
            Ok(Some(digest)) => {
                let value = Some(digest.0.to_le_bytes().to_vec());
                let reply = OwnedReply { value, ..OwnedReply::status(Status::Ok) };
                replies.reply(token, reply, shard.digest_wait());
                None
            }
            Err(status) => {
                replies.reply(token, OwnedReply::status(status), 0);
                None
            }
        },
    };
    left.map(|work| LargeJob { token, work })
}

/// One turn of a long read. `most`: maximum parts of the reply. `wait`: the sequence that the
/// reply waits for. Returns the remaining work.
fn read_on<J: Journal>(
    shard: &mut Shard<J>,
    (mut read, mut found): (LongRead, Vec<u8>),
    (most, wait): (usize, u64),
    (token, replies): (Token, &mut Replies),
    now: Now,
) -> Option<Work> {
    let turn = shard.read_turn(&mut read, &mut found, now);
    let wait = wait.max(shard.wait_of(&read));
    // No part is shorter than an entry.
    let may_be_enough = found.len() / ENTRY_BYTES >= most;
    if turn.is_ok_and(|turn| turn.has_doubles && (turn.ended || may_be_enough)) {
        shard.tidy(&read, &mut found);
    }
    let is_enough = may_be_enough && shard.cut(&read, &mut found, most);
    let reply = match turn {
        Err(status) => OwnedReply::status(status),
        Ok(turn) if !turn.is_counted && found.len() > MAX_REPLY_BYTES => {
            OwnedReply::status(Status::TooLarge)
        }
        Ok(turn) if turn.ended || is_enough => {
            let value = turn.gives_value.then_some(found);
            OwnedReply { status: Status::Ok, number: turn.number, value, has_more: false }
        }
        Ok(turn) if turn.is_counted && found.len() >= CONNECTION_PIECE_BYTES => {
            let (number, value) = (turn.number, Some(found));
            let reply = OwnedReply { status: Status::Ok, number, value, has_more: true };
            replies.reply(token, reply, wait);
            return Some(Work::Paused(read));
        }
        Ok(_) => return Some(Work::Read { read, found, most, wait }),
    };
    replies.reply(token, reply, wait);
    None
}

#[cfg(test)]
mod tests;
