//! Requests that do the same with each of many keys: MGET, DEL, EXISTS, TOUCH and DEBUG
//! DIGEST-VALUE; and RTREE.REM, with many objects of one tree, to which the same rules apply as to
//! keys.
//!
//! The thread executes keys of its own shard in place, and tries to read other shards' keys from
//! their memory. The rest goes as one job to each shard, which comes back once. A request of more
//! than [`CONNECTION_KEYS_PER_TURN`] keys takes several turns. Invariant: a turn takes no more keys
//! than that; each answer is in the reply where its key is in the request; after a key is asked
//! for, no later key of the same shard is executed or read before it; a connection sees its own
//! writes.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::read::Read;
use remora_engine::STREAM_CLASS;
use remora_frontend::{Each, Here, Jobs, KeyCommand, ManyKeys, Question, What, group};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CONNECTION_KEYS_PER_TURN, CONNECTION_REQUESTS_AHEAD, STREAM_BYTES};
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};
use remora_resp::ReplyForm;
use remora_resp::keys::Keys;
use remora_resp::wire::Args;

/// The state of a turn over a request's keys, one after the other.
struct Request {
    many: ManyKeys<ReplyForm>,
    /// The questions to other shards.
    jobs: Jobs,
    /// Whether the own shard may execute the next key; unknown at first.
    may_here: Option<bool>,
}

impl<H: Host> RespExecutor<H> {
    /// One command for each key, whose numbers are added up; most requests name one key.
    pub(super) fn change_each(
        &mut self,
        responder: &mut Responder,
        keys: Keys<'_>,
        of: KeyCommand,
    ) {
        match (keys.len(), keys.clone().next()) {
            (1, Some(key)) => self.key_command(responder, &of(key), ReplyForm::Sum),
            _ => self.each_key(responder, keys, of, ReplyForm::Sum),
        }
    }

    /// One command for each key.
    pub(super) fn each_key(
        &mut self,
        responder: &mut Responder,
        keys: Keys<'_>,
        of: KeyCommand,
        form: ReplyForm,
    ) {
        self.each(responder, keys, Each::Key(of), form);
    }

    /// The same with each.
    pub(super) fn each(
        &mut self,
        responder: &mut Responder,
        mut keys: Keys<'_>,
        each: Each,
        form: ReplyForm,
    ) {
        let answers = std::mem::take(&mut self.answers);
        let many = ManyKeys::new(each, form, keys.len(), answers);
        let many = self.take_keys(responder, many, &mut keys);
        if !many.is_complete() {
            return responder.wait_for_keys(many);
        }
        responder.reply(|out, version| many.write(out, version));
        self.answers = many.into_answers();
    }

    /// A further turn of a request that has keys left ([`ManyKeys::has_left`]): its arguments, of
    /// which its keys are the last ones, and its bytes.
    pub(super) fn take_more_keys(
        &mut self,
        responder: &mut Responder,
        many: ManyKeys<ReplyForm>,
        (args, bytes): (&Args, &[u8]),
    ) {
        self.begin(responder.database);
        let mut keys = (args.len() - many.left()..args.len()).map(|at| args.get(at, bytes));
        let many = self.take_keys(responder, many, &mut keys);
        // It has a number among those that wait, also if nothing is missing now.
        responder.wait_for_keys(many);
    }

    /// One turn of a request: takes as many of the keys that are left as it may.
    fn take_keys<'a>(
        &mut self,
        responder: &mut Responder,
        many: ManyKeys<ReplyForm>,
        keys: &mut impl Iterator<Item = &'a [u8]>,
    ) -> ManyKeys<ReplyForm> {
        let each = many.each().clone();
        let place_of_all = match &each {
            Each::Key(_) | Each::PartOf(..) => None,
            Each::Part(key, _) => Some(self.route(key)),
        };
        let mut request = Request { many, jobs: Jobs::default(), may_here: None };
        let mut most = CONNECTION_KEYS_PER_TURN;
        let mut some = [(&[][..], (KeyHash(0), 0)); CONNECTION_REQUESTS_AHEAD];
        while most > 0 && request.many.has_left() && !request.many.is_too_large() {
            let mut places = [(KeyHash(0), 0); CONNECTION_REQUESTS_AHEAD];
            let mut count = 0;
            for key in keys.take(CONNECTION_REQUESTS_AHEAD.min(most).min(request.many.left())) {
                places[count] = place_of_all.unwrap_or_else(|| self.route(key));
                some[count] = (key, places[count]);
                count += 1;
            }
            self.fetch(&places[..count]);
            let first = request.many.keys() - request.many.left();
            for (at, &(key, place)) in some[..count].iter().enumerate() {
                let command = each.command(key);
                let key = (key, place, (first + at) as u32);
                self.one_of_many(responder, &mut request, &command, key);
            }
            request.many.took(count);
            // Handing a key out costs the same for a part of an object.
            let cost = if request.may_here == Some(true) { each.cost() } else { 1 };
            most = most.saturating_sub(count * cost);
        }
        request.many.took(0);
        self.hand_out(responder, request)
    }

    /// One key: executed here, read where that concludes, or added to its shard's job.
    fn one_of_many(
        &mut self,
        responder: &mut Responder,
        request: &mut Request,
        command: &Command<'_>,
        (key, (hash, shard), position): (&[u8], (KeyHash, usize), u32),
    ) {
        let is_home = shard == self.host.home();
        if is_home {
            let may = request.may_here;
            let may = may.unwrap_or_else(|| self.is_for_here(responder, shard, command));
            request.may_here = Some(may);
            if may {
                return self.execute_one_here(responder, request, (command, hash), position);
            }
        } else if matches!(command, Command::Get { .. } | Command::Exists { .. })
            && let Read::Found { from, to, .. } = self.read(responder, key, (hash, shard))
        {
            let wants_value = matches!(command, Command::Get { .. });
            self.host.thread_counts().hits.add(wants_value.into());
            let value = wants_value.then(|| &self.record[from..to]);
            return request.many.answer(position, (Status::Ok, 1, value));
        }
        if is_home {
            // Nothing overtakes a question to the own shard.
            request.may_here = Some(false);
        }
        if matches!(command, Command::Get { .. })
            && self.tables[shard].may_hold_class(self.host.memory(shard), hash, STREAM_CLASS)
        {
            responder.expect_large();
        }
        let what = if command.is_write() { What::Write } else { What::Read(group(hash)) };
        request.many.add(&mut request.jobs, (key, hash, shard), (position, what));
        responder.ask(Question { shard, what, bytes: 0 }, self.host.shards());
    }

    /// Executes one key's command in the thread's own shard.
    fn execute_one_here(
        &mut self,
        responder: &mut Responder,
        request: &mut Request,
        (command, hash): (&Command<'_>, KeyHash),
        position: u32,
    ) {
        self.host.thread_counts().keys_here.add(1);
        if request.many.count_once() {
            self.host.thread_counts().executed_here.add(1);
        }
        let home = self.host.home();
        let token = self.token_of(responder, home, request.many.next_part());
        let is_answered = self.host.execute((command, hash), (token, false), |here| {
            match here {
                Here::Reply(Reply { status, number, value, .. }) => {
                    request.many.answer(position, (status, number, value));
                    return true;
                }
                Here::Held => {}
                Here::Large => responder.expect_large(),
            }
            false
        });
        if is_answered == Some(true) {
            return;
        }
        request.may_here = Some(false);
        let what = if command.is_write() { What::Write } else { What::Read(group(hash)) };
        request.many.wait_for_one(home, position, what);
        responder.ask(Question { shard: home, what, bytes: 0 }, self.host.shards());
    }

    /// Hands out a turn's jobs.
    fn hand_out(&mut self, responder: &mut Responder, request: Request) -> ManyKeys<ReplyForm> {
        let Request { mut many, jobs, .. } = request;
        let (home, host) = (self.host.home(), &mut self.host);
        let mut is_large = false;
        let token = |shard, part| responder.token(home, shard, part);
        many.hand_out(jobs, token, |job, bytes| {
            is_large |= bytes > STREAM_BYTES;
            host.hand(job.token.shard, job);
        });
        // If keys are left, no later request is executed or read before they are answered.
        if is_large || many.has_left() {
            responder.expect_large();
        }
        many
    }
}

#[cfg(test)]
mod tests;
