//! Other ways to pass messages and to share the work of a shard, for
//! comparison only: nothing outside the bench knows them.
//!
//! What they keep true: memory, sealing, the hello, the engine and the payloads
//! are those of the product; only what carries a message ([`Messages`]) and
//! which threads serve it ([`ShardModel`]) differ. Server and client are the
//! bench's own, one connection for each client thread, and all forms run in
//! the same loops. What was asked of a variant is checked as everywhere.
//!
//! | | HydraDB | here |
//! | --- | --- | --- |
//! | `ring` | (ours) | frames with sequence and checksum, many outstanding |
//! | `indicator` | 4.2.1, H14 to H17 | one buffer each way, zeroed, polled |
//! | `sendrecv` | 6.2, H18 | posted buffers and completion queues |
//! | `single` | 4.1.1, H3 | one thread detects, executes, replies |
//! | `pipelined` | 6.2.1, H4 | two threads dispatch, two execute, one store |

mod client;
mod ends;
mod indicator;
mod nap;
mod ring_ends;
mod sendrecv;
mod server;

pub use client::open;
pub use server::{VariantServerArgs, run as run_server};

use super::args::{BenchPath, KeysArgs, PointerCache};
use crate::failure::usage;
use crate::server_process::ServerPlan;
use crate::transport::Transport;
use crate::wake::Wake;
use clap::ValueEnum;
use remora_layout::frame::MAX_PAYLOAD_BYTES;
use remora_layout::limits::{MAX_INLINE_BYTES, MAX_SHARDS};
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
const DISPATCHERS: usize = 2;
/// Threads of an instance that execute and reply (HydraDB 6.2.1).
const WORKERS: usize = 2;

impl ShardModel {
    /// Threads that serve one shard.
    pub const fn threads(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Pipelined => DISPATCHERS + WORKERS,
        }
    }
}

/// Bytes of the longest message of a run, either way.
pub fn message_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (REQUEST_HEADER_BYTES + key_bytes).max(REPLY_HEADER_BYTES) + value_bytes
}

/// Whether a run goes to the bench's own server instead of the product's.
pub fn is_variant(args: &KeysArgs) -> bool {
    args.like_for_like || args.messages != Messages::Ring || args.shard_model != ShardModel::Single
}

/// Refuses combinations that do not exist.
pub fn check(args: &KeysArgs) -> anyhow::Result<()> {
    if !is_variant(args) {
        return Ok(());
    }
    let what = format!("--messages {} --shard-model {}", args.messages, args.shard_model);
    if args.key_bytes + args.value_bytes > MAX_INLINE_BYTES {
        return Err(usage(format!(
            "--messages, --shard-model: keys and values of {MAX_INLINE_BYTES} bytes at most together"
        )));
    }
    if !matches!(args.transport, Transport::Shm | Transport::Auto) {
        return Err(usage(format!("{what}: over --transport shm only")));
    }
    if args.path != BenchPath::Ask {
        return Err(usage(format!("{what}: nothing but --path ask goes by message")));
    }
    if args.server.is_some() {
        return Err(usage(format!("{what}: in a server of the bench's own, so without --server")));
    }
    if !(1..=MAX_SHARDS).contains(&args.shards.unwrap_or(1)) {
        return Err(usage(format!("--shards: must be 1 to {MAX_SHARDS}")));
    }
    if args.messages == Messages::Indicator {
        if args.pipeline > 1 || args.batch > 1 {
            return Err(usage(
                "--messages indicator has one request outstanding: no --pipeline, no --batch",
            ));
        }
        if args.wake == Wake::Event {
            return Err(usage("--messages indicator polls: no --wake event"));
        }
    }
    Ok(())
}

/// Says of a variant what it is: it has no pointer cache, and without one
/// every choice is to ask.
pub fn normalize(args: &mut KeysArgs) {
    if is_variant(args) {
        args.pointer_cache = PointerCache::Off;
        if args.path == BenchPath::Choose {
            args.path = BenchPath::Ask;
        }
    }
}

/// The command line of the server for these flags.
pub fn server_args(args: &KeysArgs, plan: &ServerPlan) -> Vec<String> {
    vec![
        "bench".into(),
        "variant-server".into(),
        format!("--messages={}", args.messages),
        format!("--shard-model={}", args.shard_model),
        format!("--message-bytes={}", message_bytes(args.key_bytes, args.value_bytes)),
        format!("--shards={}", plan.shards),
        format!("--max-memory-bytes={}", plan.max_memory_bytes),
        format!("--buckets={}", plan.buckets),
        format!("--lease-min-ms={}", plan.lease_min_ms),
        format!("--wake={}", plan.wake),
        format!("--pin={}", plan.pin),
    ]
}

const _: () = assert!(REPLY_HEADER_BYTES + MAX_INLINE_BYTES <= MAX_PAYLOAD_BYTES);
