//! The planner: by which index a search goes, and over which of its keys.
//!
//! The counts that the trees keep say how many keys a range has, so that no statistics are needed: the plan
//! whose keys, and whose sort if it does not come sorted, cost least is taken.
//!
//! Invariant: each document that matches has a key in the ranges of a plan, if it was not hinted at. A plan that
//! is exact has the keys of those that match, each of them once.

use super::entry::{ID, ID_INDEX};
use super::failure::{Failure, code};
use super::held::{Collection, Index};
use super::places::geo_field;
use crate::store::Store;
use bson::RawDocumentBuf;
use bson::raw::{RawBsonRef, RawDocument};
use remora_arena::Journal;
use remora_document::{
    Direction, Filter, Fitted, GeoKind, IndexField, IndexShape, KeyRange, Near, Path, has_all,
};
use remora_index::btree::{Range, Tree};
use remora_layout::limits::COUNTED_INDEX_RANGES;
use remora_layout::rect::Rect;

/// Where keys come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The tree of `_id`s.
    Ids,
    /// The index at this place.
    Index(usize),
}

/// A plan.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct QueryPlan {
    pub source: Source,
    /// In ascending order; no two of them meet.
    pub ranges: Vec<KeyRange>,
    /// It goes over the documents whose rectangles share a point with one of these, in the order of the R-tree's
    /// curve; it has no ranges then.
    pub windows: Option<Vec<Rect>>,
    pub is_reverse: bool,
    /// Documents come in the wanted order.
    pub is_sorted: bool,
    /// Its keys are those of the documents that match.
    pub is_exact: bool,
    /// Keys in its ranges, about.
    pub keys: u64,
    pub cost: f64,
}

/// The wanted order: paths, and whether each is descending.
pub(super) type Order = Vec<(String, bool)>;

/// Distances from one up to another one, which is not among them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ring {
    pub from: f64,
    pub to: f64,
}

impl Ring {
    /// Whether a geometry in a rectangle may lie in it.
    pub fn meets(self, near: &Near, rect: &Rect) -> bool {
        let (least, most) = near.reach(rect);
        least < self.to && self.from <= most
    }
}

/// What a search wants.
pub(super) struct Wanted<'w> {
    pub filter: &'w Filter,
    /// Of a filter with `$near` the documents in this ring only.
    pub ring: Option<Ring>,
    pub order: Option<&'w Order>,
    pub limit: Option<u64>,
    /// Paths that are changed meanwhile: an index that has one of them could give a document twice.
    pub changes: &'w [String],
}

/// What an index has to offer a search.
struct Offer<'c> {
    source: Source,
    tree: &'c Tree,
    fields: &'c [IndexField],
    multikey: u32,
    is_cut: bool,
}

impl QueryPlan {
    /// The tree that it reads.
    pub fn tree<'c>(&self, collection: &'c Collection) -> &'c Tree {
        match self.source {
            Source::Ids => &collection.ids,
            Source::Index(at) => &collection.indexes[at].tree,
        }
    }

    /// Whether it goes over all documents.
    pub fn is_whole(&self) -> bool {
        let is_all = |range: &KeyRange| range.from.is_empty() && range.to.is_empty();
        matches!(self.source, Source::Ids) && self.ranges.iter().any(is_all)
    }

    /// The name of its index.
    pub fn name<'c>(&self, collection: &'c Collection) -> &'c str {
        match self.source {
            Source::Ids => ID_INDEX,
            Source::Index(at) => &collection.indexes[at].spec.name,
        }
    }

    /// Whether it has only the documents that match a filter.
    pub fn is_partial(&self, collection: &Collection) -> bool {
        match self.source {
            Source::Ids => false,
            Source::Index(at) => collection.indexes[at].spec.partial.is_some(),
        }
    }

    /// Whether it goes by the geometries of an index.
    pub const fn is_geo(&self) -> bool {
        self.windows.is_some()
    }

    /// Keys in its ranges, counted one range after the other.
    pub fn count<J: Journal>(&self, store: &Store<J>, collection: &Collection) -> u64 {
        let tree = self.tree(collection);
        self.ranges.iter().map(|range| count(store, tree, range)).sum()
    }
}

fn count<J: Journal>(store: &Store<J>, tree: &Tree, range: &KeyRange) -> u64 {
    let (from, to) = range.bounds();
    tree.count(&store.owner, Range { from, to, ..Range::ALL })
}

impl Offer<'_> {
    const fn shape(&self) -> IndexShape<'_> {
        let (fields, multikey) = (self.fields, self.multikey);
        IndexShape { fields, multikey, is_of_ids: matches!(self.source, Source::Ids) }
    }

    /// Whether the index gives the wanted order, and if so whether it is read in reverse.
    fn order(&self, fitted: &Fitted, order: Option<&Order>) -> Option<bool> {
        let order = order?;
        let is_constant = |at: usize| fitted.constant & (1 << at) != 0;
        let path_of = |at: usize| self.fields[at].path();
        let mut fields: Vec<(usize, &str, bool)> = (0..self.fields.len())
            .filter(|at| *at >= fitted.single && !is_constant(*at))
            .map(|at| (at, path_of(at), self.fields[at].direction() == Direction::Descending))
            .collect();
        if self.fields.iter().all(|field| field.path() != ID) {
            // Entries end with it.
            fields.push((self.fields.len(), ID, false));
        }
        let mut fields = fields.into_iter();
        let mut is_reverse = None;
        for (path, is_descending) in order {
            if (0..self.fields.len()).any(|at| is_constant(at) && path_of(at) == path) {
                continue;
            }
            let (at, of, descends) = fields.next()?;
            let is_array = at < self.fields.len() && self.shape().is_multikey(at);
            let turns = descends != *is_descending;
            if of != path || is_array || is_reverse.is_some_and(|before| before != turns) {
                return None;
            }
            if at < self.fields.len() && self.fields[at].is_hashed() {
                return None;
            }
            is_reverse = Some(turns);
        }
        (!self.is_cut).then_some(is_reverse.unwrap_or(false))
    }

    fn plan<J: Journal>(&self, store: &Store<J>, wanted: &Wanted<'_>) -> QueryPlan {
        let fitted = self.shape().fit(wanted.filter);
        let counted = &fitted.ranges[..fitted.ranges.len().min(COUNTED_INDEX_RANGES)];
        let mut keys: u64 = counted.iter().map(|range| count(store, self.tree, range)).sum();
        if !counted.is_empty() {
            keys = keys * fitted.ranges.len() as u64 / counted.len() as u64;
        }
        let order = self.order(&fitted, wanted.order);
        let is_exact = fitted.exact == wanted.filter.conditions()
            && self.multikey == 0
            && !self.is_cut
            && self.fields.iter().all(|field| !field.is_hashed());
        let (is_sorted, count) = (order.is_some(), keys as f64);
        let sorts = wanted.order.is_some() && !is_sorted;
        let mut cost = count;
        if sorts {
            cost += 0.3 * count * count.max(2.0).log2();
        }
        if let (Some(limit), true) = (wanted.limit, !sorts && is_exact) {
            cost = cost.min(limit as f64);
        }
        // Of two that cost the same, the one with more bounds has the fewer documents to look at.
        cost -= 0.01 * fitted.bounded as f64;
        let is_reverse = order.unwrap_or(false);
        let (ranges, windows) = (fitted.ranges, None);
        let source = self.source;
        QueryPlan { source, ranges, windows, is_reverse, is_sorted, is_exact, keys, cost }
    }
}

/// Rectangles that all documents of a search share a point with in an index; none if nothing is said of its
/// geometries.
fn windows_in(index: &Index, wanted: &Wanted<'_>) -> Option<Vec<Rect>> {
    let (field, kind) = geo_field(&index.spec.fields)?;
    let near = wanted.filter.near().filter(|near| near.field() == field.path());
    match near {
        Some(near) => near
            .can_use(kind)
            .then(|| near.windows(wanted.ring.map_or(f64::INFINITY, |ring| ring.to))),
        None => wanted.filter.windows(field.path()),
    }
}

/// Whether a rectangle shares a point with a window.
pub(super) fn meets_any(windows: &[Rect], rect: &Rect) -> bool {
    windows.iter().any(|window| window.intersects(rect))
}

/// Whether a search by distance can go over an index.
fn has_near(index: &Index, wanted: &Wanted<'_>) -> bool {
    let field = geo_field(&index.spec.fields);
    let near = wanted.filter.near().zip(field);
    near.is_some_and(|(near, (field, kind))| near.field() == field.path() && near.can_use(kind))
}

/// The index of `_id`s has this field.
pub(super) fn id_field() -> IndexField {
    IndexField::new(Path::parse(ID).expect("one name"), Direction::Ascending)
}

/// Whether an index has all documents that match a filter.
fn is_complete(index: &Index, filter: &Filter) -> bool {
    let spec = &index.spec;
    has_all((&spec.fields, spec.is_sparse, spec.partial.as_ref()), filter)
}

fn offer(collection: &Collection, at: usize) -> Offer<'_> {
    let Index { spec, tree, multikey, cut, .. } = &collection.indexes[at];
    let (source, fields, is_cut) = (Source::Index(at), &spec.fields[..], *cut > 0);
    Offer { source, tree, fields, multikey: *multikey, is_cut }
}

/// Whether an index has a path that is changed meanwhile.
fn is_changed(fields: &[IndexField], changes: &[String]) -> bool {
    // An empty path has no names, and so agrees with all.
    let names = |path: &str| -> Vec<String> {
        let is_field =
            |name: &&str| !name.starts_with('$') && !name.bytes().all(|byte| byte.is_ascii_digit());
        path.split('.')
            .filter(|name| !name.is_empty())
            .filter(is_field)
            .map(str::to_owned)
            .collect()
    };
    let meets = |one: &str, other: &str| {
        let (one, other) = (names(one), names(other));
        one.iter().zip(&other).all(|(a, b)| a == b)
    };
    fields.iter().any(|field| changes.iter().any(|of| meets(field.path(), of)))
}

impl Collection {
    /// A plan that goes by the geometries of an index.
    fn plan_windows<J: Journal>(
        &self,
        store: &Store<J>,
        (at, windows): (usize, Vec<Rect>),
        wanted: &Wanted<'_>,
    ) -> QueryPlan {
        let places = self.indexes[at].places.as_ref();
        let keys =
            places.map_or(0, |places| places.about(store, &|rect| meets_any(&windows, rect)));
        let count = keys as f64;
        let sort = wanted.order.map_or(0.0, |_| 0.3 * count * count.max(2.0).log2());
        QueryPlan {
            source: Source::Index(at),
            ranges: Vec::new(),
            windows: Some(windows),
            is_reverse: false,
            is_sorted: false,
            is_exact: false,
            keys,
            cost: count + sort,
        }
    }

    /// All plans for a search, the best one first. A filter with `$near` has those of an index for it only.
    ///
    /// # Errors
    /// There is none.
    pub fn plans<J: Journal>(
        &self,
        store: &Store<J>,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<QueryPlan>, Failure> {
        let Some(near) = wanted.filter.near() else { return Ok(self.all_plans(store, wanted)) };
        let plans = self.all_plans(store, wanted).into_iter().filter(|plan| match plan.source {
            Source::Index(at) => plan.is_geo() && has_near(&self.indexes[at], wanted),
            Source::Ids => false,
        });
        let plans: Vec<QueryPlan> = plans.collect();
        match plans.is_empty() {
            true => Err(no_index_for(near)),
            false => Ok(plans),
        }
    }

    fn all_plans<J: Journal>(&self, store: &Store<J>, wanted: &Wanted<'_>) -> Vec<QueryPlan> {
        let id_fields = [id_field()];
        let ids = Offer {
            source: Source::Ids,
            tree: &self.ids,
            fields: &id_fields,
            multikey: 0,
            is_cut: false,
        };
        let mut plans = vec![ids.plan(store, wanted)];
        for (at, index) in self.indexes.iter().enumerate() {
            let may_be = index.is_ready()
                && !index.spec.is_hidden
                && !is_changed(&index.spec.fields, wanted.changes)
                && is_complete(index, wanted.filter);
            if !may_be {
                continue;
            }
            if index.places.is_none() {
                plans.push(offer(self, at).plan(store, wanted));
            } else if let Some(windows) = windows_in(index, wanted) {
                plans.push(self.plan_windows(store, (at, windows), wanted));
            }
        }
        let best = plans.iter().map(|plan| plan.keys).min().unwrap_or(0);
        if let Some(limit) = wanted.limit {
            // What comes sorted ends at the limit: about so many keys of all.
            let matches = best.max(1) as f64;
            for plan in plans.iter_mut().filter(|plan| plan.is_sorted) {
                plan.cost = plan.cost.min(limit as f64 * plan.keys as f64 / matches);
            }
        }
        plans.sort_by(|one, other| one.cost.total_cmp(&other.cost));
        plans
    }

    /// The plan that goes by an index of this name; none if it is not there.
    pub fn plan_by<J: Journal>(
        &self,
        store: &Store<J>,
        name: &str,
        wanted: &Wanted<'_>,
    ) -> Option<QueryPlan> {
        if name == ID_INDEX {
            let fields = [id_field()];
            let (source, tree) = (Source::Ids, &self.ids);
            let ids = Offer { source, tree, fields: &fields, multikey: 0, is_cut: false };
            return Some(ids.plan(store, wanted));
        }
        let at = self.index(name).filter(|at| self.indexes[*at].is_ready())?;
        if let Some((_, kind)) = geo_field(&self.indexes[at].spec.fields) {
            // Without a condition on its geometries it gives all that it has.
            let windows =
                windows_in(&self.indexes[at], wanted).unwrap_or_else(|| vec![kind.extent()]);
            return Some(self.plan_windows(store, (at, windows), wanted));
        }
        let mut plan = offer(self, at).plan(store, wanted);
        plan.is_exact &= is_complete(&self.indexes[at], wanted.filter);
        Some(plan)
    }

    /// A plan, or that over all `_id`s if its index has a path that is changed meanwhile: documents would come
    /// again under their new keys.
    pub fn unless_changed<J: Journal>(
        &self,
        store: &Store<J>,
        plan: QueryPlan,
        wanted: &Wanted<'_>,
    ) -> QueryPlan {
        let Source::Index(at) = plan.source else { return plan };
        match is_changed(&self.indexes[at].spec.fields, wanted.changes) {
            true => self.plan_by(store, ID_INDEX, wanted).unwrap_or(plan),
            false => plan,
        }
    }

    /// The plan that a hint names.
    ///
    /// # Errors
    /// There is no such index.
    pub fn hinted<J: Journal>(
        &self,
        store: &Store<J>,
        hint: RawBsonRef<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<QueryPlan, Failure> {
        let by_name = |name: &str| {
            let at = self.index(name);
            at.is_none_or(|at| !self.indexes[at].spec.is_hidden)
                .then(|| self.plan_by(store, name, wanted))
                .flatten()
        };
        let plan = match hint {
            RawBsonRef::String(name) => by_name(name),
            RawBsonRef::Document(pattern) => match natural(pattern) {
                Some(is_reverse) => {
                    let all = Wanted {
                        filter: &Filter::parse(&RawDocumentBuf::new())?,
                        order: None,
                        ..*wanted
                    };
                    let whole = self.plan_by(store, ID_INDEX, &all);
                    whole.map(|plan| QueryPlan { is_reverse, is_exact: false, ..plan })
                }
                None => self.named_by(pattern).and_then(by_name),
            },
            _ => None,
        };
        if let Some(near) = wanted.filter.near() {
            let can = |plan: &QueryPlan| match plan.source {
                Source::Index(at) => has_near(&self.indexes[at], wanted),
                Source::Ids => false,
            };
            return plan.filter(can).ok_or_else(|| no_index_for(near));
        }
        plan.ok_or_else(|| {
            let text = "error processing query: planner returned error: hint provided does not correspond to an existing index";
            Failure::new(code::BAD_VALUE, text)
        })
    }

    /// The name of the index with this key pattern.
    fn named_by(&self, pattern: &RawDocument) -> Option<&str> {
        let direction = |value: RawBsonRef<'_>| match value {
            RawBsonRef::Int32(of) => Some(f64::from(of)),
            RawBsonRef::Int64(of) => Some(of as f64),
            RawBsonRef::Double(of) => Some(of),
            _ => None,
        };
        let is_same = |fields: &[IndexField]| {
            let mut given = pattern.iter();
            let all = fields.iter().all(|field| match given.next() {
                Some(Ok((path, value))) if path.as_str() == field.path() => {
                    match (field.is_hashed(), field.direction()) {
                        _ if field.geo_kind().is_some() => {
                            let kind = field.geo_kind() == Some(GeoKind::Sphere);
                            value == RawBsonRef::String(if kind { "2dsphere" } else { "2d" })
                        }
                        (true, _) => matches!(value, RawBsonRef::String("hashed")),
                        (_, Direction::Ascending) => direction(value).is_some_and(|of| of > 0.0),
                        _ => direction(value).is_some_and(|of| of < 0.0),
                    }
                }
                _ => false,
            });
            all && given.next().is_none()
        };
        if is_same(&[id_field()]) {
            return Some(ID_INDEX);
        }
        let found = self.indexes.iter().find(|index| is_same(&index.spec.fields));
        found.map(|index| index.spec.name.as_str())
    }
}

/// The failure of a search by distance without an index for it.
fn no_index_for(near: &Near) -> Failure {
    let text = format!("unable to find index for $geoNear query on {}", near.field());
    Failure::new(code::NO_QUERY_EXECUTION_PLANS, text)
}

/// The order of `$natural`, if it is that.
fn natural(pattern: &RawDocument) -> Option<bool> {
    match pattern.get("$natural").ok().flatten()? {
        RawBsonRef::Int32(of) => Some(of < 0),
        RawBsonRef::Int64(of) => Some(of < 0),
        RawBsonRef::Double(of) => Some(of < 0.0),
        _ => None,
    }
}
