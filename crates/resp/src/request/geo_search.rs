//! Searches of GEO keys: GEOSEARCH, GEORADIUS and their kin.

use super::geo::{
    Ask, GeoError, GeoForm, GeoRender, GeoRequest, Order, Stored, circle, member, position,
    rectangle,
};
use super::keys::key;
use super::{Render, Request};
use crate::error::CommandError;
use crate::wire::Words;
use remora_protocol::geo::Shape;
use remora_protocol::geo::{Centre, GeoSearch, Place, Places};
use remora_protocol::integer;

type Parsed<'a> = Result<Request<'a>, CommandError>;

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
