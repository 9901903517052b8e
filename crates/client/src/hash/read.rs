//! Reading a field: by a pointer that is known, else by the walks to its hash and
//! to the field.

use super::{Held, OpenHash};
use crate::api::Counts;
use crate::error::Error;
use crate::read::Reading;
use crate::session::Session;
use remora_fabric::Link;
use remora_index::hash::{Found, Lookup, ObjectRef};
use remora_layout::kind::Kind;
use remora_layout::limits::READ_RETRIES;
use remora_layout::packed;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{ROOT_WORDS_BYTES, Reject, Wanted, verify};
use remora_walk::remote::{Reads, Tally, fetch_rooted, follow, follow_rooted};
use remora_walk::{End, Walk};
use std::collections::BTreeMap;

/// What a READ of the present hash has come to.
enum Tried {
    /// The field, or only the owner can say.
    Concluded(Reading),
    /// The hash may have expired.
    Expired,
    /// The hash that was known has gone.
    Gone,
    /// The field does not lie there any more.
    Moved,
}

/// Where a part of what has landed begins.
fn offset_in(landed: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - landed.as_ptr() as usize
}

impl Session {
    /// Reads a field, by what is known of its hash, else from the bucket on.
    pub(super) fn read_field(
        &mut self,
        open: &mut OpenHash,
        name: &[u8],
        cost: &mut Counts,
    ) -> Result<Reading, Error> {
        cost.hits = open.knows(name) as u64;
        // Bounded: each turn forgets something of what was known, or ends.
        for _ in 0..=READ_RETRIES {
            let tried = match &open.held {
                Held::Unknown => match self.find_hash(open, cost)? {
                    true => continue,
                    false => break,
                },
                &Held::Whole(pointer) => self.read_whole(open, pointer, name, cost)?,
                Held::Parts { object, fields } => match fields.get(&object.hash(name).0).copied() {
                    Some(pointer) => self.read_part((object, open.shard), pointer, name, cost)?,
                    None => match object.begin(name, Kind::HASH_FIELD) {
                        Some(walk) => self.walk_to_part(object.clone(), walk, open, cost)?,
                        None => Tried::Gone,
                    },
                },
            };
            match tried {
                Tried::Concluded(reading) => {
                    let is_part = matches!(open.held, Held::Parts { .. });
                    let is_read = matches!(reading, Reading::Value { .. });
                    open.events.part_read += u64::from(is_part && is_read);
                    return Ok(reading);
                }
                Tried::Expired => {
                    open.events.expired += 1;
                    break;
                }
                Tried::Gone => {
                    open.events.root_gone += 1;
                    open.held = Held::Unknown;
                }
                Tried::Moved => {
                    open.events.part_gone += 1;
                    if let Held::Parts { object, fields } = &mut open.held {
                        fields.remove(&object.hash(name).0);
                    }
                }
            }
        }
        cost.undecided = 1;
        Ok(Reading::Ask)
    }

    /// Why what was just fetched does not count: the reading right does not hold, or
    /// what expires at this time may have.
    fn doubted(&mut self, expires_at_ms: u64, cost: &mut Counts) -> Result<Option<Tried>, Error> {
        let now_ns = self.now()?;
        if !self.right.holds(now_ns) {
            cost.right_lapsed = 1;
            return Ok(Some(Tried::Concluded(Reading::Ask)));
        }
        let has_expired = self.right.may_have_expired(expires_at_ms, now_ns);
        Ok(has_expired.then_some(Tried::Expired))
    }

    /// A hash that lies whole in the record that a pointer names.
    fn read_whole(
        &mut self,
        open: &OpenHash,
        pointer: RemotePointer,
        name: &[u8],
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        for retries in 0..=READ_RETRIES {
            let length = pointer.length as usize;
            self.fetch(open.shard as u32, pointer.offset(), length)?;
            cost.fetched(1, 1, length as u64);
            let landed = self.link.landed(0, length);
            let table = &self.shards[open.shard].table;
            let (secret, region, generation) =
                (table.secret, table.region, Some(pointer.generation));
            let wanted = Wanted { kind: Kind::HASH.whole(), database: open.hash.database() };
            match verify(landed, secret, region, pointer.slot, generation, wanted, &open.key) {
                Ok(found) => {
                    let expires_at_ms = found.mutable.expires_at_ms;
                    let value = packed::find(found.value, name);
                    let value = value.map(|value| (offset_in(landed, value), value.len()));
                    if let Some(tried) = self.doubted(expires_at_ms, cost)? {
                        return Ok(tried);
                    }
                    return Ok(Tried::Concluded(match value {
                        Some((from, bytes)) => Reading::Value { from, bytes, retries },
                        None => Reading::Ask,
                    }));
                }
                Err(Reject::Torn) => cost.retries += 1,
                Err(Reject::Pending | Reject::AskOnly) => break,
                Err(Reject::Dead | Reject::OtherKey | Reject::OtherKind) => {
                    cost.stale += 1;
                    return Ok(Tried::Gone);
                }
            }
        }
        Ok(Tried::Concluded(Reading::Ask))
    }

    /// Whether the root, whose words landed at `at`, lets its parts count.
    fn check_root(
        &mut self,
        object: &ObjectRef,
        at: usize,
        cost: &mut Counts,
    ) -> Result<Option<Tried>, Error> {
        match object.check_root(self.link.landed(at, ROOT_WORDS_BYTES)) {
            Ok(mutable) => self.doubted(mutable.expires_at_ms, cost),
            Err(Reject::Pending | Reject::AskOnly) => Ok(Some(Tried::Concluded(Reading::Ask))),
            Err(_) => {
                cost.stale += 1;
                Ok(Some(Tried::Gone))
            }
        }
    }

    /// A field by a pointer to it.
    fn read_part(
        &mut self,
        (object, shard): (&ObjectRef, usize),
        pointer: RemotePointer,
        name: &[u8],
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        let length = pointer.length as usize;
        let (part, root) = ((pointer.offset(), length), object.root_range());
        for retries in 0..=READ_RETRIES {
            let root_at = fetch_rooted(self, shard as u32, part, root, cost)?;
            if let Some(tried) = self.check_root(object, root_at, cost)? {
                return Ok(tried);
            }
            let landed = self.link.landed(0, length);
            match object.verify_part(landed, pointer, Kind::HASH_FIELD, name) {
                Ok(found) => {
                    let (from, bytes) = (offset_in(landed, found.value), found.value.len());
                    return Ok(Tried::Concluded(Reading::Value { from, bytes, retries }));
                }
                Err(Reject::Torn) => cost.retries += 1,
                Err(Reject::Pending | Reject::AskOnly) => break,
                Err(Reject::Dead | Reject::OtherKey | Reject::OtherKind) => {
                    cost.stale += 1;
                    return Ok(Tried::Moved);
                }
            }
        }
        Ok(Tried::Concluded(Reading::Ask))
    }

    /// A field by its bucket.
    fn walk_to_part(
        &mut self,
        object: Box<ObjectRef>,
        mut lookup: Lookup<'_>,
        open: &mut OpenHash,
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        let place = (open.shard as u32, object.root_range());
        let followed =
            follow_rooted(&mut lookup, place, self, cost, |session: &mut Self, at, cost| {
                session.check_root(&object, at, cost)
            })?;
        Ok(match followed {
            Err(tried) => tried,
            Ok(End::Found(found)) => {
                open.keep(lookup.key(), found.pointer);
                let retries = lookup.retries();
                cost.retries += retries as u64;
                let (from, bytes) = (found.value_from(), found.value_bytes);
                Tried::Concluded(Reading::Value { from, bytes, retries })
            }
            // The table has grown: its root record tells of it.
            Ok(End::Restart | End::Stale | End::Beyond) => {
                cost.retries += 1;
                Tried::Gone
            }
            Ok(End::Ask(_)) => Tried::Concluded(Reading::Ask),
        })
    }

    /// Finds a hash's record by its key, and learns what that says. False if only
    /// the owner can say.
    fn find_hash(&mut self, open: &mut OpenHash, cost: &mut Counts) -> Result<bool, Error> {
        let table = &self.shards[open.shard].table;
        let mut lookup = Lookup::begin(&open.key, open.hash, Kind::HASH, table);
        // Bounded: a walk begins again a bounded number of times.
        let found = loop {
            match follow(&mut lookup, open.shard as u32, self, cost)? {
                End::Found(found) => break self.held_of(&found, open.shard),
                End::Ask(_) => break None,
                End::Restart | End::Stale | End::Beyond => {
                    self.refresh_table(open.shard, cost)?;
                    if lookup.restart(&self.shards[open.shard].table).is_err() {
                        break None;
                    }
                }
            }
        };
        cost.retries += lookup.retries() as u64;
        let is_found = found.is_some();
        found.into_iter().for_each(|held| open.hold(held));
        Ok(is_found)
    }

    /// What is known of a hash by its record, which has just landed. `None` if its
    /// table was caught while it changed.
    fn held_of(&self, found: &Found, shard: usize) -> Option<Held> {
        if !found.kind.is_root() {
            return Some(Held::Whole(found.pointer));
        }
        // The record's class, with the state behind the key, has landed.
        let record = self.link.landed(0, found.fetched_bytes);
        let (table, seed) = (&self.shards[shard].table, self.connection.hash_seed);
        let object = ObjectRef::of_record(table, seed, &found.record(record), record)?;
        Some(Held::Parts { object: Box::new(object), fields: BTreeMap::new() })
    }
}
