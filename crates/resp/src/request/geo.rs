//! Requests about GEO keys, in the words and with the errors of Redis 7. The
//! table has checked the number of arguments.

use super::keys::key;
use super::{Render, Request};
use crate::error::CommandError;
use crate::wire::Words;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, MAX_MEMBER_BYTES};
use remora_protocol::Condition;
use remora_protocol::geo::{GeoCommand, GeoQuery, Place, Places};
use remora_protocol::geo::{Position, Shape};
use thiserror::Error;

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// Why a GEO command is not carried out.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum GeoError {
    /// More than [`MAX_COMMAND_MEMBERS`].
    #[error("ERR more than {MAX_COMMAND_MEMBERS} members in one command: use several")]
    TooManyMembers,
    /// Unknown options, or options that exclude each other.
    #[error("ERR syntax error")]
    Syntax,
    /// A count is no integer.
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    /// A coordinate is no number.
    #[error("ERR value is not a valid float")]
    NotAFloat,
    /// A position that is not on the map.
    #[error("ERR invalid longitude,latitude pair {0:.6},{1:.6}")]
    Pair(f64, f64),
    /// Not a unit of length.
    #[error("ERR unsupported unit provided. please use M, KM, FT, MI")]
    Unit,
    /// A size is no number.
    #[error("ERR need numeric {0}")]
    Size(&'static str),
    /// A radius below 0.
    #[error("ERR radius cannot be negative")]
    NegativeRadius,
    /// A box of which a side is below 0.
    #[error("ERR height or width cannot be negative")]
    NegativeBox,
    /// A count below 1.
    #[error("ERR COUNT must be > 0")]
    Count,
    /// ANY without COUNT.
    #[error("ERR the ANY argument requires COUNT argument")]
    Any,
    /// A reply's options where there is no such reply.
    #[error("ERR {0} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")]
    StoreWith(&'static str),
    /// No centre.
    #[error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {0}")]
    From(&'static str),
    /// No shape.
    #[error("ERR exactly one of BYRADIUS and BYBOX can be specified for {0}")]
    By(&'static str),
    /// A member's name above [`MAX_MEMBER_BYTES`].
    #[error("ERR member is longer than {MAX_MEMBER_BYTES} bytes")]
    MemberTooLong,
    /// For shards' replies: a search around a member that is not there.
    #[error("ERR could not decode requested zset member")]
    NoMember,
}

/// How what a search found becomes its reply.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GeoForm {
    /// Nearest first, or farthest.
    pub order: Option<Order>,
    /// Members at most.
    pub most: usize,
    /// Their distances.
    pub distance: bool,
    /// Their scores.
    pub score: bool,
    /// Their positions.
    pub position: bool,
    /// Metres of the unit of distances.
    pub unit: f64,
    /// They are stored in another key: with their distances as scores, or with
    /// their own. The reply is their number.
    pub stored: Option<Stored>,
}

impl GeoForm {
    /// Whether only the names of all members found are told, in no order.
    pub fn is_bare(&self) -> bool {
        let Self { order, most, distance, score, position, stored, .. } = *self;
        let more = distance || score || position || stored.is_some();
        order.is_none() && most == usize::MAX && !more
    }
}

/// An order by distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The nearest first.
    Nearest,
    /// The farthest first.
    Farthest,
}

/// What is stored of a member that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// Its own score.
    Score,
    /// Its distance, in the unit that was asked for.
    Distance,
}

/// How a reply about a GEO key is made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum GeoRender {
    /// GEOPOS.
    Positions,
    /// GEOHASH.
    Hashes,
    /// GEODIST, in a unit of so many metres.
    Distance(f64),
    /// ZSCORE.
    Score,
    /// A search's.
    Found(GeoForm),
    /// This error, if the key holds no string, and the member that was to be
    /// the centre, if one was named, is there.
    Refused(GeoError),
}

/// What a shard is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Add { condition: Condition, tell_changed: bool },
    Remove,
    Scores,
    Members,
    Search,
}

/// A request about a GEO key.
#[derive(Clone, PartialEq, Debug)]
pub struct GeoRequest<'a> {
    /// The key.
    pub key: &'a [u8],
    /// How the reply is made.
    pub render: Render,
    /// Where to store what is found.
    pub store_to: Option<&'a [u8]>,
    pub(super) ask: Ask,
    /// Encoded members, or an encoded search.
    pub(super) encoded: Vec<u8>,
}

impl GeoRequest<'_> {
    /// What the key's shard is asked.
    pub fn command(&self) -> GeoCommand<'_> {
        let places = || Places::parse(&self.encoded).expect("encoded by the parser");
        match self.ask {
            Ask::Add { condition, tell_changed } => {
                GeoCommand::Add { condition, tell_changed, places: places() }
            }
            Ask::Remove => GeoCommand::Remove { places: places() },
            Ask::Scores => GeoCommand::Scores { places: places() },
            Ask::Members => GeoCommand::Members,
            Ask::Search => {
                let query = GeoQuery::parse(&self.encoded).expect("encoded by the parser");
                GeoCommand::Search { query }
            }
        }
    }
}

fn request<'a>(words: Words<'a>, ask: Ask, encoded: Vec<u8>, render: Render) -> Parsed<'a> {
    let key = key(words.get(1))?;
    Ok(Request::Geo(GeoRequest { key, render, store_to: None, ask, encoded }))
}

pub(super) fn member(word: &[u8]) -> Result<&[u8], GeoError> {
    if word.len() > MAX_MEMBER_BYTES { Err(GeoError::MemberTooLong) } else { Ok(word) }
}

/// The arguments from some index on as members.
fn members(words: Words<'_>, from: usize, to: usize) -> Result<Vec<u8>, GeoError> {
    if to - from > MAX_COMMAND_MEMBERS {
        return Err(GeoError::TooManyMembers);
    }
    let mut list = Vec::new();
    for at in from..to {
        Places::push(&mut list, &Place { member: member(words.get(at))?, ..Place::default() });
    }
    Ok(list)
}

/// A number, which may be infinite but not for being too large.
fn number(word: &[u8]) -> Option<f64> {
    let text =
        str::from_utf8(word).ok().filter(|text| text.len() <= super::trees::MAX_NUMBER_BYTES)?;
    let number = text.parse::<f64>().ok().filter(|number| !number.is_nan())?;
    (number.is_finite() || text.contains(['i', 'I'])).then_some(number)
}

pub(super) fn position(words: Words<'_>, at: usize) -> Result<Position, GeoError> {
    let longitude = number(words.get(at)).ok_or(GeoError::NotAFloat)?;
    let latitude = number(words.get(at + 1)).ok_or(GeoError::NotAFloat)?;
    Position::new(longitude, latitude).ok_or(GeoError::Pair(longitude, latitude))
}

/// Metres of a unit.
fn unit(words: Words<'_>, at: usize) -> Result<f64, GeoError> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.into_iter().find(|(name, _)| words.is(at, name));
    found.map(|(_, metres)| metres).ok_or(GeoError::Unit)
}

/// A circle and its unit.
pub(super) fn circle(words: Words<'_>, at: usize) -> Result<(Shape, f64), GeoError> {
    let radius = number(words.get(at)).ok_or(GeoError::Size("radius"))?;
    if radius < 0.0 {
        return Err(GeoError::NegativeRadius);
    }
    let unit = unit(words, at + 1)?;
    Ok((Shape::Circle { radius: radius * unit }, unit))
}

/// A box and its unit.
pub(super) fn rectangle(words: Words<'_>, at: usize) -> Result<(Shape, f64), GeoError> {
    let width = number(words.get(at)).ok_or(GeoError::Size("width"))?;
    let height = number(words.get(at + 1)).ok_or(GeoError::Size("height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(GeoError::NegativeBox);
    }
    let unit = unit(words, at + 2)?;
    Ok((Shape::Box { width: width * unit, height: height * unit }, unit))
}

pub(crate) fn geoadd(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (mut absent, mut present, mut tell_changed) = (false, false, false);
    let mut at = 2;
    while at < words.len() {
        let options =
            [("nx", &mut absent), ("xx", &mut present), ("ch", &mut tell_changed)].into_iter();
        let Some((_, option)) = options.into_iter().find(|(name, _)| words.is(at, name)) else {
            break;
        };
        *option = true;
        at += 1;
    }
    if (absent && present) || at == words.len() || !(words.len() - at).is_multiple_of(3) {
        return Err(CommandError::Syntax);
    }
    if words.len() - at > 3 * MAX_COMMAND_MEMBERS {
        return Err(GeoError::TooManyMembers.into());
    }
    let condition = match (absent, present) {
        (true, _) => Condition::IfAbsent,
        (_, true) => Condition::IfPresent,
        _ => Condition::Always,
    };
    let mut list = Vec::new();
    for at in (at..words.len()).step_by(3) {
        let score = position(words, at)?.score();
        let member = member(words.get(at + 2))?;
        Places::push(&mut list, &Place { score, distance: 0.0, member });
    }
    request(words, Ask::Add { condition, tell_changed }, list, Render::Number("geoadd"))
}

pub(crate) fn geopos(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let list = members(words, 2, words.len())?;
    request(words, Ask::Scores, list, Render::Geo(GeoRender::Positions))
}

pub(crate) fn geohash(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let list = members(words, 2, words.len())?;
    request(words, Ask::Scores, list, Render::Geo(GeoRender::Hashes))
}

pub(crate) fn geodist(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let unit = match words.len() {
        4 => 1.0,
        5 => unit(words, 4)?,
        _ => return Err(CommandError::Syntax),
    };
    let list = members(words, 2, 4)?;
    request(words, Ask::Scores, list, Render::Geo(GeoRender::Distance(unit)))
}

pub(crate) fn zscore(words: Words<'_>, _now: u64) -> Parsed<'_> {
    request(words, Ask::Scores, members(words, 2, 3)?, Render::Geo(GeoRender::Score))
}

pub(crate) fn zcard(words: Words<'_>, _now: u64) -> Parsed<'_> {
    request(words, Ask::Members, Vec::new(), Render::Number("zcard"))
}

pub(crate) fn zrem(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let list = members(words, 2, words.len())?;
    request(words, Ask::Remove, list, Render::Number("zrem"))
}
