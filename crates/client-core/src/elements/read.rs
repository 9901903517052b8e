//! Reads an element: by a known pointer, otherwise by the walks to its object and to the element.

use super::{Held, InWhole, OpenObject, Readable};
use crate::counts::Counts;
use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::found::Reading;
use crate::read::{Doubt, doubt, find_record};
use remora_fabric::Link;
use remora_index::hash::{Found, Lookup, ObjectRef};
use remora_layout::limits::READ_RETRIES;
use remora_layout::part::root_word;
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{ROOT_WORDS_BYTES, Reject, Wanted, verify};
use remora_walk::remote::{Reads, Tally, fetch_rooted, follow_rooted};
use remora_walk::{End, Walk};
use std::collections::BTreeMap;

/// The result of a READ of the present object.
enum Tried {
    /// The element, or only the owner knows.
    Concluded(Reading),
    /// The object may have expired.
    Expired,
    /// The known object has gone.
    Gone,
    /// The element is no longer at that location.
    Moved,
}

impl From<Doubt> for Tried {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::NoLease => Self::Concluded(Reading::Ask),
            Doubt::Expired => Self::Expired,
        }
    }
}

/// Where a part of what has landed begins.
fn offset_in(landed: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - landed.as_ptr() as usize
}

impl<E: Readable> OpenObject<E> {
    /// Reads an element, or a whole object, by the known state of the object, otherwise from the bucket
    /// on.
    pub(crate) fn read(
        &mut self,
        (endpoint, directory): (&mut Endpoint, &mut Directory),
        name: Option<&[u8]>,
        cost: &mut Counts,
    ) -> Result<Reading, Error> {
        cost.hits = name.map_or(self.is_whole(), |name| self.knows(name)) as u64;
        // Bounded: each turn discards some known state, or ends.
        for _ in 0..=READ_RETRIES {
            let tried = match &self.held {
                Held::Unknown => match self.find(endpoint, directory, cost)? {
                    true => continue,
                    false => break,
                },
                &Held::Whole(pointer) => {
                    self.read_whole(endpoint, directory, pointer, name, cost)?
                }
                Held::Parts { object, elements } => {
                    let Some(name) = name else { break };
                    match elements.get(&object.hash(name).0).copied() {
                        Some(pointer) => {
                            let of = (&**object, self.shard);
                            read_part::<E>(endpoint, of, pointer, name, cost)?
                        }
                        None if !E::WALKS => break,
                        None => match object.begin(name, E::PART) {
                            Some(walk) => {
                                let object = object.clone();
                                self.walk_to_part(endpoint, object, walk, cost)?
                            }
                            None => Tried::Gone,
                        },
                    }
                }
            };
            match tried {
                Tried::Concluded(reading) => {
                    let is_part = matches!(self.held, Held::Parts { .. });
                    let is_read = !matches!(reading, Reading::NoPointer | Reading::Ask);
                    self.events.part_read += u64::from(is_part && is_read);
                    return Ok(reading);
                }
                Tried::Expired => {
                    self.events.expired += 1;
                    break;
                }
                Tried::Gone => {
                    self.events.root_gone += 1;
                    self.held = Held::Unknown;
                }
                Tried::Moved => {
                    self.events.part_gone += 1;
                    if let (Held::Parts { object, elements }, Some(name)) = (&mut self.held, name) {
                        elements.remove(&object.hash(name).0);
                    }
                }
            }
        }
        cost.undecided = 1;
        Ok(Reading::Ask)
    }

    /// An object that lies whole in the record that a pointer names; without a name all of it.
    fn read_whole(
        &self,
        endpoint: &mut Endpoint,
        directory: &Directory,
        pointer: RemotePointer,
        name: Option<&[u8]>,
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        for retries in 0..=READ_RETRIES {
            let length = pointer.length as usize;
            endpoint.fetch(self.shard as u32, pointer.offset(), length)?;
            cost.fetched(1, 1, length as u64);
            let landed = endpoint.link.landed(0, length);
            let table = &directory.shards[self.shard].table;
            let (secret, region, generation) =
                (table.secret, table.region, Some(pointer.generation));
            let wanted = Wanted { kind: E::KIND.whole(), database: self.hash.database() };
            match verify(landed, secret, region, pointer.slot, generation, wanted, &self.key) {
                Ok(found) => {
                    let expires_at_ms = found.mutable.expires_at_ms;
                    let held = match name {
                        Some(name) => E::in_whole(found.value, name),
                        None => InWhole::Value(found.value),
                    };
                    let reading = match held {
                        InWhole::Value(value) => {
                            let (from, bytes) = (offset_in(landed, value), value.len());
                            Reading::Value { from, bytes, retries }
                        }
                        InWhole::Absent => Reading::Absent { retries },
                        InWhole::Unknown => Reading::Ask,
                    };
                    let doubt = doubt(endpoint, expires_at_ms, cost)?;
                    return Ok(doubt.map_or(Tried::Concluded(reading), Tried::from));
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

    /// An element by its bucket.
    fn walk_to_part(
        &mut self,
        endpoint: &mut Endpoint,
        object: Box<ObjectRef>,
        mut lookup: Lookup<'_>,
        cost: &mut Counts,
    ) -> Result<Tried, Error> {
        let place = (self.shard as u32, object.root_range());
        let followed = follow_rooted(
            &mut lookup,
            place,
            endpoint,
            cost,
            |endpoint: &mut Endpoint, at, cost| check_root(endpoint, &object, at, cost),
        )?;
        Ok(match followed {
            Err(tried) => tried,
            Ok(End::Found(found)) => {
                self.keep(lookup.key(), found.pointer);
                let retries = lookup.retries();
                cost.retries += retries as u64;
                let (from, bytes) = (found.value_from(), found.value_bytes);
                Tried::Concluded(Reading::Value { from, bytes, retries })
            }
            // The table has grown: its root record has the new shape.
            Ok(End::Restart | End::Stale | End::Beyond) => {
                cost.retries += 1;
                Tried::Gone
            }
            Ok(End::Ask(_)) => Tried::Concluded(Reading::Ask),
        })
    }

    /// Finds an object's record by its key, and learns its content. False if only the owner knows.
    pub(crate) fn find(
        &mut self,
        endpoint: &mut Endpoint,
        directory: &mut Directory,
        cost: &mut Counts,
    ) -> Result<bool, Error> {
        let at = (&*self.key, self.hash, self.shard);
        let (found, _) = find_record((endpoint, directory), at, E::KIND, cost)?;
        let held = found.and_then(|found| held_of::<E>(endpoint, directory, &found, self.shard));
        let is_found = held.is_some();
        held.into_iter().for_each(|held| self.hold(held));
        Ok(is_found)
    }
}

/// Whether the root, whose words landed at `at`, validates its parts.
fn check_root(
    endpoint: &mut Endpoint,
    object: &ObjectRef,
    at: usize,
    cost: &mut Counts,
) -> Result<Option<Tried>, Error> {
    match object.check_root(endpoint.link.landed(at, ROOT_WORDS_BYTES)) {
        Ok(mutable) => Ok(doubt(endpoint, mutable.expires_at_ms, cost)?.map(Tried::from)),
        Err(Reject::Pending | Reject::AskOnly) => Ok(Some(Tried::Concluded(Reading::Ask))),
        Err(_) => {
            cost.stale += 1;
            Ok(Some(Tried::Gone))
        }
    }
}

/// An element by a pointer to its part.
fn read_part<E: Readable>(
    endpoint: &mut Endpoint,
    (object, shard): (&ObjectRef, usize),
    pointer: RemotePointer,
    name: &[u8],
    cost: &mut Counts,
) -> Result<Tried, Error> {
    let length = pointer.length as usize;
    let (part, root) = ((pointer.offset(), length), object.root_range());
    for retries in 0..=READ_RETRIES {
        let root_at = fetch_rooted(endpoint, shard as u32, part, root, cost)?;
        if let Some(tried) = check_root(endpoint, object, root_at, cost)? {
            return Ok(tried);
        }
        let landed = endpoint.link.landed(0, length);
        match E::in_part(object, landed, pointer, name) {
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

/// The state of an object from its record, which has just landed. `None` if its table, which walks need,
/// was fetched during a change.
fn held_of<E: Readable>(
    endpoint: &Endpoint,
    directory: &Directory,
    found: &Found,
    shard: usize,
) -> Option<Held> {
    if !found.kind.is_root() {
        return Some(Held::Whole(found.pointer));
    }
    // The record's class, with the state behind the key, has landed.
    let record = endpoint.link.landed(0, found.fetched_bytes);
    let (table, seed) = (&directory.shards[shard].table, directory.hash_seed);
    let object = if E::WALKS {
        ObjectRef::of_record(table, seed, &found.record(record), record, E::PARTS_AT)?
    } else {
        let RemotePointer { slot, generation, .. } = found.pointer;
        ObjectRef::of_root(table, seed, root_word(slot, generation))
    };
    Some(Held::Parts { object: Box::new(object), elements: BTreeMap::new() })
}
