//! Searches under way. The owner of a tree answers by as many replies as they need: one turn of the
//! shard makes one slice of the objects, so that no client waits for a whole large search.

use super::error::SessionError;
use super::frames::{Stamp, reply_header};
use remora_arena::Journal;
use remora_engine::{LongRead, Now, Shard};
use remora_layout::limits::{HELD_REPLY_BYTES, MAX_INLINE_BYTES, SEARCH_FRAME_OBJECTS};
use remora_layout::node::ENTRY_BYTES;
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::message::{MORE, ReplyHeader, Status};
use zerocopy::IntoBytes;

/// Most bytes of objects in one reply.
const FRAME_BYTES: usize = SEARCH_FRAME_OBJECTS * ENTRY_BYTES;
const _: () = assert!(FRAME_BYTES + size_of::<ReplyHeader>() <= MAX_INLINE_BYTES);

/// A search that its tree's owner has begun.
pub struct Searching {
    id: u32,
    /// Of the time before the first read.
    stamp: Stamp,
    read: LongRead,
}

impl Searching {
    /// A search that has begun, for this request.
    pub const fn new(id: u32, stamp: Stamp, read: LongRead) -> Self {
        Self { id, stamp, read }
    }

    /// Begins the search that an encoded command asks for.
    ///
    /// # Errors
    /// The encoded reply, and the sequence that it waits for.
    pub fn begin<J: Journal>(
        shard: &mut Shard<J>,
        command: &[u8],
        (stamp, now): (Stamp, Now),
    ) -> Result<Self, (Vec<u8>, u64)> {
        let refused = |reply: Reply<'_>, id| {
            (reply_header(&reply, id, stamp).as_bytes().to_vec(), reply.wait)
        };
        match Command::decode_within(command) {
            Ok((database, asked @ Command::Of { key, request }, id)) => {
                let hash = shard.hash_of(database, &asked);
                match shard.begin_read((key, hash), request, now) {
                    Ok(read) => Ok(Self::new(id, stamp, read)),
                    Err(reply) => Err(refused(reply, id)),
                }
            }
            Ok((.., id)) => Err(refused(Reply::status(Status::Malformed), id)),
            Err((status, id)) => Err(refused(Reply::status(status), id)),
        }
    }

    /// The last reply, if the server stops answering reads before the search has ended.
    pub fn refused(&self, status: Status, stamp: Stamp) -> Vec<u8> {
        reply_header(&Reply::status(status), self.id, stamp).as_bytes().to_vec()
    }

    /// Continues for a turn of the shard. Passes on the output: headers, each with the objects that
    /// follow it, and the sequence that it waits for. Returns true at the search's end.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (found, now): (&mut Vec<u8>, Now),
        mut send: impl FnMut(&ReplyHeader, &[u8], u64) -> Result<(), SessionError>,
    ) -> Result<bool, SessionError> {
        found.clear();
        let Self { id, stamp, read } = self;
        let turn = shard.read_turn(read, found, now);
        let wait = shard.wait_of(read);
        let turn = match turn {
            Ok(turn) => turn,
            Err(status) => {
                send(&reply_header(&Reply::status(status), *id, *stamp), &[], wait)?;
                return Ok(true);
            }
        };
        let header = |part: &[u8], more| {
            let value = turn.gives_value.then_some(part);
            let reply = Reply { value, ..Reply::number(turn.number) };
            let mut header = reply_header(&reply, *id, *stamp);
            header.flags |= more;
            header
        };
        // The last part is sent with the end, if the end has come.
        let mut rest = &found[..];
        while rest.len() > FRAME_BYTES || (!turn.ended && !rest.is_empty()) {
            let (part, after) = rest.split_at(rest.len().min(FRAME_BYTES));
            send(&header(part, MORE), part, wait)?;
            rest = after;
        }
        if turn.ended {
            send(&header(rest, 0), rest, wait)?;
        }
        found.clear();
        found.shrink_to(HELD_REPLY_BYTES);
        Ok(turn.ended)
    }
}
