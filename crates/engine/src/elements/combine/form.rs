//! The two forms of a combination, and how a type's members take them.

use super::reader::{Join, MemberReader};
use crate::elements::bins::{Packing, Payload, look_up};
use crate::elements::kept::Elements;
use remora_arena::Journal;
use remora_protocol::Items;
use remora_protocol::elements::Combination;

/// What a combination tells of a member, and how a list has it.
pub(crate) trait Form: 'static {
    /// What it tells beside the name.
    type Score: Copy + Send + 'static;

    /// Whether an object may be named several times, with a weight each time.
    const HAS_WEIGHTS: bool;

    /// The score of a member with this payload.
    fn score(payload: impl Payload) -> Self::Score;

    /// The score by what objects before have given, and by the one of this object.
    fn join(so_far: Option<Self::Score>, score: Self::Score, join: &Join<'_>) -> Self::Score;

    /// Appends a member to a list.
    fn push(list: &mut Vec<u8>, member: &[u8], score: Self::Score);

    /// The first member of a list, and what follows it; `None` at its end.
    fn split(list: &[u8]) -> Option<(&[u8], Self::Score, &[u8])>;

    /// The members of a list.
    fn members(list: &[u8]) -> impl Iterator<Item = (&[u8], Self::Score)> {
        let mut rest = list;
        std::iter::from_fn(move || {
            let (member, score, after) = Self::split(rest)?;
            rest = after;
            Some((member, score))
        })
    }
}

/// Names alone; lists are [`Items`].
pub(crate) struct Names;

impl Form for Names {
    type Score = ();
    const HAS_WEIGHTS: bool = false;

    #[inline]
    fn score(_payload: impl Payload) {}

    #[inline]
    fn join(_so_far: Option<()>, (): (), _join: &Join<'_>) {}

    #[inline]
    fn push(list: &mut Vec<u8>, member: &[u8], (): ()) {
        Items::push(list, member);
    }

    #[inline]
    fn split(list: &[u8]) -> Option<(&[u8], (), &[u8])> {
        let (member, rest) = Items::split(list)?;
        Some((member?, (), rest))
    }
}

/// Names with scores; a list has for each `score 8 | bytes of the member 4 | member`, little-endian.
pub(crate) struct WithScores;

impl Form for WithScores {
    type Score = f64;
    const HAS_WEIGHTS: bool = true;

    #[inline]
    fn score(payload: impl Payload) -> f64 {
        payload.score()
    }

    #[inline]
    fn join(so_far: Option<f64>, score: f64, join: &Join<'_>) -> f64 {
        join.score(so_far, score)
    }

    #[inline]
    fn push(list: &mut Vec<u8>, member: &[u8], score: f64) {
        list.extend_from_slice(&score.to_le_bytes());
        Items::push(list, member);
    }

    #[inline]
    fn split(list: &[u8]) -> Option<(&[u8], f64, &[u8])> {
        let (score, rest) = list.split_first_chunk()?;
        let (member, rest) = Items::split(rest)?;
        Some((member?, f64::from_le_bytes(*score), rest))
    }
}

/// How objects of a type whose members are packed so are read in a form.
pub(crate) fn reader<P: Packing, F: Form, J: Journal>() -> MemberReader<J, F::Score> {
    MemberReader {
        kind: P::ROOT_KIND,
        push_whole: |value, list| {
            P::each_of_whole(value, |member, payload| F::push(list, member, F::score(payload)));
        },
        find_in_whole: |value, member| P::find_in_whole(value, member).map(F::score),
        push_part: |name, value, list| {
            P::of_part(name, value, |member, payload| {
                F::push(list, member, F::score(P::payload_of(payload.value)));
            });
        },
        look_up: |at, members, join| {
            look_up::<P, J, F::Score>(at, members, |so_far, found| match found {
                Some(payload) if join.how == Combination::Inter => {
                    *so_far = F::join(Some(*so_far), F::score(payload), join);
                    true
                }
                found => found.is_none() && join.how == Combination::Diff,
            });
        },
    }
}
