//! A shard's looks at what a plan's run wants: in bounded pieces, as every long job.
//!
//! Invariant: the answer about an item or a part of a list is of one moment; a turn does no more work than
//! [`PLAN_TURN_WORK`] and one want.

use super::answers::{What, push};
use super::seeking::{self, Seeking};
use remora_arena::Journal;
use remora_engine::{Area, Download, LongRead, Met, Now, Outcome, Seek, Shard, Sought};
use remora_frontend::{OwnedReply, PlanLook};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_NEAREST, PLAN_TURN_WORK, STREAM_PIECE_BYTES};
use remora_plan::{self as plan, Bytes, Fields, Want};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::hash::{HashCommand, Told};
use remora_protocol::list::ListCommand;
use remora_protocol::message::Status;
use remora_protocol::ordered::OrderedRange;
use remora_protocol::{Command, Items, Reply, Request};

/// Bytes of answers after which the rest is asked for again.
const ANSWER_BYTES: usize = 1 << 20;
/// Work of a look that is small enough to be done at once.
const SMALL_WORK: usize = 64;

/// A look that is under way.
pub struct LookWork {
    look: PlanLook,
    /// Wants that are answered.
    done: usize,
    answers: Vec<u8>,
    /// The sequence that the reply waits for.
    wait: u64,
    doing: Option<Doing>,
}

/// The rest of one want.
enum Doing {
    Read(Box<Reading>),
    Text { download: Download, text: Vec<u8> },
    Seek(Box<Seeking>),
    Fields(Box<OfObjects>),
}

/// A long read.
struct Reading {
    read: LongRead,
    found: Vec<u8>,
    of: Of,
}

/// What a long read is of.
#[derive(Clone, Copy)]
enum Of {
    Named,
    All,
    /// A list of so many elements.
    List(u64),
}

/// Objects that were found, whose fields are looked up.
struct OfObjects {
    ids: Vec<Box<[u8]>>,
    at: usize,
    next: u64,
    items: Vec<u8>,
    /// It knows whether they have fields.
    seek: Box<dyn Seek>,
}

/// How far a want is.
enum Step {
    /// Answered.
    Done,
    /// It goes on in this turn.
    On(Doing),
    /// It goes on in the next turn.
    Later(Doing),
}

impl LookWork {
    /// Nothing is looked at yet.
    pub fn new(look: PlanLook) -> Self {
        Self { look, done: 0, answers: Vec::new(), wait: 0, doing: None }
    }

    /// Whether it may be done at once.
    pub fn is_small(&self) -> bool {
        let work = |(_, want): &(KeyHash, Want)| match want {
            Want::Item { .. } => 1,
            Want::List { count, .. } | Want::Entries { count, .. } => *count as usize,
            Want::Objects { .. } | Want::Documents { .. } => SMALL_WORK,
        };
        self.look.wants.iter().map(work).sum::<usize>() <= SMALL_WORK
    }

    /// Bytes of the answers so far.
    pub const fn found_bytes(&self) -> usize {
        self.answers.len()
    }

    /// Looks at some of it. The reply and the sequence that it waits for, once it is to be sent.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
    ) -> Option<(OwnedReply, u64)> {
        let mut work = 0;
        while self.done < self.look.wants.len() && self.answers.len() < ANSWER_BYTES {
            if work >= PLAN_TURN_WORK {
                return None;
            }
            let before = self.answers.len();
            let step = match self.doing.take() {
                Some(doing) => self.go_on(shard, doing, now),
                None => self.begin(shard, now),
            };
            match step {
                Err(status) => return Some((OwnedReply::status(status), self.wait)),
                Ok(Step::On(doing)) => self.doing = Some(doing),
                Ok(Step::Later(doing)) => {
                    self.doing = Some(doing);
                    return None;
                }
                Ok(Step::Done) => self.done += 1,
            }
            // An element or object has some bytes at least.
            work += 1 + (self.answers.len() - before) / 16;
        }
        let value = Some(std::mem::take(&mut self.answers));
        Some((OwnedReply { value, ..OwnedReply::status(Status::Ok) }, self.wait))
    }

    fn begin<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) -> Result<Step, Status> {
        let (hash, want) = self.look.wants[self.done].clone();
        match &want {
            Want::Item { place, fields } => self.item(shard, (&place.key, hash), fields, now),
            Want::List { place, from, count } => {
                self.list(shard, (&place.key, hash), (*from, *count), now)
            }
            Want::Objects { tree, area, count, next, .. } => {
                let skip = next.as_ref().and_then(|next| (**next).try_into().ok());
                let skip = skip.map_or(0, u64::from_le_bytes) as usize;
                let area = match *area {
                    plan::Area::Window(window) => Area::Window(window),
                    plan::Area::Nearest(x, y) => Area::Nearest(x, y),
                };
                let sought = Sought::Objects { area, skip, count: *count as usize };
                self.seek(shard, (tree, hash), &sought, now)
            }
            Want::Documents { place, filter, count, next } => {
                let (at, count) = (next.as_deref().unwrap_or_default(), *count);
                let rows = CollectionCommand::Rows { filter, at, count };
                self.documents(shard, (&place.key, hash), rows, now)
            }
            Want::Entries { place, range, count } => {
                let from = range.from.as_ref().map(|key| &**key);
                let bounds = OrderedRange { from, to: range.to.as_ref().map(|key| &**key) };
                let (is_reverse, count) = (range.is_reverse, *count as usize);
                let sought = Sought::Entries { range: bounds, is_reverse, count };
                self.seek(shard, (&place.key, hash), &sought, now)
            }
        }
    }

    /// Documents of a collection: one step of a search.
    fn documents<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (key, hash): (&Bytes, KeyHash),
        rows: CollectionCommand<'_>,
        now: Now,
    ) -> Result<Step, Status> {
        let command = Command::Of { key, request: rows.request() };
        let Reply { status, value, wait, .. } = shard.execute(&command, hash, now);
        self.wait = self.wait.max(wait);
        match status {
            Status::Ok => push(&mut self.answers, What::Documents, &[value.unwrap_or_default()]),
            Status::NotFound => push(&mut self.answers, What::Gone, &[]),
            Status::WrongType => push(&mut self.answers, What::Other, &[]),
            status => return Err(status),
        }
        Ok(Step::Done)
    }

    /// A short command about the key; its number, or the refusal.
    fn ask<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (command, hash): (&Command<'_>, KeyHash),
        now: Now,
    ) -> (Status, i64) {
        let Reply { status, number, wait, .. } = shard.execute(command, hash, now);
        self.wait = self.wait.max(wait);
        (status, number)
    }

    /// Begins a long read.
    fn read<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        at: (&[u8], KeyHash),
        (request, of): (Request<'_>, Of),
        now: Now,
    ) -> Result<Step, Status> {
        match shard.begin_read(at, request, now) {
            Ok(read) => {
                let reading = Reading { read, found: Vec::new(), of };
                self.read_on(shard, Box::new(reading), now)
            }
            Err(reply) => {
                self.wait = self.wait.max(reply.wait);
                Err(reply.status)
            }
        }
    }

    fn answer(&mut self, what: What, body: &[&[u8]]) -> Result<Step, Status> {
        push(&mut self.answers, what, body);
        Ok(Step::Done)
    }

    fn item<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (key, hash): (&Bytes, KeyHash),
        fields: &Fields,
        now: Now,
    ) -> Result<Step, Status> {
        let length = Command::Of { key, request: HashCommand::Length.request() };
        match (self.ask(shard, (&length, hash), now), fields) {
            ((Status::WrongType, _), _) => self.text(shard, (key, hash), fields, now),
            ((Status::Ok | Status::NotFound, 0), _) => self.answer(What::Gone, &[]),
            ((Status::Ok, _), Fields::All) => {
                let all = HashCommand::All { told: Told::Both }.request();
                self.read(shard, (key, hash), (all, Of::All), now)
            }
            ((Status::Ok, _), Fields::Some(names)) if names.is_empty() => {
                self.answer(What::Named, &[])
            }
            ((Status::Ok, _), Fields::Some(names)) => {
                let mut list = Vec::new();
                names.iter().for_each(|name| Items::push(&mut list, name));
                let names = Items::parse(&list).ok_or(Status::Malformed)?;
                let many = HashCommand::GetMany { names }.request();
                self.read(shard, (key, hash), (many, Of::Named), now)
            }
            ((status, _), _) => Err(status),
        }
    }

    /// An item that is no hash: a string is one without fields, and its text matters only to a run that
    /// wants all of it.
    fn text<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (key, hash): (&Bytes, KeyHash),
        fields: &Fields,
        now: Now,
    ) -> Result<Step, Status> {
        let of = self.ask(shard, (&Command::Type { key }, hash), now);
        if of != (Status::Ok, Kind::STRING.0.into()) {
            return self.answer(What::Other, &[]);
        }
        if matches!(fields, Fields::Some(_)) {
            return self.answer(What::Text, &[]);
        }
        match shard.execute_or_stream(&Command::Get { key }, hash, now) {
            Outcome::Reply(Reply { status: Status::Ok, value, wait, .. }) => {
                self.wait = self.wait.max(wait);
                push(&mut self.answers, What::Text, &[value.unwrap_or_default()]);
                Ok(Step::Done)
            }
            Outcome::Reply(reply) => Err(reply.status),
            Outcome::Stream(reply, download) => {
                self.wait = self.wait.max(reply.wait);
                let text = Vec::with_capacity(download.len());
                Ok(Step::Later(Doing::Text { download, text }))
            }
        }
    }

    fn list<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (key, hash): (&Bytes, KeyHash),
        (from, count): (i64, u32),
        now: Now,
    ) -> Result<Step, Status> {
        let length = Command::Of { key, request: ListCommand::Length.request() };
        let total = match self.ask(shard, (&length, hash), now) {
            (Status::WrongType, _) => return self.answer(What::Other, &[]),
            (Status::Ok | Status::NotFound, 0) => return self.answer(What::Gone, &[]),
            (Status::Ok, total) => total,
            (status, _) => return Err(status),
        };
        let start = if from < 0 { from.saturating_add(total).max(0) } else { from };
        if start >= total || count == 0 {
            return self.answer(What::List, &[&total.to_le_bytes()]);
        }
        let stop = start.saturating_add(i64::from(count) - 1);
        let range = ListCommand::Range { start, stop }.request();
        self.read(shard, (key, hash), (range, Of::List(total as u64)), now)
    }

    /// Finds something in an object, in the way of its type.
    fn seek<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (key, hash): (&Bytes, KeyHash),
        sought: &Sought<'_>,
        now: Now,
    ) -> Result<Step, Status> {
        let kind = match self.ask(shard, (&Command::Type { key }, hash), now) {
            (Status::NotFound, _) => return self.answer(What::Gone, &[]),
            (Status::Ok, kind) => kind,
            (status, _) => return Err(status),
        };
        if matches!(sought, Sought::Objects { skip, .. } if *skip >= MAX_NEAREST) {
            return self.answer(What::NoMoreNearest, &[]);
        }
        let kind = u8::try_from(kind).map_err(|_| Status::Malformed)?;
        match shard.seek(Kind(kind), sought) {
            None => self.answer(What::Other, &[]),
            Some(seek) => {
                let seeking = Seeking::new((key.clone(), hash), seek);
                self.seek_on(shard, Box::new(seeking), now)
            }
        }
    }

    fn seek_on<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        mut seeking: Box<Seeking>,
        now: Now,
    ) -> Result<Step, Status> {
        let turn = seeking.turn(shard, now);
        self.wait = self.wait.max(seeking.wait());
        match turn? {
            seeking::Sought::Later => Ok(Step::Later(Doing::Seek(seeking))),
            seeking::Sought::Gone => self.answer(What::Gone, &[]),
            seeking::Sought::Other => self.answer(What::Other, &[]),
            seeking::Sought::Met(Met::Entries { goes_on }) => {
                self.answer(What::Entries, &[&[goes_on.into()], seeking.found()])
            }
            seeking::Sought::Met(Met::Objects { ids, next }) => {
                let seek = seeking.into_seek();
                let of = OfObjects { ids, at: 0, next, items: Vec::new(), seek };
                Ok(Step::On(Doing::Fields(Box::new(of))))
            }
        }
    }

    fn go_on<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        doing: Doing,
        now: Now,
    ) -> Result<Step, Status> {
        match doing {
            Doing::Read(reading) => self.read_on(shard, reading, now),
            Doing::Text { download, mut text } => {
                text.extend_from_slice(shard.piece(&download, text.len(), STREAM_PIECE_BYTES));
                if text.len() < download.len() {
                    return Ok(Step::Later(Doing::Text { download, text }));
                }
                shard.end_download(download, now);
                self.answer(What::Text, &[&text])
            }
            Doing::Seek(seeking) => self.seek_on(shard, seeking, now),
            Doing::Fields(of) => self.fields_on(shard, of, now),
        }
    }

    fn read_on<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        mut reading: Box<Reading>,
        now: Now,
    ) -> Result<Step, Status> {
        let Reading { read, found, of } = &mut *reading;
        let turn = match shard.read_turn(read, found, now) {
            // The tree was removed meanwhile.
            Err(Status::NoTree) => return self.answer(What::Gone, &[]),
            turn => turn?,
        };
        self.wait = self.wait.max(shard.wait_of(read));
        // No part is shorter than an entry.
        if !turn.ended {
            return Ok(Step::Later(Doing::Read(reading)));
        }
        if turn.has_doubles {
            shard.tidy(read, found);
        }
        match *of {
            Of::Named => self.answer(What::Named, &[found]),
            Of::All => self.answer(What::All, &[found]),
            Of::List(total) => self.answer(What::List, &[&total.to_le_bytes(), found]),
        }
    }

    /// Looks up the wanted fields of some objects.
    fn fields_on<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        mut of: Box<OfObjects>,
        now: Now,
    ) -> Result<Step, Status> {
        let (hash, Want::Objects { tree, fields, .. }) = self.look.wants[self.done].clone() else {
            return Err(Status::Malformed);
        };
        let mut names = Vec::new();
        fields.iter().for_each(|name| Items::push(&mut names, name));
        let names = Items::parse(&names).ok_or(Status::Malformed)?;
        let until = match fields.is_empty() {
            true => of.ids.len(),
            false => of.ids.len().min(of.at + PLAN_TURN_WORK),
        };
        for at in of.at..until {
            if fields.is_empty() {
                Items::push(&mut of.items, &of.ids[at]);
                continue;
            }
            let OfObjects { ids, items, seek, .. } = &mut *of;
            let Some(request) = seek.fields(&ids[at], names) else {
                Items::push(items, &ids[at]);
                names.iter().for_each(|_| Items::push_none(items));
                continue;
            };
            let reply = shard.execute(&Command::Of { key: &tree, request }, hash, now);
            self.wait = self.wait.max(reply.wait);
            // One that was removed meanwhile is not there.
            let Some(values) = reply.value.filter(|_| reply.status == Status::Ok) else { continue };
            Items::push(items, &ids[at]);
            items.extend_from_slice(values);
        }
        of.at = until;
        if until < of.ids.len() {
            return Ok(Step::Later(Doing::Fields(of)));
        }
        self.answer(What::Objects, &[&of.next.to_le_bytes(), &of.items])
    }
}
