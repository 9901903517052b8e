//! Reads of many fields: some that are named, and scans.

use super::held::{Fields, Hashes, Held, field_of};
use crate::elements::{Reading, ScanOptions, packed_of};
use crate::store::Store;
use remora_arena::Journal;
use remora_index::hash::{record_field, record_key};
use remora_layout::limits::MAX_REPLY_BYTES;
use remora_layout::packed::{self, Field};
use remora_protocol::hash::Told;
use remora_protocol::message::Status;
use remora_protocol::{Items, Reply};

/// The values of these fields.
///
/// # Errors
/// They are too long for one reply.
pub(super) fn many<J: Journal>(
    store: &Store<J>,
    held: Option<Held>,
    names: Items<'_>,
) -> Result<Reading, Status> {
    let mut list = Vec::new();
    let (mut items, mut bytes) = (0, 0);
    for name in names.iter().flatten() {
        match held.and_then(|held| field_of(store, held, name)) {
            Some(field) => {
                bytes += field.value.len();
                if bytes > MAX_REPLY_BYTES {
                    return Err(Status::TooLarge);
                }
                Items::push_field(&mut list, field);
            }
            None => Items::push_none(&mut list),
        }
        items += 1;
    }
    Ok(Reading::made(list, items))
}

impl Hashes {
    pub(super) fn scan<'s, J: Journal>(
        &'s mut self,
        store: &Store<J>,
        held: Option<Held>,
        cursor: u64,
        options: Items<'_>,
    ) -> Reply<'s> {
        let mut looks = ScanOptions::new(options);
        let count = looks.count;
        let list = &mut self.scratch;
        list.clear();
        let mut tell =
            |name: &[u8], value: Field<'_>| looks.look::<Fields>(Told::Both, (name, value), list);
        let next = match held {
            None => 0,
            Some(Held::Whole(found)) => {
                packed::fields(packed_of(store, found)).for_each(|(name, value)| {
                    tell(name, value);
                });
                0
            }
            Some(Held::Parts(root)) => {
                let parts = store.parts.of(root.slot.slot);
                // Splits move parts only into later buckets, and no bucket is removed.
                let (mut bucket, mut looked) = (cursor, 0);
                let mut is_full = false;
                while bucket < parts.buckets() && looked < count && !is_full {
                    for slot in parts.in_bucket(&store.owner, bucket) {
                        let value = record_field(&store.owner, slot);
                        is_full |= tell(record_key(&store.owner, slot), value);
                        looked += 1;
                    }
                    bucket += 1;
                    if (bucket - cursor) >= 10 * count {
                        break;
                    }
                }
                if bucket < parts.buckets() { bucket } else { 0 }
            }
        };
        Reply { value: Some(&self.scratch), ..Reply::number(next as i64) }
    }
}
