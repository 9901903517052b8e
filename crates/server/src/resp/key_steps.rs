//! The next step of a request about the key space, and operations on several keys that are under way.

use crate::waits::Run;
use remora_engine::moving::{self, KeyAt};
use remora_engine::storing::{Parts, Storing};
use remora_frontend::{Joint, JointStep, OwnedReply};
use remora_layout::database::Database;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};
use remora_resp::steps::{AfterWait, Step, StepKey, Steps};

/// The next step after an answer.
pub(super) enum Next {
    Reply(OwnedReply),
    /// The encoded command for this shard.
    Ask(usize, Vec<u8>),
    /// The encoded look with which a change of two shards begins, for the shard that is held.
    Joint(usize, Vec<u8>),
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

/// A command for a shard, as it is handed over.
pub(super) fn encoded(database: Database, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode_within(database, 0, &mut bytes);
    bytes
}

/// An operation on several keys, on its way.
pub(crate) struct KeySteps {
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
    /// A change of two shards begins with this look, whatever the next answer is.
    Behind(Vec<u8>),
}

impl KeySteps {
    /// An operation that waits for the answer to its first question.
    pub(super) const fn new(steps: Box<dyn Steps>, database: Database, keys: Vec<StepKey>) -> Self {
        Self { steps, database, keys, stage: Stage::Steps }
    }

    /// A change of two shards that waits for an answer before its look.
    pub(super) fn behind(self, look: Vec<u8>) -> Self {
        Self { stage: Stage::Behind(look), ..self }
    }

    /// The keys but the first.
    pub(super) fn other_keys(&self) -> impl Iterator<Item = &StepKey> {
        self.keys.iter().skip(1)
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
            Stage::Behind(look) => {
                let look = std::mem::take(look);
                self.stage = Stage::Steps;
                return Next::Joint(self.keys[0].shard, look);
            }
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
            Step::Joint => {
                let Some(Next::Ask(shard, look)) = asked else { unreachable!("a look was put") };
                return Next::Joint(shard, look);
            }
            Step::Done(reply) => return Next::Reply(reply),
            Step::Store { key, kind, items, first_bytes } => {
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

/// An operation on two keys that waits for the first one: until that holds something, and while the rest
/// is under way.
pub(crate) struct AfterWaiting {
    after_wait: Box<dyn AfterWait>,
    database: Database,
    keys: Vec<StepKey>,
    runs: Vec<Run>,
    until_ms: u64,
    is_under_way: bool,
}

/// How such an operation goes on.
pub(crate) enum Waited {
    Reply(OwnedReply),
    /// The key holds something: the first look of these steps, for this shard.
    Goes(KeySteps, (usize, Vec<u8>)),
    /// It does not any more.
    WaitsAgain,
}

impl AfterWaiting {
    /// It waits as `runs` say.
    pub(crate) fn new(
        (after_wait, database, keys): (Box<dyn AfterWait>, Database, Vec<StepKey>),
        runs: &[Run],
        until_ms: u64,
    ) -> Self {
        Self { after_wait, database, keys, runs: runs.to_vec(), until_ms, is_under_way: false }
    }

    /// The key that it waits for.
    pub(crate) fn first_key(&self) -> &[u8] {
        &self.keys[0].key
    }

    /// What it waits for, and until when.
    pub(crate) fn wait(&self) -> (Vec<Run>, u64) {
        (self.runs.clone(), self.until_ms)
    }

    /// Takes the answer to the wait, or that of the rest.
    pub(crate) fn next(&mut self, reply: OwnedReply) -> Waited {
        let was_under_way = std::mem::take(&mut self.is_under_way);
        match reply.status {
            Status::NotFound if was_under_way => return Waited::WaitsAgain,
            Status::Ok if !was_under_way => self.is_under_way = true,
            _ => return Waited::Reply(reply),
        }
        let mut steps = self.after_wait.steps();
        let mut look = None;
        steps.next(&self.keys, None, &mut |at, request| {
            let StepKey { ref key, shard } = self.keys[at];
            look = Some((shard, encoded(self.database, &Command::Of { key, request })));
        });
        let steps = KeySteps::new(steps, self.database, self.keys.clone());
        Waited::Goes(steps, look.expect("the first step asks"))
    }
}

impl Joint for KeySteps {
    fn next(&mut self, answer: OwnedReply) -> JointStep {
        match Self::next(self, answer) {
            Next::Ask(shard, command) => JointStep::Ask(shard, command),
            Next::Joint(_, look) => JointStep::Again(look),
            Next::Reply(reply) => JointStep::Done(reply),
        }
    }
}
