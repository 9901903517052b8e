//! RENAME, COPY and MOVE: one question to a shard after the other
//! (docs/decisions/0036). It does not ask the shards itself.
//!
//! Invariant: the value is complete under the other key before the first key is removed, and it
//! does not change in between. Within a shard a record moves in one turn; otherwise the shard holds
//! the key from the dump on, and refuses changes to it. An object of parts moves in pieces, one at
//! a time. A move that fails changes nothing: the other key keeps its value, the hold ends, and the
//! shard releases what was loaded.

use remora_layout::database::Database;
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, LoadStep, Reply, Source};

/// A key, its database, and its shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyAt {
    /// The key.
    pub key: Box<[u8]>,
    /// Its database.
    pub database: Database,
    /// Its shard.
    pub shard: usize,
}

impl KeyAt {
    pub(crate) fn ask(&self, command: &Command<'_>) -> Next {
        let mut bytes = Vec::new();
        command.encode_within(self.database, 0, &mut bytes);
        Next::Ask(self.shard, bytes)
    }
}

/// The move of a key to another key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// The move replaces another key of that name.
    pub replaces: bool,
    /// The key stays.
    pub keeps: bool,
}

/// The next step after an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The move is over: the status and the number of its reply. The number is 1 if the other key
    /// now has the value, 0 if a key of that name exists.
    Done(Status, i64),
    /// This shard is asked this encoded command.
    Ask(usize, Vec<u8>),
}

/// A key on its way.
#[derive(Debug)]
pub struct Moving {
    from: KeyAt,
    to: KeyAt,
    how: How,
    step: Step,
    /// The dump's number.
    dump: u64,
    /// The load's number, for an object of parts.
    load: u64,
}

/// The last question.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// All of it, within one shard.
    Transfer,
    Dump,
    Restore,
    Begin,
    Read,
    /// Whether there is more to read.
    Fill(bool),
    Enter,
    /// The other shard has it.
    Remove,
    /// The reply to give once the dump has ended.
    EndDump(Status, i64),
    /// The load is given up first.
    DropLoad(Status),
}

impl Moving {
    /// A move that has not begun.
    pub fn new(from: KeyAt, to: KeyAt, how: How) -> Self {
        let step = if from.shard == to.shard { Step::Transfer } else { Step::Dump };
        Self { from, to, how, step, dump: 0, load: 0 }
    }

    /// The first question, and the shard that it is for.
    pub fn first(&self) -> (usize, Command<'_>) {
        let (key, to, How { replaces, keeps }) = (&*self.from.key, &*self.to.key, self.how);
        let command = match self.step {
            Step::Transfer => {
                Command::Transfer { key, to, database: self.to.database, replaces, keeps }
            }
            _ => Command::Dump { key, holds: !keeps },
        };
        (self.from.shard, command)
    }

    /// The next step after the answer to the last question.
    pub fn next(&mut self, reply: &Reply<'_>) -> Next {
        let Reply { status, number, .. } = *reply;
        let (is_ok, keeps) = (status == Status::Ok, self.how.keeps);
        match self.step {
            Step::Transfer if status == Status::InPieces => self.dump(),
            Step::Dump if status == Status::InPieces => self.begin_load(reply),
            Step::Dump if is_ok => self.restore(reply),
            Step::Transfer | Step::Dump => Next::Done(status, number),
            // A copy holds nothing.
            Step::Restore if keeps => Next::Done(status, number),
            Step::Restore if !is_ok || number == 0 => self.end_dump(status, number),
            Step::Restore => self.remove(),
            Step::Begin if status == Status::NotDone => self.end_dump(Status::Ok, 0),
            Step::Begin if !is_ok => self.end_dump(status, 0),
            Step::Begin => {
                self.load = number as u64;
                self.read()
            }
            // Its shard may have given the load up; else it is to.
            Step::Read | Step::Fill(_) | Step::Enter if !is_ok => self.drop_load(status),
            Step::Read => self.fill(reply),
            Step::Fill(true) => self.read(),
            Step::Fill(false) => self.enter(),
            Step::Enter if number == 0 || keeps => self.end_dump(status, number),
            Step::Enter if self.from.shard == self.to.shard => Next::Done(status, number),
            Step::Enter => self.remove(),
            // If the key was removed before, or its hold has ended, the other key has the value all
            // the same.
            Step::Remove => Next::Done(Status::Ok, 1),
            Step::DropLoad(status) => self.end_dump(status, 0),
            Step::EndDump(status, number) => Next::Done(status, number),
        }
    }

    fn dump(&mut self) -> Next {
        self.step = Step::Dump;
        self.from.ask(&Command::Dump { key: &self.from.key, holds: !self.how.keeps })
    }

    fn restore(&mut self, reply: &Reply<'_>) -> Next {
        let Some(dumped) = Dumped::parse(reply.value.unwrap_or_default()) else {
            return Next::Done(Status::Malformed, 0);
        };
        (self.dump, self.step) = (dumped.dump, Step::Restore);
        let replaces = self.how.replaces;
        self.to.ask(&Command::Restore { key: &self.to.key, dumped, replaces })
    }

    fn remove(&mut self) -> Next {
        self.step = Step::Remove;
        self.from.ask(&Command::DelDumped { key: &self.from.key, dump: self.dump })
    }

    fn begin_load(&mut self, reply: &Reply<'_>) -> Next {
        let Some(dumped) = Dumped::parse(reply.value.unwrap_or_default()) else {
            return Next::Done(Status::Malformed, 0);
        };
        (self.dump, self.step) = (dumped.dump, Step::Begin);
        self.load_step(LoadStep::Begin { dumped, replaces: self.how.replaces })
    }

    fn load_step(&self, step: LoadStep<'_>) -> Next {
        self.to.ask(&Command::Load { key: &self.to.key, load: self.load, step })
    }

    fn read(&mut self) -> Next {
        self.step = Step::Read;
        self.from.ask(&Command::DumpPart { key: &self.from.key, dump: self.dump })
    }

    fn fill(&mut self, reply: &Reply<'_>) -> Next {
        let (piece, has_more) = (reply.value.unwrap_or_default(), reply.number != 0);
        match (piece.is_empty(), has_more) {
            (true, true) => self.read(),
            (true, false) => self.enter(),
            (false, _) => {
                self.step = Step::Fill(has_more);
                self.load_step(LoadStep::Piece(piece))
            }
        }
    }

    fn enter(&mut self) -> Next {
        self.step = Step::Enter;
        let goes_at_once = !self.how.keeps && self.from.shard == self.to.shard;
        let KeyAt { key, database, .. } = &self.from;
        let from = goes_at_once.then_some(Source { key, database: *database });
        self.load_step(LoadStep::Enter { replaces: self.how.replaces, from })
    }

    fn end_dump(&mut self, status: Status, number: i64) -> Next {
        self.step = Step::EndDump(status, number);
        self.from.ask(&Command::EndDump { key: &self.from.key, dump: self.dump })
    }

    fn drop_load(&mut self, status: Status) -> Next {
        self.step = Step::DropLoad(status);
        self.load_step(LoadStep::Drop)
    }
}
