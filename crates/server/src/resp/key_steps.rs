//! The next step of a request about the key space, and operations on several keys that are under way.

use remora_engine::moving::{self, KeyAt};
use remora_engine::storing::{Parts, Storing};
use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_protocol::{Command, Items, Reply};
use remora_resp::steps::{Step, StepKey, Steps};

/// The next step after an answer.
pub(super) enum Next {
    Reply(OwnedReply),
    /// The encoded command for this shard.
    Ask(usize, Vec<u8>),
}

impl From<moving::Next> for Next {
    fn from(next: moving::Next) -> Self {
        match next {
            moving::Next::Done(status, number) => {
                Self::Reply(OwnedReply { number, ..OwnedReply::status(status) })
            }
            moving::Next::Ask(shard, command) => Self::Ask(shard, command),
        }
    }
}

/// The next step after a shard's answer on the way to a key.
pub(super) fn asked_next(
    reply: &OwnedReply,
    next: impl FnOnce(&Reply<'_>) -> moving::Next,
) -> Next {
    let OwnedReply { status, number, ref value, .. } = *reply;
    next(&Reply { number, value: value.as_deref(), ..Reply::status(status) }).into()
}

/// Bytes of the first item of a list.
pub(super) fn first_bytes(list: &[u8]) -> usize {
    let item = Items::split(list).and_then(|(item, _)| item);
    item.map_or(0, |item| Items::bytes_of(item.len()))
}

/// A command for a shard, as it is handed over.
pub(super) fn encoded(database: Database, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode_within(database, 0, &mut bytes);
    bytes
}

/// An operation on several keys, on its way.
pub(super) struct KeySteps {
    steps: Box<dyn Steps>,
    database: Database,
    keys: Vec<StepKey>,
    stage: Stage,
}

enum Stage {
    /// The operation says what is asked next.
    Steps,
    /// The next answer is the reply.
    Last,
    /// A key gets a new object.
    Storing(Storing),
}

impl KeySteps {
    /// An operation that waits for the answer to its first question.
    pub(super) const fn new(steps: Box<dyn Steps>, database: Database, keys: Vec<StepKey>) -> Self {
        Self { steps, database, keys, stage: Stage::Steps }
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(&self) -> bool {
        self.steps.is_read()
    }

    /// Takes an answer. The next question, or the reply.
    pub(super) fn next(&mut self, reply: OwnedReply) -> Next {
        match &mut self.stage {
            Stage::Steps => {}
            Stage::Last => return Next::Reply(reply),
            Stage::Storing(storing) => return asked_next(&reply, |reply| storing.next(reply)),
        }
        let Self { steps, database, keys, .. } = self;
        let mut asked = None;
        let step = steps.next(keys, Some(reply), &mut |at, request| {
            let StepKey { ref key, shard } = keys[at];
            asked = Some(Next::Ask(shard, encoded(*database, &Command::Of { key, request })));
        });
        match step {
            Step::Asked => {}
            Step::AskedLast => self.stage = Stage::Last,
            Step::Done(reply) => return Next::Reply(reply),
            Step::Store { key, kind, items } => {
                let StepKey { key, shard } = self.keys[key].clone();
                let parts = Parts { kind, list: items, first_bytes, begin: |_, _| {} };
                let storing = Storing::new(KeyAt { key, database: self.database, shard }, parts);
                let first = storing.first();
                self.stage = Stage::Storing(storing);
                return first.into();
            }
        }
        asked.expect("a question was put")
    }
}
