//! Searches for members by their place, and their encoding. A sorted set whose scores are geohashes is
//! what Redis calls a GEO key.
//!
//! ```text
//! member    score 8 | distance 8 | bytes of the member 4 | member
//! query     shape 4: 0 circle, 1 box | centre 4: 0 position, 1 member |
//!           radius or width 8 | height 8 | enough 8 |
//!           longitude 8 | latitude 8, or the member
//! ```

mod globe;

pub use globe::*;

use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;

/// One member in a list.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Member<'a> {
    /// Its score; 0 where only the member counts.
    pub score: f64,
    /// How far it is from a search's centre, metres; 0 elsewhere.
    pub distance: f64,
    /// Its name.
    pub member: &'a [u8],
}

/// Members in their encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Members<'a>(&'a [u8]);

impl<'a> Members<'a> {
    /// Appends one to an encoded list.
    pub fn push(list: &mut Vec<u8>, place: &Member<'_>) {
        list.extend_from_slice(&place.score.to_le_bytes());
        list.extend_from_slice(&place.distance.to_le_bytes());
        list.extend_from_slice(&(place.member.len() as u32).to_le_bytes());
        list.extend_from_slice(place.member);
    }

    /// The same, with a member of this many bytes, which `fill` fetches. If `fill` returns false
    /// nothing is appended.
    pub fn push_fetched(
        list: &mut Vec<u8>,
        (score, distance, bytes): (f64, f64, usize),
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let before = list.len();
        Self::push(list, &Member { score, distance, member: &[] });
        list[before + 16..].copy_from_slice(&(bytes as u32).to_le_bytes());
        let from = list.len();
        list.resize(from + bytes, 0);
        let is_filled = fill(&mut list[from..]);
        if !is_filled {
            list.truncate(before);
        }
        is_filled
    }

    /// The members of an encoded list, all checked.
    pub fn parse(list: &'a [u8]) -> Option<Self> {
        let mut rest = list;
        while !rest.is_empty() {
            let (place, after) = split(rest)?;
            if place.member.len() > MAX_SORTED_MEMBER_BYTES || place.score.is_nan() {
                return None;
            }
            rest = after;
        }
        Some(Self(list))
    }

    /// The members, in order.
    pub fn iter(self) -> impl Iterator<Item = Member<'a>> {
        Self::in_list(self.0)
    }

    /// The members of an encoded list, in order, up to the first invalid one.
    pub fn in_list(mut list: &'a [u8]) -> impl Iterator<Item = Member<'a>> {
        std::iter::from_fn(move || {
            let (place, after) = split(list)?;
            list = after;
            Some(place)
        })
    }

    /// The first member of an encoded list, or of its rest.
    pub fn first(list: &'a [u8]) -> Option<Member<'a>> {
        split(list).map(|(place, _)| place)
    }

    /// Bytes that a member takes in a list.
    pub const fn bytes_of(place: &Member<'_>) -> usize {
        20 + place.member.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

fn split(bytes: &[u8]) -> Option<(Member<'_>, &[u8])> {
    let (&score, rest) = bytes.split_first_chunk()?;
    let (&distance, rest) = rest.split_first_chunk()?;
    let (&length, rest) = rest.split_first_chunk()?;
    let (member, rest) = rest.split_at_checked(u32::from_le_bytes(length) as usize)?;
    let (score, distance) = (f64::from_le_bytes(score), f64::from_le_bytes(distance));
    Some((Member { score, distance, member }, rest))
}

/// The centre of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Centre<'a> {
    /// There.
    At(Position),
    /// The position of this member.
    Member(&'a [u8]),
}

/// The area of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GeoSearch<'a> {
    /// Where.
    pub centre: Centre<'a>,
    /// The shape.
    pub shape: Shape,
    /// The search may end after this many; 0 for all.
    pub enough: u64,
}

impl<'a> GeoSearch<'a> {
    /// Appends the encoding.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (shape, first, second) = match self.shape {
            Shape::Circle { radius } => (0u32, radius, 0.0),
            Shape::Box { width, height } => (1, width, height),
        };
        let by_member = matches!(self.centre, Centre::Member(_)) as u32;
        out.extend_from_slice(&shape.to_le_bytes());
        out.extend_from_slice(&by_member.to_le_bytes());
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&second.to_le_bytes());
        out.extend_from_slice(&self.enough.to_le_bytes());
        match self.centre {
            Centre::At(Position { longitude, latitude }) => {
                out.extend_from_slice(&longitude.to_le_bytes());
                out.extend_from_slice(&latitude.to_le_bytes());
            }
            Centre::Member(member) => out.extend_from_slice(member),
        }
    }

    /// Decodes and checks the bytes.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&shape, rest) = bytes.split_first_chunk()?;
        let (&by_member, rest) = rest.split_first_chunk()?;
        let (first, rest) = number(rest)?;
        let (second, rest) = number(rest)?;
        let (&enough, rest) = rest.split_first_chunk()?;
        let shape = match u32::from_le_bytes(shape) {
            0 if second == 0.0 => Shape::Circle { radius: first },
            1 => Shape::Box { width: first, height: second },
            _ => return None,
        };
        let centre = match u32::from_le_bytes(by_member) {
            0 => {
                let (longitude, rest) = number(rest)?;
                let (latitude, rest) = number(rest)?;
                Centre::At(Position::new(longitude, latitude).filter(|_| rest.is_empty())?)
            }
            1 if rest.len() <= MAX_SORTED_MEMBER_BYTES => Centre::Member(rest),
            _ => return None,
        };
        let is_size = |size: f64| size >= 0.0;
        let enough = u64::from_le_bytes(enough);
        (is_size(first) && is_size(second)).then_some(Self { centre, shape, enough })
    }
}

fn number(bytes: &[u8]) -> Option<(f64, &[u8])> {
    let (&number, rest) = bytes.split_first_chunk()?;
    Some((f64::from_le_bytes(number), rest))
}

/// A search in its encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeoQuery<'a>(&'a [u8]);

impl<'a> GeoQuery<'a> {
    /// The query that the bytes encode; `None` if they encode none.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        GeoSearch::parse(bytes).map(|_| Self(bytes))
    }

    /// The encoded query.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The search.
    pub fn search(self) -> GeoSearch<'a> {
        GeoSearch::parse(self.0).expect("checked when it was made")
    }
}
