//! A walk that wants many nodes at a time: as many READs in flight as allowed, each handled when it
//! completes (Catfish 4.2, C23), or one at a time (C20).
//!
//! Invariants: where a walk concludes from inner nodes, a cached one counts only if the walk read its
//! first words again, in the batch that reads the nodes below, and they are unchanged. Where it
//! concludes from leaves alone, the cached nodes that led astray are forgotten. When the walk has ended, it has read its object's
//! root after all nodes: behind the leaves, in their batch, or by itself if the walk ended above
//! the leaves.

use super::{NodeCache, Reads, Tally};
use crate::{BESIDE_BYTES, End, Proof, Walk, Want, What};
use remora_fabric::{RemoteAddress, Work};
use remora_layout::limits::{CACHE_LINE_BYTES, MAX_VERSION_CHECKS};
use remora_layout::node::{NodeRef, VERSIONED_BYTES, word};
use std::collections::VecDeque;

/// READs of version words have ids from here on; those of nodes have the
/// number of their landing place.
const CHECK_ID: u64 = 1 << 32;
/// READs of words beside others have ids from here on.
const BESIDE_ID: u64 = 2 << 32;
/// READs of the object's root have this id.
const ROOT_ID: u64 = 3 << 32;
/// Most of them in one beginning.
const MAX_BESIDES: usize = 4;

type EndOf<W> = End<<W as Walk>::Found, <W as Walk>::Reason>;

/// A want that will be fetched, and its round trip.
struct Planned<T> {
    want: Want<T>,
    round: u64,
}

/// One walk in progress.
pub struct Wide<'c, W: Walk> {
    /// The walk.
    pub walk: W,
    region: u32,
    /// Bytes from one landing place to the next: no want is longer.
    stride: usize,
    /// The ranges of the object's root that it reads: offsets and bytes.
    root: [(u64, usize); 2],
    /// It has posted nothing after the last READ of the root.
    is_root_last: bool,
    cache: &'c mut NodeCache,
    planned: VecDeque<Planned<W::Tag>>,
    /// The want that lands in each used place.
    landing: Vec<Option<Planned<W::Tag>>>,
    /// READs of nodes at a time: the number of landing places.
    issued: usize,
    /// Places that were used and are free again.
    free: Vec<usize>,
    /// In-flight inner nodes, below which there is more to read.
    inner_under_way: usize,
    /// Cached nodes that it used, in order, and their levels.
    used: Vec<(NodeRef, u8)>,
    /// Of how many of them the first words are in flight or fetched, if that is needed.
    checked: usize,
    /// Words to read beside others, in order: the last ones are not posted yet.
    besides: Vec<Want<W::Tag>>,
    besides_posted: usize,
    /// READs in flight.
    under_way: usize,
    /// Round trips since the last restart: READs in the longest chain in which each waited for the
    /// one before.
    rounds: u64,
    most_reads: u64,
    /// Nodes that it planned to fetch, over all restarts.
    planned_reads: u64,
    /// The walk's result, while READs of versions are still in flight.
    found: Option<W::Found>,
    /// Cached nodes that were forgotten because they led astray.
    forgotten: u64,
}

impl<'c, W: Walk> Wide<'c, W> {
    /// A walk that has begun, in this region, with this many READs of nodes at a time. None of its
    /// wants is longer than `most_bytes`. `root` gives the ranges of the object's root to read
    /// behind the nodes: offsets and bytes. The walk ends with [`End::Beyond`] once it needs more
    /// than `most_reads` nodes.
    pub fn new(
        walk: W,
        (region, root): (u32, [(u64, usize); 2]),
        most_bytes: usize,
        (issued, most_reads): (usize, u64),
        cache: &'c mut NodeCache,
    ) -> Self {
        Self {
            walk,
            region,
            stride: most_bytes.next_multiple_of(CACHE_LINE_BYTES),
            cache,
            planned: VecDeque::new(),
            landing: Vec::new(),
            issued,
            root,
            is_root_last: false,
            free: Vec::new(),
            inner_under_way: 0,
            used: Vec::new(),
            checked: 0,
            besides: Vec::new(),
            besides_posted: 0,
            under_way: 0,
            rounds: 0,
            most_reads,
            planned_reads: 0,
            found: None,
            forgotten: 0,
        }
    }

    /// Cached nodes that were forgotten because they led astray.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Feeds the walk from its last restart until it ends. No READ is in flight when it returns,
    /// unless the link has failed.
    ///
    /// # Errors
    /// The link has failed.
    pub fn run<R: Reads>(
        &mut self,
        reads: &mut R,
        cost: &mut impl Tally,
    ) -> Result<EndOf<W>, R::Error> {
        self.begin();
        let (root_at, root_bytes) = self.root_landed();
        reads.reserve(root_at + root_bytes);
        let end = self.feed_all(reads, cost);
        cost.fetched(self.rounds, 0, 0);
        if !W::NEEDS_INNER_NODES {
            self.forget_misleading(&end);
        }
        end
    }

    /// Forgets the cached nodes that led astray: all that it used if it has to begin again, or to ask
    /// after it went around; those of the lowest level if it went around and found its way.
    fn forget_misleading<E>(&mut self, end: &Result<EndOf<W>, E>) {
        let went_around = self.walk.detours() > 0;
        let is_found = matches!(end, Ok(End::Found(_)));
        if !went_around && !matches!(end, Ok(End::Restart)) {
            return;
        }
        let lowest = self.used.iter().map(|(_, level)| *level).min();
        for (at, level) in self.used.drain(..) {
            if !is_found || Some(level) == lowest {
                self.forgotten += 1;
                self.cache.forget(at);
            }
        }
    }

    fn begin(&mut self) {
        self.planned.clear();
        self.used.clear();
        self.besides.clear();
        (self.checked, self.besides_posted, self.rounds, self.found) = (0, 0, 0, None);
        (self.is_root_last, self.inner_under_way) = (false, 0);
        self.free.clear();
        self.landing.clear();
    }

    /// A landing place, if one is left.
    fn take_place(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            let place = self.landing.len();
            (place < self.issued).then(|| self.landing.push(None))?;
            Some(place)
        })
    }

    fn feed_all<R: Reads>(
        &mut self,
        reads: &mut R,
        cost: &mut impl Tally,
    ) -> Result<EndOf<W>, R::Error> {
        let mut end = self.plan(0);
        // Bounded as every walk is.
        loop {
            if end.is_none() {
                self.post_planned(reads, cost);
            }
            if self.under_way == 0 && end.is_none() && self.found.is_some() {
                self.post_root(reads, cost);
            }
            if self.under_way == 0 {
                let found = self.found.take().map(End::Found);
                return Ok(end.or(found).unwrap_or(End::Ask(W::OUT_OF_REGION)));
            }
            let id = reads.next()?;
            self.under_way -= 1;
            let landed = self.take(id, reads);
            // The first reason to end counts; the driver waits for the in-flight READs.
            end = end.or(landed);
        }
    }

    /// Where the first words of a cached node land.
    fn check_from(&self, index: usize) -> usize {
        self.issued * self.stride + index * VERSIONED_BYTES
    }

    /// Where words read beside others land.
    fn beside_from(&self, index: usize) -> usize {
        self.check_from(MAX_VERSION_CHECKS) + index * BESIDE_BYTES
    }

    /// Where the root landed that the driver read after all bytes of a finished walk: place and
    /// bytes.
    pub fn root_landed(&self) -> (usize, usize) {
        (self.beside_from(MAX_BESIDES), self.root.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Plans the walk's new wants after the bytes of round `round`; it feeds cached nodes at once.
    fn plan(&mut self, round: u64) -> Option<EndOf<W>> {
        let mut end = None;
        while let Some(want) = self.walk.next_want() {
            let is_beside = want.what == What::Beside;
            let most = if is_beside { BESIDE_BYTES } else { self.stride };
            if want.bytes > most || self.besides.len() + is_beside as usize > MAX_BESIDES {
                return end.or(Some(End::Ask(W::OUT_OF_REGION)));
            }
            if is_beside {
                self.besides.push(want);
                continue;
            }
            let is_room = !W::NEEDS_INNER_NODES || self.used.len() < MAX_VERSION_CHECKS;
            let cached = match want.what {
                What::Node { at, level } if is_room => {
                    self.cache.visit(at).map(|kept| (at, level, kept))
                }
                _ => None,
            };
            let Some((at, level, (version, bytes))) = cached else {
                self.planned.push_back(Planned { want, round: round + 1 });
                self.planned_reads += 1;
                continue;
            };
            self.used.push((at, level));
            if W::NEEDS_INNER_NODES {
                self.rounds = self.rounds.max(round + 1);
            }
            // Its checksum was checked when it was read.
            let step = self.walk.feed(want, bytes, Proof::VersionAfter(version));
            end = end.or(ending(&mut self.found, step.end()));
        }
        end.or((self.planned_reads > self.most_reads).then_some(End::Beyond))
    }

    /// Posts READs for as many wants as there are places for, and for the first words of cached
    /// nodes.
    fn post_planned<R: Reads>(&mut self, reads: &mut R, cost: &mut impl Tally) {
        let mut works = std::mem::take(reads.works());
        works.clear();
        let (region, mut nodes, mut fetched) = (self.region, 0, 0);
        // First, so that they complete before the others.
        for index in self.besides_posted..self.besides.len() {
            let Want { offset, bytes, .. } = self.besides[index];
            let from = RemoteAddress { region, offset };
            let (id, into) = (BESIDE_ID + index as u64, self.beside_from(index));
            works.push(Work::Read { id, from, into, bytes });
            fetched += bytes as u64;
        }
        self.besides_posted = self.besides.len();
        let needed = if W::NEEDS_INNER_NODES { self.used.len() } else { 0 };
        for index in self.checked..needed {
            let from = RemoteAddress { region, offset: self.used[index].0.offset() as u64 };
            let (id, into) = (CHECK_ID + index as u64, self.check_from(index));
            works.push(Work::Read { id, from, into, bytes: VERSIONED_BYTES });
            fetched += VERSIONED_BYTES as u64;
        }
        self.checked = needed;
        while !self.planned.is_empty()
            && let Some(place) = self.take_place()
            && let Some(planned) = self.planned.pop_front()
        {
            match self.issued {
                1 => self.rounds += 1,
                _ => self.rounds = self.rounds.max(planned.round),
            }
            let Want { offset, bytes, .. } = planned.want;
            let from = RemoteAddress { region, offset };
            let into = place * self.stride;
            works.push(Work::Read { id: place as u64, from, into, bytes });
            self.inner_under_way += planned.want.is_inner() as usize;
            self.landing[place] = Some(planned);
            nodes += 1;
            fetched += bytes as u64;
        }
        let may_be_last = self.planned.is_empty() && self.inner_under_way == 0;
        let is_due = may_be_last && !self.is_root_last && self.under_way > 0;
        if !works.is_empty() || is_due {
            self.is_root_last = may_be_last;
            if may_be_last {
                fetched += self.push_root(&mut works);
            }
            self.under_way += works.len();
            reads.post(&works);
            cost.fetched(0, nodes, fetched);
        }
        *reads.works() = works;
    }

    /// Reads the root by itself if it read nodes after the root.
    fn post_root<R: Reads>(&mut self, reads: &mut R, cost: &mut impl Tally) {
        if std::mem::replace(&mut self.is_root_last, true) {
            return;
        }
        let mut works = std::mem::take(reads.works());
        works.clear();
        let fetched = self.push_root(&mut works);
        if !works.is_empty() {
            self.rounds += 1;
            self.under_way += works.len();
            reads.post(&works);
            cost.fetched(0, 0, fetched);
        }
        *reads.works() = works;
    }

    /// Adds READs of the root, behind all others. Returns their bytes.
    fn push_root(&self, works: &mut Vec<Work<'_>>) -> u64 {
        let (mut into, total) = self.root_landed();
        for (offset, bytes) in self.root.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let from = RemoteAddress { region: self.region, offset };
            works.push(Work::Read { id: ROOT_ID, from, into, bytes });
            into += bytes;
        }
        total as u64
    }

    /// Takes the bytes of a completed READ.
    fn take<R: Reads>(&mut self, id: u64, reads: &R) -> Option<EndOf<W>> {
        if id == ROOT_ID {
            // The caller looks at it once the walk has ended.
            return None;
        }
        if id >= BESIDE_ID {
            let index = (id - BESIDE_ID) as usize;
            let want = *self.besides.get(index)?;
            let bytes = reads.landed(self.beside_from(index), want.bytes);
            let step = self.walk.feed(want, bytes, Proof::Checksum);
            return ending(&mut self.found, step.end());
        }
        if id >= CHECK_ID {
            let index = (id - CHECK_ID) as usize;
            let now = reads.landed(self.check_from(index), VERSIONED_BYTES);
            return self.check_version(index, now);
        }
        let place = id as usize;
        let Planned { want, round } = self.landing.get_mut(place)?.take()?;
        self.free.push(place);
        self.inner_under_way -= want.is_inner() as usize;
        let bytes = reads.landed(place * self.stride, want.bytes);
        let believed = self.walk.believed();
        let step = self.walk.feed(want, bytes, Proof::Checksum);
        if let What::Node { at, level } = want.what
            && self.walk.believed() > believed
        {
            let shape =
                bytes.as_chunks().0.get(word::SHAPE).map_or(0, |word| u64::from_le_bytes(*word));
            let used = self.walk.bytes_in_use(&want, shape);
            self.cache.keep(at, level, &bytes[..used]);
        }
        match step.end() {
            None => self.plan(round),
            end => ending(&mut self.found, end),
        }
    }

    /// Compares the present first words of a cached node.
    fn check_version(&mut self, index: usize, now: &[u8]) -> Option<EndOf<W>> {
        let (at, _) = *self.used.get(index)?;
        let kept = self.cache.node(at).map(|kept| &kept[..VERSIONED_BYTES]);
        if kept == Some(now) {
            return None;
        }
        self.cache.forget(at);
        Some(End::Stale)
    }
}

/// The reason that ends the walk at once. A result counts only once the in-flight READs of versions
/// have completed.
fn ending<F, R>(found: &mut Option<F>, end: Option<End<F, R>>) -> Option<End<F, R>> {
    match end {
        Some(End::Found(result)) => {
            *found = Some(result);
            None
        }
        end => end,
    }
}
