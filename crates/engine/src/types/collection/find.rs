//! Documents that match a filter, some in each step.

use super::failure::{Failure, Refusal, code};
use super::held::{Collection, Collections};
use super::plan::{Order, QueryPlan, Ring, Wanted};
use super::scan::{Next, Place, Scan};
use super::settings::{bytes_of, malformed, parse_document};
use crate::store::{Now, Store};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Document, doc};
use remora_arena::Journal;
use remora_document::{Filter, Variables};
use remora_protocol::Items;
use remora_protocol::message::Status;

/// A request to find documents.
struct FindRequest<'r> {
    filter: Filter,
    hint: Option<RawBsonRef<'r>>,
    order: Option<Order>,
    limit: Option<u64>,
    /// Of a filter with `$near`: the ring in which documents lie, or where it begins.
    near: Option<(f64, Option<f64>)>,
    counts: bool,
    at: Option<Place<'r>>,
    explains: bool,
}

/// A number of documents; zero, as in MongoDB, is none.
pub(super) fn limit_of(value: RawBsonRef<'_>) -> Option<u64> {
    let number = match value {
        RawBsonRef::Int32(of) => i64::from(of),
        RawBsonRef::Int64(of) => of,
        RawBsonRef::Double(of) => of as i64,
        _ => 0,
    };
    u64::try_from(number).ok().filter(|number| *number > 0)
}

/// The paths of a wanted order; none if it is about something else, as the score of a text.
fn order_of(sort: &RawDocument) -> Option<Order> {
    let mut order = Order::new();
    for field in sort {
        let (path, value) = field.ok()?;
        let is_descending = match value {
            RawBsonRef::Int32(of) => of < 0,
            RawBsonRef::Int64(of) => of < 0,
            RawBsonRef::Double(of) => of < 0.0,
            _ => return None,
        };
        order.push((path.as_str().to_owned(), is_descending));
    }
    (!order.is_empty()).then_some(order)
}

impl<'r> FindRequest<'r> {
    fn parse(request: &'r [u8], now: Now) -> Result<Self, Refusal> {
        let request = parse_document(request)?;
        let variables = variables(request, now)?;
        let mut parsed = Self {
            filter: Filter::parse(&bson::RawDocumentBuf::new())?,
            hint: None,
            order: None,
            limit: None,
            near: None,
            counts: false,
            at: None,
            explains: false,
        };
        for field in request {
            let (name, value) = field.map_err(malformed)?;
            match (name.as_str(), value) {
                ("filter", RawBsonRef::Document(of)) => {
                    parsed.filter = Filter::parse_with(of, &variables)?;
                }
                ("hint", of) => parsed.hint = Some(of),
                ("sort", RawBsonRef::Document(of)) => parsed.order = order_of(of),
                ("limit", of) => parsed.limit = limit_of(of),
                ("near", RawBsonRef::Document(of)) => {
                    let from = of.get_f64("from").map_err(malformed)?;
                    parsed.near = Some((from, of.get_f64("to").ok()));
                }
                ("count", RawBsonRef::Boolean(of)) => parsed.counts = of,
                ("at", of) => parsed.at = Some(Place::parse(of)?),
                ("explain", RawBsonRef::Boolean(of)) => parsed.explains = of,
                ("let", RawBsonRef::Document(_)) => {}
                // A projection of these: the caller makes it.
                ("keys", _) => {}
                _ => return Err(Refusal::Status(Status::Malformed)),
            }
        }
        Ok(parsed)
    }

    fn wanted(&self) -> Wanted<'_> {
        let (filter, order) = (&self.filter, self.order.as_ref());
        let ring = self.near.and_then(|(from, to)| Some(Ring { from, to: to? }));
        Wanted { filter, ring, order, limit: self.limit, changes: &[] }
    }

    /// Whether a document that matches lies in the ring.
    fn is_in_ring(&self, document: &RawDocument) -> bool {
        let (Some(ring), Some(near)) = (self.wanted().ring, self.filter.near()) else {
            return true;
        };
        let distance = near.distance(document);
        distance.is_some_and(|distance| ring.from <= distance && distance < ring.to)
    }

    /// Begins a ring of a search by distance, unless it goes on in one.
    fn enter_ring<J: Journal>(
        &mut self,
        store: &Store<J>,
        collection: &Collection,
    ) -> Result<(), Refusal> {
        let Some((from, None)) = self.near else { return Ok(()) };
        let Some(near) = self.filter.near() else { return Err(Status::Malformed.into()) };
        let plan = match self.hint {
            Some(hint) => collection.hinted(store, hint, &self.wanted())?,
            None => collection.plans(store, &self.wanted())?.swap_remove(0),
        };
        let ring = collection.ring_of(store, plan.name(collection), near, from);
        let ring = ring.ok_or(Status::Malformed)?;
        self.near = Some((ring.from, Some(ring.to)));
        Ok(())
    }
}

/// What a request's expressions see beside a document.
pub(super) fn variables(request: &RawDocument, now: Now) -> Result<Variables, Refusal> {
    let values = request.get_document("let").ok();
    Ok(Variables::parse(now.unix_ms as i64, now.unix_ms, values)?)
}

/// What is told of plans.
fn explained(collection: &Collection, plans: &[QueryPlan]) -> Vec<Document> {
    let tell = |plan: &QueryPlan| {
        let (ranges, keys) = (plan.ranges.len() as i64, plan.keys as i64);
        doc! {
            "index": plan.name(collection), "ranges": ranges, "keys": keys,
            "whole": plan.is_whole(), "geo": plan.is_geo(), "partial": plan.is_partial(collection), "reverse": plan.is_reverse, "sorted": plan.is_sorted, "exact": plan.is_exact,
        }
    };
    plans.iter().map(tell).collect()
}

impl Collections {
    /// Finds some documents; the reply's value goes into `reply`, and their number is given.
    pub(super) fn find<J: Journal>(
        &self,
        store: &Store<J>,
        (root, now): (Option<u32>, Now),
        request: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<i64, Refusal> {
        let mut request = FindRequest::parse(request, now)?;
        let Some(root) = root else {
            if let Some(place) = &request.at {
                return Err(place.killed().into());
            }
            let head = doc! { "sorted": true, "keys": 0_i64, "documents": 0_i64 };
            Items::push(reply, &bytes_of(&head));
            return Ok(0);
        };
        let collection = self.named(root);
        request.enter_ring(store, collection)?;
        let wanted = request.wanted();
        if wanted.filter.near().is_some()
            && wanted.ring.is_none()
            && wanted.order.is_none()
            && !request.counts
        {
            let text = "only MongoDB's drivers sort documents by distance: give $geoWithin with $centerSphere here, or a sort";
            return Err(Failure::new(code::BAD_VALUE, text).into());
        }
        let mut plans = Vec::new();
        let mut scan = match (&request.at, request.hint) {
            (Some(place), _) => Scan::resumed(store, collection, place, &wanted)?,
            (None, Some(hint)) => Scan::new(collection.hinted(store, hint, &wanted)?),
            (None, None) => {
                plans = collection.plans(store, &wanted)?;
                Scan::new(plans[0].clone())
            }
        };
        scan.ring = wanted.ring;
        let mut found = Vec::new();
        let (number, ended) = if request.counts && scan.plan.is_exact && request.at.is_none() {
            let all = scan.plan.count(store, collection);
            (request.limit.map_or(all, |limit| all.min(limit)), true)
        } else {
            some(store, collection, (&mut scan, &request), &mut found)?
        };
        let mut head = doc! {
            "index": scan.plan.name(collection), "sorted": scan.plan.is_sorted,
            "keys": scan.keys as i64, "documents": scan.documents as i64,
        };
        if let Some(ring) = wanted.ring {
            head.insert("to", ring.to);
        }
        if !ended {
            head.insert("at", scan.place(collection, false));
        }
        if request.explains {
            if plans.is_empty() {
                plans.push(scan.plan.clone());
            }
            head.insert("plans", explained(collection, &plans));
        }
        Items::push(reply, &bytes_of(&head));
        reply.extend_from_slice(&found);
        Ok(number as i64)
    }
}

/// The documents of one step, as a list; their number, and whether there are no more. Behind the limit there may
/// be.
fn some<J: Journal>(
    store: &Store<J>,
    collection: &Collection,
    (scan, request): (&mut Scan, &FindRequest<'_>),
    found: &mut Vec<u8>,
) -> Result<(u64, bool), Refusal> {
    let mut number = 0;
    // Bounded by what a step examines.
    loop {
        if request.limit == Some(number) {
            return Ok((number, false));
        }
        match scan.next(store, collection, &request.filter) {
            Next::End => return Ok((number, true)),
            Next::Spent => return Ok((number, false)),
            Next::Failed(error) => return Err(error.into()),
            Next::Match(_, document) if !request.is_in_ring(document) => {}
            Next::Match(_, document) => {
                number += 1;
                if !request.counts {
                    Items::push(found, document.as_bytes());
                }
            }
        }
    }
}
