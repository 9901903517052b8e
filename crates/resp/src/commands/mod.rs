//! The commands: a file or a folder for each group. It has each command's entry in the table, its
//! parser and its reply's writer together.

mod acl;
pub mod cluster;
mod collection;
pub mod connection;
pub(crate) mod expiry;
pub mod geo;
mod hash;
mod keys;
pub mod keyspace;
mod list;
mod ordered;
pub mod persistence;
pub mod plan;
pub mod replication;
pub mod rtree;
pub mod sentinel;
pub mod server;
mod set;
mod sort;
pub mod sorted;
pub mod strings;
pub mod subscribe;
pub mod wait;

pub use list::blocking::apart;

use crate::spec::CommandSpec;

/// Their commands, one line each.
pub(crate) const COMMANDS: &[&[CommandSpec]] = &[
    acl::COMMANDS,
    cluster::COMMANDS,
    collection::COMMANDS,
    connection::COMMANDS,
    expiry::COMMANDS,
    geo::members::COMMANDS,
    geo::search::COMMANDS,
    hash::COMMANDS,
    hash::links::COMMANDS,
    keys::COMMANDS,
    keyspace::COMMANDS,
    list::COMMANDS,
    list::links::COMMANDS,
    list::blocking::COMMANDS,
    ordered::COMMANDS,
    persistence::COMMANDS,
    plan::COMMANDS,
    replication::COMMANDS,
    rtree::objects::COMMANDS,
    rtree::search::COMMANDS,
    sentinel::COMMANDS,
    server::COMMANDS,
    set::COMMANDS,
    sort::COMMANDS,
    sorted::combine::COMMANDS,
    sorted::members::COMMANDS,
    sorted::pops::COMMANDS,
    sorted::ranges::COMMANDS,
    strings::COMMANDS,
    subscribe::COMMANDS,
    wait::COMMANDS,
];
