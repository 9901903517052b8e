//! What a worker that follows needs of its server.

use super::batch::Batch;
use super::state::Following;
use crate::inbox::Message;
use crate::shared::Shared;
use std::sync::Arc;

/// A replica around the worker that follows: a server, or one of a simulated world.
pub trait Host {
    /// How far it has come.
    fn following(&self) -> &Following;

    /// Hands a batch over to a shard.
    fn give(&self, shard: usize, batch: Arc<Batch>);
}

impl Host for Arc<Shared> {
    fn following(&self) -> &Following {
        self.following.as_ref().expect("a replica follows")
    }

    fn give(&self, shard: usize, batch: Arc<Batch>) {
        self.shards[shard].inbox.push(Message::Apply(batch));
    }
}
