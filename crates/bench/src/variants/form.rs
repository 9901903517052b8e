//! The compared forms: how a message is carried, and which threads serve a shard.

use clap::ValueEnum;
use remora_command_line::{ServerPlan, show_by_name};
use remora_layout::frame::MAX_PAYLOAD_BYTES;
use remora_layout::limits::MAX_INLINE_BYTES;
use remora_protocol::message::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};

/// What carries a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Messages {
    /// Rings of checked frames.
    #[default]
    Ring,
    /// Posted receive buffers and completion queues, as two-sided verbs have.
    Sendrecv,
    /// The paper's: one buffer for each direction between two indicator words.
    Indicator,
}

/// Which threads serve a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum ShardModel {
    /// One thread detects, executes and replies.
    #[default]
    Single,
    /// Two threads detect and decode, two execute and reply, a queue between.
    Pipelined,
}

/// Threads of an instance that detect and decode (HydraDB 6.2.1).
pub const DISPATCHERS: usize = 2;
/// Threads of an instance that execute and reply (HydraDB 6.2.1).
pub const WORKERS: usize = 2;

impl ShardModel {
    /// Threads that serve one shard.
    pub const fn threads(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Pipelined => DISPATCHERS + WORKERS,
        }
    }
}

show_by_name!(Messages, ShardModel);

/// The variables of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The form of a message.
    pub messages: Messages,
    /// Which threads serve a shard.
    pub shard_model: ShardModel,
    /// Bytes of the longest message, either way.
    pub message_bytes: usize,
}

impl Form {
    /// The command line of the server, as the plan says.
    pub fn server_args(&self, plan: &ServerPlan) -> Vec<String> {
        vec![
            "bench".into(),
            "variant-server".into(),
            format!("--messages={}", self.messages),
            format!("--shard-model={}", self.shard_model),
            format!("--message-bytes={}", self.message_bytes),
            format!("--shards={}", plan.shards),
            format!("--max-memory-bytes={}", plan.max_memory_bytes),
            format!("--buckets={}", plan.buckets),
            format!("--lease-min-ms={}", plan.lease_min_ms),
            format!("--wake={}", plan.wake),
            format!("--pin={}", plan.pin),
        ]
    }
}

/// Bytes of the longest message of a run, either way.
pub fn message_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (REQUEST_HEADER_BYTES + key_bytes).max(REPLY_HEADER_BYTES) + value_bytes
}

const _: () = assert!(REPLY_HEADER_BYTES + MAX_INLINE_BYTES <= MAX_PAYLOAD_BYTES);
