//! Refined searches: they find objects by their rectangles, and compare them by their geometries;
//! at the server if the session asks, otherwise here (C10).
//!
//! Invariants:
//! * the session takes an object for its rectangle only if the rectangle is a point, or if the
//!   tree's header, read after the rectangle, says that no object has had a geometry, or if the
//!   object's record says that it has none;
//! * a record that was read counts only if it was live and whole, and if the read lease still held
//!   when the last READ had completed;
//! * if an object's record is not known, or has gone, the session asks the server, whose reply also
//!   says where the record lies now.

use super::asked::{Searched, TreeSearcher, drop_doubles};
use super::found::{RefinedCount, RefinedFound};
use super::view::OpenTree;
use crate::choose::{Class, ClassKey, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::path::{Path, ServedBy};
use remora_fabric::{Link, RemoteAddress, Work};
use remora_geometry::{Refine, is_point};
use remora_index::rtree::{Object, Query};
use remora_layout::kind::Kind;
use remora_layout::limits::{CACHE_LINE_BYTES, MAX_RECORD_READS, MAX_REFINE_IDS, READ_RETRIES};
use remora_layout::object::{Payload, VERDICT_BYTES, Verdict, object_key};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, verify};
use remora_protocol::message::Status;
use remora_protocol::tree::{ReadObjects, Refined, TreeCommand, window_predicate};
use remora_walk::remote::Reads;
use zerocopy::FromBytes;

/// A finished refined search.
struct Refinement {
    searched: Searched,
    candidates: u64,
    /// Objects that fit; they are in `TreeSearcher::found` unless the server only counted them.
    objects: u64,
}

/// The result of comparing the objects of a walk.
struct Compared {
    /// Objects that the server was asked about.
    asked: bool,
    retries: u32,
}

impl TreeSearcher {
    /// Searches a tree for the objects whose geometries fit: by READs if the path says so, or if it
    /// is [`Path::Choose`] and the session chooses them, and if they conclude; otherwise by asking.
    /// It judges each object by one of the states that the object had during the search.
    ///
    /// # Errors
    /// See [`Error`]: the tree has gone.
    pub(crate) fn search_refined(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
    ) -> Result<RefinedFound<'_>, Error> {
        let Refinement { searched, candidates, .. } =
            self.refine(core, tree, refine, path, false)?;
        let Searched { served_by, counts, nodes_visited } = searched;
        let (objects, names) = (&self.found, &self.names);
        let counts = core.counted(counts);
        Ok(RefinedFound { objects, names, served_by, counts, nodes_visited, candidates })
    }

    /// Counts the objects whose geometries fit, as [`TreeSearcher::search_refined`]
    /// finds them; a server that is asked sends their number only.
    ///
    /// # Errors
    /// See [`Error`]: the tree has gone.
    pub(crate) fn count_refined(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
    ) -> Result<RefinedCount, Error> {
        let Refinement { searched, objects, .. } = self.refine(core, tree, refine, path, true)?;
        let counts = core.counted(searched.counts);
        Ok(RefinedCount { objects, served_by: searched.served_by, counts })
    }

    fn refine(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
        counts: bool,
    ) -> Result<Refinement, Error> {
        core.asker.ready()?;
        let mut classes = std::mem::take(&mut tree.classes);
        let class = classes.get(ClassKey::refined(&refine.window(), counts));
        let refined = self.refine_by(core, tree, refine, (path, counts), class);
        tree.classes = classes;
        refined
    }

    /// Decides, searches, and learns.
    fn refine_by(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        (path, counts): (Path, bool),
        class: &mut Class,
    ) -> Result<Refinement, Error> {
        let (timing, most_reads) =
            core.router.begin_search(&mut core.asker.endpoint, class, path)?;
        let mut cost = Counts { operations: 1, ..Counts::default() };
        let mut read = None;
        if timing.route == Route::Read {
            read = self.refine_by_reads(core, tree, refine, most_reads, &mut cost)?;
            if read.is_none() {
                cost.undecided += (cost.read_lease_lapsed + cost.behind_writes == 0) as u64;
            }
        }
        let wasted = Counts { operations: 0, ..cost };
        let refined = match read {
            Some(read) => read,
            None if counts => self.count_asked(core, tree, refine, wasted)?,
            None => self.refine_asked(core, tree, refine, wasted)?,
        };
        core.router.end_search(
            &mut core.asker.endpoint,
            class,
            &timing,
            refined.searched.served_by,
            &refined.searched.counts,
        )?;
        Ok(refined)
    }

    fn refine_by_reads(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Refinement>, Error> {
        let query = Query::Window { window: refine.window(), predicate: window_predicate(refine) };
        let Some(walked) = self.read_tree(core, tree, &query, most_reads, cost)? else {
            return Ok(None);
        };
        let candidates = self.found.len() as u64;
        let Some(mut compared) = self.compare_found(core, tree, refine, cost)? else {
            return Ok(None);
        };
        let Some(resolved) = self.resolve_found(core, tree, cost)? else { return Ok(None) };
        compared.asked |= resolved.asked > 0;
        core.asker.endpoint.staleness.conclude_reads();
        cost.read = u64::from(!compared.asked);
        cost.asked = u64::from(compared.asked);
        core.meter.add(cost);
        let served_by = match compared.asked {
            true => ServedBy::AskedAfterRead,
            false => ServedBy::read_after(walked.retries + compared.retries),
        };
        let searched = Searched { served_by, counts: *cost, nodes_visited: walked.nodes };
        Ok(Some(Refinement { searched, candidates, objects: self.found.len() as u64 }))
    }

    /// Asks, after reading has cost `wasted`.
    fn refine_asked(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        refine: &Refine,
        wasted: Counts,
    ) -> Result<Refinement, Error> {
        let served_by = ServedBy::asked_after(wasted.round_trips);
        core.meter.add(&wasted);
        let bytes = refine.to_bytes();
        let command = TreeCommand::Refine { refine: &bytes, of: None };
        let (mut counts, number) = self.ask_search_of(core, tree.shard, &tree.name, command)?;
        // The tree may have changed before a geometry was compared.
        drop_doubles(&mut self.found);
        self.names.drop_doubles(&mut self.found);
        counts.add(&wasted);
        let Refined { nodes, candidates } = Refined::from_number(number as i64);
        let searched = Searched { served_by, counts, nodes_visited: nodes.into() };
        let objects = self.found.len() as u64;
        Ok(Refinement { searched, candidates: candidates.into(), objects })
    }

    /// Asks for the number alone, after reading has cost `wasted`.
    fn count_asked(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        refine: &Refine,
        wasted: Counts,
    ) -> Result<Refinement, Error> {
        let served_by = ServedBy::asked_after(wasted.round_trips);
        core.meter.add(&wasted);
        let bytes = refine.to_bytes();
        let command = TreeCommand::CountRefined { refine: &bytes };
        let (mut counts, objects) =
            self.ask_in_parts(core, tree.shard, &tree.name, command, <[u8]>::is_empty)?;
        counts.add(&wasted);
        let searched = Searched { served_by, counts, nodes_visited: 0 };
        Ok(Refinement { searched, candidates: objects, objects })
    }

    /// Keeps those of the objects in `self.found` that fit. `None`: ask for the whole search.
    fn compare_found(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        cost: &mut Counts,
    ) -> Result<Option<Compared>, Error> {
        let found = std::mem::take(&mut self.found);
        let (points, others): (Vec<Object>, Vec<Object>) =
            found.iter().partition(|object| is_point(&object.rect));
        self.found = found;
        self.found.clear();
        self.found.extend(points.into_iter().filter(|object| refine.fits(&object.rect, &[])));
        let mut compared = Compared { asked: false, retries: 0 };
        if others.is_empty() {
            return Ok(Some(compared));
        }
        let known = tree.header.is_some_and(|header| header.has_geometries);
        if !known {
            // As it is now: none of the rectangles had a geometry if it says so.
            match self.read_tree_header(core, tree, cost)? {
                Some(header) if !header.has_geometries => {
                    let fitting = others.iter().filter(|object| refine.fits(&object.rect, &[]));
                    self.found.extend(fitting);
                    return Ok(core.asker.endpoint.holds_lease()?.then_some(compared));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
        let mut unknown = Vec::new();
        let mut waiting = Vec::new();
        for object in others {
            match tree.records.get(object.word) {
                Some(pointer) => waiting.push((object, pointer)),
                None => unknown.push(object.word),
            }
        }
        cost.hits += waiting.len() as u64;
        for tries in 0..=READ_RETRIES {
            if waiting.is_empty() {
                break;
            }
            compared.retries = tries;
            waiting = self.read_records(core, tree, refine, &waiting, &mut unknown, cost)?;
        }
        unknown.extend(waiting.iter().map(|(object, _)| object.word));
        if !core.asker.endpoint.holds_lease()? {
            cost.read_lease_lapsed += 1;
            return Ok(None);
        }
        compared.asked = !unknown.is_empty();
        for words in unknown.chunks(MAX_REFINE_IDS) {
            match self.ask_verdicts(core, tree, refine, words, cost) {
                // The key has another tree now, if any.
                Err(Error::Refused(Status::NoTree)) => return Ok(None),
                asked => asked?,
            }
        }
        Ok(Some(compared))
    }

    /// Reads the records of objects, as many at a time as may be in flight; those that fit are in
    /// `self.found` then, those that no longer exist in `unknown`. Returns the torn ones.
    fn read_records(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        waiting: &[(Object, RemotePointer)],
        unknown: &mut Vec<u64>,
        cost: &mut Counts,
    ) -> Result<Vec<(Object, RemotePointer)>, Error> {
        let mut torn = Vec::new();
        let (secret, region) = {
            let table = &core.directory.shards[tree.shard].table;
            (table.secret, table.region)
        };
        let mut works = std::mem::take(core.asker.endpoint.works());
        for part in waiting.chunks(MAX_RECORD_READS) {
            works.clear();
            let mut landing = 0;
            for (id, (_, pointer)) in part.iter().enumerate() {
                let from = RemoteAddress { region: tree.shard as u32, offset: pointer.offset() };
                let bytes = pointer.length as usize;
                works.push(Work::Read { id: id as u64, from, into: landing, bytes });
                landing += bytes.next_multiple_of(CACHE_LINE_BYTES);
                cost.bytes += bytes as u64;
            }
            core.asker.endpoint.link.reserve_landing(landing);
            core.asker.endpoint.link.post(&works);
            for _ in 0..part.len() {
                core.asker.endpoint.next()?;
            }
            cost.nodes += part.len() as u64;
            cost.round_trips += 1;
            let mut from = 0;
            for &(object, pointer) in part {
                let bytes = core.asker.endpoint.link.landed(from, pointer.length as usize);
                from += bytes.len().next_multiple_of(CACHE_LINE_BYTES);
                let (id, generation) = (object.word, Some(pointer.generation));
                let key = object_key(id);
                match verify(bytes, secret, region, pointer.slot, generation, Kind::OBJECT, &key) {
                    Ok(record) => {
                        let payload = Payload::parse(record.value).unwrap_or_default();
                        if refine.fits(&object.rect, payload.geometry) {
                            self.found.push(object);
                        }
                    }
                    Err(Reject::Torn) => {
                        cost.retries += 1;
                        torn.push((object, pointer));
                    }
                    Err(
                        Reject::Pending
                        | Reject::AskOnly
                        | Reject::Dead
                        | Reject::OtherKey
                        | Reject::OtherKind,
                    ) => {
                        cost.stale += 1;
                        tree.records.forget(id);
                        unknown.push(id);
                    }
                }
            }
        }
        *core.asker.endpoint.works() = works;
        Ok(torn)
    }

    /// Asks about some objects; keeps where their records lie.
    fn ask_verdicts(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        refine: &Refine,
        words: &[u64],
        cost: &mut Counts,
    ) -> Result<(), Error> {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (bytes, objects) =
            (refine.to_bytes(), ReadObjects { tree: tree.root.at, words: &words });
        let before = core.meter;
        let mut found = std::mem::take(&mut self.found);
        let command = TreeCommand::Refine { refine: &bytes, of: Some(objects) };
        let (shard, mut verdicts) = (tree.shard, Vec::new());
        let asked = self.ask_in_parts(core, shard, &tree.name, command, |value| {
            let (parts, rest) = value.as_chunks::<VERDICT_BYTES>();
            verdicts.extend(parts.iter().filter_map(|part| Verdict::read_from_bytes(part).ok()));
            rest.is_empty()
        });
        let spent = core.meter.since(&before);
        core.meter = before;
        cost.round_trips += spent.round_trips;
        cost.bytes += spent.bytes;
        for verdict in verdicts {
            let pointer = verdict.pointer();
            if pointer.is_some() && core.directory.is_readable(pointer, shard) {
                tree.records.keep(verdict.object.word, pointer);
            }
            if verdict.holds() {
                found.push(verdict.object);
            }
        }
        self.found = found;
        asked.map(drop)
    }
}
