//! Refined searches: objects found by their rectangles, compared by their
//! geometries; at the server if it is asked, else here (C10).
//!
//! What it keeps true:
//! * an object is taken for its rectangle only if that is a point, or if the
//!   tree's header, read after the rectangle, says that no object has had a
//!   geometry, or if its record says that it has none;
//! * a record that was read counts only if it was live and whole, and if the
//!   reading right still held when the last READ had completed;
//! * about an object whose record is not known, or has gone, the server is
//!   asked; that tells where its record lies now.

use super::asked::drop_doubles;
use super::{Names, OpenTree, Searched};
use crate::api::{Counts, Path, Via};
use crate::choose::{Class, ClassKey, Way};
use crate::error::Error;
use crate::session::Session;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_geometry::{Refine, is_point};
use remora_index::rtree::{Object, Query};
use remora_layout::kind::Kind;
use remora_layout::limits::{CACHE_LINE_BYTES, MAX_RECORD_READS, MAX_REFINE_IDS, READ_RETRIES};
use remora_layout::object::{Carried, VERDICT_BYTES, Verdict, object_key};
use remora_layout::plant::{Plant, planted};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{RECORD_HEADER_BYTES, Reject, verify};
use remora_protocol::tree::{ObjectId, Refined, TreeCommand, window_predicate};
use remora_walk::remote::Reads;
use zerocopy::FromBytes;

/// What a refined search found.
#[derive(Clone, Copy, Debug)]
pub struct RefinedFound<'s> {
    /// The objects, in no order, as in [`crate::TreeFound`]. Valid until the
    /// session is used again.
    pub objects: &'s [Object],
    names: &'s Names,
    /// How they were come by. A search that read, and asked about some of the
    /// objects, is [`Via::AskedAfterRead`].
    pub via: Via,
    /// What it cost. `nodes` are those of the tree, and records, that crossed.
    pub counts: Counts,
    /// Nodes examined, as in [`crate::TreeFound`].
    pub nodes_visited: u64,
    /// Objects whose rectangles fitted, so that their geometries were compared.
    pub candidates: u64,
}

impl<'s> RefinedFound<'s> {
    /// The id of one of the objects.
    pub fn id(&self, object: &Object) -> ObjectId<'s> {
        self.names.id_of(object)
    }
}

/// How many objects a refined search counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefinedCount {
    /// The objects that fit.
    pub objects: u64,
    /// How it was come by, as in [`RefinedFound`].
    pub via: Via,
    /// What it cost.
    pub counts: Counts,
}

/// A refined search that has been done.
struct Refinement {
    searched: Searched,
    candidates: u64,
    /// Objects that fit; they are in `Session::found` unless they were only
    /// counted at the server.
    objects: u64,
}

/// What comparing the objects of a walk came to.
struct Compared {
    /// Objects that the server was asked about.
    asked: bool,
    retries: u32,
}

impl Session {
    /// Searches a tree for the objects whose geometries fit: by READs if the
    /// path says so, or is [`Path::Choose`] and that is chosen, and if they
    /// conclude; else by asking. Each object is judged by one of the states
    /// that it had during the search.
    ///
    /// # Errors
    /// See [`Error`]: the tree has gone.
    pub fn search_refined(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
    ) -> Result<RefinedFound<'_>, Error> {
        let Refinement { searched, candidates, .. } = self.refine(tree, refine, path, false)?;
        let Searched { via, counts, nodes_visited } = searched;
        let (objects, names) = (&self.found, &self.found_names);
        Ok(RefinedFound { objects, names, via, counts, nodes_visited, candidates })
    }

    /// Counts the objects whose geometries fit, as [`Session::search_refined`]
    /// finds them; who asks is sent their number only.
    ///
    /// # Errors
    /// See [`Error`]: the tree has gone.
    pub fn count_refined(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
    ) -> Result<RefinedCount, Error> {
        let Refinement { searched, objects, .. } = self.refine(tree, refine, path, true)?;
        Ok(RefinedCount { objects, via: searched.via, counts: searched.counts })
    }

    fn refine(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
        counts: bool,
    ) -> Result<Refinement, Error> {
        self.check()?;
        self.send_gathered()?;
        let mut classes = std::mem::take(&mut tree.classes);
        let class = classes.get(ClassKey::refined(&refine.window(), counts));
        let refined = self.refine_by(tree, refine, (path, counts), class);
        tree.classes = classes;
        refined
    }

    /// Decides, searches, and learns.
    fn refine_by(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        (path, counts): (Path, bool),
        class: &mut Class,
    ) -> Result<Refinement, Error> {
        let (begun, most_reads) = self.begin_search(class, path)?;
        let mut cost = Counts { operations: 1, ..Counts::default() };
        let mut read = None;
        if begun.way == Way::Read {
            read = self.refine_by_reads(tree, refine, most_reads, &mut cost)?;
            if read.is_none() {
                cost.undecided += (cost.right_lapsed + cost.behind_writes == 0) as u64;
            }
        }
        let wasted = Counts { operations: 0, ..cost };
        let refined = match read {
            Some(read) => read,
            None if counts => self.count_asked(tree, refine, wasted)?,
            None => self.refine_asked(tree, refine, wasted)?,
        };
        self.end_search(class, &begun, refined.searched.via, &refined.searched.counts)?;
        Ok(refined)
    }

    fn refine_by_reads(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Refinement>, Error> {
        let query = Query::Window { window: refine.window(), predicate: window_predicate(refine) };
        let Some(walked) = self.read_tree(tree, &query, most_reads, cost)? else {
            return Ok(None);
        };
        let candidates = self.found.len() as u64;
        let Some(mut compared) = self.compare_found(tree, refine, cost)? else { return Ok(None) };
        let (resolved, _) = self.resolve_found(tree, cost)?;
        compared.asked |= resolved > 0;
        cost.read = u64::from(!compared.asked);
        cost.asked = u64::from(compared.asked);
        self.totals.add(cost);
        let via = match compared.asked {
            true => Via::AskedAfterRead,
            false => Via::read_after(walked.retries + compared.retries),
        };
        let searched = Searched { via, counts: *cost, nodes_visited: walked.nodes };
        Ok(Some(Refinement { searched, candidates, objects: self.found.len() as u64 }))
    }

    /// Asks, after reading has cost `wasted`.
    fn refine_asked(
        &mut self,
        tree: &OpenTree,
        refine: &Refine,
        wasted: Counts,
    ) -> Result<Refinement, Error> {
        let via = asked_after(&wasted);
        self.totals.add(&wasted);
        let bytes = refine.to_bytes();
        let command = TreeCommand::Refine { refine: &bytes, ids: None };
        let (mut counts, number) = self.ask_search_of(tree.shard, &tree.name, command)?;
        // The tree may have changed before a geometry was compared.
        drop_doubles(&mut self.found);
        self.found_names.drop_doubles(&mut self.found);
        counts.add(&wasted);
        let Refined { nodes, candidates } = Refined::from_number(number as i64);
        let searched = Searched { via, counts, nodes_visited: nodes.into() };
        let objects = self.found.len() as u64;
        Ok(Refinement { searched, candidates: candidates.into(), objects })
    }

    /// Asks for the number alone, after reading has cost `wasted`.
    fn count_asked(
        &mut self,
        tree: &OpenTree,
        refine: &Refine,
        wasted: Counts,
    ) -> Result<Refinement, Error> {
        let via = asked_after(&wasted);
        self.totals.add(&wasted);
        let bytes = refine.to_bytes();
        let command = TreeCommand::CountRefined { refine: &bytes };
        let (mut counts, objects) =
            self.ask_in_parts(tree.shard, &tree.name, command, <[u8]>::is_empty)?;
        counts.add(&wasted);
        let searched = Searched { via, counts, nodes_visited: 0 };
        Ok(Refinement { searched, candidates: objects, objects })
    }

    /// Leaves those of the objects in `self.found` that fit. `None`: ask for
    /// the whole search.
    fn compare_found(
        &mut self,
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
            match self.read_tree_header(tree, cost)? {
                Some(header) if !header.has_geometries => {
                    let fitting = others.iter().filter(|object| refine.fits(&object.rect, &[]));
                    self.found.extend(fitting);
                    return Ok(self.holds_right()?.then_some(compared));
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
                None if planted(Plant::RefineTakesRectangle) => {
                    self.found.extend(refine.fits(&object.rect, &[]).then_some(object));
                }
                None => unknown.push(object.word),
            }
        }
        cost.hits += waiting.len() as u64;
        for tries in 0..=READ_RETRIES {
            if waiting.is_empty() {
                break;
            }
            compared.retries = tries;
            waiting = self.read_records(tree, refine, &waiting, &mut unknown, cost)?;
        }
        unknown.extend(waiting.iter().map(|(object, _)| object.word));
        if !self.holds_right()? {
            cost.right_lapsed += 1;
            return Ok(None);
        }
        compared.asked = !unknown.is_empty();
        for ids in unknown.chunks(MAX_REFINE_IDS) {
            self.ask_verdicts(tree, refine, ids, cost)?;
        }
        Ok(Some(compared))
    }

    /// Reads the records of objects, as many at a time as may be under way;
    /// those that fit are in `self.found` then, those that are no more in
    /// `unknown`. Gives the ones that were torn.
    fn read_records(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        waiting: &[(Object, RemotePointer)],
        unknown: &mut Vec<u64>,
        cost: &mut Counts,
    ) -> Result<Vec<(Object, RemotePointer)>, Error> {
        let mut torn = Vec::new();
        let (secret, region) = {
            let table = &self.shards[tree.shard].table;
            (table.secret, table.region)
        };
        let mut works = std::mem::take(&mut self.works);
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
            self.link.reserve_landing(landing);
            self.link.post(&works);
            for _ in 0..part.len() {
                self.next()?;
            }
            cost.nodes += part.len() as u64;
            cost.round_trips += 1;
            let mut from = 0;
            for &(object, pointer) in part {
                let bytes = self.link.landed(from, pointer.length as usize);
                from += bytes.len().next_multiple_of(CACHE_LINE_BYTES);
                let (id, generation) = (object.word, Some(pointer.generation));
                let key = object_key(id);
                match verify(bytes, secret, region, pointer.slot, generation, Kind::OBJECT, &key) {
                    Ok(record) => {
                        let carried = Carried::parse(record.value).unwrap_or_default();
                        if refine.fits(&object.rect, carried.geometry) {
                            self.found.push(object);
                        }
                    }
                    Err(Reject::Torn) => {
                        cost.retries += 1;
                        torn.push((object, pointer));
                    }
                    Err(Reject::Dead | Reject::OtherKey) if planted(Plant::RefineBelievesDead) => {
                        let value = bytes.get(RECORD_HEADER_BYTES + size_of_val(&id)..);
                        let carried = value.and_then(Carried::parse).unwrap_or_default();
                        let fits = refine.fits(&object.rect, carried.geometry);
                        self.found.extend(fits.then_some(object));
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
        self.works = works;
        Ok(torn)
    }

    /// Asks about some objects; keeps where their records lie.
    fn ask_verdicts(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        ids: &[u64],
        cost: &mut Counts,
    ) -> Result<(), Error> {
        let (bytes, ids) =
            (refine.to_bytes(), ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>());
        let before = self.totals;
        let mut found = std::mem::take(&mut self.found);
        let command = TreeCommand::Refine { refine: &bytes, ids: Some(&ids) };
        let (shard, mut verdicts) = (tree.shard, Vec::new());
        let asked = self.ask_in_parts(shard, &tree.name, command, |value| {
            let (parts, rest) = value.as_chunks::<VERDICT_BYTES>();
            verdicts.extend(parts.iter().filter_map(|part| Verdict::read_from_bytes(part).ok()));
            rest.is_empty()
        });
        let spent = self.totals.since(&before);
        self.totals = before;
        cost.round_trips += spent.round_trips;
        cost.bytes += spent.bytes;
        for verdict in verdicts {
            let pointer = verdict.pointer();
            if pointer.is_some() && self.is_readable(pointer, shard) {
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

/// How something was come by that is asked for after reading has cost so much.
fn asked_after(wasted: &Counts) -> Via {
    if wasted.round_trips > 0 { Via::AskedAfterRead } else { Via::Asked }
}
