//! Operations on the objects of several keys: one question to a shard after the other
//! ([`remora_resp::steps`]).

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use super::key_steps::KeySteps;
use remora_frontend::{Job, JointOrder, Order, Question, Waiting, What};
use remora_protocol::Command;
use remora_resp::ReplyForm;
use remora_resp::keys::Keys;
use remora_resp::steps::{Step, StepKey, Steps};

impl<H: Host> RespExecutor<H> {
    /// Begins an operation on several keys.
    pub(super) fn steps(
        &mut self,
        responder: &mut Responder,
        keys: Keys<'_>,
        mut steps: Box<dyn Steps>,
        form: ReplyForm,
    ) {
        let keys: Vec<StepKey> = keys.map(|key| self.step_key(key)).collect();
        let (mut first, mut scratch) = (0, Vec::new());
        let step = steps.next(&keys, None, &mut |at, request| {
            let command = Command::Of { key: &keys[at].key, request };
            command.encode_within(self.database, 0, &mut scratch);
            first = at;
        });
        let (_, command, _) = Command::decode_within(&scratch).expect("the first step asks");
        let at = self.route(&keys[first].key);
        if matches!(step, Step::AskedLast) {
            return self.ask_one(responder, (&command, at), form, usize::MAX);
        }
        // Later requests would wait for it anyway.
        responder.expect_large();
        if matches!(step, Step::Joint) {
            let steps = KeySteps::new(steps, self.database, keys);
            return self.joint(responder, steps, (at.1, scratch), form);
        }
        let asked = [self.submit(responder, at, 0, &command)];
        let steps = KeySteps::new(steps, self.database, keys);
        self.go_on_with(responder, 0, GoingOn::Steps(Box::new(steps)));
        responder.wait(Waiting::all(form, asked));
    }

    /// Begins a change of two shards, whose first key's shard is to be held. Its part for the other shard
    /// does not come by way of this thread, so that shard has to have executed before what the connection
    /// has asked it.
    fn joint(
        &mut self,
        responder: &mut Responder,
        steps: KeySteps,
        (shard, look): (usize, Vec<u8>),
        form: ReplyForm,
    ) {
        let is_busy = |key: &&StepKey| !responder.is_quiet(key.shard);
        let busy = steps.other_keys().find(is_busy).map(|key| key.key.clone());
        if let Some(key) = busy {
            let asked =
                [self.submit(responder, self.route(&key), 0, &Command::Exists { key: &key })];
            let steps = GoingOn::Steps(Box::new(steps.behind(look)));
            self.go_on_with(responder, 0, steps);
            return responder.wait(Waiting::all(form, asked));
        }
        let token = self.token_of(responder, shard, 0);
        let asked = Question { shard, what: What::Other, bytes: look.len() };
        responder.ask(asked, self.host.shards());
        responder.wait(Waiting::all(form, [asked]));
        let order = JointOrder { look, joint: Box::new(steps) };
        self.host.hand(shard, Job::new(Order::Joint(Box::new(order)), token));
    }

    /// A key of such an operation.
    pub(super) fn step_key(&self, key: &[u8]) -> StepKey {
        StepKey { key: key.into(), shard: self.route(key).1 }
    }
}
