//! What a change of a sorted set is about.

use remora_layout::packed_scores::order;

/// A member that gets a score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Put<'m> {
    pub member: &'m [u8],
    /// The score that it has; none if it is new.
    pub old: Option<f64>,
    pub new: f64,
}

/// Members that a change is about, each once.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Changes<'c, 'm> {
    /// Those that get a score, which is another one than they have.
    pub puts: &'c [Put<'m>],
    /// Those that are removed, with their scores.
    pub gone: &'c [(f64, &'m [u8])],
}

/// Members with scores in ascending order of score and member.
pub(super) fn sort(all: &mut [(f64, &[u8])]) {
    all.sort_unstable_by(|one, other| order(*one, *other));
}
