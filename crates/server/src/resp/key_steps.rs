//! The next step of a request about the key space, and operations on several keys that are under way.

use remora_frontend::OwnedReply;
use remora_layout::database::Database;
use remora_protocol::steps::{Step, Steps, StepsReply};
use remora_protocol::{Command, Reply};

/// The next step after an answer.
pub(super) enum Next {
    Reply(OwnedReply),
    /// The encoded command for this shard.
    Ask(usize, Vec<u8>),
}

/// A command for a shard, as it is handed over.
pub(super) fn encoded(database: Database, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode_within(database, 0, &mut bytes);
    bytes
}

/// Such an operation, on its way.
pub(super) struct KeySteps {
    steps: Steps,
    database: Database,
    /// The shards of the keys.
    shards: Vec<usize>,
}

impl KeySteps {
    pub(super) const fn new(steps: Steps, database: Database, shards: Vec<usize>) -> Self {
        Self { steps, database, shards }
    }

    /// Takes an answer. The next question, or the reply.
    pub(super) fn next(&mut self, reply: &OwnedReply) -> Next {
        let OwnedReply { status, number, ref value, .. } = *reply;
        let answer = Reply { number, value: value.as_deref(), ..Reply::status(status) };
        let Self { steps, database, shards } = self;
        let mut asked = None;
        let keys = steps.keys.clone();
        let step = steps.step(Some(&answer), &mut |key, request| {
            let command = Command::Of { key: &keys[key], request };
            asked = Some((shards[key], encoded(*database, &command)));
        });
        match (step, asked) {
            (Step::Asked | Step::AskedLast, Some((shard, command))) => Next::Ask(shard, command),
            (Step::Done(StepsReply { status, number, value }), _) => {
                Next::Reply(OwnedReply { number, value, ..OwnedReply::status(status) })
            }
            (Step::Asked | Step::AskedLast, None) => unreachable!("a question was put"),
        }
    }
}
