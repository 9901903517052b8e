//! Sorted sets that become one.

use crate::items::Items;
use crate::message::Status;
use crate::types::sorted::scored::Scored;
use remora_layout::limits::{MAX_COMMAND_ITEMS, MAX_KEY_BYTES};

/// How the scores of a member that several sets have become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aggregate {
    /// Their sum.
    #[default]
    Sum = 0,
    /// The lowest.
    Min = 1,
    /// The greatest.
    Max = 2,
}

impl Aggregate {
    pub(super) fn of(number: u8) -> Option<Self> {
        [Self::Sum, Self::Min, Self::Max].into_iter().find(|of| *of as u8 == number)
    }

    /// A score with its weight; 0 instead of NaN, as 0 times infinity.
    ///
    /// ```
    /// use remora_protocol::sorted::Aggregate;
    ///
    /// assert_eq!(Aggregate::weighted(f64::INFINITY, 0.0), 0.0);
    /// ```
    #[inline]
    pub fn weighted(score: f64, weight: f64) -> f64 {
        let score = weight * score;
        if score.is_nan() { 0.0 } else { score }
    }

    /// What is found so far, and the weighted score of one more set. A sum that is NaN is 0, as the one
    /// of infinity and its negative.
    ///
    /// ```
    /// use remora_protocol::sorted::Aggregate;
    ///
    /// assert_eq!(Aggregate::Sum.join(f64::INFINITY, f64::NEG_INFINITY), 0.0);
    /// assert_eq!(Aggregate::Max.join(1.0, 2.0), 2.0);
    /// ```
    #[inline]
    pub fn join(self, found: f64, score: f64) -> f64 {
        match self {
            Self::Sum if (found + score).is_nan() => 0.0,
            Self::Sum => found + score,
            Self::Min if score < found => score,
            Self::Max if score > found => score,
            Self::Min | Self::Max => found,
        }
    }
}

/// The sets of [`Combine`](super::SortedCommand::Combine), encoded as [`Items`]: what was found before,
/// the weight of the command's own set, then keys of other sets and their weights, in turn. A weight has
/// 8 bytes, and is not NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sources<'a> {
    /// Whether the first item is a list of members with their scores ([`Scored`]). They stand before the
    /// key's own set, with weight 1.
    has_before: bool,
    items: Items<'a>,
}

impl<'a> Sources<'a> {
    /// Overwrites `out` with the items: what was found before, the weight of the command's own set, and
    /// keys with weights.
    pub fn write<'k>(
        out: &mut Vec<u8>,
        before: Option<&[u8]>,
        own_weight: f64,
        others: impl Iterator<Item = (&'k [u8], f64)>,
    ) {
        out.clear();
        if let Some(before) = before {
            Items::push(out, before);
        }
        Items::push(out, &own_weight.to_le_bytes());
        for (key, weight) in others {
            Items::push(out, key);
            Items::push(out, &weight.to_le_bytes());
        }
    }

    /// The sets that these items encode.
    ///
    /// # Errors
    /// They encode none, or break a limit.
    pub fn parse(has_before: bool, items: &'a [u8]) -> Result<Self, Status> {
        let items = Items::parse(items).ok_or(Status::Malformed)?;
        if items.has_links() || items.iter().any(|item| item.is_none()) {
            return Err(Status::Malformed);
        }
        let of = Self { has_before, items };
        let mut all = items.iter().flatten();
        if has_before && all.next().and_then(Scored::parse).is_none() {
            return Err(Status::Malformed);
        }
        let is_weight = |item: Option<&[u8]>| item.and_then(weight).is_some_and(|of| !of.is_nan());
        if !is_weight(all.next()) {
            return Err(Status::Malformed);
        }
        let mut count = 0;
        while let Some(key) = all.next() {
            if count == MAX_COMMAND_ITEMS || key.len() > MAX_KEY_BYTES {
                return Err(Status::TooLarge);
            }
            if !is_weight(all.next()) {
                return Err(Status::Malformed);
            }
            count += 1;
        }
        Ok(of)
    }

    /// Whether members were found before.
    pub const fn has_before(self) -> bool {
        self.has_before
    }

    /// The encoded items.
    pub const fn bytes(self) -> &'a [u8] {
        self.items.bytes()
    }

    /// What was found before, an encoded list of members with their scores ([`Scored`]).
    pub fn before(self) -> Option<&'a [u8]> {
        self.items.iter().next().flatten().filter(|_| self.has_before)
    }

    /// The weight of the command's own set.
    pub fn own_weight(self) -> f64 {
        let own = self.items.iter().flatten().nth(self.has_before.into());
        own.and_then(weight).expect("checked when it was made")
    }

    /// The keys of the other sets, and their weights.
    pub fn others(self) -> impl Iterator<Item = (&'a [u8], f64)> + Clone {
        let mut items = self.items.iter().flatten().skip(1 + usize::from(self.has_before));
        std::iter::from_fn(move || Some((items.next()?, items.next().and_then(weight)?)))
    }
}

fn weight(bytes: &[u8]) -> Option<f64> {
    Some(f64::from_le_bytes(bytes.try_into().ok()?))
}
