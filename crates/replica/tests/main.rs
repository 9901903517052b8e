//! The replication of one shard's log, without a network.

mod counted;
mod hostile;
mod in_sync;
mod shipping;
