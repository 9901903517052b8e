//! Requests of one client's ring pair that come in pieces.
//!
//! Invariant: all memory that a request holds, of the shard or of the heap, is freed when the
//! request ends, when its client leaves, or some seconds after its last piece. Pieces of a refused
//! or abandoned request are skipped, so that the session continues.

use super::SessionError;
use remora_arena::Journal;
use remora_engine::{LargeSet, Now, SetAside, Shard, Upload};
use remora_layout::limits::{MAX_CLIENT_SESSIONS, MAX_STREAMS, MAX_VALUE_BYTES};
use remora_protocol::Command;
use remora_protocol::message::{Op, REQUEST_HEADER_BYTES, RequestHeader, Status};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// A request whose value comes in pieces.
enum Incoming {
    /// A SET, written straight into its slot.
    Set(Upload),
    /// Any other command: put together, then executed.
    Command {
        /// The encoded command, as far as it has come.
        bytes: Vec<u8>,
        missing: usize,
        /// The memory for it.
        aside: SetAside,
    },
    /// It was refused; its pieces are passed over.
    Refused { missing: usize },
}

/// A request whose value comes in pieces, and when its last piece came, by
/// [`Shard::ticked_s`].
struct Coming {
    what: Incoming,
    /// A SET without its value, if it is looked at again when it is whole.
    set: Option<Vec<u8>>,
    last_piece_s: u64,
}

/// The next step for a finished request.
pub enum Complete {
    /// A SET to execute; and how it began, if it is to be looked at again.
    Set(Upload, Option<Vec<u8>>),
    /// An encoded command to execute.
    Command(Vec<u8>),
}

/// The requests in pieces of one ring pair, by id.
#[derive(Default)]
pub struct Uploads {
    coming: BTreeMap<u32, Coming>,
}

impl Uploads {
    /// Begins a request whose value comes in pieces. If it is refused, now or by the look at its user's
    /// rights, the error is the status of the reply, and its pieces are skipped. A session has one such
    /// request at a time: a peer with more requests than there can be sessions tries to exhaust the
    /// server's memory.
    pub fn begin(
        &mut self,
        shard: &mut Shard<impl Journal>,
        (frame, header): (&[u8], &RequestHeader),
        looked: Result<Option<Vec<u8>>, Status>,
        now: Now,
    ) -> Result<Option<Status>, SessionError> {
        if self.coming.len() >= MAX_CLIENT_SESSIONS {
            return Err(SessionError::TooManyUploads);
        }
        let id = header.id.get();
        let missing = header.value_bytes.get() as usize;
        let begun = looked.and_then(|set| Ok((self.try_begin(shard, frame, header, now)?, set)));
        let refused = begun.as_ref().err().copied();
        let (what, set) = begun.unwrap_or((Incoming::Refused { missing }, None));
        let coming = Coming { what, set, last_piece_s: shard.ticked_s() };
        let before = self.coming.insert(id, coming);
        give_back(shard, before, now);
        if missing == 0 {
            // Nothing would ever complete it.
            let nothing = self.coming.remove(&id);
            give_back(shard, nothing, now);
            return Ok(refused.or(Some(Status::Malformed)));
        }
        Ok(refused)
    }

    fn try_begin(
        &mut self,
        shard: &mut Shard<impl Journal>,
        frame: &[u8],
        header: &RequestHeader,
        now: Now,
    ) -> Result<Incoming, Status> {
        let value_bytes = header.value_bytes.get() as usize;
        if self.coming.len() >= MAX_STREAMS {
            return Err(Status::OutOfMemory);
        }
        if value_bytes > MAX_VALUE_BYTES {
            return Err(Status::TooLarge);
        }
        if header.of != 0 || header.op != Op::Set as u8 {
            let whole_bytes = frame.len() + value_bytes;
            let aside = shard.begin_request(whole_bytes, now)?;
            let mut bytes = Vec::with_capacity(whole_bytes);
            bytes.extend_from_slice(frame);
            return Ok(Incoming::Command { bytes, missing: value_bytes, aside });
        }
        match Command::decode_within(&without_value(frame, header)) {
            // With GET there would be no place for the old value.
            Ok((
                database,
                command @ Command::Set { key, condition, expiry, get: false, .. },
                _,
            )) => {
                let hash = shard.hash_of(database, &command);
                let set = LargeSet { key, hash, value_bytes, condition, expiry, get: false };
                Ok(Incoming::Set(shard.begin_upload(set, now)?))
            }
            Ok(_) => Err(Status::Malformed),
            Err((status, _)) => Err(status),
        }
    }

    /// Takes the next piece of a request's value. Returns the request if it is complete; an error
    /// is the status of the reply.
    pub fn piece(
        &mut self,
        shard: &mut Shard<impl Journal>,
        id: u32,
        piece: &[u8],
        now: Now,
    ) -> Result<Option<Complete>, Status> {
        // A piece without a request, or of an abandoned one: there is no reply to wait for.
        let Some(coming) = self.coming.get_mut(&id) else { return Ok(None) };
        if !piece.is_empty() {
            coming.last_piece_s = shard.ticked_s();
        }
        let left = match &mut coming.what {
            Incoming::Set(upload) => match shard.upload(upload, piece) {
                Ok(()) => upload.missing(),
                Err(status) => {
                    let refused = self.coming.remove(&id);
                    give_back(shard, refused, now);
                    return Err(status);
                }
            },
            Incoming::Command { bytes, missing, .. } => {
                let taken = piece.len().min(*missing);
                bytes.extend_from_slice(&piece[..taken]);
                *missing -= taken;
                *missing
            }
            Incoming::Refused { missing } => {
                *missing = missing.saturating_sub(piece.len());
                *missing
            }
        };
        if left > 0 {
            return Ok(None);
        }
        let coming = self.coming.remove(&id);
        Ok(match coming.map(|coming| (coming.what, coming.set)) {
            Some((Incoming::Set(upload), set)) => Some(Complete::Set(upload, set)),
            Some((Incoming::Command { bytes, aside, .. }, _)) => {
                // Its value may need the memory.
                shard.end_request(aside);
                Some(Complete::Command(bytes))
            }
            Some((Incoming::Refused { .. }, _)) | None => None,
        })
    }

    /// The rest of a request's value will not come. Whether the request has had
    /// no reply: one that was refused, or given up, has had it.
    pub fn call_off(&mut self, shard: &mut Shard<impl Journal>, id: u32, now: Now) -> bool {
        let coming = self.coming.remove(&id);
        let is_unanswered =
            coming.as_ref().is_some_and(|coming| !matches!(coming.what, Incoming::Refused { .. }));
        give_back(shard, coming, now);
        is_unanswered
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.coming.is_empty()
    }

    /// Gives up the requests that have stalled. Returns the ids of those to refuse; the others were
    /// refused before. Late pieces are skipped. If pieces had to wait in the ring, the client was
    /// not silent: `had_to_wait` says so.
    pub fn abandon_stalled(
        &mut self,
        shard: &mut Shard<impl Journal>,
        had_to_wait: bool,
        now: Now,
    ) -> Vec<u32> {
        let mut stalled = Vec::new();
        for (&id, coming) in &mut self.coming {
            if had_to_wait {
                coming.last_piece_s = shard.ticked_s();
            } else if shard.has_stalled(coming.last_piece_s) {
                stalled.push(id);
            }
        }
        stalled.retain(|&id| {
            let is_unanswered = self.call_off(shard, id, now);
            if is_unanswered {
                shard.note_stalled();
            }
            is_unanswered
        });
        stalled
    }

    /// The client has gone.
    pub fn abandon(&mut self, shard: &mut Shard<impl Journal>, now: Now) {
        let coming = std::mem::take(&mut self.coming);
        for (_, coming) in coming {
            give_back(shard, Some(coming), now);
        }
    }
}

/// A request before its value: as if it had none.
pub(super) fn without_value(frame: &[u8], header: &RequestHeader) -> Vec<u8> {
    let mut without = *header;
    without.value_bytes = 0.into();
    [without.as_bytes(), &frame[REQUEST_HEADER_BYTES..]].concat()
}

/// Frees the shard's memory that a request holds.
fn give_back(shard: &mut Shard<impl Journal>, coming: Option<Coming>, now: Now) {
    match coming.map(|coming| coming.what) {
        Some(Incoming::Set(upload)) => shard.abandon_upload(upload, now),
        Some(Incoming::Command { aside, .. }) => shard.end_request(aside),
        Some(Incoming::Refused { .. }) | None => {}
    }
}

#[cfg(test)]
pub(super) mod tests;
