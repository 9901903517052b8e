//! A client's open views for one connection.

use crate::check::places::Act;
use crate::key_links::Target;
use crate::values::HashName;
use remora_client_core::{
    Link, OpenCollection, OpenHash, OpenList, OpenOrdered, OpenSet, OpenSorted, OpenTree,
};
use std::collections::BTreeMap;

/// A link that was read.
#[derive(Clone)]
pub(super) struct KeptLink {
    pub link: Link,
    pub target: Target,
    /// The server's incarnation then.
    pub incarnation: Option<u64>,
}

/// A client's views of trees and hashes for one connection.
#[derive(Default)]
pub(super) struct Views {
    /// Of the present session, by the trees' numbers.
    pub trees: BTreeMap<u32, OpenTree>,
    /// The same of hashes.
    pub hashes: BTreeMap<HashName, OpenHash>,
    /// The same of collections.
    pub collections: BTreeMap<HashName, OpenCollection>,
    /// The same of ordered trees.
    pub ordered: BTreeMap<HashName, OpenOrdered>,
    /// The same of sorted sets, by their numbers.
    pub sorted: BTreeMap<u8, OpenSorted>,
    /// The same of sets.
    pub sets: BTreeMap<HashName, OpenSet>,
    /// The same of lists, by their numbers.
    pub lists: BTreeMap<u8, OpenList>,
    /// The same of lists of links.
    pub hubs: BTreeMap<u64, OpenList>,
    /// Changes whose outcome is unknown.
    pub unknown: Vec<Act>,
}
