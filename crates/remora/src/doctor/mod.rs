//! `remora doctor`: reports this machine's capabilities, line by line, and the advised changes
//! (M29: a value that cannot be read is unknown, and not guessed).

mod finding;
mod flow;
mod local;
mod rdma;

use anyhow::bail;
use clap::Args;
use finding::{Finding, Verdict};
use remora_command_line::PacketArgs;
use serde::Serialize;
use std::io::{self, Write};

/// Flags of `remora doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// Settings of the packets that devices are tried with.
    #[command(flatten)]
    packets: PacketArgs,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Findings that say that something which is there does not work.
    broken: usize,
    findings: Vec<Finding>,
}

/// Checks everything, and tries everything that needs no peer.
///
/// # Errors
/// A setting that there is not, or something that is there does not work.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let packets = args.packets.packets()?;
    let mut findings = local::findings();
    findings.extend(rdma::findings(&packets));
    let broken = findings.iter().filter(|finding| finding.verdict == Verdict::Broken).count();
    let report = Report { version: env!("CARGO_PKG_VERSION"), broken, findings };
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        finding::write(&mut out, &report.findings)?;
    }
    out.flush()?;
    match broken {
        0 => Ok(()),
        1 => bail!("one thing that is there does not work"),
        count => bail!("{count} things that are there do not work"),
    }
}
