//! Operations on the objects of several keys: one question to a shard after the other
//! ([`remora_protocol::steps`]).

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use super::key_steps::KeySteps;
use remora_frontend::Waiting;
use remora_protocol::Command;
use remora_protocol::steps::{Step, Steps};
use remora_resp::ReplyForm;

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
        let steps = KeySteps::new(steps, self.database, shards);
        self.go_on_with(responder, 0, GoingOn::Steps(Box::new(steps)));
        responder.wait(Waiting::all(form, asked));
    }
}
