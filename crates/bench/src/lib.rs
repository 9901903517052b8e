//! `remora bench`: measures ways to the same records and places, the rivals of
//! the papers among them.
//!
//! Invariant: loading and warming up are not timed; every value and every found object is checked;
//! a server process that a bench starts ends with it. The flags and the fields of the reports are a
//! contract.

#![forbid(unsafe_code)]

mod bounds;
mod costs;
mod documents;
mod drive;
mod elements;
mod eviction;
#[cfg(test)]
mod fields;
mod geo;
mod keys;
mod links;
mod meter;
mod pinning;
mod places;
mod ranges;
mod records;
mod run;
mod scores;
mod targets;
mod trace;
mod transport_report;
mod variants;
mod workload;

use clap::Subcommand;
pub use costs::Costs;
use documents::DocumentsArgs;
pub use drive::{Shape, load};
use elements::ElementsArgs;
use eviction::EvictionArgs;
use geo::GeoArgs;
use keys::KeysArgs;
use links::LinksArgs;
use places::PlacesArgs;
pub use places::resp::RespPlaces;
pub use places::run::drive as drive_searches;
pub use places::session::SessionPlaces;
pub use places::target::Places as TreePlaces;
pub use places::workload::Op as SearchOp;
use ranges::RangesArgs;
pub use records::Records;
pub use run::{Figures, Outcome, Plan, run as run_plan};
pub use targets::resp::RespTarget;
pub use targets::session::SessionTarget;
pub use workload::{Source, Workload};

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// GET and SET on keys.
    Keys(Box<KeysArgs>),
    /// Windows in a tree of rectangles, and inserts.
    Places(Box<PlacesArgs>),
    /// Keys and ranges of an ordered tree, with the inner nodes that clients keep.
    Ranges(Box<RangesArgs>),
    /// Boxes of points over RESP, by the commands that Redis has too.
    Geo(GeoArgs),
    /// Ranges of a list, members of a set, or calls of a sorted set.
    Elements(ElementsArgs),
    /// Items that link to items: a search over a graph, pages of reviews, roads of positions.
    Links(Box<LinksArgs>),
    /// Documents of a collection: insert, find, update, delete, or query by an indexed field.
    Documents(Box<DocumentsArgs>),
    /// Hit ratios of eviction policies on a trace; no server is started.
    Eviction(Box<EvictionArgs>),
    /// The server of `keys` for messages and shard models that are compared.
    #[command(hide = true)]
    VariantServer(variants::VariantServerArgs),
}

/// Runs a bench.
pub fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Keys(args) => keys::run(*args),
        BenchCommand::Places(args) => places::run(&args),
        BenchCommand::Ranges(args) => ranges::run(&args),
        BenchCommand::Geo(args) => geo::run(&args),
        BenchCommand::Elements(args) => elements::run(&args),
        BenchCommand::Links(args) => links::run(&args),
        BenchCommand::Documents(args) => documents::run(&args),
        BenchCommand::VariantServer(args) => variants::run_server(args),
        BenchCommand::Eviction(args) => eviction::run(&args),
    }
}
