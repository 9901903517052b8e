//! Ordered trees in a world: a seed's choices for them.
//!
//! Keys of a tree are registers, as fields of a hash are. Trees of odd number have integers. All their
//! keys have one length, so that they are in the same order if they are byte strings.

use crate::values::{FIRST_INTEGER, HashName, Lengths, Register, has_integers, key_name};
use remora_fabric::sim::Random;
use remora_layout::btree::KeyForm;
use remora_protocol::ordered::OrderedSettings;

/// Mixed into the seed: the draws for ordered trees change no other draws.
const SALT: u64 = 0x6f72_6465_7265_6421;
/// Mixed into the seed: the draw of the longest value in a leaf changes no other draws.
const LONG_SALT: u64 = 0x6c6f_6e67_6572_2121;
/// Operations of a world with ordered trees at most.
pub const ORDERED_OPERATIONS: u64 = 1_500;
/// Bytes of keys at most.
const KEY_BYTES: usize = 64;
/// Bytes of values in leaves: the longer ones of these worlds lie in records.
const VALUE_BYTES: [usize; 3] = [256, 256, 40];
/// A value that stands for a multiple of so many numbers is a link.
const LINK_EACH: i64 = 4;
/// What numbers of values are multiples of.
const NUMBER_UNIT: i64 = 1_000_000;

/// A seed's choice of ordered trees.
#[derive(Clone, Copy, Debug)]
pub struct OrderedSwarm {
    /// Trees of each database.
    pub trees: u8,
    /// Keys of a tree have numbers below.
    pub keys: u32,
    /// Entries of a node.
    pub fan_out: usize,
    /// How long values are.
    pub lengths: Lengths,
    /// How long values in leaves are at most.
    pub value_bytes: usize,
    /// Inner nodes that a client keeps, in bytes.
    pub kept_bytes: usize,
    /// Keys of a run of changes at most.
    pub most_at_once: u64,
    /// For so many ns clients mostly set keys, and then mostly remove them for the same time.
    pub tide_ns: u64,
    /// How many of a hundred operations are about ordered trees.
    pub percent: u64,
    /// Operations, of a thousand on a tree, that remove it or let it expire.
    pub ends: u64,
}

impl OrderedSwarm {
    /// A seed's draw. Nodes are small: they are divided and joined all the time.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        Self {
            trees: one_of([1, 1, 2, 3]) as u8,
            keys: one_of([8, 60, 200, 300]) as u32,
            fan_out: one_of([4, 4, 8, 16]) as usize,
            lengths: Lengths { most_bytes: one_of([0, 20, 100, 230]), one_for_each_key: false },
            kept_bytes: one_of([0, 2_000, 1 << 20, 1 << 20]) as usize,
            most_at_once: one_of([1, 10, 40, 40]),
            tide_ns: one_of([200_000, 2_000_000, 50_000_000, 2_000_000_000]),
            percent: one_of([50, 70, 90, 90]),
            ends: one_of([0, 3, 10, 30]),
            value_bytes: VALUE_BYTES[Random::new(seed ^ LONG_SALT).below(3) as usize],
        }
    }

    /// The settings of a tree.
    pub fn settings(&self, tree: HashName) -> OrderedSettings {
        let form = if has_integers(tree) { KeyForm::Integers } else { KeyForm::Bytes };
        let of = OrderedSettings::of(form);
        let key_bytes = of.key_bytes.min(KEY_BYTES);
        OrderedSettings { fan_out: self.fan_out, key_bytes, value_bytes: self.value_bytes, ..of }
    }
}

/// Whether a value that stands for this number is a link.
pub fn is_link(number: i64) -> bool {
    number / NUMBER_UNIT % LINK_EACH == 0
}

/// The register of a name of a tree; `None` if no client sets such a key.
pub fn register_named(database: u8, tree: HashName, name: &[u8], below: u32) -> Option<Register> {
    let text = std::str::from_utf8(name).ok()?;
    let digits = text.rsplit(':').next()?;
    let first = if has_integers(tree) { FIRST_INTEGER } else { 0 };
    let number = digits.parse::<u32>().ok()?.checked_sub(first)?;
    let is_it = number < below && key_name(tree, number) == name;
    is_it.then_some(Register { database, hash: Some(tree), number })
}
