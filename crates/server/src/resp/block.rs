//! Requests that wait for keys, and CLIENT UNBLOCK.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::{GoingOn, request_part_key};
use super::key_steps::AfterWaiting;
use crate::waits::Run;
use remora_frontend::{Job, Order, Question, Token, Waiting, What};
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_resp::ReplyForm;
use remora_resp::commands::connection;
use remora_resp::request::{Blocking, HandOver};

impl<H: Host> RespExecutor<H> {
    /// An operation on the first of some keys that holds something for it, now or later.
    pub(super) fn block(&mut self, responder: &mut Responder, blocking: Blocking<'_>) {
        let Blocking { keys, request, until_ms, form, hand_over } = blocking;
        // Of keys of one shard an element moves in one step.
        let is_one_shard = |over: &HandOver<'_>| {
            let first = keys.clone().next().unwrap_or_default();
            self.route(first).1 == self.route(over.to).1
        };
        let (request, form, hand_over) = match hand_over {
            Some(over) if is_one_shard(&over) => (over.at_once.0, over.at_once.1, None),
            hand_over => (request, form, hand_over),
        };
        let mut runs: Vec<Run> = Vec::new();
        let mut bytes = 0;
        for key in keys.clone() {
            let (_, shard) = self.route(key);
            let mut command = Vec::new();
            Command::Of { key, request }.encode_within(self.database, 0, &mut command);
            bytes += command.len();
            Run::add(&mut runs, shard, command.into());
        }
        let first = runs.first().map_or(self.host.home(), |run| run.shard);
        let token = self.token_of(responder, first, 0);
        if let (Some(over), Some(from)) = (hand_over, keys.clone().next()) {
            let keys = [from, over.to].map(|key| self.step_key(key)).into();
            let over = AfterWaiting::new((over.after_wait, self.database, keys), &runs, until_ms);
            self.go_on_with(responder, 0, GoingOn::AfterWaiting(Box::new(over)));
        }
        let asked = Question { shard: first, what: What::Other, bytes };
        responder.ask(asked, self.host.shards());
        responder.block();
        responder.wait(Waiting::all(form, [asked]));
        self.host.with_waits(|waits| waits.begin(token, runs, until_ms));
    }

    /// A request whose key holds nothing any more, though it was told so, waits again.
    pub(super) fn wait_again(&mut self, token: Token, over: Box<AfterWaiting>) {
        let (runs, until_ms) = over.wait();
        let shard = runs.first().map_or(token.shard, |run| run.shard);
        self.key_answers
            .going_on
            .insert(request_part_key(&token), (GoingOn::AfterWaiting(over), 0));
        let token = Token { shard, ..token };
        self.host.with_waits(|waits| waits.begin(token, runs, until_ms));
    }

    /// Ends the wait of another connection, whose thread is not known: all are asked. A wait for disks
    /// or replicas is one of each shard.
    pub(super) fn unblock(&mut self, responder: &mut Responder, serial: u64, status: Status) {
        let mut asked = Vec::with_capacity(self.host.shards());
        for shard in 0..self.host.shards() {
            let token = self.token_of(responder, shard, shard);
            self.host.hand(shard, Job::new(Order::Unblock { serial, status }, token));
            let of_shard = Question { shard, what: What::Other, bytes: 0 };
            responder.ask(of_shard, self.host.shards());
            asked.push(of_shard);
        }
        responder.wait(Waiting::all(ReplyForm::Combined(&connection::UNBLOCKED), asked));
    }
}
