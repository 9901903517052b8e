//! How the objects of one type are read for a combination, and how scores become one.

use crate::store::{Parts, Write};
use remora_arena::{Journal, Owner};
use remora_layout::kind::Kind;
use remora_protocol::elements::Combination;

/// How the objects of a type are read, so that an operation of another type can: functions over
/// records. `S` is what a reply has of a member beside its name.
pub(crate) struct MemberReader<J: Journal, S> {
    /// The kind of the type's root records.
    pub kind: Kind,
    /// Appends the members of an object that lies whole in its record, whose value this is.
    pub push_whole: fn(&[u8], &mut Vec<u8>),
    /// Looks a member up there.
    pub find_in_whole: fn(&[u8], &[u8]) -> Option<S>,
    /// Appends the members of a part.
    pub push_part: Write,
    /// Looks members up in an object of parts, and keeps those that stay.
    pub look_up: LookUp<J, S>,
}

/// Looks a few members up in the parts of an object, as [`super::super::bins::look_up`] does.
pub(crate) type LookUp<J, S> = fn((&Parts, &Owner<J>), &mut Vec<(&[u8], S)>, &Join<'_>);

impl<J: Journal, S> Clone for MemberReader<J, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<J: Journal, S> Copy for MemberReader<J, S> {}

/// How the scores that a member has in several objects become one, as in Redis.
#[derive(Clone, Copy)]
pub(crate) struct Join<'w> {
    /// How the objects become one.
    pub how: Combination,
    /// The weights of one object: one for each time that it is named.
    pub weights: &'w [f64],
    /// What is found so far, and one more score.
    pub join: fn(f64, f64) -> f64,
}

impl Join<'_> {
    /// The score of a member that this object has, by what those before it have given. A difference
    /// has the scores of the first object, without weights. A weighted score that is NaN, as 0 times
    /// infinity, is 0 in a union, and in the first object of an intersection.
    #[inline]
    pub fn score(&self, so_far: Option<f64>, score: f64) -> f64 {
        if self.how == Combination::Diff {
            return so_far.unwrap_or(score);
        }
        let join = |so_far: Option<f64>, weight: &f64| {
            let weighted = weight * score;
            let or_zero = if weighted.is_nan() { 0.0 } else { weighted };
            Some(match so_far {
                None => or_zero,
                Some(so_far) if self.how == Combination::Union => (self.join)(so_far, or_zero),
                Some(so_far) => (self.join)(so_far, weighted),
            })
        };
        self.weights.iter().fold(so_far, join).unwrap_or(score)
    }
}
