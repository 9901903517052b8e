//! Indexes of geometries: a rectangle for each document in an R-tree.
//!
//! An object of the R-tree is named by a word, a hash of the encoded `_id`. The B+tree of the index says which
//! documents have the word: its entries have the word as their value. So a document is found from either side
//! without a further structure.
//!
//! Invariant: the rectangle of a word contains those of all its documents, and is that of its document if there has
//! been one only since the word came.

use super::entry::{entry, split};
use crate::store::{Now, Store};
use crate::types::arena::{arena_at, planned_arena};
use remora_arena::{Journal, Slot};
use remora_document::{GeoKind, IndexField, behind};
use remora_index::btree::{self, Range};
use remora_index::rtree::{Tree, TreeError, TreeOptions};
use remora_layout::hash::digest;
use remora_layout::limits::PLACE_INDEX_CAPACITY;
use remora_layout::node::{Home, node_bytes};
use remora_layout::rect::Rect;
use remora_layout::tree::TreeKind;
use remora_protocol::message::Status;
use std::ops::Bound;

/// The bits that a word may have. Tests take few, so that documents share words.
const WORD_BITS: u64 = if cfg!(test) { 7 } else { u64::MAX };

/// Nodes of one level that are counted for an estimate.
const COUNTED_NODES: usize = 64;

/// The R-tree of an index.
pub(super) struct Places {
    /// The record with its header.
    pub header: Slot,
    pub tree: Tree,
}

/// The word of a document.
fn word_of(id: &[u8]) -> u64 {
    digest(id) as u64 & WORD_BITS
}

/// The entry of a document in the B+tree of such an index.
pub(super) fn geo_entry(id: &[u8]) -> Vec<u8> {
    entry(&word_of(id).to_be_bytes(), id)
}

/// The range of the entries with a word.
pub(super) fn range_of_word(
    word: &[u8],
    limit: usize,
    see: impl FnOnce(Range<'_>) -> usize,
) -> usize {
    let end = behind(word);
    let to = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&end[..]) };
    see(Range { from: Bound::Included(word), to, limit, ..Range::ALL })
}

/// The field of an index that has geometries.
pub(super) fn geo_field(fields: &[IndexField]) -> Option<(&IndexField, GeoKind)> {
    fields.iter().find_map(|field| Some((field, field.geo_kind()?)))
}

impl Places {
    /// An empty R-tree for geometries of this kind, whose header lies in a record.
    pub fn create<J: Journal>(
        store: &mut Store<J>,
        header: Slot,
        kind: GeoKind,
        now: Now,
    ) -> Result<Self, Status> {
        let (at, capacity) = (store.state_of(header), PLACE_INDEX_CAPACITY);
        let home = Home { secret: store.options.record_secret, region: store.options.region };
        let options = TreeOptions { kind: TreeKind::Hilbert, capacity, bounds: kind.extent() };
        let mut made = Tree::create(&mut planned_arena(store), home, at, options);
        if matches!(made, Err(TreeError::Full(_))) && store.make_free(8 * node_bytes(capacity), now)
        {
            made = Tree::create(&mut planned_arena(store), home, at, options);
        }
        Ok(Self { header, tree: made.map_err(|_| Status::OutOfMemory)? })
    }

    /// About how many documents have rectangles that `meets` holds for.
    pub fn about<J: Journal>(&self, store: &Store<J>, meets: &dyn Fn(&Rect) -> bool) -> u64 {
        self.tree.about(&store.owner, meets, COUNTED_NODES)
    }

    /// Takes memory for some puts; if it does not suffice, after some was made free.
    pub fn reserve<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        puts: usize,
        now: Now,
    ) -> Result<(), Status> {
        let mut reserved = self.tree.reserve(&mut planned_arena(store), puts);
        if matches!(reserved, Err(TreeError::Full(_)))
            && store.make_free(self.tree.wanted_run_bytes(), now)
        {
            reserved = self.tree.reserve(&mut planned_arena(store), puts);
        }
        reserved.map_err(|_| Status::OutOfMemory)
    }

    /// Gives a document its rectangle, or takes it out. The entries of its index are there, or gone, already.
    pub fn publish<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        entries: &btree::Tree,
        (id, rect): (&[u8], Option<Rect>),
        changed_at: u64,
    ) {
        let word = word_of(id);
        let mut is_shared = false;
        range_of_word(&word.to_be_bytes(), 2, |range| {
            entries.range(&store.owner, range, |entry, _| is_shared |= split(entry).1 != id)
        });
        let before = self.tree.find(&store.owner, word).filter(|_| is_shared);
        let arena = &mut arena_at(store, changed_at);
        if let Some(rect) = rect {
            let rect = before.map_or(rect, |before| before.union(&rect));
            self.tree.put(arena, word, rect).expect("its nodes are reserved");
        } else if !is_shared {
            self.tree.remove(arena, word).expect("a removal takes no memory");
        }
    }

    /// Compares it with the rectangles that documents have.
    pub fn audit<'d, J: Journal>(
        &self,
        store: &Store<J>,
        documents: impl Iterator<Item = (&'d [u8], Rect)>,
    ) -> Result<(), String> {
        let mut wanted = std::collections::BTreeMap::<u64, Rect>::new();
        for (id, rect) in documents {
            let known = wanted.entry(word_of(id)).or_insert(rect);
            *known = known.union(&rect);
        }
        if self.tree.objects() != wanted.len() as u64 {
            return Err(format!("{} rectangles for {}", self.tree.objects(), wanted.len()));
        }
        for (word, rect) in wanted {
            // Documents share words in tests of this file only.
            let is_right = |found: Rect| found == rect || (cfg!(test) && found.contains(&rect));
            let found = self.tree.find(&store.owner, word);
            if !found.is_some_and(is_right) {
                return Err(format!("word {word} has {found:?}, not {rect:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::WORD_BITS;
    use crate::{Shard, ShardOptions};
    use bson::{Document, doc};
    use remora_arena::{NoJournal, Owner};
    use remora_protocol::collection::CollectionCommand;
    use remora_protocol::message::Status;
    use remora_protocol::{Command, Items};
    use remora_testing::Random;

    const KEY: &[u8] = b"db.places";

    fn ask(shard: &mut Shard, command: CollectionCommand<'_>) -> (i64, Vec<u8>) {
        let command = Command::Of { key: KEY, request: command.request() };
        let now = crate::Now { unix_ms: 1, since_start_s: 1 };
        let reply = shard.execute(&command, shard.hash(KEY), now);
        assert_eq!(reply.status, Status::Ok, "{:?}", reply.value.map(<[u8]>::escape_ascii));
        (reply.number, reply.value.unwrap_or_default().to_vec())
    }

    fn bytes(document: &Document) -> Vec<u8> {
        document.to_vec().unwrap()
    }

    /// All that a search finds, one document in each step.
    fn found(shard: &mut Shard, filter: &Document) -> Vec<i32> {
        let (mut request, mut all) = (doc! { "filter": filter.clone(), "limit": 1 }, Vec::new());
        loop {
            let request_bytes = bytes(&request);
            let (_, value) = ask(shard, CollectionCommand::Find { request: &request_bytes });
            let items = Items::parse(&value).unwrap();
            let mut items = items.iter().flatten().map(|of| Document::from_reader(of).unwrap());
            let head = items.next().unwrap();
            assert_eq!(head.get_str("index").ok(), Some("at"));
            all.extend(items.map(|of| of.get_i32("_id").unwrap()));
            match head.get("at") {
                Some(at) => request.insert("at", at.clone()),
                None => break,
            };
        }
        all.sort_unstable();
        all
    }

    /// Here there are few words, so that most documents share one with others.
    #[test]
    fn documents_that_share_a_word_are_found_and_go_one_by_one() {
        assert_eq!(WORD_BITS, 7);
        let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), ShardOptions::default());
        let spec = bytes(&doc! { "spec": { "key": { "at": "2d" }, "name": "at" } });
        ask(&mut shard, CollectionCommand::CreateIndex { request: &spec });
        let (mut random, mut model) = (Random::new(4), std::collections::BTreeMap::new());
        for step in 0..300 {
            let id = random.below(60);
            if random.one_in(3) {
                model.remove(&id);
                let remove = bytes(&doc! { "q": { "_id": id } });
                ask(&mut shard, CollectionCommand::Write { request: &remove });
            } else {
                let (x, y) = (random.below(9), random.below(9));
                let has_place = !random.one_in(6);
                let document = match has_place {
                    true => doc! { "_id": id, "at": [x, y] },
                    false => doc! { "_id": id },
                };
                model.insert(id, has_place.then_some((x, y)));
                let mut list = Vec::new();
                Items::push(&mut list, &bytes(&document));
                let documents = Items::parse(&list).unwrap();
                ask(&mut shard, CollectionCommand::Put { documents });
            }
            shard.audit().unwrap();
            if step % 5 == 0 {
                let (x, y) = (random.below(9), random.below(9));
                let filter = doc! { "at": { "$geoWithin": { "$box": [[x, y], [x + 3, y + 3]] } } };
                let is_in =
                    |at: &(i32, i32)| (x..=x + 3).contains(&at.0) && (y..=y + 3).contains(&at.1);
                let wanted = model.iter().filter(|(_, at)| at.as_ref().is_some_and(is_in));
                let wanted: Vec<i32> = wanted.map(|(id, _)| *id).collect();
                assert_eq!(found(&mut shard, &filter), wanted);
            }
        }
    }
}
