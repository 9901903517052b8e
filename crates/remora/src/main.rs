//! The binary: `remora serve`, `bench`, `explain`, `import`, `load`, `export`, `backup`, `restore`, `log`,
//! `cluster`, `demo`, `crash`, `doctor`, `version`.
//!
//! Invariant of this crate: with `--json` standard output is exactly one JSON object and all other
//! output goes to standard error; the exit code is 0 done, 1 failed, 2 usage, 3 transport
//! unavailable; a server process that this binary started ends with it, however it ends.

#![forbid(unsafe_code)]

mod backup;
mod cli;
mod cluster;
mod demo;
mod doctor;
mod explain;
mod export;
mod import;
mod log;
mod recovery_bar;
mod refusals;
mod serve;

use clap::Parser;
use cli::{Cli, Command};
use remora_command_line::exit_code;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The reader may have gone; that is no reason to panic.
            let _ = writeln!(std::io::stderr(), "remora: {error:#}");
            exit_code(&error)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Bench(bench) => remora_bench::run(bench),
        Command::Import(command) => import::run(command),
        Command::Load(args) => remora_load::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Export(command) => export::run(command),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Log(command) => log::run(&command),
        Command::Cluster(command) => cluster::run(command),
        Command::Demo(args) => demo::run(args),
        Command::Crash(args) => remora_crash::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Version => {
            writeln!(std::io::stdout(), "{}", cli::version())?;
            Ok(())
        }
    }
}
