//! What objects carry beside their rectangles: geometries and bytes.
//!
//! What it keeps true: whoever read a record that was live did so before its
//! object was given another rectangle, went, or began to carry something else.
//! The record is made dead first; while it is, readers ask. So nobody sees an
//! object as it becomes, then as it was.

use super::super::defragment::Room;
use super::super::{Now, Shard};
use crate::command::{Command, HAS_DATA, HAS_GEOMETRY, Reply, TreeSettings};
use remora_arena::{
    ArenaFull, Journal, NewRecord, Slot, flip_dead, lengths_of, publish_live, slot_of,
    write_pending,
};
use remora_index::hash::record_value;
use remora_layout::message::Status;
use remora_layout::object::{Carried, OBJECT_KIND, object_key};
use remora_layout::plant::{Plant, planted};
use remora_layout::pointer::RemotePointer;
use remora_layout::rect::Rect;
use zerocopy::IntoBytes;

impl<J: Journal> Shard<J> {
    pub(super) fn put_object(
        &mut self,
        name: &[u8],
        (id, rect): (u64, Rect),
        (data, geometry): (Option<&[u8]>, Option<&[u8]>),
        entry: &Command<'_>,
        now: Now,
    ) -> Reply<'_> {
        let is_made = !self.trees.by_name.contains_key(name);
        if is_made && let Err(status) = self.new_tree(name, TreeSettings::default(), now) {
            return Reply::status(status);
        }
        // What it carries stays as it is if only the rectangle changes.
        let is_kept = data.is_none()
            && geometry.is_none()
            && self.carried(name, id).is_none_or(|carried| carried.geometry.is_empty());
        let slot = if is_kept { Ok(None) } else { self.keep(name, id, (data, geometry), now) };
        let Ok(slot) = slot else {
            return self.not_put(name, is_made, Status::OutOfMemory, now);
        };
        if geometry.is_some()
            && let Some(named) = self.trees.by_name.get_mut(name)
        {
            named.tree.tell_of_geometries(&mut self.owner);
        }
        let hidden = if is_kept { None } else { self.hide_record(name, id) };
        match self.change_tree(name, now, |tree, arena| tree.put(arena, id, rect)) {
            Ok(is_new) => {
                self.log.append(entry);
                if !is_kept {
                    self.set_record(name, id, slot, now);
                }
                Reply::number(is_new as i64)
            }
            Err(status) => {
                self.show_record(hidden);
                if let Some(slot) = slot {
                    self.drop_record(slot.slot, now);
                }
                self.not_put(name, is_made, status, now)
            }
        }
    }

    /// What an object carries; `None` if it has no record.
    fn carried(&self, name: &[u8], id: u64) -> Option<Carried<'_>> {
        let slot = *self.trees.by_name.get(name)?.records.get(&id)?;
        Some(self.carried_in(slot))
    }

    /// What the record in a slot says.
    pub(super) fn carried_in(&self, slot: u32) -> Carried<'_> {
        Carried::parse(record_value(&self.owner, slot)).unwrap_or_default()
    }

    /// Where a reader finds an object's record.
    pub(super) fn record_pointer(&self, slot: u32) -> RemotePointer {
        RemotePointer {
            region: self.options.region,
            slot,
            length: lengths_of(&self.owner, slot).record_bytes() as u32,
            generation: slot_of(&self.owner, slot).generation,
        }
    }

    /// Writes what an object is to carry into a record that is not yet live;
    /// `None` if that is nothing. Without `data` it is what it carries now.
    fn keep(
        &mut self,
        name: &[u8],
        id: u64,
        (data, geometry): (Option<&[u8]>, Option<&[u8]>),
        now: Now,
    ) -> Result<Option<Slot>, ArenaFull> {
        let before = self.carried(name, id).unwrap_or_default();
        let (geometry, data) = (geometry.unwrap_or_default(), data.unwrap_or(before.data));
        let carried = Carried { geometry, data };
        if carried.is_empty() {
            return Ok(None);
        }
        let mut value = Vec::new();
        carried.write(&mut value);
        let key = object_key(id);
        let record = NewRecord { key: &key, value: &value, kind: OBJECT_KIND, expires_at_ms: 0 };
        let slot = self.allocate(Room::Record { bytes: record.record_bytes() }, now)?;
        let (secret, region) = (self.options.record_secret, self.options.region);
        write_pending(&mut self.owner, secret, region, slot, &record);
        self.trees.totals.data_bytes += self.slots.bytes_of(slot);
        self.shed_thinned(now);
        Ok(Some(slot))
    }

    /// Frees a record's slot; nothing leads to it any more.
    pub(super) fn drop_record(&mut self, slot: u32, now: Now) {
        let slot = slot_of(&self.owner, slot);
        self.trees.totals.data_bytes -= self.slots.bytes_of(slot);
        self.give_back(slot, now);
    }

    /// Lets readers of an object's record ask from now on.
    pub(super) fn hide_record(&mut self, name: &[u8], id: u64) -> Option<Slot> {
        let slot = *self.trees.by_name.get(name)?.records.get(&id)?;
        if planted(Plant::HiddenTooLate) {
            return None;
        }
        Some(flip_dead(&mut self.owner, slot))
    }

    /// Lets them read it again: the change was refused.
    pub(super) fn show_record(&mut self, hidden: Option<Slot>) {
        if let Some(slot) = hidden {
            publish_live(&mut self.owner, slot);
        }
    }

    /// An object carries what the record says from now on, or nothing.
    pub(super) fn set_record(&mut self, name: &[u8], id: u64, slot: Option<Slot>, now: Now) {
        if let Some(slot) = slot {
            publish_live(&mut self.owner, slot);
        }
        let Some(named) = self.trees.by_name.get_mut(name) else { return };
        let before = match slot {
            Some(slot) => named.records.insert(id, slot.slot),
            None => named.records.remove(&id),
        };
        let has = |slot: Option<u32>| {
            let carried = slot.map_or_else(Carried::default, |slot| {
                Carried::parse(record_value(&self.owner, slot)).unwrap_or_default()
            });
            [u64::from(!carried.data.is_empty()), u64::from(!carried.geometry.is_empty())]
        };
        let ([old_data, old_geometry], [data, geometry]) =
            (has(before), has(slot.map(|slot| slot.slot)));
        named.with_data = named.with_data + data - old_data;
        named.with_geometry = named.with_geometry + geometry - old_geometry;
        if let Some(before) = before {
            self.drop_record(before, now);
        }
    }

    pub(super) fn object(&mut self, name: &[u8], id: u64) -> Reply<'_> {
        let Some(named) = self.trees.by_name.get(name) else {
            return Reply::status(Status::NoTree);
        };
        let Some(rect) = named.tree.find(&self.owner, id) else {
            return Reply::status(Status::NotFound);
        };
        let scratch = &mut self.trees.scratch;
        scratch.clear();
        scratch.extend_from_slice(rect.as_bytes());
        let value = named.records.get(&id).map(|&slot| record_value(&self.owner, slot));
        let carried = value.and_then(Carried::parse).unwrap_or_default();
        let mut flags = 0;
        if !carried.geometry.is_empty() {
            flags |= HAS_GEOMETRY;
            carried.write(scratch);
        } else {
            scratch.extend_from_slice(carried.data);
        }
        if !carried.data.is_empty() {
            flags |= HAS_DATA;
        }
        Reply { value: Some(scratch), ..Reply::number(flags.into()) }
    }
}
