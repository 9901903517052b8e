//! A simulated client's operations on ordered trees: each key of a tree is judged as a key. So is each
//! key that a range covers, whether the range shows it or not.

use super::{MS, SimClient};
use crate::check::keys::{If, KeyOp, Value};
use crate::hashes::JUDGED_EXPIRY;
use crate::history::Begun;
use crate::ordered::{OrderedSwarm, is_link, register_named};
use crate::probes::Probe;
use crate::values::{HashName, Register, encode};
use remora_client_core::{
    Error, OpenOrdered, OrderedCache, OrderedEntries, OrderedValue, Path, Session,
};
use remora_layout::packed::Field;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use std::collections::BTreeMap;
use std::ops::Bound;

/// How many of a hundred operations make the tree, if it is not there.
const MADE_PERCENT: u64 = 3;

/// A range that a client asks for.
struct Asked {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    is_reverse: bool,
    limit: u64,
}

impl Asked {
    fn range(&self) -> OrderedRange<'_> {
        let from = self.from.as_ref().map(Vec::as_slice);
        OrderedRange { from, to: self.to.as_ref().map(Vec::as_slice) }
    }

    fn covers(&self, key: &[u8]) -> bool {
        let is_from = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from.as_slice(),
            Bound::Excluded(from) => key > from.as_slice(),
        };
        let is_to = match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
        };
        is_from && is_to
    }

    /// Whether one key stands behind another one in what it gives.
    fn is_behind(&self, key: &[u8], other: &[u8]) -> bool {
        if self.is_reverse { key < other } else { key > other }
    }
}

impl SimClient {
    /// Operates on an ordered tree.
    pub(super) fn use_ordered(
        &mut self,
        session: &mut Session,
        swarm: OrderedSwarm,
    ) -> Result<(), Error> {
        let tree = HashName::Ordered(self.draw(swarm.trees.into()) as u8);
        if self.draw(1_000) < swarm.ends {
            return match self.draw(2) {
                0 => self.drop_hash(session, tree),
                _ => self.expire_hash(session, tree),
            };
        }
        let mut view = self.ordered_view(session, (tree, swarm))?;
        let sets = (self.now_ns() / swarm.tide_ns).is_multiple_of(2);
        let done = match self.draw(100) {
            0..25 => self.get_ordered(session, (tree, swarm), &mut view),
            25..50 => self.read_range(session, (tree, swarm), &mut view),
            50..60 => self.change_run(session, (tree, swarm), sets),
            drawn if drawn >= 100 - MADE_PERCENT => {
                self.make_ordered(session, (tree, swarm), &view)
            }
            60..67 => self.set_ordered(session, (tree, swarm), &view),
            67..74 => self.remove_ordered(session, (tree, swarm), &view),
            _ if sets => self.set_ordered(session, (tree, swarm), &view),
            _ => self.remove_ordered(session, (tree, swarm), &view),
        };
        self.views.ordered.insert(tree, view);
        done
    }

    fn ordered_view(
        &mut self,
        session: &Session,
        (tree, swarm): (HashName, OrderedSwarm),
    ) -> Result<OpenOrdered, Error> {
        if let Some(view) = self.views.ordered.remove(&tree) {
            return Ok(view);
        }
        let mut view = session.open_ordered(&tree.key())?;
        view.set_cache(OrderedCache { bytes: swarm.kept_bytes, ..OrderedCache::default() });
        Ok(view)
    }

    fn ordered_key(&self, (tree, swarm): (HashName, OrderedSwarm)) -> Register {
        let number = self.draw(swarm.keys.into()) as u32;
        Register { database: self.database(), hash: Some(tree), number }
    }

    fn make_ordered(
        &self,
        session: &mut Session,
        (tree, swarm): (HashName, OrderedSwarm),
        view: &OpenOrdered,
    ) -> Result<(), Error> {
        let made = session.ordered_create(view, swarm.settings(tree));
        self.unjudged(made).map(drop)
    }

    fn set_ordered(
        &self,
        session: &mut Session,
        of: (HashName, OrderedSwarm),
        view: &OpenOrdered,
    ) -> Result<(), Error> {
        let (key, number) = (self.ordered_key(of), self.world.next_number());
        let value = Value { number, expiry: None };
        let begun = self.begin(key, KeyOp::Set { value, condition: If::Always, done: None });
        let bytes = encode(key, number, of.1.lengths);
        match session.ordered_set(view, &key.name(), (&bytes, is_link(number))) {
            Ok(is_new) => {
                let condition = if is_new { If::Absent } else { If::Present };
                self.end(begun, KeyOp::Set { value, condition, done: Some(true) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn remove_ordered(
        &self,
        session: &mut Session,
        of: (HashName, OrderedSwarm),
        view: &OpenOrdered,
    ) -> Result<(), Error> {
        let key = self.ordered_key(of);
        let begun = self.begin(key, KeyOp::Del { removed: None });
        match session.ordered_remove(view, &key.name()) {
            Ok(removed) => {
                self.end(begun, KeyOp::Del { removed: Some(removed) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// Sets or removes neighbours one after the other, without waiting for each reply: nodes are divided
    /// or joined while others read them.
    fn change_run(
        &self,
        session: &mut Session,
        (tree, swarm): (HashName, OrderedSwarm),
        sets: bool,
    ) -> Result<(), Error> {
        let first = self.ordered_key((tree, swarm)).number;
        let count = 1 + self.draw(swarm.most_at_once) as u32;
        let mut begun = Vec::new();
        for number in first..(first + count).min(swarm.keys) {
            let key = Register { database: self.database(), hash: Some(tree), number };
            let value = Value { number: self.world.next_number(), expiry: None };
            let op = match sets {
                true => KeyOp::Set { value, condition: If::Always, done: None },
                false => KeyOp::Del { removed: None },
            };
            let bytes = encode(key, value.number, swarm.lengths);
            let (name, is_link) = (key.name(), is_link(value.number));
            begun.push((self.begin(key, op), value));
            let field = Field { value: &bytes, is_link };
            let command = match sets {
                true => OrderedCommand::Set { key: &name, value: field },
                false => OrderedCommand::Delete { key: &name },
            };
            let of = Command::Of { key: &tree.key(), request: command.request() };
            session.submit(&of)?;
        }
        self.end_run(session, &begun, sets)
    }

    fn end_run(
        &self,
        session: &mut Session,
        begun: &[(Begun, Value)],
        sets: bool,
    ) -> Result<(), Error> {
        let mut timed_out = None;
        for &(begun, value) in begun {
            let mut answer = None;
            let taken = session.next_reply(&mut |_, reply| {
                answer = Some((reply.status, reply.number));
            });
            match taken {
                Err(Error::TimedOut) => {
                    timed_out = Some(Error::TimedOut);
                    continue;
                }
                taken => taken.map(drop)?,
            }
            let Some((status, number)) = answer else {
                self.violate_ordered("every request is answered", format!("{begun:?}"));
                continue;
            };
            let is_there = number == 1;
            let condition = if is_there { If::Absent } else { If::Present };
            match status {
                Status::Ok if sets => {
                    self.end(begun, KeyOp::Set { value, condition, done: Some(true) });
                }
                Status::Ok => self.end(begun, KeyOp::Del { removed: Some(is_there) }),
                refused => self.failed(begun, Error::Refused(refused))?,
            }
        }
        timed_out.map_or(Ok(()), Err)
    }

    fn get_ordered(
        &self,
        session: &mut Session,
        of: (HashName, OrderedSwarm),
        view: &mut OpenOrdered,
    ) -> Result<(), Error> {
        self.get_ordered_key(session, self.ordered_key(of), view, self.path())
    }

    fn get_ordered_key(
        &self,
        session: &mut Session,
        key: Register,
        view: &mut OpenOrdered,
        path: Path,
    ) -> Result<(), Error> {
        let begun = self.begin(key, KeyOp::Nothing);
        match session.ordered_get(view, &key.name(), path) {
            Ok(got) => {
                let is_read = got.served_by.is_read();
                self.world.probes.borrow_mut().add(Probe::OrderedRead, is_read.into());
                let found = self.number_of_ordered(key, got.value.as_ref());
                self.end(begun, KeyOp::Get { found });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// The number that was found at a key.
    fn number_of_ordered(&self, key: Register, value: Option<&OrderedValue>) -> Option<i64> {
        let value = value?;
        let number = self.number_of(key, Some(&value.value));
        if number.is_some_and(|number| is_link(number) != value.is_link) {
            self.violate_ordered("a link is what was set as one", format!("{key}: {value:02x?}"));
        }
        number
    }

    fn violate_ordered(&self, promise: &'static str, seen: String) {
        let seen = format!("client {}: {seen}", self.number);
        self.world.history.borrow_mut().violate(promise, seen);
    }

    fn drawn_range(&self, of: (HashName, OrderedSwarm)) -> Asked {
        let (one, other) = (self.ordered_key(of), self.ordered_key(of));
        let narrow = (one.number + 1 + self.draw(12) as u32).min(of.1.keys - 1);
        let other = if self.draw(2) == 0 { Register { number: narrow, ..one } } else { other };
        let (one, other) = (one.name(), other.name());
        let bound = |key| match self.draw(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        let (low, high) = if one <= other { (one, other) } else { (other, one) };
        let limit = [1, 4, 30, 10_000][self.draw(4) as usize];
        let (from, to) = (bound(low), bound(high));
        Asked { from, to, is_reverse: self.draw(2) == 0, limit }
    }

    fn read_range(
        &self,
        session: &mut Session,
        (tree, swarm): (HashName, OrderedSwarm),
        view: &mut OpenOrdered,
    ) -> Result<(), Error> {
        let asked = self.drawn_range((tree, swarm));
        let covered = self.all_fields(tree).into_iter().filter(|key| asked.covers(&key.name()));
        let begun = self.begin_fields(&covered.collect::<Vec<_>>(), KeyOp::Nothing);
        let of = (asked.is_reverse, asked.limit);
        match session.ordered_range(view, asked.range(), of, self.path()) {
            Ok(found) => {
                let is_read = found.served_by.is_read();
                self.world.probes.borrow_mut().add(Probe::OrderedRangeRead, is_read.into());
                self.saw_range((tree, swarm), &asked, &begun, &found.entries);
                Ok(())
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// A range was read. Of keys behind the last one nothing is known if there are as many as were wanted.
    fn saw_range(
        &self,
        (tree, swarm): (HashName, OrderedSwarm),
        asked: &Asked,
        begun: &[Begun],
        entries: &OrderedEntries,
    ) {
        let (database, keys) = (self.database(), entries.iter().map(|(key, _)| key));
        let invented = |key: &&Vec<u8>| {
            !asked.covers(key) || register_named(database, tree, key, swarm.keys).is_none()
        };
        if let Some(key) = keys.clone().find(invented) {
            self.violate_ordered("a range has keys of its own that were set", format!("{key:?}"));
        }
        let in_order = keys.clone().is_sorted_by(|one, other| asked.is_behind(other, one));
        if !in_order || entries.len() as u64 > asked.limit {
            let seen = keys.clone().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>();
            let promise = "a range has its keys in order, each once, and no more than were wanted";
            self.violate_ordered(promise, format!("{tree}: {seen:?}"));
        }
        let is_cut = entries.len() as u64 >= asked.limit;
        let last = entries.last().map(|(key, _)| key).filter(|_| is_cut);
        let found: BTreeMap<&[u8], &OrderedValue> =
            entries.iter().map(|(key, value)| (key.as_slice(), value)).collect();
        for &begun in begun {
            let name = begun.key.name();
            let op = match last {
                Some(last) if asked.is_behind(&name, last) => KeyOp::Nothing,
                _ => {
                    let value = found.get(name.as_slice()).copied();
                    KeyOp::Get { found: self.number_of_ordered(begun.key, value) }
                }
            };
            self.end(begun, op);
        }
    }

    /// Reads keys of a tree around the time when it expires.
    pub(super) fn read_expired_ordered(
        &mut self,
        session: &mut Session,
        tree: HashName,
        at_ms: u64,
    ) -> Result<(), Error> {
        let Some(mut view) = self.views.ordered.remove(&tree) else { return Ok(()) };
        let left_ms = at_ms.saturating_sub(self.world.node.borrow().unix_ms());
        let (database, hash) = (self.database(), Some(tree));
        let done = [0, left_ms + 2].into_iter().try_for_each(|waits_ms| {
            self.pause((waits_ms + self.draw(8)) * MS);
            JUDGED_EXPIRY.into_iter().try_for_each(|number| {
                let key = Register { database, hash, number };
                self.get_ordered_key(session, key, &mut view, Path::Read)
            })
        });
        self.views.ordered.insert(tree, view);
        done
    }
}
