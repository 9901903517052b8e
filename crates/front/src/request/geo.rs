//! Requests about GEO keys, in the words and with the errors of Redis 7. The
//! table has checked the number of arguments.

use super::keys::key;
use super::{Render, Request};
use crate::error::CommandError;
use crate::resp::Words;
use remora_engine::command::{Centre, Condition, GeoCommand, GeoQuery, GeoSearch, Place, Places};
use remora_engine::geo::{Position, Shape};
use remora_engine::integer;
use remora_layout::limits::MAX_MEMBER_BYTES;
use thiserror::Error;

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// Why a GEO command is not carried out.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum GeoError {
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
enum Ask {
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
    ask: Ask,
    /// Encoded members, or an encoded search.
    encoded: Vec<u8>,
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

fn member(word: &[u8]) -> Result<&[u8], GeoError> {
    if word.len() > MAX_MEMBER_BYTES { Err(GeoError::MemberTooLong) } else { Ok(word) }
}

/// The arguments from some index on as members.
fn members(words: Words<'_>, from: usize, to: usize) -> Result<Vec<u8>, GeoError> {
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

fn position(words: Words<'_>, at: usize) -> Result<Position, GeoError> {
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
fn circle(words: Words<'_>, at: usize) -> Result<(Shape, f64), GeoError> {
    let radius = number(words.get(at)).ok_or(GeoError::Size("radius"))?;
    if radius < 0.0 {
        return Err(GeoError::NegativeRadius);
    }
    let unit = unit(words, at + 1)?;
    Ok((Shape::Circle { radius: radius * unit }, unit))
}

/// A box and its unit.
fn rectangle(words: Words<'_>, at: usize) -> Result<(Shape, f64), GeoError> {
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

/// The forms of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// GEORADIUS.
    Coordinates { may_store: bool },
    /// GEORADIUSBYMEMBER.
    Member { may_store: bool },
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

/// What is found out of a search's words.
struct Search<'a> {
    centre: Option<Centre<'a>>,
    shape: Option<(Shape, f64)>,
    form: GeoForm,
    any: bool,
    store_to: Option<&'a [u8]>,
}

/// A search. What is wrong with it is told only if the key holds no string.
fn search<'a>(words: Words<'a>, form: Form) -> Parsed<'a> {
    let key = key(words.get(if form == Form::SearchStore { 2 } else { 1 }))?;
    let mut search = Search::new();
    let (render, ask, encoded) = match search.parse(words, form) {
        Ok(encoded) => (GeoRender::Found(search.form), Ask::Search, encoded),
        Err(error) => {
            let mut asked = Vec::new();
            if let Some(Centre::Member(member)) = search.centre {
                Places::push(&mut asked, &Place { member, ..Place::default() });
            }
            search.store_to = None;
            (GeoRender::Refused(error), Ask::Scores, asked)
        }
    };
    let store_to = search.store_to.map(super::keys::key).transpose()?;
    Ok(Request::Geo(GeoRequest { key, render: Render::Geo(render), store_to, ask, encoded }))
}

impl<'a> Search<'a> {
    const fn new() -> Self {
        let form = GeoForm {
            order: None,
            most: 0,
            distance: false,
            score: false,
            position: false,
            unit: 1.0,
            stored: None,
        };
        Self { centre: None, shape: None, form, any: false, store_to: None }
    }

    /// Takes all words in; gives the encoded self.
    fn parse(&mut self, words: Words<'a>, form: Form) -> Result<Vec<u8>, GeoError> {
        let from = match form {
            Form::Coordinates { .. } => {
                self.centre = Some(Centre::At(position(words, 2)?));
                self.shape = Some(circle(words, 4)?);
                6
            }
            Form::Member { .. } => {
                self.centre = Some(Centre::Member(member(words.get(2))?));
                self.shape = Some(circle(words, 3)?);
                5
            }
            Form::Search => 2,
            Form::SearchStore => {
                self.store_to = Some(words.get(1));
                self.form.stored = Some(Stored::Score);
                3
            }
        };
        let mut at = from;
        while at < words.len() {
            at += self.option(words, at, form)?;
        }
        let with = self.form.distance || self.form.score || self.form.position;
        if self.store_to.is_some() && with {
            return Err(GeoError::StoreWith(match form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            }));
        }
        let name = if form == Form::SearchStore { "geosearchstore" } else { "geosearch" };
        let centre = self.centre.ok_or(GeoError::From(name))?;
        let (shape, unit) = self.shape.ok_or(GeoError::By(name))?;
        let form = &mut self.form;
        if self.any && form.most == 0 {
            return Err(GeoError::Any);
        }
        let enough = if self.any { form.most as u64 } else { 0 };
        if form.most == 0 {
            form.most = usize::MAX;
        } else if form.order.is_none() && !self.any {
            form.order = Some(Order::Nearest);
        }
        form.unit = unit;
        let mut encoded = Vec::new();
        GeoSearch { centre, shape, enough }.write(&mut encoded);
        Ok(encoded)
    }

    /// Takes the option at some argument in; gives how many words it has.
    fn option(&mut self, words: Words<'a>, at: usize, form: Form) -> Result<usize, GeoError> {
        let behind = words.len() - at - 1;
        let is_search = matches!(form, Form::Search | Form::SearchStore);
        let may_store = matches!(
            form,
            Form::Coordinates { may_store: true } | Form::Member { may_store: true }
        );
        let from_member = matches!(self.centre, Some(Centre::Member(_)));
        let from_position = matches!(self.centre, Some(Centre::At(_)));
        let by_circle = matches!(self.shape, Some((Shape::Circle { .. }, _)));
        let by_box = matches!(self.shape, Some((Shape::Box { .. }, _)));
        let is = |name| words.is(at, name);
        if is("withdist") {
            self.form.distance = true;
        } else if is("withhash") {
            self.form.score = true;
        } else if is("withcoord") {
            self.form.position = true;
        } else if is("any") {
            self.any = true;
        } else if is("asc") {
            self.form.order = Some(Order::Nearest);
        } else if is("desc") {
            self.form.order = Some(Order::Farthest);
        } else if is("count") && behind >= 1 {
            let count = integer::parse(words.get(at + 1)).ok_or(GeoError::NotAnInteger)?;
            self.form.most =
                usize::try_from(count).ok().filter(|&count| count > 0).ok_or(GeoError::Count)?;
            return Ok(2);
        } else if is("store") && behind >= 1 && may_store {
            (self.store_to, self.form.stored) = (Some(words.get(at + 1)), Some(Stored::Score));
            return Ok(2);
        } else if is("storedist") && behind >= 1 && may_store {
            (self.store_to, self.form.stored) = (Some(words.get(at + 1)), Some(Stored::Distance));
            return Ok(2);
        } else if is("storedist") && form == Form::SearchStore {
            self.form.stored = Some(Stored::Distance);
        } else if is("frommember") && behind >= 1 && is_search && !from_position {
            self.centre = Some(Centre::Member(member(words.get(at + 1))?));
            return Ok(2);
        } else if is("fromlonlat") && behind >= 2 && is_search && !from_member {
            self.centre = Some(Centre::At(position(words, at + 1)?));
            return Ok(3);
        } else if is("byradius") && behind >= 2 && is_search && !by_box {
            self.shape = Some(circle(words, at + 1)?);
            return Ok(3);
        } else if is("bybox") && behind >= 3 && is_search && !by_circle {
            self.shape = Some(rectangle(words, at + 1)?);
            return Ok(4);
        } else {
            return Err(GeoError::Syntax);
        }
        Ok(1)
    }
}

pub(crate) fn georadius(words: Words<'_>, _now: u64) -> Parsed<'_> {
    search(words, Form::Coordinates { may_store: true })
}

pub(crate) fn georadius_ro(words: Words<'_>, _now: u64) -> Parsed<'_> {
    search(words, Form::Coordinates { may_store: false })
}

pub(crate) fn georadiusbymember(words: Words<'_>, _now: u64) -> Parsed<'_> {
    search(words, Form::Member { may_store: true })
}

pub(crate) fn georadiusbymember_ro(words: Words<'_>, _now: u64) -> Parsed<'_> {
    search(words, Form::Member { may_store: false })
}

pub(crate) fn geosearch(words: Words<'_>, _now: u64) -> Parsed<'_> {
    search(words, Form::Search)
}

pub(crate) fn geosearchstore(words: Words<'_>, _now: u64) -> Parsed<'_> {
    search(words, Form::SearchStore)
}
