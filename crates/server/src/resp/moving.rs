//! RENAME, COPY and MOVE: one question to a shard after the other.
//!
//! What it keeps true: what a key has is complete under the other key before the key
//! is removed. Within a shard both happen in one turn. Between shards a key that lies
//! in one record is removed only if it was not changed meanwhile. An object of parts
//! goes in pieces, one at a time, and does not change meanwhile. Whatever fails, the
//! object is not lost, its dump ends, and what was loaded of it goes.

use crate::jobs::OwnedReply;
use remora_engine::command::{Command, Dumped, LoadStep, Source};
use remora_layout::database::Database;
use remora_layout::limits::RENAME_TRIES;
use remora_layout::message::Status;

/// A key, its database, and its shard.
pub(super) struct Place {
    pub key: Box<[u8]>,
    pub database: Database,
    pub shard: usize,
}

impl Place {
    fn ask(&self, command: &Command<'_>) -> Next {
        Next::Ask(self.shard, super::keys::encoded(self.database, command))
    }
}

/// What becomes of an answer.
pub(super) enum Next {
    Reply(OwnedReply),
    /// The command goes to this shard, encoded.
    Ask(usize, Vec<u8>),
}

/// A key on its way.
pub(super) struct Moving {
    from: Place,
    to: Place,
    replaces: bool,
    keeps: bool,
    step: Step,
    /// The record that was dumped.
    record: u64,
    /// Which load it is, of an object of parts.
    load: u64,
    tries: u32,
}

/// What was asked last.
enum Step {
    /// All of it, within one shard.
    Transfer,
    Dump,
    Restore,
    Remove,
    Begin,
    Read,
    /// Whether there is more to read.
    Fill(bool),
    Enter,
    /// Of an object of parts that another shard has now.
    RemoveMoved,
    /// The reply to give once the dump has ended.
    EndDump(OwnedReply),
    /// The load is given up first.
    DropLoad(OwnedReply),
}

impl Moving {
    /// A move that has not begun.
    pub fn new(from: Place, to: Place, replaces: bool, keeps: bool) -> Self {
        let step = if from.shard == to.shard { Step::Transfer } else { Step::Dump };
        let (record, load, tries) = (0, 0, 0);
        Self { from, to, replaces, keeps, step, record, load, tries }
    }

    /// The first question, and the shard that it is for.
    pub fn first(&self) -> (usize, Command<'_>) {
        let (key, to) = (&*self.from.key, &*self.to.key);
        let Self { replaces, keeps, .. } = *self;
        let command = match self.step {
            Step::Transfer => {
                Command::Transfer { key, to, database: self.to.database, replaces, keeps }
            }
            _ => Command::Dump { key },
        };
        (self.from.shard, command)
    }

    /// What follows from an answer.
    pub fn next(&mut self, reply: OwnedReply) -> Next {
        match std::mem::replace(&mut self.step, Step::Dump) {
            Step::Transfer if reply.status == Status::InPieces => self.dump(),
            Step::Transfer => Next::Reply(reply),
            Step::Dump if reply.status == Status::InPieces => self.begin_load(&reply),
            Step::Dump if reply.status == Status::Ok => self.restore(reply),
            Step::Dump => Next::Reply(reply),
            Step::Restore if reply.status != Status::Ok => Next::Reply(reply),
            Step::Restore if reply.number == 0 || self.keeps => Next::Reply(reply),
            Step::Restore => self.remove(Step::Remove),
            Step::Remove => self.removed(reply),
            Step::Begin if reply.status == Status::NotDone => {
                self.end_dump(OwnedReply { number: 0, ..OwnedReply::status(Status::Ok) })
            }
            Step::Begin if reply.status != Status::Ok => self.end_dump(reply),
            Step::Begin => {
                self.load = reply.number as u64;
                self.read()
            }
            Step::Read if reply.status != Status::Ok => self.drop_load(reply),
            Step::Read => self.fill(&reply),
            // Its shard has given the load up.
            Step::Fill(_) | Step::Enter if reply.status != Status::Ok => self.end_dump(reply),
            Step::Fill(true) => self.read(),
            Step::Fill(false) => self.enter(),
            Step::Enter if reply.number == 0 || self.keeps => self.end_dump(reply),
            Step::Enter if self.from.shard == self.to.shard => Next::Reply(reply),
            Step::Enter => self.remove(Step::RemoveMoved),
            Step::RemoveMoved => {
                Next::Reply(OwnedReply { number: 1, ..OwnedReply::status(Status::Ok) })
            }
            Step::DropLoad(outcome) => self.end_dump(outcome),
            Step::EndDump(outcome) => Next::Reply(outcome),
        }
    }

    fn dump(&mut self) -> Next {
        self.step = Step::Dump;
        self.from.ask(&Command::Dump { key: &self.from.key })
    }

    fn restore(&mut self, reply: OwnedReply) -> Next {
        let bytes = reply.value.unwrap_or_default();
        let Some(dumped) = Dumped::parse(&bytes) else {
            return Next::Reply(OwnedReply::status(Status::Malformed));
        };
        (self.record, self.step) = (dumped.record, Step::Restore);
        self.to.ask(&Command::Restore { key: &self.to.key, dumped, replaces: self.replaces })
    }

    fn remove(&mut self, step: Step) -> Next {
        self.step = step;
        self.from.ask(&Command::DelRecord { key: &self.from.key, record: self.record })
    }

    /// A record that was restored elsewhere is removed, or was changed meanwhile.
    fn removed(&mut self, reply: OwnedReply) -> Next {
        match reply.status {
            Status::Ok if reply.number != 0 => Next::Reply(reply),
            Status::Ok | Status::TryAgain if self.tries < RENAME_TRIES => {
                // What was restored is ours, and is replaced.
                (self.replaces, self.tries) = (true, self.tries + 1);
                self.dump()
            }
            Status::Ok => {
                // It changes all the time: the last change is lost to the new key.
                self.tries = 0;
                self.step = Step::Remove;
                self.from.ask(&Command::Del { key: &self.from.key })
            }
            _ => Next::Reply(reply),
        }
    }

    fn begin_load(&mut self, reply: &OwnedReply) -> Next {
        let bytes = reply.value.as_deref().unwrap_or_default();
        let Some(dumped) = Dumped::parse(bytes) else {
            return Next::Reply(OwnedReply::status(Status::Malformed));
        };
        (self.record, self.step) = (dumped.record, Step::Begin);
        self.load = 0;
        self.load_step(LoadStep::Begin { dumped, replaces: self.replaces })
    }

    fn load_step(&self, step: LoadStep<'_>) -> Next {
        self.to.ask(&Command::Load { key: &self.to.key, load: self.load, step })
    }

    fn read(&mut self) -> Next {
        self.step = Step::Read;
        self.from.ask(&Command::DumpPart { key: &self.from.key, record: self.record })
    }

    fn fill(&mut self, reply: &OwnedReply) -> Next {
        let (piece, has_more) = (reply.value.as_deref().unwrap_or_default(), reply.number != 0);
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
        let goes_at_once = !self.keeps && self.from.shard == self.to.shard;
        let Place { key, database, .. } = &self.from;
        let from = goes_at_once.then_some(Source { key, database: *database });
        self.load_step(LoadStep::Enter { replaces: self.replaces, from })
    }

    fn end_dump(&mut self, outcome: OwnedReply) -> Next {
        self.step = Step::EndDump(outcome);
        self.from.ask(&Command::EndDump { key: &self.from.key, record: self.record })
    }

    fn drop_load(&mut self, outcome: OwnedReply) -> Next {
        self.step = Step::DropLoad(outcome);
        self.load_step(LoadStep::Drop)
    }
}
