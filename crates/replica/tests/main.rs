//! The replication of one shard's log, without a network.

mod counted;
mod in_sync;
mod shipping;
