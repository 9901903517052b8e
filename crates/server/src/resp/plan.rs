//! PLAN.RUN and LINK.CHASE: the thread's plans run it ([`crate::plans`]).
//!
//! Invariant: a plan begins once each shard has executed what the connection had asked it before, so that it
//! sees the connection's own writes.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::GoingOn;
use super::key_steps::encoded;
use super::plan_job::PlanJob;
use crate::plans::Asker;
use remora_frontend::{Question, Token, Waiting, What};
use remora_layout::slot::slot_of;
use remora_plan::Plan;
use remora_protocol::Command;
use remora_resp::cluster::Standing;
use remora_resp::form::PlanForm;
use remora_resp::{CommandError, ReplyForm};

impl<H: Host> RespExecutor<H> {
    /// Begins a plan.
    pub(super) fn plan(&mut self, responder: &mut Responder, plan: Plan, form: PlanForm) {
        if let Some(error) = self.begins_elsewhere(&plan) {
            return responder.reply(|out, _| error.write(out));
        }
        if self.host.plans().is_none() {
            return responder.reply(|out, _| CommandError::NoPlans.write(out));
        }
        let home = self.host.home();
        let token = self.token_of(responder, home, 0);
        let is_free = self.host.is_free(&token);
        let is_busy = |shard: &usize| !responder.is_quiet(*shard) || (*shard == home && !is_free);
        let busy: Vec<usize> = (0..self.host.shards()).filter(is_busy).collect();
        // Later requests wait for it, and its client may go meanwhile.
        responder.block();
        let asked = Question { shard: home, what: What::Other, bytes: 0 };
        responder.ask(asked, self.host.shards());
        responder.wait(Waiting::all(ReplyForm::Plan(form), [asked]));
        let job = PlanJob { plan, database: self.database, busy };
        self.begin_plan(token, Box::new(job));
    }

    /// Why no server of this group runs a plan: the key that it begins with is of another one.
    fn begins_elsewhere(&mut self, plan: &Plan) -> Option<CommandError> {
        let slot = slot_of(plan.start().first_key()?);
        // Plans have no words that are keys by their places, so replicas of the group answer them.
        let standing = Standing { leads: !self.host.is_replica(), may_read: true, changes: false };
        self.host.cluster()?.refusal(slot, standing)
    }

    /// Waits for the next busy shard, or begins the plan.
    pub(super) fn begin_plan(&mut self, token: Token, mut job: Box<PlanJob>) {
        if let Some(shard) = job.busy.pop() {
            let command = encoded(job.database, &Command::Count);
            return self.ask_on(Token { shard, ..token }, GoingOn::Plan(job), (shard, command));
        }
        let PlanJob { plan, database, .. } = *job;
        if let Some(plans) = self.host.plans() {
            plans.begin(Asker::Connection(token), (database, plan));
        }
    }
}
