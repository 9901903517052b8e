//! Which keys of an index a search visits: the bounds of a filter, as ranges of the index's keys.
//!
//! Invariant: each document that matches has a key in the ranges.

use crate::filter::{Bounds, Filter, Interval, behind, intersection};
use crate::key::Direction;
use crate::keys::{IndexField, encode_hash};
use remora_layout::collection::cut_values;
use remora_layout::limits::MAX_INDEX_RANGES;
use std::ops::Bound;

/// Keys from one up to another one, which is not among them; an empty end is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    /// The first one, or what it begins with.
    pub from: Vec<u8>,
    /// The end.
    pub to: Vec<u8>,
}

/// What an index has keys of.
#[derive(Clone, Copy, Debug)]
pub struct IndexShape<'i> {
    /// Its fields, in order.
    pub fields: &'i [IndexField],
    /// The fields, by their bits, of which a document has had several values.
    pub multikey: u32,
    /// Its keys are encoded `_id`s. Those of all other indexes are entries, whose values may be cut.
    pub is_of_ids: bool,
}

/// What the bounds of a filter come to in one index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fitted {
    /// In ascending order; no two of them meet.
    pub ranges: Vec<KeyRange>,
    /// Fields that have bounds.
    pub bounded: usize,
    /// Fields in front that have one value.
    pub single: usize,
    /// Conditions that the ranges meet.
    pub exact: usize,
    /// Fields, by their bits, that have one value in each document that matches.
    pub constant: u32,
}

impl KeyRange {
    /// As bounds of keys.
    #[must_use]
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let to = match self.to.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Excluded(&self.to[..]),
        };
        (Bound::Included(&self.from), to)
    }

    /// Whether a key lies in it.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        &self.from[..] <= key && (self.to.is_empty() || key < &self.to[..])
    }
}

/// Bytes with each of them inverted.
fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

/// The intervals of a field's encodings in an index, for those of its values.
fn in_index(field: &IndexField, intervals: Vec<Interval>) -> Option<Vec<Interval>> {
    if field.is_hashed() {
        let hash = |of: Interval| {
            let mut key = Vec::new();
            encode_hash(&of.from, &mut key);
            Interval { to: behind(&key), from: key, is_point: true }
        };
        let are_points = intervals.iter().all(|of| of.is_point);
        let mut all: Vec<Interval> =
            are_points.then(|| intervals.into_iter().map(hash).collect())?;
        all.sort_unstable_by(|one, other| one.from.cmp(&other.from));
        all.dedup();
        return Some(all);
    }
    if field.direction() == Direction::Ascending {
        return Some(intervals);
    }
    let turned = |of: Interval| {
        // What begins with the one end lies behind it there, too.
        let from = if of.is_open() { Vec::new() } else { behind(&inverted(&of.to)) };
        match of.is_point {
            true => {
                let from = inverted(&of.from);
                Interval { to: behind(&from), from, is_point: true }
            }
            false => Interval { from, to: behind(&inverted(&of.from)), is_point: false },
        }
    };
    Some(intervals.into_iter().rev().map(turned).collect())
}

/// Bounds that say something.
fn telling(filter: &Filter, path: &str) -> Vec<Bounds> {
    let mut all = filter.bounds(path);
    all.retain(|bounds| bounds.intervals != [Interval::ALL]);
    all
}

impl IndexShape<'_> {
    /// Whether a document has had several values of a field.
    #[must_use]
    pub const fn is_multikey(&self, at: usize) -> bool {
        self.multikey & (1 << at) != 0
    }

    /// The intervals of a field, and how many conditions they meet. Of several conditions on an array one is
    /// taken, as each may be met by another element.
    fn intervals(&self, filter: &Filter, at: usize) -> Option<(Vec<Interval>, usize)> {
        let field = &self.fields[at];
        let all = telling(filter, field.path());
        let exact = all.iter().filter(|bounds| bounds.is_exact).count();
        let intervals = if self.is_multikey(at) {
            let narrow = |bounds: &Bounds| {
                (!bounds.intervals.iter().all(|of| of.is_point), bounds.intervals.len())
            };
            (all.into_iter().min_by_key(narrow)?.intervals, 0)
        } else {
            let both = |one: Vec<Interval>, other: Bounds| intersection(&one, &other.intervals);
            let mut all = all.into_iter();
            let first = all.next()?;
            (all.fold(first.intervals, both), exact)
        };
        Some((in_index(field, intervals.0)?, intervals.1))
    }

    /// The ranges in which the filter's documents have keys.
    #[must_use]
    pub fn fit(&self, filter: &Filter) -> Fitted {
        let mut fitted =
            Fitted { ranges: Vec::new(), bounded: 0, single: 0, exact: 0, constant: 0 };
        let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
        let (mut goes_on, mut has_array) = (true, false);
        for at in 0..self.fields.len() {
            // Two fields of an array may be met by two of its elements.
            let may_bound = goes_on && !(has_array && self.is_multikey(at));
            let intervals = self.intervals(filter, at);
            let is_single =
                intervals.as_ref().is_some_and(|(of, _)| of.len() == 1 && of[0].is_point);
            if is_single && !self.is_multikey(at) && !self.fields[at].is_hashed() {
                fitted.constant |= 1 << at;
            }
            let Some((intervals, exact)) = intervals.filter(|_| may_bound) else {
                goes_on = false;
                continue;
            };
            has_array |= self.is_multikey(at);
            let are_points = intervals.iter().all(|of| of.is_point);
            if prefixes.len() * intervals.len() > MAX_INDEX_RANGES {
                goes_on = false;
                continue;
            }
            fitted.bounded += 1;
            fitted.exact += exact;
            let with = |prefix: &[u8], rest: &[u8]| [prefix, rest].concat();
            if are_points {
                fitted.single += usize::from(is_single && fitted.single == at);
                let points = prefixes
                    .iter()
                    .flat_map(|prefix| intervals.iter().map(move |of| with(prefix, &of.from)));
                prefixes = points.collect();
                continue;
            }
            goes_on = false;
            for prefix in std::mem::take(&mut prefixes) {
                fitted.ranges.extend(intervals.iter().map(|of| {
                    let to = match of.is_open() {
                        true => behind(&prefix),
                        false => with(&prefix, &of.to),
                    };
                    KeyRange { from: with(&prefix, &of.from), to }
                }));
            }
        }
        let whole = prefixes.into_iter().map(|from| KeyRange { to: behind(&from), from });
        fitted.ranges.extend(whole);
        if !self.is_of_ids {
            fitted.ranges = cut_ranges(fitted.ranges);
        }
        fitted
    }
}

/// Ranges of whole encodings as ranges of entries, whose values may be cut.
fn cut_ranges(ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    let mut all: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for KeyRange { from, to } in ranges {
        let from = cut_values(&from).to_vec();
        let to = if cut_values(&to).len() < to.len() { behind(cut_values(&to)) } else { to };
        match all.last_mut() {
            Some(last) if !last.to.is_empty() && from < last.to => {
                // They have met.
                if to.is_empty() || to > last.to {
                    last.to = to;
                }
            }
            _ => all.push(KeyRange { from, to }),
        }
    }
    all
}

/// Whether an index with these fields has all documents that match a filter: one that is sparse, or has the
/// documents that match `partial` only, may lack some.
#[must_use]
pub fn has_all(
    (fields, is_sparse, partial): (&[IndexField], bool, Option<&Filter>),
    filter: &Filter,
) -> bool {
    let is_sound = partial.is_none_or(|partial| filter.implies(partial));
    let has_value =
        |field: &IndexField| filter.bounds(field.path()).iter().any(|of| of.needs_value);
    is_sound && (!is_sparse || fields.iter().any(has_value))
}
