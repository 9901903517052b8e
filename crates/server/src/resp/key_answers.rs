//! How requests about the key space continue after the answers of shards.

use super::key_steps::{AfterWaiting, KeySteps};
use super::plan_job::PlanJob;
use super::sort_job::SortJob;
use remora_engine::moving::Moving;
use remora_engine::storing::Storing;
use remora_frontend::Token;
use remora_layout::database::Database;
use remora_resp::request::KeyFilter;
use std::collections::BTreeMap;

/// A part of a request that waits, as tokens name it.
pub(super) type RequestPartKey = (usize, u64, u64, usize);

pub(super) fn request_part_key(token: &Token) -> RequestPartKey {
    (token.connection, token.serial, token.request, token.part)
}

/// The next steps after answers.
#[derive(Default)]
pub(super) struct KeyAnswers {
    /// With the bytes of each one's job and of its results, which count among the pending bytes.
    pub(super) going_on: BTreeMap<RequestPartKey, (GoingOn, usize)>,
    /// Random numbers that were drawn.
    pub(super) drawn: u64,
}

/// How a request continues after the answer of a shard.
pub(super) enum GoingOn {
    /// SCAN: one step of this shard.
    Scan { shard: usize, filter: KeyFilter },
    /// KEYS: the shard is scanned to its end.
    Keys { shard: usize, database: Database, filter: KeyFilter, found: Vec<u8> },
    /// RANDOMKEY: this shard, then the others. The draw stays while a shard continues.
    Random { shard: usize, database: Database, random: u32, left: usize },
    /// A key moves to another one.
    Moving(Box<Moving>),
    /// A key gets the results.
    Storing(Box<Storing>),
    /// An operation on several keys.
    Steps(Box<KeySteps>),
    /// Elements are sorted.
    Sort(Box<SortJob>),
    /// A plan begins.
    Plan(Box<PlanJob>),
    /// An operation on several keys that waits for a key first.
    AfterWaiting(Box<AfterWaiting>),
    /// The answer is the reply.
    Last,
}

impl GoingOn {
    /// Bytes that were found.
    pub(super) fn found_bytes(&self) -> usize {
        match self {
            Self::Keys { found, .. } => found.len(),
            Self::Sort(sort) => sort.bytes(),
            _ => 0,
        }
    }
}
