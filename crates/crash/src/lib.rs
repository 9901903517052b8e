//! `remora crash`: kills real servers at full load, cuts their power, lets their disks fail, and
//! checks after each restart that nothing is lost that the durability promises to keep.
//!
//! Invariant of this crate: what is judged is only what a user could know, the replies and the
//! reads; what a disk holds after a power cut is a function of the server's calls and a seed.

#![forbid(unsafe_code)]

mod args;
mod cluster;
mod disk;
mod history;
mod journal;
mod layer;
mod load;
mod network;
mod replicas;
mod rounds;
mod small_disk;
mod state;
mod totals;
mod types;
mod workload;

pub use args::{CrashArgs, Durability};
pub use cluster::{ClusterPlan, Members, Status};
pub use layer::{Fault, Layer};
pub use load::ServerAddress;
pub use network::Network;

use anyhow::Context;
use remora_command_line::note;
use rounds::Run;
use small_disk::SmallDisk;
use std::io::Write;

/// Runs the command.
///
/// # Errors
/// Something was lost or stale, or a server did what it should not; or the arguments make no
/// sense.
pub fn run(args: &CrashArgs) -> anyhow::Result<()> {
    let types = args.checked()?;
    if args.neighbour {
        return cluster::run_neighbour(args);
    }
    if args.cluster.is_some() {
        return cluster::run(args, &types);
    }
    if args.replicas > 0 {
        return replicas::run(args, &types);
    }
    let seed = args.seed.unwrap_or_else(rand::random);
    note(&format!("seed {seed}"));
    let base = tempfile::Builder::new().prefix("remora-crash-").tempdir()?;
    let path = base.path().canonicalize().context("finding the temporary directory")?;
    let (data, home) = (path.join("data"), path.join("layer"));
    std::fs::create_dir(&data)?;
    let layer = Layer::build(&data, &home)?;
    let probe = path.join("probe");
    std::fs::create_dir(&probe)?;
    let mut run = Run::new(args, &types, seed, data, layer);
    run.no_small_disks = SmallDisk::try_out(&probe).err();
    if let Some(reason) = run.no_small_disks.as_deref().filter(|_| run.wants_small_disks()) {
        note(&format!("rounds on a small disk DID NOT RUN: no tmpfs can be mounted: {reason}"));
    }
    let mut ended = run.run();
    if ended.is_ok() && args.durability == Durability::Fsync && !run.saw_syncs() {
        ended = Err(anyhow::anyhow!(
            "the layer saw no sync: the server has to sync by libc's functions, as std::fs does"
        ));
    }
    let totals = run.totals;
    let is_good = ended.is_ok() && totals.are_good();
    if !is_good {
        note(&format!("the server's directory stays: {}", base.keep().display()));
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        let fields = serde_json::json!({
            "durability": args.durability.to_string(),
            "seed": seed,
            "rounds": totals.rounds,
            "failovers": 0,
            "acknowledged": totals.acknowledged,
            "lost": totals.lost,
            "stale": totals.stale,
            "problems": totals.problems,
            "small_disks": totals.small_disks,
            "small_disks_did_not_run": run.no_small_disks,
        });
        writeln!(out, "{fields}")?;
    } else {
        writeln!(out, "{totals}")?;
    }
    ended?;
    totals.verdict(seed)?;
    Ok(())
}
