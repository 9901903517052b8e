//! The binary: `remora serve`, `bench`, `explain`, `import`, `export`, `demo`,
//! `couriers`, `doctor`, `version`.
//!
//! What this crate keeps true: with `--json` standard output is exactly one
//! JSON object and everything else goes to standard error; the exit code is
//! 0 done, 1 failed, 2 usage, 3 transport unavailable; a server process that
//! this binary started ends with it, however it ends.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod couriers;
mod cpu;
mod demo;
mod doctor;
mod explain;
mod export;
mod failure;
mod import;
mod puts;
mod rdma_packets;
mod refusals;
mod resp;
mod serve;
mod server_process;
mod transport;
mod wake;

use clap::Parser;
use cli::{Cli, Command};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may listen any more; that is no reason to panic.
            let _ = writeln!(std::io::stderr(), "remora: {error:#}");
            failure::exit_code(&error)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Bench(bench) => bench::run(bench),
        Command::Import(command) => import::run(command),
        Command::Explain(args) => explain::run(&args),
        Command::Export(command) => export::run(command),
        Command::Demo(args) => demo::run(args),
        Command::Couriers(args) => couriers::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Version => {
            writeln!(std::io::stdout(), "{}", cli::version())?;
            Ok(())
        }
    }
}
