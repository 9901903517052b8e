//! Following links: one at a time, or many in one batch.

use super::asked::{Answered, ask_target};
use super::content::target_of;
use super::mending::StaleLinks;
use super::{Chased, EachChased, Link};
use crate::choose::{Class, ClassKey, Classes, Policy, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::in_step::{Walking, walk_in_step};
use crate::path::{Path, ServedBy};
use crate::read::{doubt, follow_lookup, hint_of};
use remora_arena::{CLASSES, class_bytes};
use remora_fabric::Link as _;
use remora_index::hash::{Found, Lookup};
use remora_layout::bucket::BucketSlot;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::SMALL_SLOT_BYTES;
use remora_layout::pointer::RemotePointer;
use remora_plan::{Bytes, LinkPlace, Place};
use remora_walk::Walk;
use remora_walk::remote::Reads;

/// Bytes that the hints of one batch of READs may name. Further links wait for the next batch: a hint
/// may be any 64 bits, and those of many links together shall not take all memory.
const BATCH_HINT_BYTES: usize = 8 << 20;

/// What a session knows of links.
pub(crate) struct LinkSession {
    /// Links whose hints were stale, or missing though they could be there.
    pub stale: StaleLinks,
    /// The costs of single chases, from hints or cached pointers and from buckets.
    hinted: Class,
    cold: Class,
    /// The costs of batches and plans, by their size.
    pub classes: Classes,
    /// The last asked target was a string.
    pub texts: bool,
}

impl Default for LinkSession {
    fn default() -> Self {
        Self {
            stale: StaleLinks::default(),
            hinted: Class::NEW,
            cold: Class::NEW,
            classes: Classes::default(),
            texts: false,
        }
    }
}

/// A key that is looked for, and what helps to find it.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'l> {
    pub key: &'l [u8],
    pub hint: Option<u64>,
    /// The link that names it.
    pub link: Option<&'l LinkPlace>,
    /// The fields that are wanted if it is a hash of parts; `None`: all.
    pub names: Option<&'l [Bytes]>,
}

impl<'l> Sought<'l> {
    /// The target of a link, all of it.
    pub fn of(link: &'l Place) -> Self {
        let Place { key, hint, link } = link;
        Self { key, hint: *hint, link: link.as_ref(), names: None }
    }
}

/// Where a lookup begins.
#[derive(Clone, Copy)]
enum Beginning {
    Hint(u64),
    Cached(RemotePointer),
    Bucket,
}

impl Beginning {
    /// The hint of the link, else the cached pointer of its key, else the bucket.
    fn of(core: &mut Core, sought: &Sought<'_>, (hash, shard): (KeyHash, usize)) -> Self {
        if let Some(hint) = sought.hint.filter(|hint| *hint != 0) {
            return Self::Hint(hint);
        }
        let entry = core.directory.find_pointer(hash, shard);
        let now_ns = core.asker.endpoint.clock_ns;
        let region = core.directory.shards[shard].table.region;
        let entry = entry.filter(|entry| now_ns < entry.lease_end_ns());
        entry.map_or(Self::Bucket, |entry| Self::Cached(entry.pointer(region)))
    }

    /// The word at which the walk begins; 0: at the bucket.
    fn word(self, hash: KeyHash) -> u64 {
        match self {
            Self::Hint(word) => word,
            Self::Bucket => 0,
            Self::Cached(pointer) => hint_of(pointer, hash),
        }
    }

    /// Learns from a walk that began here and has ended; `found` if it found the record.
    fn learn(
        self,
        core: &mut Core,
        stale: &mut StaleLinks,
        (sought, at, walk): (&Sought<'_>, (KeyHash, usize), &Lookup<'_>),
        (found, cost): (Option<&Found>, &mut Counts),
    ) {
        let is_stale = walk.is_hint_stale();
        match self {
            Self::Hint(_) => cost.stale_hints += u64::from(is_stale),
            Self::Cached(pointer) => {
                cost.hits += 1;
                cost.stale += u64::from(is_stale);
                if is_stale {
                    core.directory.forget_dead(at.0, pointer);
                }
            }
            Self::Bucket => {}
        }
        let Some(found) = found else { return };
        if is_stale || matches!(self, Self::Bucket) {
            core.directory.remember(at, found.pointer, 0, core.asker.endpoint.clock_ns);
        }
        // A link without a hint can get one.
        if let Some(link) = sought.link
            && (is_stale || sought.hint.is_none())
        {
            stale.push(link, sought.key);
        }
    }
}

/// A whole record at the start of the landing memory.
struct Landed {
    kind: Kind,
    bytes: usize,
    tries: u32,
}

/// What was asked.
struct Asked {
    answer: Answered,
    served_by: ServedBy,
    counts: Counts,
}

impl Asked {
    /// As the caller sees it.
    fn chased<'c>(self, core: &'c Core, sought: &Sought<'c>) -> Chased<'c> {
        let target = self.answer.target(core, sought.key);
        Chased { target, served_by: self.served_by, counts: core.counted(self.counts) }
    }
}

/// Follows a link.
pub(crate) fn chase<'c>(
    core: &'c mut Core,
    links: &mut LinkSession,
    link: &'c Link,
    path: Path,
) -> Result<Chased<'c>, Error> {
    core.asker.ready()?;
    let sought = Sought::of(link);
    let at = core.directory.locate(sought.key)?;
    let mut cost = Counts { operations: 1, ..Counts::default() };
    let LinkSession { stale, hinted, cold, texts, .. } = links;
    if path == Path::Ask || !core.asker.may_read(at.1) {
        cost.behind_writes = u64::from(path != Path::Ask);
        let timing = core.router.begin_given(&mut core.asker.endpoint, Route::Ask)?;
        let asked = chase_asked(core, texts, &sought, cost)?;
        core.router.end_given(&mut core.asker.endpoint, timing, asked.served_by)?;
        return Ok(asked.chased(core, &sought));
    }
    let from = Beginning::of(core, &sought, at);
    let (class, path) = match from {
        Beginning::Bucket => (cold, path),
        // That policy reads what it has a pointer to.
        _ if core.router.chooser.policy() == Policy::Pointer => (hinted, Path::Read),
        Beginning::Hint(_) | Beginning::Cached(_) => (hinted, path),
    };
    let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, class, path)?;
    let landed = match timing.route {
        Route::Ask => None,
        Route::Read => chase_read(core, stale, (&sought, at, from), &mut cost)?,
    };
    let Some(Landed { kind, bytes, tries }) = landed else {
        let asked = chase_asked(core, texts, &sought, cost)?;
        let endpoint = &mut core.asker.endpoint;
        core.router.end_search(endpoint, class, &timing, asked.served_by, &asked.counts)?;
        return Ok(asked.chased(core, &sought));
    };
    let served_by = ServedBy::read_after(tries);
    core.router.end_search(&mut core.asker.endpoint, class, &timing, served_by, &cost)?;
    let record = core.asker.endpoint.link.landed(0, bytes);
    let target = target_of(kind, sought.key.len(), record).expect("it is whole");
    Ok(Chased { target, served_by, counts: core.counted(cost) })
}

/// Follows a link by READs. `None`: only the owner knows, or can tell it at one moment.
fn chase_read(
    core: &mut Core,
    stale: &mut StaleLinks,
    (sought, at, from): (&Sought<'_>, (KeyHash, usize), Beginning),
    cost: &mut Counts,
) -> Result<Option<Landed>, Error> {
    let Core { asker, directory, .. } = &mut *core;
    let table = &directory.shards[at.1].table;
    let mut walk = Lookup::begin_at(sought.key, at.0, Kind::ANY, table, from.word(at.0));
    let found = follow_lookup((&mut asker.endpoint, directory), &mut walk, at.1, cost)?;
    let doubt = match &found {
        Some(found) => doubt(&mut asker.endpoint, found.mutable.expires_at_ms, cost)?,
        None => None,
    };
    let found = found.filter(|_| doubt.is_none());
    from.learn(core, stale, (sought, at, &walk), (found.as_ref(), cost));
    let Some(found) = found else {
        cost.undecided = u64::from(cost.read_lease_lapsed == 0);
        return Ok(None);
    };
    if found.kind == Kind::HASH {
        // Its fields are records of their own: all of one moment are the owner's to tell.
        return Ok(None);
    }
    core.asker.endpoint.staleness.conclude_reads();
    cost.read = 1;
    core.meter.add(cost);
    let tries = walk.retries() + u32::from(walk.is_hint_stale());
    Ok(Some(Landed { kind: found.kind, bytes: found.pointer.length as usize, tries }))
}

/// Asks what a link leads to, after reading has cost `cost`.
fn chase_asked(
    core: &mut Core,
    texts: &mut bool,
    sought: &Sought<'_>,
    cost: Counts,
) -> Result<Asked, Error> {
    let wasted = Counts { operations: 0, ..cost };
    core.meter.add(&wasted);
    let (answer, mut counts) = ask_target(core, (sought.key, sought.names), texts)?;
    counts.add(&wasted);
    Ok(Asked { answer, served_by: ServedBy::asked_after(cost.round_trips), counts })
}

/// Follows many links: READs for all of them in one batch, then what these have left, then one question
/// for each that reading did not conclude. Calls `each` once for each, in any order.
pub(crate) fn chase_batch(
    core: &mut Core,
    links: &mut LinkSession,
    all: &[Sought<'_>],
    path: Path,
    each: &mut EachChased<'_>,
) -> Result<(), Error> {
    if all.is_empty() {
        return Ok(());
    }
    core.asker.ready()?;
    let LinkSession { stale, classes, texts, .. } = links;
    let class = classes.get(ClassKey::of_links(all.len()));
    let before = core.meter;
    let (timing, _) = core.router.begin_search(&mut core.asker.endpoint, class, path)?;
    fetch(core, (stale, texts), all, timing.route, each)?;
    let cost = core.meter.since(&before);
    let served_by = match (cost.asked, timing.route) {
        (0, _) => ServedBy::read_after((cost.stale_hints + cost.stale + cost.retries) as u32),
        (_, Route::Ask) => ServedBy::Asked,
        (_, Route::Read) => ServedBy::AskedAfterRead,
    };
    core.router.end_search(&mut core.asker.endpoint, class, &timing, served_by, &cost)
}

/// Fetches many keys by this route, and asks for what READs do not conclude.
fn fetch(
    core: &mut Core,
    (stale, texts): (&mut StaleLinks, &mut bool),
    all: &[Sought<'_>],
    route: Route,
    each: &mut EachChased<'_>,
) -> Result<(), Error> {
    let mut asks = Vec::new();
    match route {
        Route::Ask => asks.extend((0..all.len()).map(|number| (number, 0))),
        Route::Read => read_many(core, stale, all, &mut |core, cost, number, found| {
            let chased = found.and_then(|(one, found)| landed(core, one, &all[number], &found));
            let Some(chased) = chased else { return asks.push((number, 1)) };
            cost.operations += 1;
            cost.read += 1;
            each(number, &chased);
        })?,
    }
    for (number, reads) in asks {
        let mut asked = chase_asked(core, texts, &all[number], Counts::default())?;
        asked.served_by = ServedBy::asked_after(reads);
        each(number, &asked.chased(core, &all[number]));
    }
    Ok(())
}

/// What a caller does with each key that was looked for: with the record that was found, whose bytes have
/// landed where the step says, or `None`: only the owner knows.
pub(crate) type Ended<'e> =
    dyn FnMut(&mut Core, &mut Counts, usize, Option<(&Walking<'_>, Found)>) + 'e;

/// Looks many keys up by READs in one batch, of any type and of all shards.
pub(crate) fn read_many(
    core: &mut Core,
    stale: &mut StaleLinks,
    all: &[Sought<'_>],
    ended: &mut Ended<'_>,
) -> Result<(), Error> {
    // Keys of a batch often lie apart; their prefetches hide one another's misses.
    all.iter().filter_map(|sought| sought.key.first()).for_each(remora_arena::prefetch);
    let mut rest = all.iter().enumerate().peekable();
    while rest.peek().is_some() {
        let (mut walking, mut begun, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut cost = Counts::default();
        // Bounded by what the hints name.
        while bytes <= BATCH_HINT_BYTES
            && let Some((number, sought)) = rest.next()
        {
            let at = core.directory.locate(sought.key)?;
            if !core.asker.may_read(at.1) {
                cost.behind_writes += 1;
                ended(core, &mut cost, number, None);
                continue;
            }
            let from = Beginning::of(core, sought, at);
            let word = from.word(at.0);
            bytes += bytes_at(word);
            let table = &core.directory.shards[at.1].table;
            let walk = Lookup::begin_at(sought.key, at.0, Kind::ANY, table, word);
            walking.push(Walking::new(begun.len(), at, 0, walk));
            begun.push((number, sought, from));
        }
        let read = walk_in_step(core, walking, &mut cost, &mut |core, cost, one, found| {
            let (number, sought, from) = begun[one.key];
            let walk = &one.step.walk;
            from.learn(core, stale, (sought, one.at, walk), (found.as_ref(), cost));
            ended(core, cost, number, found.map(|found| (one, found)));
        });
        core.meter.add(&cost);
        read?;
    }
    Ok(())
}

/// Bytes that a READ at this word takes at most; those of a bucket and a usual record without one.
fn bytes_at(word: u64) -> usize {
    let class = BucketSlot::from_word(word).class;
    match word {
        0 => SMALL_SLOT_BYTES,
        _ if (class as usize) < CLASSES => class_bytes(class),
        _ => 0,
    }
}

/// What a walk of a batch has found; `None`: the object has parts.
fn landed<'c>(
    core: &'c Core,
    one: &Walking<'_>,
    sought: &Sought<'_>,
    found: &Found,
) -> Option<Chased<'c>> {
    let bytes = found.pointer.length as usize;
    let record = core.asker.endpoint.landed(one.step.landing(), bytes);
    let target = target_of(found.kind, sought.key.len(), record)?;
    let tries = one.step.walk.retries() + u32::from(one.step.walk.is_hint_stale());
    let counts = core.counted(Counts { operations: 1, read: 1, ..Counts::default() });
    Some(Chased { target, served_by: ServedBy::read_after(tries), counts })
}
