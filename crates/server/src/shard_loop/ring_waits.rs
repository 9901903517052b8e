//! The thread's requests over rings that wait for keys of several shards.

use super::{Lost, ShardLoop};
use crate::mongo::MongoThread;
use crate::ring_waits::{Answered, is_of_rings};
use remora_frontend::{Executor, OwnedReply, ShardPort, Token};

impl ShardLoop {
    /// Carries out what clients' sessions want done for such requests.
    #[inline]
    pub(super) fn carry_out_wait_orders(&mut self) {
        let orders = self.clients.take_wait_orders();
        if orders.is_empty() {
            return;
        }
        let Self { executor, ring_waits, .. } = self;
        let host = executor.port_mut();
        let slots = &host.shared.slots;
        for order in orders {
            let waits = &mut host.large_jobs.waits;
            ring_waits.carry_out(waits, order, |key| slots.shard_of(key));
        }
        host.hand_waits();
    }

    /// Takes a reply of a shard to a request of a connection, of a ring or of a plan.
    #[inline]
    pub(super) fn take_reply(&mut self, token: Token, reply: OwnedReply) {
        if is_of_rings(&token) {
            return self.take_ring_reply(token, reply);
        }
        if MongoThread::has_slot(token.connection) {
            return self.mongo.take_reply(self.executor.port_mut(), token, reply);
        }
        if let Some(reply) = self.executor.port_mut().take_for_plan(&token, reply) {
            self.connections.take_reply(&mut self.executor, token, reply);
        }
    }

    #[cold]
    fn take_ring_reply(&mut self, token: Token, reply: OwnedReply) {
        let Self { executor, ring_waits, clients, .. } = self;
        let host = executor.port_mut();
        let now = host.now;
        let answered = ring_waits.answered(&mut host.large_jobs.waits, token, reply);
        host.hand_waits();
        let mut lost = Lost::default();
        match answered {
            None => {}
            Some((of, Answered::Reply(served))) => {
                clients.answer_over_shards(of, &served, |session, error| lost.add(session, error));
            }
            Some((_, Answered::Goes(shard, job))) => host.hand(shard, job),
            Some((of, Answered::Again(claim))) => clients.wait_again(of, claim),
        }
        self.end_lost(lost, now);
        self.carry_out_wait_orders();
    }
}
