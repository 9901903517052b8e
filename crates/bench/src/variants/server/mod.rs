//! The server of the variants: shards of the product's engine in the product's
//! memory, served by other messages or other threads. It belongs to the bench
//! that starts it and ends with it.
//!
//! There is no RESP, no heartbeat and no read lease: only GET and SET by message. A connection that
//! breaks the protocol ends. So does one whose replies find no room, because an honest client never
//! lets that happen.

mod connection;
mod pipelined;
mod rest;
mod single;
mod threads;
mod work;

use super::form::{Messages, ShardModel};
use anyhow::Context;
use clap::Args;
use connection::{Host, Post};
use remora_arena::{NoJournal, Region, RegionKind};
use remora_command_line::serving::{
    raise_descriptor_limit, remove_directory_of, start_log, watch_for_end,
};
use remora_command_line::{Wake, usage};
use remora_engine::table_end;
use remora_engine::{Shard, ShardOptions};
use remora_layout::limits::{
    LEASE_CONFIG_MAX_S, MAX_SHARDS, MIN_ARENA_BYTES, SMALLEST_CHUNK_BUCKETS,
};
use rest::{Asleep, Rest};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use threads::Pins;
use work::{Clock, Store};

/// Flags of the server; the bench writes them.
#[derive(Clone, Debug, Args)]
pub struct VariantServerArgs {
    #[arg(long, value_enum)]
    messages: Messages,
    #[arg(long, value_enum)]
    shard_model: ShardModel,
    /// Bytes of the longest message.
    #[arg(long)]
    message_bytes: usize,
    #[arg(long)]
    shards: usize,
    #[arg(long)]
    max_memory_bytes: u64,
    #[arg(long)]
    buckets: u64,
    #[arg(long)]
    lease_min_ms: u64,
    #[arg(long, value_enum)]
    wake: Wake,
    #[arg(long, action = clap::ArgAction::Set)]
    pin: bool,
    #[arg(long)]
    socket: PathBuf,
}

/// Serves until the owner's end, or a signal.
pub fn run(args: VariantServerArgs) -> anyhow::Result<()> {
    start_log("warn")?;
    raise_descriptor_limit();
    let endings = watch_for_end(true)?;
    let host = start(&args)?;
    let listener = UnixListener::bind(&args.socket)
        .with_context(|| format!("cannot listen on {}", args.socket.display()))?;
    std::thread::Builder::new()
        .name("accept".into())
        .spawn(move || connection::accept(&host, &listener))?;
    let ready = format!("ready socket={} pid={}", args.socket.display(), std::process::id());
    // An owner that is gone does not read: the end of standard input shows that.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{ready}").and_then(|()| out.flush());
    drop(out);
    endings.recv().context("nobody watches for the end any more")?;
    // The server only keeps memory of this process: the process's end ends the threads. Only the
    // owner may access the directory.
    let _ = std::fs::remove_file(&args.socket);
    remove_directory_of(&args.socket);
    Ok(())
}

/// Makes the shards and starts their threads.
fn start(args: &VariantServerArgs) -> anyhow::Result<Host> {
    if !(1..=MAX_SHARDS).contains(&args.shards) {
        return Err(usage(format!("shards: must be 1 to {MAX_SHARDS}")));
    }
    let shards = args.shards as u64;
    let arena_bytes = (args.max_memory_bytes / shards).max(MIN_ARENA_BYTES) & !4095;
    let buckets = (args.buckets / shards).max(SMALLEST_CHUNK_BUCKETS).next_power_of_two();
    anyhow::ensure!(table_end(buckets) <= arena_bytes / 2, "the table leaves no room for records");
    let incarnation = rand::random::<u64>() | 1;
    let hash_seed = rand::random();
    let clock = Clock::start();
    let mut pins = Pins::new(args.shards * args.shard_model.threads(), args.pin);
    let mut posts = Vec::with_capacity(args.shards);
    for number in 0..args.shards {
        let region = Region::create("remora-arena", RegionKind::Arena, arena_bytes as usize)?;
        let owner = region.owner(NoJournal).context("just created: nobody else owns it")?;
        let shard = Shard::new(
            owner,
            ShardOptions {
                region: number as u32,
                incarnation,
                epoch: 1,
                hash_seed,
                buckets,
                lease_min_s: args.lease_min_ms.div_ceil(1000).min(LEASE_CONFIG_MAX_S),
                record_secret: rand::random(),
                ..ShardOptions::default()
            },
        );
        let asleep = Asleep::new(region.asleep_word());
        let rest = || Rest::new(args.wake, args.messages, Arc::clone(&asleep), pins.is_crowded);
        let accept_queues = match args.shard_model {
            ShardModel::Single => {
                let store = Store::new(shard, hash_seed, clock);
                vec![single::start(number, store, rest()?, pins.next())?]
            }
            ShardModel::Pipelined => {
                let store = Store::new(shard, hash_seed, clock);
                let rests = [rest()?, rest()?];
                pipelined::start(number, store, rests, &mut pins)?
            }
        };
        posts.push(Post { region, accept_queues });
    }
    Ok(Host {
        messages: args.messages,
        message_bytes: args.message_bytes,
        incarnation,
        hash_seed,
        posts,
    })
}
