//! Searches of GEO keys: GEOSEARCH, GEORADIUS and their kin. As in Redis, a key that holds a string
//! gives its error before any error in the search's arguments.

use super::numbers::{distance, position};
use super::words::{self, GEO, LATITUDE, LONGITUDE, MEMBER, UNIT, UNITS, member, unit};
use crate::arguments::{KEY, kept};
use crate::commands::sorted::scores;
use crate::form::{GeoError, GeoForm, Order, ReplyForm, Stored};
use crate::keys::{self, key};
use crate::numbers::float;
use crate::request::Request;
use crate::spec::{
    Argument, CommandSpec, Flag, KeyPlaces, Kind, OptionKey, OtherKeys, ParseResult,
};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Member, Members, Shape};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand};
use remora_protocol::{Items, integer};
use std::cmp::Ordering;

const DESTINATION: Argument = Argument::new("destination", Kind::Key);
const SOURCE: Argument = Argument::new("source", Kind::Key);
const RADIUS: Argument = Argument::new("radius", Kind::Double);

const COUNT: Argument = Argument::of(
    "count-block",
    Kind::Block,
    &[
        Argument::new("count", Kind::Integer).after("COUNT"),
        Argument::word("any", "ANY").optional(),
    ],
)
.optional();

const ORDER: Argument = Argument::of(
    "order",
    Kind::OneOf,
    &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")],
)
.optional();

const WITH_COORD: Argument = Argument::word("withcoord", "WITHCOORD").optional();
const WITH_DIST: Argument = Argument::word("withdist", "WITHDIST").optional();
const WITH_HASH: Argument = Argument::word("withhash", "WITHHASH").optional();

const STORE: Argument = Argument::of(
    "store",
    Kind::OneOf,
    &[
        Argument::new("storekey", Kind::Key).after("STORE"),
        Argument::new("storedistkey", Kind::Key).after("STOREDIST"),
    ],
)
.optional();

const FROM: Argument = Argument::of(
    "from",
    Kind::OneOf,
    &[
        MEMBER.after("FROMMEMBER"),
        Argument::of("fromlonlat", Kind::Block, &[LONGITUDE, LATITUDE]).after("FROMLONLAT"),
    ],
);

const BY: Argument = Argument::of(
    "by",
    Kind::OneOf,
    &[
        Argument::of("circle", Kind::Block, &[RADIUS, UNIT]).after("BYRADIUS"),
        Argument::of(
            "box",
            Kind::Block,
            &[Argument::new("width", Kind::Double), Argument::new("height", Kind::Double), UNIT],
        )
        .after("BYBOX"),
    ],
);

/// The cost of a search.
const SEARCHING: &str = "Usually O(log N + M) where N is the number of members and M of those \
found; to sort them costs O(M log M)";

/// Notes for each search.
const SEARCH_NOTES: &str = "Without ASC or DESC there is no order; with COUNT alone the nearest \
come, with COUNT and ANY any that many, sooner. A member is told at the centre of its cell, less \
than a metre from where it was put. Redis looks at nine cells and can miss members near the poles; \
here none is missed. While the key changes, a member that was within all the time is found, once. \
A search of many members lets the shard do other work in between, and what a connection sends \
behind it waits for its reply.";

/// Notes for each search whose result is stored.
const STORE_NOTES: &str = "The outcome replaces what the other key held, whatever it was; without \
any member that key is removed. With STOREDIST the scores are the distances. Searching and storing \
are two steps: others may see the key that is searched change in between, but never a part of what \
is stored. More than 8,192 members are stored in pieces: if the other key is being renamed, copied or \
moved at the end of it, or a shard has too many such stores and moves under way, it keeps what it had, \
and the answer is TRYAGAIN.";

const GEOSEARCH: CommandSpec = CommandSpec {
    name: "geosearch",
    arity: -7,
    since: "6.2.0",
    summary: "Returns the members within a circle or a box.",
    complexity: SEARCHING,
    notes: SEARCH_NOTES,
    arguments: &[KEY, FROM, BY, ORDER, COUNT, WITH_COORD, WITH_DIST, WITH_HASH],
    parse: geosearch,
    ..GEO
};

fn geosearch(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    search(words, Form::Search)
}

const GEOSEARCHSTORE: CommandSpec = CommandSpec {
    name: "geosearchstore",
    arity: -8,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::two(&["OW", "update"], &["RO", "access"]),
    summary: "Stores the members within a circle or a box in another key; returns their number.",
    notes: STORE_NOTES,
    arguments: &[
        DESTINATION,
        SOURCE,
        FROM,
        BY,
        ORDER,
        COUNT,
        Argument::word("storedist", "STOREDIST").optional(),
    ],
    parse: geosearchstore,
    ..GEOSEARCH
};

fn geosearchstore(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    search(words, Form::SearchStore)
}

/// The key of STORE.
const STORED: OtherKeys = OtherKeys {
    option: Some(OptionKey { word: "store", skips: &[("count", 1), ("storedist", 1)] }),
    notes: "For the optional STORE keyword",
    access: &["OW", "update"],
};
/// The key of STOREDIST.
const STORED_BY_DISTANCE: OtherKeys = OtherKeys {
    option: Some(OptionKey { word: "storedist", skips: &[("count", 1), ("store", 1)] }),
    notes: "For the optional STOREDIST keyword",
    access: &["OW", "update"],
};

const GEORADIUS: CommandSpec = CommandSpec {
    name: "georadius",
    arity: -6,
    flags: &[Flag::Write, Flag::DenyOom, Flag::MovableKeys],
    keys: KeyPlaces { others: &[STORED, STORED_BY_DISTANCE], ..KeyPlaces::one(&["RO", "access"]) },
    summary: "Returns or stores the members within a distance of a position.",
    complexity: SEARCHING,
    notes: "As GEOSEARCH with FROMLONLAT and BYRADIUS. With STORE or STOREDIST as GEOSEARCHSTORE.",
    arguments: &[
        KEY, LONGITUDE, LATITUDE, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER,
        STORE,
    ],
    parse: georadius,
    ..GEO
};

fn georadius(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    search(words, Form::Coordinates { may_store: true })
}

const GEORADIUS_RO: CommandSpec = CommandSpec {
    name: "georadius_ro",
    flags: &[Flag::ReadOnly],
    keys: KeyPlaces::one(&["RO", "access"]),
    summary: "Returns the members within a distance of a position.",
    since: "3.2.10",
    notes: "As GEOSEARCH with FROMLONLAT and BYRADIUS.",
    arguments: &[
        KEY, LONGITUDE, LATITUDE, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER,
    ],
    parse: georadius_ro,
    ..GEORADIUS
};

fn georadius_ro(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    search(words, Form::Coordinates { may_store: false })
}

const GEORADIUSBYMEMBER: CommandSpec = CommandSpec {
    name: "georadiusbymember",
    arity: -5,
    summary: "Returns or stores the members within a distance of a member.",
    notes: "As GEOSEARCH with FROMMEMBER and BYRADIUS. With STORE or STOREDIST as GEOSEARCHSTORE.",
    arguments: &[KEY, MEMBER, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER, STORE],
    parse: georadiusbymember,
    ..GEORADIUS
};

fn georadiusbymember(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    search(words, Form::Member { may_store: true })
}

const GEORADIUSBYMEMBER_RO: CommandSpec = CommandSpec {
    name: "georadiusbymember_ro",
    arity: -5,
    summary: "Returns the members within a distance of a member.",
    notes: "As GEOSEARCH with FROMMEMBER and BYRADIUS.",
    arguments: &[KEY, MEMBER, RADIUS, UNIT, WITH_COORD, WITH_DIST, WITH_HASH, COUNT, ORDER],
    parse: georadiusbymember_ro,
    ..GEORADIUS_RO
};

fn georadiusbymember_ro(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    search(words, Form::Member { may_store: false })
}

/// Bytes of an encoded search around a position.
const ENCODED_BYTES: usize = 48;

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

/// The parsed arguments of a search.
struct Search<'a> {
    centre: Option<Centre<'a>>,
    shape: Option<(Shape, f64)>,
    form: GeoForm,
    any: bool,
    store_to: Option<&'a [u8]>,
}

/// A search. A key that holds a string gives its error before any error in the arguments.
fn search<'a>(words: Words<'a>, form: Form) -> ParseResult<'a> {
    let key = key(words.get(if form == Form::SearchStore { 2 } else { 1 }))?;
    let mut search = Search::new();
    let error = match search.parse(words, form) {
        Ok(encoded) => {
            let query = GeoQuery::parse(words.keep(encoded)).expect("it was just made");
            let request = SortedCommand::Search { query }.request();
            let form = ReplyForm::GeoFound(search.form);
            return Ok(match search.store_to.map(keys::key).transpose()? {
                Some(to) => Request::Store { key, request, form, to },
                None => Request::Object { key, request, form },
            });
        }
        Err(error) => error,
    };
    let mut asked = Vec::new();
    if let Some(Centre::Member(member)) = search.centre {
        Items::push(&mut asked, member);
    }
    let request = SortedCommand::Scores { members: kept(words, asked) }.request();
    Ok(Request::Object { key, request, form: ReplyForm::GeoRefused(error) })
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
                self.centre = Some(Centre::At(words::position(words, 2)?));
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
        let mut encoded = Vec::with_capacity(ENCODED_BYTES);
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
            self.centre = Some(Centre::At(words::position(words, at + 1)?));
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

/// A circle and its unit.
fn circle(words: Words<'_>, at: usize) -> Result<(Shape, f64), GeoError> {
    let radius = float(words.get(at)).ok_or(GeoError::Size("radius"))?;
    if radius < 0.0 {
        return Err(GeoError::NegativeRadius);
    }
    let unit = UNITS[unit(words, at + 1)?].1;
    Ok((Shape::Circle { radius: radius * unit }, unit))
}

/// A box and its unit.
fn rectangle(words: Words<'_>, at: usize) -> Result<(Shape, f64), GeoError> {
    let width = float(words.get(at)).ok_or(GeoError::Size("width"))?;
    let height = float(words.get(at + 1)).ok_or(GeoError::Size("height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(GeoError::NegativeBox);
    }
    let unit = UNITS[unit(words, at + 2)?].1;
    Ok((Shape::Box { width: width * unit, height: height * unit }, unit))
}

/// The reply to a search that is not of members found: an error, or how many were stored.
pub(crate) fn write_found(out: &mut Vec<u8>, answer: ShardAnswer<'_>) {
    match answer.status {
        Status::NotDone => encode::error(out, &GeoError::NoMember.to_string()),
        _ => encode::integer(out, answer.number),
    }
}

/// The reply to a search that makes no sense. The number is 1 if there is such a key.
pub(crate) fn write_refused(out: &mut Vec<u8>, error: GeoError, answer: ShardAnswer<'_>) {
    let is_missing = answer.number == 1 && scores(answer.value).any(|score| score.is_none());
    let error = if is_missing { GeoError::NoMember } else { error };
    encode::error(out, &error.to_string());
}

/// Appends a reply with these members (as [`Members`] encodes them) in one piece. It must be so
/// small that no client waits for it.
pub fn write_members(out: &mut Vec<u8>, version: RespVersion, found: &[u8], form: &GeoForm) {
    if !form.is_bare() {
        let mut reply = FoundReply::new(found.to_vec(), *form);
        while !reply.write_piece(out, version) {}
        return;
    }
    let members = || Members::in_list(found);
    encode::array(out, members().count());
    members().for_each(|place| encode::bulk(out, place.member));
}

/// Members that are written in one piece.
const PIECE_MEMBERS: usize = 512;

/// Members found, in the order and number that were asked for, written piece
/// by piece.
#[derive(Debug)]
pub struct FoundReply {
    found: Vec<u8>,
    /// The start of each.
    places: Vec<usize>,
    form: GeoForm,
    written: usize,
    is_open: bool,
}

impl FoundReply {
    /// The reply with these members (as [`Members`] encodes them).
    pub fn new(found: Vec<u8>, form: GeoForm) -> Self {
        let places = in_order(&found, &form);
        Self { found, places, form, written: 0, is_open: false }
    }

    /// Bytes of the members.
    pub fn bytes(&self) -> usize {
        self.found.len()
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, version: RespVersion) -> bool {
        if !self.is_open {
            encode::array(out, self.places.len());
            self.is_open = true;
        }
        let piece = &self.places[self.written..];
        let piece = &piece[..piece.len().min(PIECE_MEMBERS)];
        let GeoForm { unit, .. } = self.form;
        let more = [self.form.distance, self.form.score, self.form.position];
        let more = more.into_iter().filter(|&is_told| is_told).count();
        for place in piece.iter().filter_map(|&at| place_at(&self.found, at)) {
            if more > 0 {
                encode::array(out, 1 + more);
            }
            encode::bulk(out, place.member);
            if self.form.distance {
                distance(out, place.distance, unit);
            }
            if self.form.score {
                encode::integer(out, place.score as i64);
            }
            if self.form.position {
                position(out, version, place.score);
            }
        }
        self.written += piece.len();
        self.written == self.places.len()
    }
}

fn place_at(found: &[u8], at: usize) -> Option<Member<'_>> {
    Members::first(found.get(at..)?)
}

/// The starts of the members in the reply, in their order.
fn in_order(found: &[u8], form: &GeoForm) -> Vec<usize> {
    let mut at = 0;
    let mut places = Vec::new();
    while let Some(place) = place_at(found, at) {
        places.push((place.distance, at));
        at += Members::bytes_of(&place);
    }
    let order = |a: &(f64, usize), b: &(f64, usize)| match form.order {
        Some(Order::Nearest) => a.0.total_cmp(&b.0),
        Some(Order::Farthest) => b.0.total_cmp(&a.0),
        None => Ordering::Equal,
    };
    if form.order.is_some() {
        places.sort_by(order);
    }
    places.truncate(form.most);
    places.into_iter().map(|(_, at)| at).collect()
}

/// The content for another key, as [`Scored`], from the members found (as [`Members`] encodes them).
pub fn stored(found: &[u8], form: &GeoForm) -> Vec<u8> {
    let mut list = Vec::new();
    for at in in_order(found, form) {
        let Some(place) = place_at(found, at) else { continue };
        let score = match form.stored {
            Some(Stored::Distance) => place.distance / form.unit,
            _ => place.score,
        };
        Scored::push(&mut list, score, place.member);
    }
    list
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] =
    &[GEORADIUS, GEORADIUSBYMEMBER, GEORADIUSBYMEMBER_RO, GEORADIUS_RO, GEOSEARCH, GEOSEARCHSTORE];
