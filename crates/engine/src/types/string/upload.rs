//! A SET whose value comes in pieces, written straight into its slot.
//!
//! What it keeps true: until the upload is finished no path leads to its slot,
//! whose guardian says pending, so that nothing moves or frees it. The SET
//! happens when it is finished: condition and expiry are decided then, and
//! what other commands did to the key meanwhile came before it. An upload
//! that begins has its memory; it cannot fail for want of it later but for an
//! overflow bucket of the index.

use super::set::{expiry_of, is_allowed};
use crate::shard::Outcome;
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
    /// What happens to the expiry.
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

impl<J: Journal> Store<J> {
    /// Takes the memory for a SET whose value is to come in pieces.
    ///
    /// # Errors
    /// The status to reply with: too large, an expiry that makes no sense, or
    /// out of memory.
    pub fn begin_upload(&mut self, set: LargeSet<'_>, now: Now) -> Result<Upload, Status> {
        let LargeSet { key, hash, value_bytes, condition, expiry, get } = set;
        if key.len() > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
            return Err(Status::TooLarge);
        }
        expiry_of(expiry, None).ok_or(Status::InvalidExpiry)?;
        let bytes = RECORD_HEADER_BYTES + key.len() + value_bytes;
        let room = self.allocate(Room::Record { bytes }, now);
        self.shed_thinned(now);
        let slot = room.map_err(|_| Status::OutOfMemory)?;
        let (secret, region) = (self.options.record_secret, self.options.region);
        let named = (hash.database(), key);
        let writer = PieceWriter::begin(&mut self.owner, secret, region, slot, named, value_bytes);
        Ok(Upload { key: key.into(), hash, condition, expiry, get, writer })
    }

    /// Takes the next piece of the value, of any length.
    ///
    /// # Errors
    /// More than was announced; the upload is to be abandoned.
    pub fn upload(&mut self, upload: &mut Upload, piece: &[u8]) -> Result<(), Status> {
        if upload.writer.write(&mut self.owner, piece) { Ok(()) } else { Err(Status::Malformed) }
    }

    /// Carries the SET out. An incomplete one is malformed and abandoned. The
    /// old value, if it was asked for and is large, comes as a download.
    pub fn finish_upload(&mut self, upload: Upload, now: Now) -> Outcome<'_> {
        if upload.missing() > 0 {
            self.abandon_upload(upload, now);
            return Outcome::Reply(Reply::status(Status::Malformed));
        }
        let Upload { key, hash, condition, expiry, get, writer } = upload;
        let found = self.lookup(&key, hash, now);
        if get && self.holds_other_type(found) {
            self.give_back(writer.slot(), now);
            return Outcome::Reply(Reply::status(Status::WrongType));
        }
        let expires_at_ms = expiry_of(expiry, found).expect("looked at when it began");
        let large = |found: &Found| record_value(&self.owner, found.slot.slot).len() > STREAM_BYTES;
        let pinned = found.filter(|found| get && large(found)).map(|found| self.pin(found));
        let (status, pointer, old) = if is_allowed(condition, found) {
            let (slot, region) = (writer.slot(), self.options.region);
            let pointer = writer.finish(&mut self.owner, region, expires_at_ms);
            let new = Prepared { hash, slot, expires_at_ms };
            let entry = Entry::Record { key: &key, new: &new };
            let put = self.enter(&key, &new, found, (entry, Readable::Yes), now);
            self.settle(&put, now);
            match put {
                Ok(old) => (Status::Ok, Some(pointer), old),
                Err(_) => (Status::OutOfMemory, None, None),
            }
        } else {
            self.give_back(writer.slot(), now);
            (Status::NotDone, None, found)
        };
        let mut reply = Reply::status(status);
        reply.pointer = pointer.unwrap_or(reply.pointer);
        match pinned {
            Some(download) if old.is_some() => return Outcome::Stream(reply, download),
            Some(download) => self.end_download(download, now),
            None => {}
        }
        if let Some(old) = old.filter(|_| get) {
            // Its bytes stay until its slot is taken again.
            reply.value = Some(record_value(&self.owner, old.slot.slot));
        }
        Outcome::Reply(reply)
    }

    /// Gives the memory of an upload back; the key stays what it was.
    pub fn abandon_upload(&mut self, upload: Upload, now: Now) {
        self.give_back(upload.writer.slot(), now);
    }
}
