//! Lists: the client asks for changes, and reads ranges by either route.
//!
//! Invariants: a small list is one record, which its checksum validates. A chunk of a large list
//! counts only if the same batch of READs finds the root record live, not expired, and the list's
//! state as it was when the walk began: so a range that was read is the list of one moment. Only the
//! owner can say that there is no list.

mod read;

use crate::asker::Answer;
use crate::choose::{Route, key_class};
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::elements::{encoded, push_link};
use crate::error::Error;
use crate::links::{FieldValue, Link, LinkAt, LinkPlace, values_of};
use crate::path::{Path, ServedBy};
use remora_index::chain::ChainRef;
use remora_layout::chain::{Entry, TextBuffer, encoded as entries_in};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CHUNK_ENTRIES, LIST_READ_CHUNKS};
use remora_layout::pointer::RemotePointer;
use remora_plan::Value;
use remora_protocol::list::{ListCommand, Side, range};
use remora_protocol::message::Status;
use remora_protocol::{Command, Items};
use std::time::Duration;

/// Elements of a list that were fetched.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ListItems {
    /// The elements, in order.
    pub items: Vec<Vec<u8>>,
    /// How they were fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// Elements that were removed from the list of one of several keys.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ListTaken {
    /// The key.
    pub key: Vec<u8>,
    /// The elements, the outermost first.
    pub items: Vec<Vec<u8>>,
}

/// Events of the READs of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ListEvents {
    /// A range was read by READs.
    pub read: u64,
    /// The list had changed while it was read, and the walk began again.
    pub changed: u64,
    /// The list was no longer at its known location.
    pub gone: u64,
    /// The list may have expired.
    pub expired: u64,
}

/// A session's view of one list: where it lies, as far as READs found. It is a hint.
#[derive(Debug)]
pub struct OpenList {
    key: Box<[u8]>,
    hash: KeyHash,
    shard: usize,
    held: Held,
    events: ListEvents,
}

/// The known location of a list.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// Nothing.
    Unknown,
    /// Whole in this record.
    Whole(RemotePointer),
    /// It has chunks.
    Chain(ChainRef),
}

impl OpenList {
    /// A view of the list that a key holds, or will hold. Nothing is asked.
    pub(crate) fn new(directory: &Directory, key: &[u8]) -> Result<Self, Error> {
        let (hash, shard) = directory.locate(key)?;
        let (held, events) = (Held::Unknown, ListEvents::default());
        Ok(Self { key: key.into(), hash, shard, held, events })
    }

    /// A view of a list of chunks whose root record has just been found.
    pub(crate) fn of_chain(key: &[u8], (hash, shard): (KeyHash, usize), chain: ChainRef) -> Self {
        let events = ListEvents::default();
        Self { key: key.into(), hash, shard, held: Held::Chain(chain), events }
    }

    /// The encoded entries of a range, by READs, and how many the list has; `None` if only the owner
    /// knows.
    pub(crate) fn entries_read(
        &mut self,
        core: &mut Core,
        range: (i64, i64),
    ) -> Result<Option<(Vec<u8>, u64)>, Error> {
        let mut cost = Counts::default();
        let Core { asker, directory, .. } = &mut *core;
        let at = (&mut asker.endpoint, directory);
        let read = self.read_range(at, range, u64::MAX, &mut cost)?;
        if read.is_some() {
            asker.endpoint.staleness.conclude_reads();
            cost.read = 1;
        }
        core.meter.add(&cost);
        Ok(read)
    }

    /// The list's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// What has happened to the reads of it.
    pub fn events(&self) -> ListEvents {
        self.events
    }

    /// Whether a few READs are enough for a range, as far as the view knows.
    fn is_near(&self, start: i64, stop: i64) -> bool {
        let Held::Chain(chain) = &self.held else { return true };
        range(chain.state.length, start, stop).is_none_or(|(from, count)| {
            chain.chunks_to(from, count, CHUNK_ENTRIES as u64) <= LIST_READ_CHUNKS
        })
    }

    /// The elements of a range, as LRANGE counts them.
    pub(crate) fn range(
        &mut self,
        core: &mut Core,
        (start, stop): (i64, i64),
        path: Path,
    ) -> Result<ListItems, Error> {
        core.asker.ready()?;
        let cost = Counts { operations: 1, ..Counts::default() };
        if path == Path::Ask {
            let timing = core.router.begin_given(&mut core.asker.endpoint, Route::Ask)?;
            let found = self.range_asked(core, (start, stop), cost)?;
            core.router.end_given(&mut core.asker.endpoint, timing, found.served_by)?;
            return Ok(found);
        }
        if !core.asker.may_read(self.shard) {
            return self.range_asked(core, (start, stop), Counts { behind_writes: 1, ..cost });
        }
        if path != Path::Read && !self.is_near(start, stop) {
            return self.range_asked(core, (start, stop), cost);
        }
        let is_known = !matches!(self.held, Held::Unknown);
        let class = if is_known { key_class::CACHED } else { key_class::COLD };
        let timing = core.router.begin_key(&mut core.asker.endpoint, path, class)?;
        let found = match timing.route {
            Route::Ask => self.range_asked(core, (start, stop), cost)?,
            Route::Read => {
                let most = if path == Path::Read { u64::MAX } else { LIST_READ_CHUNKS };
                self.range_read(core, (start, stop), most, cost)?
            }
        };
        let Core { router, asker, .. } = &mut *core;
        router.end_key(&mut asker.endpoint, timing, class, found.served_by, &found.counts)?;
        Ok(found)
    }

    /// The links of a range, by READs as far as possible; none for an element that is no link.
    pub(crate) fn links(
        &mut self,
        core: &mut Core,
        (start, stop): (i64, i64),
        path: Path,
    ) -> Result<Vec<Option<Link>>, Error> {
        core.asker.ready()?;
        let may_read = path != Path::Ask && core.asker.may_read(self.shard);
        let read = match may_read && (path == Path::Read || self.is_near(start, stop)) {
            true => self.entries_read(core, (start, stop))?,
            false => None,
        };
        let Some((entries, total)) = read else {
            let request = ListCommand::Range { start, stop }.request();
            let (list, _) = core.ask_list(self.shard, &self.key, request)?;
            let values = Items::parse(&list).into_iter().flat_map(Items::fields).flatten();
            let values = values.map(FieldValue::from);
            return Ok(values.map(FieldValue::without_place).collect());
        };
        let (first, _) = range(total, start, stop).unwrap_or((0, 0));
        let values = values_of(&entries);
        let links = values.iter().zip(0..).map(|(value, at)| match value {
            Value::Plain(_) => None,
            Value::Link { key, hint } => {
                let place = LinkPlace { key: (*self.key).into(), at: LinkAt::Element(first + at) };
                Some(Link { key: key.clone(), hint: *hint, link: Some(place) })
            }
        });
        Ok(links.collect())
    }

    /// A range, by READs as far as possible.
    fn range_read(
        &mut self,
        core: &mut Core,
        range: (i64, i64),
        most_chunks: u64,
        mut cost: Counts,
    ) -> Result<ListItems, Error> {
        let Core { asker, directory, .. } = &mut *core;
        let at = (&mut asker.endpoint, directory);
        let read = self.read_range(at, range, most_chunks, &mut cost)?;
        let Some((entries, _)) = read else { return self.range_asked(core, range, cost) };
        let items = texts(&entries);
        asker.endpoint.staleness.conclude_reads();
        self.events.read += 1;
        cost.read = 1;
        core.meter.add(&cost);
        let served_by = ServedBy::read_after((cost.retries + cost.stale) as u32);
        Ok(ListItems { items, served_by, counts: cost })
    }

    /// Asks for a range, after reading has cost `cost`.
    fn range_asked(
        &mut self,
        core: &mut Core,
        (start, stop): (i64, i64),
        cost: Counts,
    ) -> Result<ListItems, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let request = ListCommand::Range { start, stop }.request();
        let (list, mut counts) = core.ask_list(self.shard, &self.key, request)?;
        counts.add(&wasted);
        Ok(ListItems { items: items_of(&list), served_by, counts })
    }

    fn ask(&self, core: &mut Core, command: &ListCommand<'_>) -> Result<Answer, Error> {
        core.ask(&Command::Of { key: &self.key, request: command.request() })
    }

    /// Adds elements at one end, one after the other, as one change; gives the list's length.
    pub(crate) fn push(&self, core: &mut Core, side: Side, items: &[&[u8]]) -> Result<u64, Error> {
        let list = encoded(items.iter().copied());
        let items = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, &ListCommand::Push { side, if_there: false, items })?.number as u64)
    }

    /// The same of links that name these keys.
    pub(crate) fn push_links(
        &self,
        core: &mut Core,
        side: Side,
        targets: &[&[u8]],
    ) -> Result<u64, Error> {
        let mut list = Vec::new();
        targets.iter().try_for_each(|target| push_link(&mut list, target))?;
        let items = Items::parse(&list).expect("it was just made");
        Ok(self.ask(core, &ListCommand::Push { side, if_there: false, items })?.number as u64)
    }

    /// Removes up to `count` elements from one end, fewer if they are too long for one reply; gives
    /// them.
    pub(crate) fn pop(
        &self,
        core: &mut Core,
        side: Side,
        count: u64,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let answer = self.ask(core, &ListCommand::Pop { side, count, fits_frame: true })?;
        Ok(answer.value.map(|range| items_of(core.in_reply(range))).unwrap_or_default())
    }

    /// Removes an element from one end, or waits for it for so long; `None`: without end.
    pub(crate) fn wait(
        &self,
        core: &mut Core,
        side: Side,
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        // The answer to a wait takes as many frames as it needs.
        let request = ListCommand::Pop { side, count: 1, fits_frame: false }.request();
        let list = core.wait_for(&self.key, request, time)?;
        Ok(list.and_then(|list| items_of(&list).into_iter().next()))
    }

    /// Moves an element from one end of the list to one end of the list of another key, or waits for it for
    /// so long; `None`: without end. Gives it.
    pub(crate) fn wait_to_move(
        &self,
        core: &mut Core,
        (from, to, other): (Side, Side, &[u8]),
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let request = ListCommand::Move { from, to, other }.request();
        let found = core.wait_for_any((&[&self.key], Some(other)), request, time)?;
        Ok(found.map(|(_, element)| element))
    }

    /// Number of elements.
    pub(crate) fn len(&self, core: &mut Core) -> Result<u64, Error> {
        Ok(self.ask(core, &ListCommand::Length)?.number as u64)
    }

    /// Replaces an element. Whether it was there.
    pub(crate) fn set_at(&self, core: &mut Core, index: i64, value: &[u8]) -> Result<bool, Error> {
        Ok(self.ask(core, &ListCommand::SetAt { index, value })?.status == Status::Ok)
    }

    /// Removes elements that equal a value, as LREM counts them; gives how many.
    pub(crate) fn remove(&self, core: &mut Core, count: i64, value: &[u8]) -> Result<u64, Error> {
        Ok(self.ask(core, &ListCommand::Remove { count, value })?.number as u64)
    }

    /// Leaves the elements of a range.
    pub(crate) fn trim(&self, core: &mut Core, start: i64, stop: i64) -> Result<(), Error> {
        self.ask(core, &ListCommand::Trim { start, stop }).map(drop)
    }
}

/// Removes up to `count` elements from one end of the first of some keys' lists that has some, or waits for
/// them for so long; `None`: without end.
pub(crate) fn wait_for_any(
    core: &mut Core,
    keys: &[&[u8]],
    (side, count): (Side, u64),
    time: Option<Duration>,
) -> Result<Option<ListTaken>, Error> {
    let request = ListCommand::Pop { side, count, fits_frame: false }.request();
    let found = core.wait_for_any((keys, None), request, time)?;
    Ok(found.map(|(key, list)| ListTaken { key, items: items_of(&list) }))
}

/// The texts of encoded entries.
fn texts(entries: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = TextBuffer::default();
    let all = entries_in(entries).filter_map(Entry::split);
    all.map(|(entry, _)| entry.text(&mut buffer).to_vec()).collect()
}

fn items_of(list: &[u8]) -> Vec<Vec<u8>> {
    let items = Items::parse(list).into_iter().flat_map(Items::iter);
    items.flatten().map(<[u8]>::to_vec).collect()
}
