//! Walks that want one thing at a time: one of them, or many in step.

use super::{Reads, Tally};
use crate::{End, Proof, Walk, Want};
use remora_fabric::{RemoteAddress, Work};
use remora_layout::limits::CACHE_LINE_BYTES;

/// Feeds a walk one READ at a time, until it ends. The bytes that it fed last lie at the start of
/// the landing memory.
///
/// # Errors
/// The link has failed.
#[inline(always)]
pub fn follow<W: Walk, R: Reads>(
    walk: &mut W,
    region: u32,
    reads: &mut R,
    cost: &mut impl Tally,
) -> Result<End<W::Found, W::Reason>, R::Error> {
    // Bounded as every walk is.
    while let Some(want) = walk.next_want() {
        reads.fetch(region, want.offset, want.bytes)?;
        cost.fetched(1, 1, want.bytes as u64);
        let bytes = reads.landed(0, want.bytes);
        if let Some(end) = walk.feed(want, bytes, Proof::Checksum).end() {
            return Ok(end);
        }
    }
    // The walk wants nothing, and has not ended.
    Ok(End::Ask(W::OUT_OF_REGION))
}

/// One READ of a part of an object into the start of the landing memory and, behind it in the same
/// batch, one of its root's words: a part counts only with its root. Ranges are offsets and bytes;
/// returns where the root's words landed.
///
/// # Errors
/// The link has failed.
pub fn fetch_rooted<R: Reads>(
    reads: &mut R,
    region: u32,
    part: (u64, usize),
    root: (u64, usize),
    cost: &mut impl Tally,
) -> Result<usize, R::Error> {
    let into = part.1.next_multiple_of(CACHE_LINE_BYTES);
    reads.reserve(into + root.1);
    let read = |id, (offset, bytes), into| Work::Read {
        id,
        from: RemoteAddress { region, offset },
        into,
        bytes,
    };
    reads.post(&[read(0, part, 0), read(1, root, into)]);
    reads.next()?;
    reads.next()?;
    cost.fetched(1, 1, (part.1 + root.1) as u64);
    Ok(into)
}

/// How a walk through an object's parts ended, or why its root refused it.
pub type Rooted<W, T> = Result<End<<W as Walk>::Found, <W as Walk>::Reason>, T>;

/// As [`follow`], for a part of an object: behind each want it reads the root's words. `refused`
/// checks the landed words before the walk receives its bytes; a value that it returns ends the
/// walk.
///
/// # Errors
/// The link has failed.
pub fn follow_rooted<W: Walk, R: Reads, C: Tally, T>(
    walk: &mut W,
    (region, root): (u32, (u64, usize)),
    reads: &mut R,
    cost: &mut C,
    mut refused: impl FnMut(&mut R, usize, &mut C) -> Result<Option<T>, R::Error>,
) -> Result<Rooted<W, T>, R::Error> {
    // Bounded as every walk is.
    while let Some(want) = walk.next_want() {
        let root_at = fetch_rooted(reads, region, (want.offset, want.bytes), root, cost)?;
        if let Some(why) = refused(reads, root_at, cost)? {
            return Ok(Err(why));
        }
        let bytes = reads.landed(0, want.bytes);
        if let Some(end) = walk.feed(want, bytes, Proof::Checksum).end() {
            return Ok(Ok(end));
        }
    }
    // The walk wants nothing, and has not ended.
    Ok(Ok(End::Ask(W::OUT_OF_REGION)))
}

/// One of many walks in step, each of which wants one thing at a time.
pub struct InStep<W: Walk> {
    /// The walk.
    pub walk: W,
    region: u32,
    want: Option<Want<W::Tag>>,
    landing: usize,
}

impl<W: Walk> InStep<W> {
    /// A walk that has begun, in this region.
    pub fn new(walk: W, region: u32) -> Self {
        Self { walk, region, want: None, landing: 0 }
    }

    /// Feeds it the bytes that [`fetch_wanted`] has fetched for it. `None` if it continues.
    #[inline]
    pub fn feed(&mut self, reads: &impl Reads) -> Option<End<W::Found, W::Reason>> {
        let Some(want) = self.want.take() else {
            return Some(End::Ask(W::OUT_OF_REGION));
        };
        let bytes = reads.landed(self.landing, want.bytes);
        self.walk.feed(want, bytes, Proof::Checksum).end()
    }

    /// Where the bytes that it received last have landed.
    pub fn landing(&self) -> usize {
        self.landing
    }
}

/// As [`fetch_wanted`], for parts of one object in one region: behind the wants it reads ranges of the
/// object's root, offsets and bytes. The wants have up to `most_bytes` together, or there is one: those that
/// do not fit wait. Returns how many of the walks, from the first one on, are to be fed, and where the root's
/// ranges landed, one behind the other.
///
/// # Errors
/// The link has failed.
pub fn fetch_wanted_rooted<W: Walk, R: Reads>(
    walks: &mut [InStep<W>],
    (region, root): (u32, &[(u64, usize)]),
    most_bytes: usize,
    reads: &mut R,
    cost: &mut impl Tally,
) -> Result<(usize, usize), R::Error> {
    let mut works = std::mem::take(reads.works());
    works.clear();
    let (mut landing, mut fetched, mut fed) = (0, 0, 0);
    for one in walks {
        one.want = one.want.take().or_else(|| one.walk.next_want());
        let bytes = one.want.as_ref().map_or(0, |want| want.bytes);
        if fed > 0 && landing + bytes > most_bytes {
            break;
        }
        fed += 1;
        one.landing = landing;
        let Some(Want { offset, bytes, .. }) = one.want else { continue };
        let from = RemoteAddress { region, offset };
        works.push(Work::Read { id: works.len() as u64, from, into: landing, bytes });
        landing += bytes.next_multiple_of(CACHE_LINE_BYTES);
        fetched += bytes as u64;
    }
    let (nodes, root_at) = (works.len() as u64, landing);
    for &(offset, bytes) in root {
        let from = RemoteAddress { region, offset };
        works.push(Work::Read { id: works.len() as u64, from, into: landing, bytes });
        landing += bytes;
        fetched += bytes as u64;
    }
    reads.reserve(landing);
    reads.post(&works);
    let posted = works.len();
    *reads.works() = works;
    for _ in 0..posted {
        reads.next()?;
    }
    cost.fetched(1, nodes, fetched);
    Ok((fed, root_at))
}

/// One batch of READs for the next want of each walk.
///
/// # Errors
/// The link has failed.
pub fn fetch_wanted<'w, W: Walk + 'w, R: Reads>(
    walks: impl Iterator<Item = &'w mut InStep<W>>,
    reads: &mut R,
    cost: &mut impl Tally,
) -> Result<(), R::Error> {
    let mut works = std::mem::take(reads.works());
    works.clear();
    let (mut landing, mut fetched) = (0, 0);
    for (id, one) in walks.enumerate() {
        one.landing = landing;
        one.want = one.walk.next_want();
        let Some(Want { offset, bytes, .. }) = one.want else { continue };
        let from = RemoteAddress { region: one.region, offset };
        works.push(Work::Read { id: id as u64, from, into: landing, bytes });
        landing += bytes.next_multiple_of(CACHE_LINE_BYTES);
        fetched += bytes as u64;
    }
    reads.reserve(landing);
    reads.post(&works);
    let posted = works.len();
    *reads.works() = works;
    for _ in 0..posted {
        reads.next()?;
    }
    cost.fetched(1, posted as u64, fetched);
    Ok(())
}
