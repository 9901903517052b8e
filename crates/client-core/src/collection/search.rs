//! Documents by an index, with READs: keys of the index, then the documents that these name, many at a time.
//!
//! Invariants:
//! * a document counts only if its batch of READs finds the collection's root record live, of the known generation
//!   and not expired, and if the read lease held when the batch had completed;
//! * keys of an index count only if the version of the indexes, read behind them, is the known one;
//! * a document that is not found may have been removed after its key was read: the search begins again, a bounded
//!   number of times, and then asks.

use super::OpenCollection;
use crate::btree::{BtreeView, MAX_KEYS_READ, RangeClasses, TreeOf, Walked};
use crate::choose::{Class, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::path::{Path, ServedBy};
use crate::read::{doubt, hint_of};
use crate::router::Timing;
use crate::session::Session;
use remora_index::btree::{Direction, Range};
use remora_index::hash::{AskReason, Lookup, ObjectRef};
use remora_layout::collection::{COLLECTION_VERSION_AT, split_entry};
use remora_layout::kind::Kind;
use remora_layout::limits::{READ_RETRIES, WORD_BYTES};
use remora_layout::node::NodeRef;
use remora_layout::part::root_word;
use remora_layout::record::{ROOT_WORDS_BYTES, Reject, State};
use remora_layout::tree::RootPlace;
use remora_walk::remote::{InStep, Reads, fetch_wanted_rooted};
use remora_walk::{End, Walk};
use std::collections::BTreeSet;
use std::ops::Bound;

/// Keys that are read before their documents: as many as are wanted, within these bounds. A few more than one
/// cost no round trip, and some documents do not match.
const KEYS_AT_A_TIME: (usize, usize) = (16, 128);

/// Bytes of documents that are read at a time, if there are several.
const BATCH_BYTES: usize = 8 << 20;

/// Where an index lies, as the owner tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexPlace {
    /// The slot of the record that has the header of its tree.
    pub record: u32,
    /// The slot at which the header begins.
    pub at: u32,
    /// The record's generation.
    pub generation: u32,
}

/// A session's view of the tree of an index.
#[derive(Debug)]
pub struct OpenIndex {
    tree: BtreeView,
    /// Its keys are encoded `_id`s; those of others end with them.
    is_of_ids: bool,
    /// What searches cost, by their limits.
    classes: RangeClasses,
}

/// The ends of a range of keys.
pub type KeyBounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// A search over some keys of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexSearch<'s> {
    /// Where the root record of the collection lies.
    pub root: IndexPlace,
    /// The known version of its indexes.
    pub version: u64,
    /// The ranges of the keys, in ascending order.
    pub ranges: &'s [KeyBounds<'s>],
    /// How many documents are wanted, at most.
    pub limit: usize,
}

/// What a search by READs came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexRead {
    /// The documents, each once.
    Found(Vec<Vec<u8>>),
    /// The collection or its indexes are no longer those that were known.
    Changed,
    /// Only the owner knows.
    Ask,
}

/// A search that has begun: its route, and what the session had cost before.
pub struct FindTurn {
    timing: Timing,
    before: Counts,
}

impl FindTurn {
    /// Whether it is to be made by READs.
    pub fn reads(&self) -> bool {
        self.timing.route == Route::Read
    }
}

/// Why a search does not go on.
enum Stop {
    /// Something that it led to has gone.
    Again,
    Changed,
    Ask,
}

/// What one step came to.
type Step<T> = Result<Result<T, Stop>, Error>;

/// A search in progress.
struct Search<'s> {
    wanted: &'s IndexSearch<'s>,
    found: Vec<Vec<u8>>,
    /// Encoded `_id`s whose documents it has read.
    seen: BTreeSet<Vec<u8>>,
    /// The range that comes next, and the key behind which it goes on.
    range: usize,
    position: Option<Vec<u8>>,
    keys: u64,
}

/// The documents of one batch.
struct Batch<'b> {
    walks: Vec<InStep<Lookup<'b>>>,
    /// The number of each walk's document.
    numbers: Vec<usize>,
    /// What is known of each document: nothing, that it does not match, or that it does.
    documents: Vec<Option<Option<Vec<u8>>>>,
}

impl IndexPlace {
    /// The same for walks; `None` if it cannot be one.
    fn root_place(&self, region_bytes: u64) -> Option<RootPlace> {
        /// Slots of the longest record that has a header: a name is shorter than a page.
        const MAX_SLOTS: u32 = 1 << 12;
        let Self { record, at, generation } = *self;
        let at = NodeRef { slot: at, generation };
        let is_behind = record > 0 && at.slot > record && at.slot - record < MAX_SLOTS;
        (is_behind && (at.offset() as u64) < region_bytes).then_some(RootPlace { record, at })
    }
}

impl OpenIndex {
    /// Reads some keys behind the search's position; the encoded `_id`s among them that are new.
    fn next_ids(
        &mut self,
        core: &mut Core,
        search: &mut Search<'_>,
        cost: &mut Counts,
    ) -> Step<Vec<Vec<u8>>> {
        let (fewest, most) = KEYS_AT_A_TIME;
        let wanted = (search.wanted.limit - search.found.len()).clamp(fewest, most);
        let (mut ids, mut keys) = (Vec::new(), 0);
        // Bounded: each turn ends a range, or reads what is wanted.
        while keys < wanted
            && let Some(&(from, to)) = search.wanted.ranges.get(search.range)
        {
            let Some(known) = self.tree.place(core, cost)? else { return Ok(Err(Stop::Changed)) };
            let from = search.position.as_deref().map_or(from, Bound::Excluded);
            let limit = wanted - keys;
            let range = Range { from, to, direction: Direction::Ascending, limit };
            let walk = match self.tree.scan(core, known, range, cost)? {
                Walked::Found(walk) => walk,
                Walked::Ask => return Ok(Err(Stop::Ask)),
                Walked::Gone => {
                    self.tree.forget(cost);
                    return Ok(Err(Stop::Changed));
                }
            };
            let (mut some, mut last) = (0, None);
            for (key, _) in walk.entries() {
                let id =
                    if self.is_of_ids { Some(key) } else { split_entry(key).map(|(_, id)| id) };
                let Some(id) = id else { return Ok(Err(Stop::Ask)) };
                if search.seen.insert(id.to_vec()) {
                    ids.push(id.to_vec());
                }
                (some, last) = (some + 1, Some(key.to_vec()));
            }
            keys += some;
            (search.range, search.position) = match some < limit {
                true => (search.range + 1, None),
                false => (search.range, last),
            };
        }
        search.keys += keys as u64;
        Ok(if search.keys > MAX_KEYS_READ { Err(Stop::Ask) } else { Ok(ids) })
    }
}

impl<'b> Batch<'b> {
    /// Lookups of documents, by the known places or the buckets. `None` if the table is not known.
    fn begin(open: &OpenCollection, object: &ObjectRef, ids: &'b [Vec<u8>]) -> Option<Self> {
        let (_, region) = open.parts()?;
        let mut walks = Vec::with_capacity(ids.len());
        for id in ids {
            let hint = open.part(id).map_or(0, |pointer| hint_of(pointer, object.hash(id)));
            walks.push(InStep::new(object.begin_at(id, Kind::DOCUMENT, hint)?, region));
        }
        let numbers = (0..ids.len()).collect();
        Some(Self { walks, numbers, documents: vec![None; ids.len()] })
    }

    /// Feeds the walks that were fetched, from the first one on, and judges the documents that they found.
    fn feed(
        &mut self,
        core: &mut Core,
        (open, fed): (&mut OpenCollection, usize),
        matches: &mut dyn FnMut(&[u8]) -> Option<bool>,
        cost: &mut Counts,
    ) -> Result<(), Stop> {
        let endpoint = &core.asker.endpoint;
        let (mut walks, mut numbers) = (Vec::new(), Vec::new());
        let all =
            std::mem::take(&mut self.walks).into_iter().zip(std::mem::take(&mut self.numbers));
        for (at, (mut one, number)) in all.enumerate() {
            let end = if at < fed { one.feed(endpoint) } else { None };
            match end {
                None => {
                    walks.push(one);
                    numbers.push(number);
                }
                Some(End::Found(found)) => {
                    cost.retries += u64::from(one.walk.retries());
                    cost.stale += u64::from(one.walk.is_hint_stale());
                    open.keep(one.walk.key(), found.pointer);
                    let from = one.landing() + found.value_from();
                    let bytes = endpoint.landed(from, found.value_bytes);
                    let is_match = matches(bytes).ok_or(Stop::Ask)?;
                    self.documents[number] = Some(is_match.then(|| bytes.to_vec()));
                }
                Some(End::Ask(AskReason::NotFound)) => return Err(Stop::Again),
                Some(End::Ask(_)) => return Err(Stop::Ask),
                // The table has grown: its root record has the new shape.
                Some(End::Restart | End::Stale | End::Beyond) => {
                    open.forget();
                    return Err(Stop::Again);
                }
            }
        }
        (self.walks, self.numbers) = (walks, numbers);
        Ok(())
    }
}

impl<'s> Search<'s> {
    fn new(wanted: &'s IndexSearch<'s>) -> Self {
        let (found, seen) = (Vec::new(), BTreeSet::new());
        Self { wanted, found, seen, range: 0, position: None, keys: 0 }
    }

    fn run(
        &mut self,
        core: &mut Core,
        (open, index): (&mut OpenCollection, &mut OpenIndex),
        matches: &mut dyn FnMut(&[u8]) -> Option<bool>,
        cost: &mut Counts,
    ) -> Step<()> {
        let Core { asker, directory, .. } = &mut *core;
        if open.parts().is_none() && !open.find(&mut asker.endpoint, directory, cost)? {
            return Ok(Err(Stop::Ask));
        }
        let root = self.wanted.root;
        let known = root_word(root.record, root.generation);
        if !open.parts().is_some_and(|(object, _)| object.is_root(known)) {
            open.forget();
            return Ok(Err(Stop::Changed));
        }
        // Bounded by the keys that it may read.
        loop {
            let ids = match index.next_ids(core, self, cost)? {
                Ok(ids) => ids,
                Err(stop) => return Ok(Err(stop)),
            };
            if let Err(stop) = self.read_documents(core, (open, &ids), matches, cost)? {
                return Ok(Err(stop));
            }
            if self.found.len() >= self.wanted.limit || self.range >= self.wanted.ranges.len() {
                return Ok(Ok(()));
            }
        }
    }

    /// Reads the documents of these encoded `_id`s, and takes those that match, up to the limit. Without any
    /// it reads the root alone.
    fn read_documents(
        &mut self,
        core: &mut Core,
        (open, ids): (&mut OpenCollection, &[Vec<u8>]),
        matches: &mut dyn FnMut(&[u8]) -> Option<bool>,
        cost: &mut Counts,
    ) -> Step<()> {
        let Some((object, region)) = open.parts() else { return Ok(Err(Stop::Again)) };
        let object = object.clone();
        let version_at = object.state_word(open.key().len(), COLLECTION_VERSION_AT);
        let root = [object.root_range(), (version_at, WORD_BYTES)];
        let Some(mut batch) = Batch::begin(open, &object, ids) else {
            open.forget();
            return Ok(Err(Stop::Again));
        };
        let (mut taken, mut is_checked) = (0, false);
        // Bounded: every walk is.
        while !(batch.walks.is_empty() && is_checked) {
            let endpoint = &mut core.asker.endpoint;
            let at = (region, &root[..]);
            let (fed, root_at) =
                fetch_wanted_rooted(&mut batch.walks, at, BATCH_BYTES, endpoint, cost)?;
            if let Err(stop) = self.check_root(core, (open, &object), root_at, cost)? {
                return Ok(Err(stop));
            }
            is_checked = true;
            if let Err(stop) = batch.feed(core, (open, fed), matches, cost) {
                return Ok(Err(stop));
            }
            while let Some(known) = batch.documents.get_mut(taken).and_then(Option::take) {
                taken += 1;
                self.found.extend(known);
                if self.found.len() >= self.wanted.limit {
                    return Ok(Ok(()));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Whether what was read before the root's words, which landed here, counts.
    fn check_root(
        &self,
        core: &mut Core,
        (open, object): (&mut OpenCollection, &ObjectRef),
        root_at: usize,
        cost: &mut Counts,
    ) -> Step<()> {
        let endpoint = &mut core.asker.endpoint;
        let landed = endpoint.landed(root_at, ROOT_WORDS_BYTES + WORD_BYTES);
        let (words, version) = landed.split_at(ROOT_WORDS_BYTES);
        let version = version.first_chunk().map(|version| u64::from_le_bytes(*version));
        let mutable = match object.check_root(words) {
            Ok(mutable) => mutable,
            Err(Reject::Pending | Reject::AskOnly) => return Ok(Err(Stop::Ask)),
            Err(_) => {
                cost.stale += 1;
                open.forget();
                return Ok(Err(Stop::Again));
            }
        };
        if doubt(endpoint, mutable.expires_at_ms, cost)?.is_some() {
            return Ok(Err(Stop::Ask));
        }
        let is_known = version == Some(self.wanted.version);
        Ok(if is_known { Ok(()) } else { Err(Stop::Changed) })
    }
}

impl Session {
    /// A view of an index of a collection, or of its `_id`s. Nothing is asked. `None`: no index lies there.
    pub fn open_index(
        &self,
        open: &OpenCollection,
        place: IndexPlace,
        is_of_ids: bool,
    ) -> Result<Option<OpenIndex>, Error> {
        let directory = &self.core.directory;
        let region_bytes = directory.shards[open.shard()].table.region_bytes;
        let Some(place) = place.root_place(region_bytes) else { return Ok(None) };
        // No key leads to the record of an index.
        let while_in = if is_of_ids { State::Live } else { State::Pending };
        let tree = BtreeView::new(directory, open.key(), TreeOf::Told { place, while_in })?;
        Ok(Some(OpenIndex { tree, is_of_ids, classes: RangeClasses::default() }))
    }

    /// Whether operations for which this path is named may be made by READs.
    pub fn may_read(&self, path: Path) -> bool {
        self.core.router.path(path) != Path::Ask
    }

    /// Begins a search for so many documents at most, by this index, or by none. The session's counts before
    /// it were `before`.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn begin_find(
        &mut self,
        index: Option<&mut OpenIndex>,
        (limit, path): (usize, Path),
        before: Counts,
    ) -> Result<FindTurn, Error> {
        let core = &mut self.core;
        core.asker.ready()?;
        let (path, endpoint) = (core.router.path(path), &mut core.asker.endpoint);
        let timing = match index {
            Some(index) => {
                let class = index.classes.of(limit as u64);
                core.router.begin_search(endpoint, class, path)?.0
            }
            None => core.router.begin_given(endpoint, Route::Ask)?,
        };
        Ok(FindTurn { timing, before })
    }

    /// Ends it: how it was served, and what it cost.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn end_find(
        &mut self,
        index: Option<&mut OpenIndex>,
        (turn, limit, is_read): (FindTurn, usize, bool),
    ) -> Result<(ServedBy, Counts), Error> {
        let core = &mut self.core;
        let FindTurn { timing, before } = turn;
        let counts = Counts { operations: 1, ..core.meter.since(&before) };
        let served_by = match (timing.route, is_read) {
            (_, true) => ServedBy::read_after((counts.retries + counts.stale) as u32),
            (Route::Read, false) => ServedBy::AskedAfterRead,
            (Route::Ask, false) => ServedBy::Asked,
        };
        let mut none = Class::NEW;
        let class = index.map_or(&mut none, |index| index.classes.of(limit as u64));
        core.router.end_search(&mut core.asker.endpoint, class, &timing, served_by, &counts)?;
        Ok((served_by, core.counted(counts)))
    }

    /// Documents that have keys in ranges of an index and that match, by READs. `matches` says of a document
    /// whether it does; `None`: only the owner can say.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn find_by_index(
        &mut self,
        (open, index): (&mut OpenCollection, &mut OpenIndex),
        wanted: &IndexSearch<'_>,
        matches: &mut dyn FnMut(&[u8]) -> Option<bool>,
    ) -> Result<IndexRead, Error> {
        let core = &mut self.core;
        let mut cost = Counts::default();
        let mut read = IndexRead::Ask;
        if !core.asker.may_read(open.shard()) {
            cost.behind_writes = 1;
        } else {
            for _ in 0..=READ_RETRIES {
                let mut search = Search::new(wanted);
                match search.run(core, (open, index), matches, &mut cost)? {
                    Ok(()) => {
                        core.asker.endpoint.staleness.conclude_reads();
                        (cost.operations, cost.read) = (1, 1);
                        read = IndexRead::Found(search.found);
                    }
                    Err(Stop::Again) => {
                        cost.retries += 1;
                        continue;
                    }
                    Err(Stop::Changed) => read = IndexRead::Changed,
                    Err(Stop::Ask) => {}
                }
                break;
            }
            cost.undecided = u64::from(read == IndexRead::Ask && cost.read_lease_lapsed == 0);
        }
        core.meter.add(&cost);
        Ok(read)
    }
}
