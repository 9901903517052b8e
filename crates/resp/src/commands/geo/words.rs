//! Words that several commands about GEO keys take.

use crate::error::CommandError;
use crate::form::GeoError;
use crate::numbers::float;
use crate::spec::{Argument, CommandSpec, Flag, Group, KeyPlaces, Kind};
use crate::wire::Words;
use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;
use remora_protocol::geo::Position;

pub(super) const MEMBER: Argument = Argument::new("member", Kind::String);
pub(super) const LONGITUDE: Argument = Argument::new("longitude", Kind::Double);
pub(super) const LATITUDE: Argument = Argument::new("latitude", Kind::Double);

const UNIT_WORDS: &[Argument] = &[
    Argument::word("m", "M"),
    Argument::word("km", "KM"),
    Argument::word("ft", "FT"),
    Argument::word("mi", "MI"),
];

pub(super) const UNIT: Argument = Argument::of("unit", Kind::OneOf, UNIT_WORDS);

pub(super) const GEO: CommandSpec = CommandSpec {
    categories: &["geo"],
    since: "3.2.0",
    group: Group::new("geo", "GEO keys"),
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    complexity: "O(log N) for each member where N is the number of members",
    ..CommandSpec::PLAIN
};

impl From<GeoError> for CommandError {
    fn from(error: GeoError) -> Self {
        Self::Own(error.to_string().into())
    }
}

pub(super) fn member(word: &[u8]) -> Result<&[u8], GeoError> {
    if word.len() > MAX_SORTED_MEMBER_BYTES { Err(GeoError::MemberTooLong) } else { Ok(word) }
}

pub(super) fn position(words: Words<'_>, at: usize) -> Result<Position, GeoError> {
    let longitude = float(words.get(at)).ok_or(GeoError::NotAFloat)?;
    let latitude = float(words.get(at + 1)).ok_or(GeoError::NotAFloat)?;
    Position::new(longitude, latitude).ok_or(GeoError::Pair(longitude, latitude))
}

/// Units of length, and their metres.
pub(super) const UNITS: [(&str, f64); 4] =
    [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];

/// Which of the units it is.
pub(super) fn unit(words: Words<'_>, at: usize) -> Result<usize, GeoError> {
    UNITS.iter().position(|(name, _)| words.is(at, name)).ok_or(GeoError::Unit)
}
