//! Searches of trees, answered by as many replies as they need: one turn of
//! the shard makes one slice of the objects, so that nobody waits for a whole
//! large search.

use super::replies::header_of;
use super::{RingSession, SessionError, large};
use remora_arena::Journal;
use remora_engine::command::TreeRequest;
use remora_engine::shard::TreeSearch;
use remora_engine::{Reply, Shard};
use remora_layout::limits::{MAX_INLINE_BYTES, SEARCH_FRAME_OBJECTS};
use remora_layout::message::{MORE, ReplyHeader, Status};
use remora_layout::node::ENTRY_BYTES;
use zerocopy::IntoBytes;

/// Most bytes of objects in one reply.
const FRAME_BYTES: usize = SEARCH_FRAME_OBJECTS * ENTRY_BYTES;
const _: () = assert!(FRAME_BYTES + size_of::<ReplyHeader>() <= MAX_INLINE_BYTES);

/// A search that has begun.
pub struct Searching {
    id: u32,
    search: TreeSearch,
    life: u64,
}

impl Searching {
    /// Goes on for a turn of the shard. Hands over what is to be sent: headers,
    /// each with the objects that follow it. True at the search's end.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &Shard<J>,
        found: &mut Vec<u8>,
        mut send: impl FnMut(&ReplyHeader, &[u8]) -> Result<(), SessionError>,
    ) -> Result<bool, SessionError> {
        found.clear();
        let (status, ended) = match shard.search_turn(&mut self.search, found) {
            Ok(ended) => (Status::Ok, ended),
            Err(status) => (status, true),
        };
        if status != Status::Ok {
            send(&header_of(&Reply::status(status), self.id, self.life), &[])?;
            return Ok(true);
        }
        // The last part goes with the end, if that has come.
        let mut rest = &found[..];
        while rest.len() > FRAME_BYTES || (!ended && !rest.is_empty()) {
            let (part, after) = rest.split_at(rest.len().min(FRAME_BYTES));
            let mut header = self.header(part);
            header.flags |= MORE;
            send(&header, part)?;
            rest = after;
        }
        if ended {
            send(&self.header(rest), rest)?;
        }
        Ok(ended)
    }

    fn header(&self, part: &[u8]) -> ReplyHeader {
        let value = self.search.gives_objects().then_some(part);
        let reply = Reply { value, ..Reply::number(self.search.number()) };
        header_of(&reply, self.id, self.life)
    }
}

impl RingSession {
    /// Answers a search: at once, if one turn is enough for it.
    pub(super) fn search<J: Journal>(
        &mut self,
        shard: &Shard<J>,
        name: &[u8],
        request: TreeRequest<'_>,
        id: u32,
    ) -> Result<(), SessionError> {
        let search = match shard.begin_search(name, request) {
            Ok(search) => search,
            Err(status) => return self.reply(&Reply::status(status), id),
        };
        let mut searching = Searching { id, search, life: self.replies.life() };
        let session = large::session_of(id);
        let Self { large, replies, found, .. } = self;
        let ended = !large.holds_up(session)
            && searching.turn(shard, found, |header, part| {
                replies.send_or_keep(&[header.as_bytes(), part])
            })?;
        if !ended {
            large.search(session, searching);
        }
        Ok(())
    }
}
