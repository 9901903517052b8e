//! A SET whose value comes in pieces, written straight into its slot.
//!
//! Invariant: until the upload is finished no path leads to its slot, whose guardian is pending, so
//! that nothing moves or frees it. The SET happens at the end of the upload: condition and expiry
//! are decided then, and all commands on the key meanwhile come before it. An upload that begins
//! has its memory; later it can fail for lack of memory only if the index needs an overflow bucket.

use super::read::holds_other_type;
use super::set::{expiry_of, is_allowed};
use crate::outcome::Outcome;
use crate::store::{Entry, Found, Now, Prepared, Readable, Room, Store};
use remora_arena::{Journal, PieceWriter};
use remora_index::hash::record_value;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES, STREAM_BYTES};
use remora_layout::record::RECORD_HEADER_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Condition, Expiry, Reply};

/// A SET without its value.
#[derive(Clone, Copy, Debug)]
pub struct LargeSet<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash.
    pub hash: KeyHash,
    /// Bytes that the value will have.
    pub value_bytes: usize,
    /// When to set it.
    pub condition: Condition,
    /// The effect on the expiry.
    pub expiry: Expiry,
    /// Reply with the old value.
    pub get: bool,
}

/// A SET under way. It holds memory of its shard until it is finished or
/// abandoned there.
#[must_use = "its slot is free again only once it is finished or abandoned"]
pub struct Upload {
    key: Box<[u8]>,
    hash: KeyHash,
    condition: Condition,
    expiry: Expiry,
    get: bool,
    writer: PieceWriter,
}

impl Upload {
    /// Of its key.
    pub(crate) fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Bytes of the value that have not come yet.
    pub fn missing(&self) -> usize {
        self.writer.missing()
    }
}

/// Allocates the memory for a SET whose value comes in pieces.
///
/// # Errors
/// The status to reply with: too large, an expiry that makes no sense, or
/// out of memory.
pub(crate) fn begin_upload<J: Journal>(
    store: &mut Store<J>,
    set: LargeSet<'_>,
    now: Now,
) -> Result<Upload, Status> {
    let LargeSet { key, hash, value_bytes, condition, expiry, get } = set;
    if key.len() > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
        return Err(Status::TooLarge);
    }
    expiry_of(expiry, None).ok_or(Status::InvalidExpiry)?;
    let bytes = RECORD_HEADER_BYTES + key.len() + value_bytes;
    let room = store.allocate(Room::Record { bytes }, now);
    store.shed_thinned(now);
    let slot = room.map_err(|_| Status::OutOfMemory)?;
    let (secret, region) = (store.options.record_secret, store.options.region);
    let named = (hash.database(), key);
    let writer = PieceWriter::begin(&mut store.owner, secret, region, slot, named, value_bytes);
    Ok(Upload { key: key.into(), hash, condition, expiry, get, writer })
}

/// Takes the next piece of the value, of any length.
///
/// # Errors
/// More than was announced; the upload is to be abandoned.
pub(crate) fn upload<J: Journal>(
    store: &mut Store<J>,
    upload: &mut Upload,
    piece: &[u8],
) -> Result<(), Status> {
    if upload.writer.write(&mut store.owner, piece) { Ok(()) } else { Err(Status::Malformed) }
}

/// Carries the SET out. An incomplete one is malformed and abandoned. The
/// old value, if it was asked for and is large, comes as a download.
pub(crate) fn finish_upload<'s, J: Journal>(
    store: &'s mut Store<J>,
    upload: Upload,
    now: Now,
) -> Outcome<'s> {
    if upload.missing() > 0 {
        abandon_upload(store, upload, now);
        return Outcome::Reply(Reply::status(Status::Malformed));
    }
    let Upload { key, hash, condition, expiry, get, writer } = upload;
    let found = store.lookup(&key, hash, now);
    if get && holds_other_type(store, found) {
        store.give_back(writer.slot(), now);
        return Outcome::Reply(Reply::status(Status::WrongType));
    }
    let expires_at_ms = expiry_of(expiry, found).expect("looked at when it began");
    let large = |found: &Found| record_value(&store.owner, found.slot.slot).len() > STREAM_BYTES;
    let pinned = found
        .filter(|found| get && large(found))
        .map(|found| store.pins.pin(&store.owner, found.slot.slot));
    let (status, pointer, old) = if is_allowed(condition, found) {
        let (slot, region) = (writer.slot(), store.options.region);
        let pointer = writer.finish(&mut store.owner, region, expires_at_ms);
        let new = Prepared { hash, slot, expires_at_ms };
        let entry = Entry::Record { key: &key, new: &new };
        let put = store.enter(&key, &new, found, (entry, Readable::Yes), now);
        store.settle(&put, now);
        match put {
            Ok(old) => (Status::Ok, Some(pointer), old),
            Err(_) => (Status::OutOfMemory, None, None),
        }
    } else {
        store.give_back(writer.slot(), now);
        (Status::NotDone, None, found)
    };
    let mut reply = Reply::status(status);
    reply.pointer = pointer.unwrap_or(reply.pointer);
    match pinned {
        Some(download) if old.is_some() => return Outcome::Stream(reply, download),
        Some(download) => store.end_download(download, now),
        None => {}
    }
    if let Some(old) = old.filter(|_| get) {
        // Its bytes stay until its slot is taken again.
        reply.value = Some(record_value(&store.owner, old.slot.slot));
    }
    Outcome::Reply(reply)
}

/// Frees an upload's memory; the key stays unchanged.
pub(crate) fn abandon_upload<J: Journal>(store: &mut Store<J>, upload: Upload, now: Now) {
    store.give_back(upload.writer.slot(), now);
}
