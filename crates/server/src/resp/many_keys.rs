//! Requests that do the same with each of many keys: MGET, DEL, EXISTS, TOUCH and
//! DEBUG DIGEST-VALUE; and RTREE.REM, with many objects of one tree, of which holds what
//! is said of keys.
//!
//! Keys of the thread's own shard are executed in place, reads of other shards' keys
//! are tried in their memory. What is left goes as one job to each shard, which comes
//! back once. A request of more than [`RESP_KEYS_PER_TURN`] keys takes several turns.
//! What it keeps true: a turn takes no more keys than that; each answer stands in the
//! reply where its key stands in the request; a key that is asked for is not overtaken
//! by a later one of the same shard that is executed or read at once; a connection sees
//! its own writes.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use super::read::Read;
use super::unanswered::{Asked, What, group};
use crate::jobs::{Job, Order, OwnedReply};
use crate::key_batch::{Each, KeyBatch, KeyCommand, KeyReplies, REPLY_HEAD_BYTES, WantedBytes};
use crate::large_jobs::Here;
use remora_engine::STREAM_CLASS;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{
    MAX_SHARDS, RESP_KEYS_PER_TURN, RESP_MAX_REPLY_BYTES, RESP_REQUESTS_AHEAD, STREAM_BYTES,
};
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};
use remora_resp::ReplyForm;
use remora_resp::form::Part;
use remora_resp::keys::Keys;
use remora_resp::wire::{Args, Protocol};

/// Memory for what keys were answered at once that is kept between requests.
const KEEP_REPLY_BYTES: usize = 256 << 10;

/// Answers, and which keys of the request they are of.
#[derive(Default)]
pub struct Answers {
    replies: KeyReplies,
    positions: Vec<u32>,
}

/// Keys that a shard is asked for together.
struct Group {
    shard: usize,
    /// Where each stands in the request, and what it asks.
    keys: Vec<(u32, What)>,
    reply: Option<OwnedReply>,
    /// The reply is a list with an answer for each key, and not the only key's answer.
    is_list: bool,
    /// Bytes of the job.
    job_bytes: usize,
}

/// A request that waits for some of its keys.
pub struct ManyKeys {
    each: Each,
    render: ReplyForm,
    keys: usize,
    /// Keys at the end of the request that no turn has taken yet.
    left: usize,
    /// Of the keys that were not asked for.
    answers: Answers,
    /// By the part of the request that they are.
    groups: Vec<Group>,
    missing: usize,
    /// While there are jobs; with it their reads end.
    wanted: Option<WantedBytes>,
    /// Bytes of the values that are there.
    value_bytes: usize,
    /// Bytes of the jobs that are not answered.
    job_bytes: usize,
    /// The values are more than a reply may have: nothing more is read.
    is_too_large: bool,
    /// It is counted among the commands that the own shard has executed.
    is_counted: bool,
}

impl ManyKeys {
    /// No key is taken yet.
    fn new(each: Each, render: ReplyForm, keys: usize, answers: Answers) -> Self {
        Self {
            each,
            render,
            keys,
            left: keys,
            answers,
            groups: Vec::new(),
            missing: 0,
            wanted: None,
            value_bytes: 0,
            job_bytes: 0,
            is_too_large: false,
            is_counted: false,
        }
    }

    /// Whether every answer is there.
    pub const fn is_complete(&self) -> bool {
        self.missing == 0 && self.left == 0
    }

    /// Whether a further turn is to take keys of it.
    pub const fn has_left(&self) -> bool {
        self.left > 0
    }

    /// How many keys.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Bytes of the values that are there.
    pub const fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of the jobs that are not answered.
    pub const fn job_bytes(&self) -> usize {
        self.job_bytes
    }

    /// Takes a shard's reply to a part, and gives what it answers to `answered`.
    pub fn take(&mut self, part: usize, reply: OwnedReply, answered: impl FnMut(Asked)) {
        let group = &mut self.groups[part];
        let shard = group.shard;
        group.keys.iter().map(|&(_, what)| Asked { shard, what, bytes: 0 }).for_each(answered);
        self.missing -= 1;
        self.job_bytes -= group.job_bytes;
        let heads = if group.is_list { group.keys.len() * REPLY_HEAD_BYTES } else { 0 };
        let bytes = reply.value.as_ref().map_or(0, |value| value.len() - heads);
        if reply.status == Status::TooLarge || self.value_bytes + bytes > RESP_MAX_REPLY_BYTES {
            self.is_too_large = true;
        } else {
            self.value_bytes += bytes;
            group.reply = Some(reply);
        }
    }

    /// Appends the reply to the request.
    pub fn write(&self, out: &mut Vec<u8>, protocol: Protocol) {
        if self.is_too_large {
            let part = [Part::from(&Reply::status(Status::TooLarge))];
            return self.render.write(out, protocol, &part);
        }
        let mut parts = vec![Part::from(&Reply::status(Status::Ok)); self.keys];
        let Answers { replies, positions } = &self.answers;
        for (&position, answer) in positions.iter().zip(replies.iter()) {
            parts[position as usize] = Part::from(answer);
        }
        let lists = self.groups.iter().filter_map(|group| Some((group, group.reply.as_ref()?)));
        for (group, reply) in lists {
            if !group.is_list {
                parts[group.keys[0].0 as usize] = Part::from(reply);
                continue;
            }
            let list = reply.value.as_deref().unwrap_or_default();
            for (&(position, _), answer) in group.keys.iter().zip(KeyReplies::each(list)) {
                parts[position as usize] = Part::from(answer);
            }
        }
        self.render.write(out, protocol, &parts);
    }
}

/// What a turn does with a request's keys, one after the other.
struct Request {
    many: ManyKeys,
    /// Each job, and the part that it is.
    jobs: Vec<(usize, Box<KeyBatch>)>,
    /// Which of the jobs is a shard's; [`NONE`] without one.
    job_of: [u8; MAX_SHARDS],
    /// Whether the own shard may execute what is next; unknown at first.
    may_here: Option<bool>,
}

const NONE: u8 = u8::MAX;

impl<H: Host> Executor<H> {
    /// One command for each key, whose numbers are added up; most requests name one.
    pub(super) fn change_each(
        &mut self,
        connection: &mut Connection,
        keys: Keys<'_>,
        of: KeyCommand,
    ) {
        match (keys.len(), keys.clone().next()) {
            (1, Some(key)) => self.key_command(connection, &of(key), ReplyForm::Sum),
            _ => self.each_key(connection, keys, of, ReplyForm::Sum),
        }
    }

    /// One command for each key.
    pub(super) fn each_key(
        &mut self,
        connection: &mut Connection,
        keys: Keys<'_>,
        of: KeyCommand,
        render: ReplyForm,
    ) {
        self.each(connection, keys, Each::Key(of), render);
    }

    /// The same with each.
    pub(super) fn each(
        &mut self,
        connection: &mut Connection,
        mut keys: Keys<'_>,
        each: Each,
        render: ReplyForm,
    ) {
        let mut answers = std::mem::take(&mut self.answers);
        answers.replies.clear();
        answers.positions.clear();
        let many = ManyKeys::new(each, render, keys.len(), answers);
        let many = self.take_keys(connection, many, &mut keys);
        if !many.is_complete() {
            return connection.wait_for_keys(many);
        }
        connection.reply(|out, protocol| many.write(out, protocol));
        if many.answers.replies.capacity() <= KEEP_REPLY_BYTES {
            self.answers = many.answers;
        }
    }

    /// A further turn of a request that has some left ([`ManyKeys::has_left`]): its
    /// arguments, of which its keys are the last ones, and its bytes.
    pub(super) fn go_on_with_keys(
        &mut self,
        connection: &mut Connection,
        many: ManyKeys,
        (args, bytes): (&Args, &[u8]),
    ) {
        self.now_ms = self.host.now().unix_ms;
        self.database = connection.database;
        let mut keys = (args.len() - many.left..args.len()).map(|at| args.get(at, bytes));
        let many = self.take_keys(connection, many, &mut keys);
        // It has a number among those that wait, also if nothing is missing now.
        connection.wait_for_keys(many);
    }

    /// One turn of a request: takes as many of the keys that are left as it may.
    fn take_keys<'a>(
        &mut self,
        connection: &mut Connection,
        many: ManyKeys,
        keys: &mut impl Iterator<Item = &'a [u8]>,
    ) -> ManyKeys {
        let (jobs, job_of) = (Vec::new(), [NONE; MAX_SHARDS]);
        let each = many.each.clone();
        let place_of_all = match &each {
            Each::Key(_) => None,
            Each::Part(key, _) => Some(self.route(key)),
        };
        let mut request = Request { many, jobs, job_of, may_here: None };
        let mut most = RESP_KEYS_PER_TURN;
        let mut some = [(&[][..], (KeyHash(0), 0)); RESP_REQUESTS_AHEAD];
        while most > 0 && request.many.left > 0 && !request.many.is_too_large {
            let mut places = [(KeyHash(0), 0); RESP_REQUESTS_AHEAD];
            let mut count = 0;
            for key in keys.take(RESP_REQUESTS_AHEAD.min(most).min(request.many.left)) {
                places[count] = place_of_all.unwrap_or_else(|| self.route(key));
                some[count] = (key, places[count]);
                count += 1;
            }
            self.fetch_each(&places[..count]);
            let first = request.many.keys - request.many.left;
            for (at, &(key, place)) in some[..count].iter().enumerate() {
                let command = each.command(key);
                let key = (key, place, (first + at) as u32);
                self.one_of_many(connection, &mut request, &command, key);
            }
            request.many.left -= count;
            // What is handed out takes no longer for a part of an object.
            let cost = if request.may_here == Some(true) { each.cost() } else { 1 };
            most = most.saturating_sub(count * cost);
        }
        if request.many.is_too_large {
            request.many.left = 0;
        }
        self.hand_out(connection, request)
    }

    /// One key: executed here, read where that concludes, or added to its shard's job.
    fn one_of_many(
        &mut self,
        connection: &mut Connection,
        request: &mut Request,
        command: &Command<'_>,
        (key, (hash, shard), position): (&[u8], (KeyHash, usize), u32),
    ) {
        let is_home = shard == self.host.home();
        if is_home {
            let may = request.may_here;
            let may = may.unwrap_or_else(|| self.is_for_here(connection, shard, command));
            request.may_here = Some(may);
            if may {
                return self.execute_one_here(connection, request, (command, hash), position);
            }
        } else if matches!(command, Command::Get { .. } | Command::Exists { .. })
            && let Read::Found { from, to, .. } = self.read(connection, key, (hash, shard))
        {
            let wants_value = matches!(command, Command::Get { .. });
            self.host.counts().hits.add(wants_value.into());
            let value = wants_value.then(|| &self.record[from..to]);
            return request.answer(position, (Status::Ok, 1, value));
        }
        if is_home {
            // Nothing overtakes what the own shard is asked.
            request.may_here = Some(false);
        }
        if matches!(command, Command::Get { .. })
            && self.tables[shard].may_hold_class(self.host.memory(shard), hash, STREAM_CLASS)
        {
            connection.expect_large();
        }
        let what = if command.is_write() { What::Write } else { What::Read(group(hash)) };
        let (part, job) = request.job(shard);
        let part = *part;
        job.push(key, hash);
        request.many.groups[part].keys.push((position, what));
        connection.ask(Asked { shard, what, bytes: 0 }, self.host.shards());
    }

    /// Executes one key's command in the thread's own shard.
    fn execute_one_here(
        &mut self,
        connection: &mut Connection,
        request: &mut Request,
        (command, hash): (&Command<'_>, KeyHash),
        position: u32,
    ) {
        self.host.counts().keys_here.add(1);
        if !std::mem::replace(&mut request.many.is_counted, true) {
            self.host.counts().executed_here.add(1);
        }
        let home = self.host.home();
        let token = self.token_of(connection, home, request.many.groups.len());
        let is_answered = self.host.with_own(|shard, jobs, now| {
            match jobs.execute_here(shard, (command, hash), token, now) {
                Here::Reply(Reply { status, number, value, .. }) => {
                    request.answer(position, (status, number, value));
                    return true;
                }
                Here::Held => {}
                Here::Large => connection.expect_large(),
            }
            false
        });
        if is_answered == Some(true) {
            return;
        }
        request.may_here = Some(false);
        let what = if command.is_write() { What::Write } else { What::Read(group(hash)) };
        request.ask(Group {
            shard: home,
            keys: vec![(position, what)],
            reply: None,
            is_list: false,
            job_bytes: 0,
        });
        connection.ask(Asked { shard: home, what, bytes: 0 }, self.host.shards());
    }

    /// Hands out a turn's jobs.
    fn hand_out(&mut self, connection: &mut Connection, request: Request) -> ManyKeys {
        let Request { mut many, jobs, .. } = request;
        for (part, batch) in jobs {
            let (group, bytes) = (&mut many.groups[part], batch.bytes());
            group.job_bytes = bytes;
            many.job_bytes += bytes;
            if bytes > STREAM_BYTES {
                connection.expect_large();
            }
            let shard = group.shard;
            let token = self.token_of(connection, shard, part);
            let order = Order::ExecuteEach(batch);
            self.host.hand(shard, Job { order, token, most_objects: usize::MAX, hash: None });
        }
        if many.has_left() {
            // Nothing behind it is executed or read before it is answered.
            connection.expect_large();
        }
        many
    }
}

impl Request {
    /// A key's answer is there.
    fn answer(&mut self, position: u32, (status, number, value): (Status, i64, Option<&[u8]>)) {
        let Answers { replies, positions } = &mut self.many.answers;
        self.many.value_bytes += replies.push(status, number, value);
        positions.push(position);
        self.many.is_too_large |= self.many.value_bytes > RESP_MAX_REPLY_BYTES;
    }

    /// Something is asked of a shard.
    fn ask(&mut self, group: Group) {
        self.many.groups.push(group);
        self.many.missing += 1;
    }

    /// The job of a shard, and the part that it is.
    fn job(&mut self, shard: usize) -> &mut (usize, Box<KeyBatch>) {
        if self.job_of[shard] == NONE {
            self.job_of[shard] = self.jobs.len() as u8;
            let found = self.many.wanted.get_or_insert_default().found();
            let part = self.many.groups.len();
            self.jobs.push((part, Box::new(KeyBatch::new(self.many.each.clone(), found))));
            let keys = Vec::new();
            self.ask(Group { shard, keys, reply: None, is_list: true, job_bytes: 0 });
        }
        &mut self.jobs[self.job_of[shard] as usize]
    }
}

#[cfg(test)]
mod tests;
