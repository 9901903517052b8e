//! Operations on the objects of several keys: one question to a shard after the other
//! ([`remora_protocol::steps`]).

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use super::keys::Next;
use remora_frontend::{OwnedReply, Waiting};
use remora_layout::database::Database;
use remora_protocol::steps::{Step, Steps, StepsReply};
use remora_protocol::{Command, Reply};
use remora_resp::ReplyForm;

/// Such an operation, on its way.
pub(super) struct KeySteps {
    steps: Steps,
    database: Database,
    /// The shards of the keys.
    shards: Vec<usize>,
}

impl KeySteps {
    /// Takes an answer. The next question, or the reply.
    pub(super) fn next(&mut self, reply: &OwnedReply) -> Next {
        let OwnedReply { status, number, ref value, .. } = *reply;
        let answer = Reply { number, value: value.as_deref(), ..Reply::status(status) };
        let Self { steps, database, shards } = self;
        let mut asked = None;
        let keys = steps.keys.clone();
        let step = steps.step(Some(&answer), &mut |key, request| {
            let mut bytes = Vec::new();
            let command = Command::Of { key: &keys[key], request };
            command.encode_within(*database, 0, &mut bytes);
            asked = Some((shards[key], bytes));
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

impl<H: Host> RespExecutor<H> {
    /// Begins an operation on several keys.
    pub(super) fn steps(&mut self, responder: &mut Responder, mut steps: Steps, form: ReplyForm) {
        let at: Vec<_> = steps.keys.iter().map(|key| self.route(key)).collect();
        steps.is_one_shard = at.windows(2).all(|two| two[0].1 == two[1].1);
        let keys = steps.keys.clone();
        let (mut first, mut scratch) = (None, Vec::new());
        let step = steps.step(None, &mut |key, request| {
            Command::Of { key: &keys[key], request }.encode_within(self.database, 0, &mut scratch);
            first = Some(key);
        });
        let Some(first) = first else { unreachable!("an operation begins with a question") };
        let (_, command, _) = Command::decode_within(&scratch).expect("just encoded");
        if step == Step::AskedLast {
            return self.ask_one(responder, (&command, at[first]), form, usize::MAX);
        }
        // Later requests would wait for it anyway.
        responder.expect_large();
        let asked = [self.submit(responder, at[first], 0, &command)];
        let shards = at.iter().map(|(_, shard)| *shard).collect();
        let steps = KeySteps { steps, database: self.database, shards };
        self.go_on_with(responder, 0, GoingOn::Steps(Box::new(steps)));
        responder.wait(Waiting::all(form, asked));
    }
}
