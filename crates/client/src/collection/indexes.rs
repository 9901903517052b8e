//! The indexes of a collection, as its owner told them, and the one by which a search goes.
//!
//! Invariant: what is not known to be an index of plain fields is left out, so that no search goes by it.

use super::replies::{SENSELESS, parse};
use crate::error::Error;
use bson::raw::{RawBsonRef, RawDocument};
use remora_client_core as core;
use remora_document::{Filter, Fitted, IndexField, IndexShape, KeyRange, has_all};
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use std::cmp::Reverse;

/// Most ranges of an index that one search reads: each takes a round trip at least.
const MOST_RANGES: usize = 16;

/// The indexes of one version.
#[derive(Debug)]
pub(crate) struct KnownIndexes {
    pub version: u64,
    /// A READ has found another version, or another collection.
    pub is_old: bool,
    /// Where the root record of the collection lies.
    pub root: core::IndexPlace,
    /// That of the `_id` first.
    pub all: Vec<KnownIndex>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct KnownIndex {
    fields: Vec<IndexField>,
    is_unique: bool,
    is_sparse: bool,
    partial: Option<Filter>,
    multikey: u32,
    is_of_ids: bool,
    place: core::IndexPlace,
    pub open: core::OpenIndex,
}

/// The description of an index, without its place.
struct Spec {
    fields: Vec<IndexField>,
    is_unique: bool,
    is_sparse: bool,
    partial: Option<Filter>,
}

impl Spec {
    /// `None`: it is of a kind that is not read.
    fn parse(told: &RawDocument) -> Option<Self> {
        let is_on = |option: &str| told.get_bool(option).unwrap_or(false);
        let mut fields = Vec::new();
        for field in told.get_document("key").ok()? {
            let (path, direction) = field.ok()?;
            fields.push(IndexField::parse(path.as_str(), direction)?);
        }
        let partial = match told.get("partialFilterExpression").ok()? {
            Some(RawBsonRef::Document(of)) => Some(Filter::parse(of).ok()?),
            Some(_) => return None,
            None => None,
        };
        Some(Self { fields, is_unique: is_on("unique"), is_sparse: is_on("sparse"), partial })
    }
}

/// Where an index lies.
fn place_of(told: &RawDocument) -> Option<core::IndexPlace> {
    let number = |name: &str| u32::try_from(told.get_i64(name).ok()?).ok();
    let (record, at, generation) = (number("record")?, number("at")?, number("generation")?);
    Some(core::IndexPlace { record, at, generation })
}

impl KnownIndex {
    fn fit(&self, filter: &Filter) -> Option<Fitted> {
        let partial = self.partial.as_ref();
        if !has_all((&self.fields, self.is_sparse, partial), filter) {
            return None;
        }
        let Self { fields, multikey, is_of_ids, .. } = self;
        let shape = IndexShape { fields, multikey: *multikey, is_of_ids: *is_of_ids };
        let fitted = shape.fit(filter);
        let is_readable = (1..=MOST_RANGES).contains(&fitted.ranges.len());
        (fitted.bounded > 0 && is_readable).then_some(fitted)
    }
}

impl KnownIndexes {
    /// Asks the owner. What `before` knows of indexes that are still there is kept. `None`: there is no
    /// collection.
    pub fn ask(
        session: &mut core::Session,
        open: &core::OpenCollection,
        before: Option<Self>,
    ) -> Result<Option<Self>, Error> {
        let reply = session.document_ask(open, &CollectionCommand::Indexes)?;
        if reply.status != Status::Ok {
            return Ok(None);
        }
        let version = reply.number as u64;
        let told = parse(reply.value.unwrap_or_default())?.to_owned();
        let mut kept = before.map_or_else(Vec::new, |before| before.all);
        let (mut root, mut all) = (None, Vec::new());
        for index in told.get_array("indexes").map_err(|_| SENSELESS)? {
            let Ok(RawBsonRef::Document(index)) = index else { return Err(SENSELESS) };
            let place = place_of(index).ok_or(SENSELESS)?;
            let is_of_ids = root.is_none();
            root.get_or_insert(place);
            let multikey = index.get_i64("multikey").ok().and_then(|of| of.try_into().ok());
            let spec = index.get_document("spec").ok().and_then(Spec::parse);
            let (Some(multikey), Some(spec)) = (multikey, spec) else { continue };
            let Spec { fields, is_unique, is_sparse, partial } = spec;
            let known = kept.iter().position(|known| known.place == place);
            let open = match known {
                Some(at) => Some(kept.swap_remove(at).open),
                None => session.open_index(open, place, is_of_ids)?,
            };
            let Some(open) = open else { return Err(SENSELESS) };
            let is_unique = is_unique || is_of_ids;
            all.push(KnownIndex {
                fields,
                is_unique,
                is_sparse,
                partial,
                multikey,
                is_of_ids,
                place,
                open,
            });
        }
        Ok(Some(Self { version, is_old: false, root: root.ok_or(SENSELESS)?, all }))
    }

    /// The index by which a search goes, and its ranges: the one with the most fields of one value, and then
    /// with the most fields that have bounds. How many keys they have the owner alone knows. `None`: it has
    /// bounds for none of them.
    pub fn choose(&self, filter: &Filter) -> Option<(usize, Vec<KeyRange>)> {
        if filter.near().is_some() {
            // The owner says why not.
            return None;
        }
        let fits = self.all.iter().enumerate().filter_map(|(at, index)| {
            let Fitted { ranges, bounded, single, .. } = index.fit(filter)?;
            let is_one = index.is_unique && single == index.fields.len();
            let rank = (is_one, single, bounded, Reverse((ranges.len(), at)));
            Some((rank, at, ranges))
        });
        let (_, at, ranges) = fits.max_by_key(|(rank, ..)| *rank)?;
        Some((at, ranges))
    }
}
