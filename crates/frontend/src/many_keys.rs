//! A request that does the same with each of many keys: the answers, the questions in flight, and
//! the keys that no turn has taken yet.
//!
//! Invariant: each answer is in the reply where its key is in the request. Once the values exceed
//! the maximum size of a reply, no more of them are kept.

use crate::in_flight::{Question, What};
use crate::job::{Job, Order, OwnedReply, Token};
use crate::key_batch::{Each, KeyBatch, KeyReplies, REPLY_HEAD_BYTES, WantedBytes};
use crate::protocol::{ReplyForm, ShardAnswer};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_REPLY_BYTES, MAX_SHARDS};
use remora_protocol::Reply;
use remora_protocol::message::Status;

/// Memory for immediate answers that is kept between requests.
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
    /// The position of each in the request, and its question.
    keys: Vec<(u32, What)>,
    reply: Option<OwnedReply>,
    /// The reply is a list with an answer for each key, and not the only key's answer.
    is_list: bool,
    /// Bytes of the job.
    job_bytes: usize,
}

/// The jobs of one turn of a request, by shard.
pub struct Jobs {
    /// Each job, and the part of the request that it is.
    jobs: Vec<(usize, Box<KeyBatch>)>,
    /// The index of each shard's job; [`NONE`] without one.
    job_of: [u8; MAX_SHARDS],
}

const NONE: u8 = u8::MAX;
const _: () = assert!(MAX_SHARDS <= NONE as usize);

impl Default for Jobs {
    fn default() -> Self {
        Self { jobs: Vec::new(), job_of: [NONE; MAX_SHARDS] }
    }
}

/// See the module's text.
pub struct ManyKeys<F> {
    each: Each,
    form: F,
    keys: usize,
    /// Keys at the end of the request that no turn has taken yet.
    left: usize,
    /// The answers for keys that were not asked for.
    answers: Answers,
    /// By the part of the request that they are.
    groups: Vec<Group>,
    missing: usize,
    /// While there are jobs; with it their reads end.
    wanted: Option<WantedBytes>,
    /// Bytes of the present values.
    value_bytes: usize,
    /// Bytes of the jobs that are not answered.
    job_bytes: usize,
    /// The values are more than a reply may have: nothing more is read.
    is_too_large: bool,
    /// It is counted among the commands that the own shard has executed.
    is_counted: bool,
}

impl<F: ReplyForm> ManyKeys<F> {
    /// A request of `keys` keys, none taken yet. Reuses the memory of `answers`.
    pub fn new(each: Each, form: F, keys: usize, mut answers: Answers) -> Self {
        answers.replies.clear();
        answers.positions.clear();
        Self {
            each,
            form,
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

    /// The operation on each key.
    pub const fn each(&self) -> &Each {
        &self.each
    }

    /// Whether every answer has arrived.
    pub const fn is_complete(&self) -> bool {
        self.missing == 0 && self.left == 0
    }

    /// Whether a further turn is to take keys of it.
    pub const fn has_left(&self) -> bool {
        self.left > 0
    }

    /// Keys that no turn has taken yet: the last ones of the request.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// How many keys.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Bytes of the present values.
    pub const fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of the jobs that are not answered.
    pub const fn job_bytes(&self) -> usize {
        self.job_bytes
    }

    /// Whether the values are more than a reply may have.
    pub const fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// The part of the request that is asked next.
    pub const fn next_part(&self) -> usize {
        self.groups.len()
    }

    /// True on the first call only: a request counts once as executed by the own shard.
    pub const fn count_once(&mut self) -> bool {
        !std::mem::replace(&mut self.is_counted, true)
    }

    /// Notes that a turn took `keys` keys. If the reply is too large, the rest is skipped.
    pub const fn took(&mut self, keys: usize) {
        self.left = if self.is_too_large { 0 } else { self.left - keys };
    }

    /// A key's answer has arrived.
    pub fn answer(&mut self, position: u32, (status, number, value): (Status, i64, Option<&[u8]>)) {
        let Answers { replies, positions } = &mut self.answers;
        self.value_bytes += replies.push(status, number, value);
        positions.push(position);
        self.is_too_large |= self.value_bytes > MAX_REPLY_BYTES;
    }

    /// A key's answer comes later, by itself.
    pub fn wait_for_one(&mut self, shard: usize, position: u32, what: What) {
        let keys = vec![(position, what)];
        self.ask(Group { shard, keys, reply: None, is_list: false, job_bytes: 0 });
    }

    /// A key is asked of its shard, with others of this turn.
    pub fn add(
        &mut self,
        jobs: &mut Jobs,
        (key, hash, shard): (&[u8], KeyHash, usize),
        (position, what): (u32, What),
    ) {
        if jobs.job_of[shard] == NONE {
            jobs.job_of[shard] = jobs.jobs.len() as u8;
            let found = self.wanted.get_or_insert_default().found();
            let part = self.groups.len();
            jobs.jobs.push((part, Box::new(KeyBatch::new(self.each.clone(), found))));
            self.ask(Group { shard, keys: Vec::new(), reply: None, is_list: true, job_bytes: 0 });
        }
        let (part, batch) = &mut jobs.jobs[jobs.job_of[shard] as usize];
        batch.push(key, hash);
        self.groups[*part].keys.push((position, what));
    }

    /// Something is asked of a shard.
    fn ask(&mut self, group: Group) {
        self.groups.push(group);
        self.missing += 1;
    }

    /// Hands out a turn's jobs: part and shard of the request name a job's token.
    pub fn hand_out(
        &mut self,
        jobs: Jobs,
        token: impl Fn(usize, usize) -> Token,
        mut hand: impl FnMut(Job, usize),
    ) {
        for (part, batch) in jobs.jobs {
            let (group, bytes) = (&mut self.groups[part], batch.bytes());
            group.job_bytes = bytes;
            self.job_bytes += bytes;
            hand(Job::new(Order::ExecuteEach(batch), token(group.shard, part)), bytes);
        }
    }

    /// Takes a shard's reply to a part, and passes its answers to `answered`.
    pub fn take(&mut self, part: usize, reply: OwnedReply, answered: impl FnMut(Question)) {
        let group = &mut self.groups[part];
        let shard = group.shard;
        group.keys.iter().map(|&(_, what)| Question { shard, what, bytes: 0 }).for_each(answered);
        self.missing -= 1;
        self.job_bytes -= group.job_bytes;
        let heads = if group.is_list { group.keys.len() * REPLY_HEAD_BYTES } else { 0 };
        let bytes = reply.value.as_ref().map_or(0, |value| value.len() - heads);
        if reply.status == Status::TooLarge || self.value_bytes + bytes > MAX_REPLY_BYTES {
            self.is_too_large = true;
        } else {
            self.value_bytes += bytes;
            group.reply = Some(reply);
        }
    }

    /// Appends the reply to the request.
    pub fn write(&self, out: &mut Vec<u8>, dialect: F::Dialect) {
        if self.is_too_large {
            let answer = [ShardAnswer::from(&Reply::status(Status::TooLarge))];
            return self.form.write(out, dialect, &answer);
        }
        let mut answers = vec![ShardAnswer::from(&Reply::status(Status::Ok)); self.keys];
        let Answers { replies, positions } = &self.answers;
        for (&position, answer) in positions.iter().zip(replies.iter()) {
            answers[position as usize] = ShardAnswer::from(answer);
        }
        let lists = self.groups.iter().filter_map(|group| Some((group, group.reply.as_ref()?)));
        for (group, reply) in lists {
            if !group.is_list {
                answers[group.keys[0].0 as usize] = ShardAnswer::from(reply);
                continue;
            }
            let list = reply.value.as_deref().unwrap_or_default();
            for (&(position, _), answer) in group.keys.iter().zip(KeyReplies::each(list)) {
                answers[position as usize] = ShardAnswer::from(answer);
            }
        }
        self.form.write(out, dialect, &answers);
    }

    /// The memory of its answers, to be used again, unless that is much.
    pub fn into_answers(self) -> Answers {
        let is_small = self.answers.replies.capacity() <= KEEP_REPLY_BYTES;
        if is_small { self.answers } else { Answers::default() }
    }
}
