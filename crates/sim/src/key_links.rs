//! Links in a world: a seed's choices for them, and what they name.

use crate::values::{HashName, Register};
use remora_fabric::sim::Random;

/// Mixed into the seed: the draws for links change no other draws.
const SALT: u64 = 0x6c69_6e6b_735f_6f66;
/// Operations of a world with links at most.
pub const LINK_OPERATIONS: u64 = 1_000;
/// Lists of links of each database. The elements of the first are links alone.
pub const HUBS: u64 = 2;
/// What a field, or an element, holds that is no link.
pub const PLAIN: &[u8] = b"plain";

/// A seed's choice of links.
#[derive(Clone, Copy, Debug)]
pub struct LinkSwarm {
    /// Hashes of links of each database.
    pub hashes: u8,
    /// Fields of such a hash have numbers below.
    pub fields: u32,
    /// Fields of one LINK.SET, and elements of one LINK.PUSH, at most.
    pub most_at_once: u64,
    /// Links that a client keeps, also of a server that is gone.
    pub kept: usize,
    /// How many of a hundred operations are about links.
    pub percent: u64,
    /// Operations, of a thousand, that remove a hash of links or let it expire.
    pub ends: u64,
}

impl LinkSwarm {
    /// A seed's draw. The hashes lie whole in their records, or have a record for each field.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        Self {
            hashes: one_of([1, 1, 2, 3]) as u8,
            fields: one_of([2, 8, 60, 200]) as u32,
            most_at_once: one_of([1, 3, 3, 60]),
            kept: one_of([1, 8, 64, 64]) as usize,
            percent: one_of([40, 60, 60, 80]),
            ends: one_of([0, 3, 3, 30]),
        }
    }
}

/// What a link names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The key of this number, which holds a string.
    Key(u32),
    /// The hash of this number that stays under its key.
    Hash(u8),
}

impl Target {
    /// The name of its key: the same in every database.
    pub fn name(self) -> Vec<u8> {
        match self {
            Self::Key(number) => Register { database: 0, hash: None, number }.name(),
            Self::Hash(hash) => HashName::Fixed(hash).key(),
        }
    }

    /// The number that stands for it in a field's history.
    pub fn number(self) -> i64 {
        match self {
            Self::Key(number) => number.into(),
            Self::Hash(hash) => -1 - i64::from(hash),
        }
    }

    /// The target of this name; `None` if no client links to it.
    pub fn named(name: &[u8]) -> Option<Self> {
        let (kind, number) = std::str::from_utf8(name).ok()?.split_once(':')?;
        let target = match kind {
            "key" => Self::Key(number.parse().ok()?),
            "hash" => Self::Hash(number.parse().ok()?),
            _ => return None,
        };
        (target.name() == name).then_some(target)
    }
}
