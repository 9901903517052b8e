//! Lists of members with their scores, in the encoding of requests and replies.

use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;

/// Bytes of an entry before its member.
const HEADER_BYTES: usize = 12;

/// Members with their scores, one after the other: `score 8 | bytes of the member 4 | member`. No score is
/// NaN, and no member is longer than [`MAX_SORTED_MEMBER_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scored<'a>(&'a [u8]);

impl<'a> Scored<'a> {
    /// No members.
    pub const NONE: Self = Self(&[]);

    /// Appends a member to an encoded list.
    ///
    /// ```
    /// use remora_protocol::sorted::Scored;
    ///
    /// let mut list = Vec::new();
    /// Scored::push(&mut list, 1.5, b"one");
    /// let members: Vec<_> = Scored::parse(&list).unwrap().iter().collect();
    /// assert_eq!(members, [(1.5, &b"one"[..])]);
    /// ```
    #[inline]
    pub fn push(list: &mut Vec<u8>, score: f64, member: &[u8]) {
        list.extend_from_slice(&score.to_le_bytes());
        list.extend_from_slice(&(member.len() as u32).to_le_bytes());
        list.extend_from_slice(member);
    }

    /// Bytes that a member of this length takes in a list.
    pub const fn bytes_of(member_bytes: usize) -> usize {
        HEADER_BYTES + member_bytes
    }

    /// The members of an encoded list, all checked.
    pub fn parse(list: &'a [u8]) -> Option<Self> {
        let mut rest = list;
        while !rest.is_empty() {
            let (score, member, after) = Self::split_first(rest)?;
            if score.is_nan() || member.len() > MAX_SORTED_MEMBER_BYTES {
                return None;
            }
            rest = after;
        }
        Some(Self(list))
    }

    /// The first member of an encoded list with its score, and the list behind it; `None` at its end,
    /// and where the bytes encode none.
    #[inline]
    pub fn split_first(list: &'a [u8]) -> Option<(f64, &'a [u8], &'a [u8])> {
        let (&score, rest) = list.split_first_chunk()?;
        let (&length, rest) = rest.split_first_chunk()?;
        let (member, rest) = rest.split_at_checked(u32::from_le_bytes(length) as usize)?;
        Some((f64::from_le_bytes(score), member, rest))
    }

    /// Bytes of the first member in an encoded list; 0 if there is none.
    pub fn first_bytes(list: &[u8]) -> usize {
        Scored::split_first(list).map_or(0, |(_, member, _)| Self::bytes_of(member.len()))
    }

    /// The members with their scores, in order.
    pub fn iter(self) -> impl Iterator<Item = (f64, &'a [u8])> + Clone {
        Self::in_list(self.0)
    }

    /// The members of an encoded list, in order, up to the first invalid one.
    pub fn in_list(mut list: &'a [u8]) -> impl Iterator<Item = (f64, &'a [u8])> + Clone {
        std::iter::from_fn(move || {
            let (score, member, after) = Self::split_first(list)?;
            list = after;
            Some((score, member))
        })
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The encoded list.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_back_and_a_cut_list_is_none() {
        let all = [(1.5, &b"one"[..]), (f64::NEG_INFINITY, b""), (-0.0, b"three")];
        let mut list = Vec::new();
        let mut edges = vec![0];
        for (score, member) in all {
            Scored::push(&mut list, score, member);
            edges.push(edges.last().unwrap() + Scored::bytes_of(member.len()));
        }
        let back: Vec<_> = Scored::parse(&list).unwrap().iter().collect();
        assert_eq!(back, all);
        assert!(back[2].0.is_sign_negative());
        for cut in 0..list.len() {
            assert_eq!(Scored::parse(&list[..cut]).is_some(), edges.contains(&cut), "{cut}");
        }
    }

    #[test]
    fn no_score_is_nan_and_no_member_is_too_long() {
        let encoded = |score, bytes| {
            let mut list = Vec::new();
            Scored::push(&mut list, score, &vec![b'm'; bytes]);
            Scored::parse(&list).is_some()
        };
        assert!(encoded(1.0, MAX_SORTED_MEMBER_BYTES) && !encoded(f64::NAN, 1));
        assert!(!encoded(1.0, MAX_SORTED_MEMBER_BYTES + 1));
    }
}
