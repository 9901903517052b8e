//! What a client keeps open while it has one connection.

use crate::check::places::Act;
use crate::values::HashName;
use remora_client_core::{OpenHash, OpenTree};
use std::collections::BTreeMap;

/// What a client keeps of trees and hashes while it has one connection.
#[derive(Default)]
pub(super) struct Views {
    /// Of the present session, by the trees' numbers.
    pub trees: BTreeMap<u32, OpenTree>,
    /// The same of hashes.
    pub hashes: BTreeMap<HashName, OpenHash>,
    /// Changes whose outcome no client has learnt.
    pub unknown: Vec<Act>,
}
