//! The command line.

use crate::backup::{BackupArgs, RestoreArgs};
use crate::cluster::ClusterCommand;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::explain::ExplainArgs;
use crate::export::ExportCommand;
use crate::import::ImportCommand;
use crate::log::LogCommand;
use crate::serve::ServeArgs;
use clap::{Parser, Subcommand};
use remora_bench::BenchCommand;
use remora_crash::CrashArgs;
use remora_layout::hello::PROTOCOL_VERSION;
use remora_load::LoadArgs;

/// An in-memory data engine whose clients can read the server's memory directly.
#[derive(Debug, Parser)]
#[command(name = "remora", version = env!("CARGO_PKG_VERSION"), propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `remora` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serves keys over RESP and to clients that read its memory.
    Serve(Box<ServeArgs>),
    /// Measures, against a server process of its own or a named one.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Adds the objects of a file to a tree of places.
    #[command(subcommand)]
    Import(ImportCommand),
    /// Loads files or PostgreSQL into items, links and lists of links, all at once for readers.
    Load(Box<LoadArgs>),
    /// Writes the objects of a tree of places into a file.
    #[command(subcommand)]
    Export(ExportCommand),
    /// Copies the data of a running server into a directory, checked by digest.
    Backup(BackupArgs),
    /// Makes a data directory from a backup, gives its keys to a server, or checks it.
    Restore(RestoreArgs),
    /// Looks at a data directory.
    #[command(subcommand)]
    Log(LogCommand),
    /// Does an operation some times, and tells which way it went, why, and what
    /// was expected of asking and of reading.
    Explain(Box<ExplainArgs>),
    /// Makes a cluster, shows it, and changes who leads.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Loads real places into a server process and compares three ways to get them.
    Demo(DemoArgs),
    /// Kills real servers, cuts their power, and checks that nothing promised is lost.
    Crash(CrashArgs),
    /// Says what this machine offers, tries it, and says what to change. Exit
    /// code 1 if something that is there does not work.
    Doctor(DoctorArgs),
    /// Prints the version and the version of the memory layout.
    Version,
}

/// The line of `remora version`: the release, and the version of what other
/// processes see of a server's memory.
pub fn version() -> String {
    format!("remora {} (layout {PROTOCOL_VERSION})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_names_the_layout() {
        assert_eq!(version(), "remora 0.1.0 (layout 9)");
    }
}
