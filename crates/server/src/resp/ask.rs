//! Questions to the shards: one of them, some, or all. The thread's own shard executes a command at
//! once if it can and if the connection waits for nothing else from it; the rest, and questions to
//! other shards, become jobs.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use crate::large_jobs::{is_one_step, is_too_long};
use remora_engine::STREAM_CLASS;
use remora_frontend::{
    Here, Job, Order, OwnedReply, Question, ReplyForm as _, ShardAnswer, Token, Waiting, Wanted,
    What, group,
};
use remora_layout::hash::KeyHash;
use remora_layout::limits::STREAM_BYTES;
use remora_protocol::{Command, Pairs, Reply};
use remora_resp::commands::persistence;
use remora_resp::error::CommandError;
use remora_resp::{ReplyForm, keys};

/// Room for an encoded command with a key and a value of usual lengths; others grow.
const COMMAND_BYTES: usize = 128;

impl<H: Host> RespExecutor<H> {
    /// One command for the shard that owns its key: executed, read or asked.
    #[inline]
    pub(super) fn key_command(
        &mut self,
        responder: &mut Responder,
        command: &Command<'_>,
        form: ReplyForm,
    ) {
        let at = self.route(command.key().unwrap_or_default());
        if self.is_for_here(responder, at.1, command) {
            self.execute_here(responder, (command, at.0), form);
        } else if !self.look(responder, (command, at), form) {
            self.ask_owner(responder, (command, at), form, usize::MAX);
        }
    }

    /// One command for the shard that owns its key; a search returns at most this many objects.
    pub(super) fn ask_one(
        &mut self,
        responder: &mut Responder,
        (command, (hash, shard)): (&Command<'_>, (KeyHash, usize)),
        form: ReplyForm,
        most: usize,
    ) {
        if self.is_for_here(responder, shard, command) {
            return self.execute_here(responder, (command, hash), form);
        }
        self.ask_owner(responder, (command, (hash, shard)), form, most);
    }

    pub(super) fn ask_owner(
        &mut self,
        responder: &mut Responder,
        (command, at): (&Command<'_>, (KeyHash, usize)),
        form: ReplyForm,
        most: usize,
    ) {
        let asked = [self.submit_search(responder, at, 0, command, most)];
        responder.wait(Waiting::all(form, asked));
    }

    /// Whether the thread's own shard may execute a command at once: it overtakes
    /// nothing that the connection has asked before.
    #[inline]
    pub(super) fn is_for_here(
        &mut self,
        responder: &Responder,
        shard: usize,
        command: &Command<'_>,
    ) -> bool {
        if shard != self.host.home() || !responder.is_quiet(shard) || !is_one_step(command) {
            return false;
        }
        // The rest of a long reply may be under way, though its first piece came.
        let token = self.token_of(responder, shard, 0);
        self.host.is_free(&token)
    }

    /// Executes a command in the thread's own shard. If there is no answer at once, because it is
    /// not durable or large, the connection waits for it.
    #[inline]
    fn execute_here(
        &mut self,
        responder: &mut Responder,
        (command, hash): (&Command<'_>, KeyHash),
        form: ReplyForm,
    ) {
        self.host.thread_counts().executed_here.add(1);
        let home = self.host.home();
        let token = self.token_of(responder, home, 0);
        let may_hold = responder.may_hold() && !form.is_long();
        let is_long = |reply: &Reply<'_>| {
            form.is_long() && !form.is_written_at_once(reply.value.map_or(0, <[u8]>::len))
        };
        let mut is_for_later = false;
        let is_answered = self.host.execute((command, hash), (token, may_hold), |here| {
            match here {
                Here::Reply(reply) if is_too_long(command, &reply) => {
                    is_for_later = true;
                    return false;
                }
                Here::Reply(reply) if is_long(&reply) => {
                    responder.wait(Waiting::answered(form, reply.into()));
                }
                Here::Reply(reply) => {
                    responder.reply_answer(form, ShardAnswer::from(&reply));
                    if reply.wait > 0 {
                        responder.hold(reply.wait);
                    }
                }
                Here::Held => return false,
                Here::Large => {
                    responder.expect_large();
                    return false;
                }
            }
            true
        });
        if is_for_later {
            let asked = self.submit(responder, (hash, home), 0, command);
            responder.wait(Waiting::all(form, [asked]));
        } else if is_answered != Some(true) {
            let asked = asked_of(command, hash, home, 0);
            responder.ask(asked, self.host.shards());
            responder.wait(Waiting::all(form, [asked]));
        }
    }

    /// Executes one of a request's commands in the thread's own shard. Returns its question, and
    /// the reply, unless that comes later, for this part of the request.
    fn execute_part_here(
        &mut self,
        responder: &mut Responder,
        (command, hash): (&Command<'_>, KeyHash),
        part: usize,
    ) -> (Question, Option<OwnedReply>) {
        self.host.thread_counts().executed_here.add(1);
        let home = self.host.home();
        let token = self.token_of(responder, home, part);
        let reply = self.host.execute((command, hash), (token, false), |here| match here {
            Here::Reply(reply) => Some(OwnedReply::from(reply)),
            Here::Held => None,
            Here::Large => {
                responder.expect_large();
                None
            }
        });
        let reply = reply.flatten();
        let asked = asked_of(command, hash, home, 0);
        if reply.is_none() {
            responder.ask(asked, self.host.shards());
        }
        (asked, reply)
    }

    /// The same command for every shard.
    pub(super) fn ask_all(
        &mut self,
        responder: &mut Responder,
        command: &Command<'_>,
        form: ReplyForm,
    ) {
        let shards = 0..self.host.shards();
        let asked: Vec<_> =
            shards.map(|shard| self.submit_keyless(responder, shard, shard, command)).collect();
        responder.wait(Waiting::all(form, asked));
    }

    /// Replies once every shard's changes are on the disk, and on those of so many replicas.
    pub(super) fn await_disks(
        &mut self,
        responder: &mut Responder,
        wants_disk: bool,
        (replicas, until_ms): (usize, u64),
    ) {
        if wants_disk && !self.host.keeps_data() {
            return responder.reply(|out, _| CommandError::NothingKept.write(out));
        }
        // Without a wish the reply says at once how it stands.
        let until_ms = if wants_disk || replicas > 0 { until_ms } else { 1 };
        let form = ReplyForm::Combined(&persistence::SYNCED);
        self.await_all(responder, (Wanted::Disks { replicas }, until_ms), form);
    }

    /// Replies once every shard's changes are where they are wanted, or at this time.
    pub(super) fn await_all(
        &mut self,
        responder: &mut Responder,
        (wanted, until_ms): (Wanted, u64),
        form: ReplyForm,
    ) {
        let mut asked = Vec::with_capacity(self.host.shards());
        for shard in 0..self.host.shards() {
            let token = self.token_of(responder, shard, shard);
            self.host.hand(shard, Job::new(Order::Await { wanted, until_ms }, token));
            let of_shard = Question { shard, what: What::Other, bytes: 0 };
            responder.ask(of_shard, self.host.shards());
            asked.push(of_shard);
        }
        responder.wait(Waiting::all(form, asked));
    }

    /// Each shard's pairs as one change.
    pub(super) fn multi_set(&mut self, responder: &mut Responder, pairs: keys::Pairs<'_>) {
        let mut lists: Vec<Vec<u8>> = vec![Vec::new(); self.host.shards()];
        for (key, value) in pairs {
            let (_, shard) = self.route(key);
            Pairs::push(&mut lists[shard], key, value);
        }
        let mut waiting = Waiting::all(ReplyForm::AllOk("mset"), []);
        for (shard, list) in lists.iter().enumerate() {
            let Some(pairs) = Pairs::parse(list).filter(|_| !list.is_empty()) else { continue };
            let (command, part) = (Command::MultiSet { pairs }, waiting.parts.len());
            let hash = KeyHash::without_key(self.database);
            let is_here =
                list.len() <= STREAM_BYTES && self.is_for_here(responder, shard, &command);
            let (asked, reply) = match is_here {
                true => self.execute_part_here(responder, (&command, hash), part),
                false => (self.submit_keyless(responder, shard, part, &command), None),
            };
            waiting.add(asked, reply);
        }
        responder.wait(waiting);
    }

    /// Names a part of the request that the connection will next wait for.
    pub(super) fn token_of(&self, responder: &Responder, shard: usize, part: usize) -> Token {
        responder.token(self.host.home(), shard, part)
    }

    /// Whether a command may fetch a large value, or make a small one large.
    fn may_be_large(&self, command: &Command<'_>, (hash, shard): (KeyHash, usize)) -> bool {
        if let Command::SetRange { offset, .. } = *command {
            return offset > STREAM_BYTES as u64;
        }
        if let Command::SetBit { offset, .. } = *command {
            return offset as usize / 8 > STREAM_BYTES;
        }
        command.brings_value()
            && command.key().is_some()
            && self.tables[shard].may_hold_class(self.host.memory(shard), hash, STREAM_CLASS)
    }

    /// Sends a job without a key for the request that the connection will next wait for.
    pub(super) fn submit_keyless(
        &mut self,
        responder: &mut Responder,
        shard: usize,
        part: usize,
        command: &Command<'_>,
    ) -> Question {
        debug_assert!(command.key().is_none(), "a key has a hash, which the caller knows");
        self.submit(responder, (KeyHash(0), shard), part, command)
    }

    /// The same for a key with this hash.
    pub(super) fn submit(
        &mut self,
        responder: &mut Responder,
        at: (KeyHash, usize),
        part: usize,
        command: &Command<'_>,
    ) -> Question {
        self.submit_search(responder, at, part, command, usize::MAX)
    }

    /// The same; a search returns at most this many objects.
    fn submit_search(
        &mut self,
        responder: &mut Responder,
        (hash, shard): (KeyHash, usize),
        part: usize,
        command: &Command<'_>,
        most_objects: usize,
    ) -> Question {
        let mut bytes = Vec::with_capacity(COMMAND_BYTES);
        command.encode_within(self.database, 0, &mut bytes);
        if bytes.len() > STREAM_BYTES || self.may_be_large(command, (hash, shard)) {
            responder.expect_large();
        }
        let token = self.token_of(responder, shard, part);
        let of_key = command.key().map(|_| hash);
        let asked = asked_of(command, hash, shard, bytes.len());
        self.host.hand(shard, Job { most_objects, hash: of_key, ..Job::execute(bytes, token) });
        responder.ask(asked, self.host.shards());
        asked
    }
}

fn asked_of(command: &Command<'_>, hash: KeyHash, shard: usize, bytes: usize) -> Question {
    let what = match command.key() {
        _ if command.is_write() => What::Write,
        Some(_) => What::Read(group(hash)),
        None => What::Other,
    };
    Question { shard, what, bytes }
}
