//! Puts members in the order of their scores, in turns of bounded work.

use crate::sorting::merge::{Compare, MergeSort};
use remora_layout::limits::{MAX_REPLY_BYTES, SORT_TURN_BYTES, SORT_TURN_ELEMENTS};
use remora_protocol::sorted::Scored;
use std::cmp::Ordering;

/// A list of members that gets into order.
#[derive(Debug)]
pub(super) struct ScoreSort {
    list: Vec<u8>,
    /// Where each is in the list.
    places: Vec<u32>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The members are looked at, from this byte of their list on.
    Split(usize),
    Sort(MergeSort),
    /// So many of the order are written.
    Write(Vec<u32>, usize, Vec<u8>),
}

const _: () = assert!(MAX_REPLY_BYTES < u32::MAX as usize / 2);

/// Bytes of a member whose comparison costs about what a member costs otherwise.
const BYTES_AS_ONE: usize = 256;

struct ByScore<'a> {
    list: &'a [u8],
    places: &'a [u32],
}

impl ByScore<'_> {
    fn at(&self, number: u32) -> (f64, &[u8]) {
        let from = self.places[number as usize] as usize;
        let (score, member, _) = Scored::split_first(&self.list[from..]).expect("split before");
        (score, member)
    }
}

impl Compare for ByScore<'_> {
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let ((a, a_member), (b, b_member)) = (self.at(a), self.at(b));
        // Both zeros are equal; none of the scores is NaN.
        a.partial_cmp(&b).unwrap_or(Ordering::Equal).then_with(|| a_member.cmp(b_member))
    }

    fn cost(&self, number: u32) -> usize {
        1 + self.at(number).1.len() / BYTES_AS_ONE
    }
}

impl ScoreSort {
    /// Nothing is sorted yet.
    pub fn new(list: Vec<u8>) -> Self {
        Self { list, places: Vec::new(), phase: Phase::Split(0) }
    }

    /// Whether so many members are sorted in about the time of one turn.
    pub fn is_short(&self, members: u64) -> bool {
        members <= SORT_TURN_ELEMENTS as u64 / 4 && self.list.len() <= SORT_TURN_BYTES / 4
    }

    /// Goes on for one turn; the members in order at the end.
    pub fn turn(&mut self) -> Option<Vec<u8>> {
        let Self { list, places, phase } = self;
        match phase {
            Phase::Split(at) => {
                for _ in 0..SORT_TURN_ELEMENTS {
                    let Some((_, _, rest)) = Scored::split_first(&list[*at..]) else {
                        *phase = Phase::Sort(MergeSort::new(places.len() as u32));
                        break;
                    };
                    places.push(*at as u32);
                    *at = list.len() - rest.len();
                }
            }
            Phase::Sort(sort) => {
                if sort.turn(&ByScore { list, places }) {
                    let order = std::mem::replace(sort, MergeSort::new(0)).into_order();
                    *phase = Phase::Write(order, 0, Vec::with_capacity(list.len()));
                }
            }
            Phase::Write(order, next, out) => {
                let (members, before) = (ByScore { list, places }, out.len());
                for _ in 0..SORT_TURN_ELEMENTS {
                    let Some(number) = order.get(*next) else { return Some(std::mem::take(out)) };
                    let (score, member) = members.at(*number);
                    Scored::push(out, score, member);
                    *next += 1;
                    if out.len() - before >= SORT_TURN_BYTES {
                        break;
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_members_is_sorted_in_bounded_turns() {
        for count in [0u32, 1, 2, 5_000, 60_000] {
            let mut list = Vec::new();
            let mut expected = Vec::new();
            for at in 0..count {
                let score = f64::from(at.wrapping_mul(2_654_435_761) >> 27) - 16.0;
                let member = format!("{}", at.wrapping_mul(40_503) % 65_536);
                let member = format!("{member}:{at}");
                Scored::push(&mut list, score, member.as_bytes());
                expected.push((score, member));
            }
            expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let (mut sort, mut turns) = (ScoreSort::new(list), 1);
            let sorted = loop {
                match sort.turn() {
                    Some(sorted) => break sorted,
                    None => turns += 1,
                }
            };
            let found = Scored::parse(&sorted).unwrap();
            let expected = expected.iter().map(|(score, member)| (*score, member.as_bytes()));
            assert!(found.iter().eq(expected), "{count}");
            let least = 3 * u64::from(count) / SORT_TURN_ELEMENTS as u64;
            assert!(turns > least, "{turns} turns for {count}");
        }
    }

    #[test]
    fn both_zeros_are_equal_and_members_decide() {
        let mut list = Vec::new();
        for (score, member) in [(0.0, "b"), (-0.0, "c"), (0.0, "a"), (-1.0, "z")] {
            Scored::push(&mut list, score, member.as_bytes());
        }
        let mut sort = ScoreSort::new(list);
        let sorted = std::iter::from_fn(|| Some(sort.turn())).flatten().next().unwrap();
        let members: Vec<_> = Scored::in_list(&sorted).map(|(_, member)| member).collect();
        assert_eq!(members, [b"z", b"a", b"b", b"c"]);
    }
}
