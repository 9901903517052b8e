//! Searches of trees, answered by as many replies as they need: one turn of
//! the shard makes one slice of the objects, so that nobody waits for a whole
//! large search. A tree of this shard is searched by its owner; one of another
//! shard is read, as a client would, so that all shards' threads can serve
//! those who search one tree.

use super::replies::header_of;
use super::{RingSession, SessionError, large};
use remora_arena::{Journal, Words};
use remora_engine::command::{TreeCommand, TreeRequest};
use remora_engine::shard::TreeSearch;
use remora_engine::{Reply, Shard};
use remora_index::rtree::{LocalWalk, Query};
use remora_layout::arena_header::word::RECORD_SECRET;
use remora_layout::limits::{MAX_INLINE_BYTES, SEARCH_FRAME_OBJECTS, SEARCH_TURN_NODES};
use remora_layout::message::{MORE, ReplyHeader, Status};
use remora_layout::node::{ENTRY_BYTES, Home, NodeRef};
use zerocopy::IntoBytes;

/// Most bytes of objects in one reply.
const FRAME_BYTES: usize = SEARCH_FRAME_OBJECTS * ENTRY_BYTES;
const _: () = assert!(FRAME_BYTES + size_of::<ReplyHeader>() <= MAX_INLINE_BYTES);

/// A search that has begun.
pub struct Searching {
    id: u32,
    life: u64,
    by: By,
}

/// Who searches.
enum By {
    /// The tree's owner.
    Owner(TreeSearch),
    /// Another shard.
    Other {
        walk: Box<LocalWalk<Words>>,
        /// Objects given, once the walk has ended.
        given: Option<usize>,
    },
}

/// What a turn of the shard has come to.
struct Turn {
    ended: bool,
    /// What the last reply's number is.
    number: i64,
    gives_objects: bool,
}

impl By {
    /// Goes on for a turn; what it finds is put into `found`.
    fn turn<J: Journal>(
        &mut self,
        shard: &Shard<J>,
        scratch: &mut Vec<u8>,
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        match self {
            Self::Owner(search) => {
                let ended = shard.search_turn(search, found)?;
                let (number, gives_objects) = (search.number(), search.gives_objects());
                Ok(Turn { ended, number, gives_objects })
            }
            Self::Other { walk, given } => {
                if given.is_none() {
                    let run = walk.run(SEARCH_TURN_NODES, scratch);
                    *given = run.map_err(|_| Status::AskOwner)?.then_some(0);
                }
                let walk = walk.walk();
                // A walk may begin again: it gives nothing before its end.
                let ended = given.as_mut().is_some_and(|given| {
                    let rest = &walk.results()[*given..];
                    let part = &rest[..rest.len().min(SEARCH_FRAME_OBJECTS)];
                    found.extend_from_slice(part.as_bytes());
                    *given += part.len();
                    part.len() == rest.len()
                });
                Ok(Turn { ended, number: walk.nodes() as i64, gives_objects: true })
            }
        }
    }
}

impl Searching {
    /// Goes on for a turn of the shard. Hands over what is to be sent: headers,
    /// each with the objects that follow it. True at the search's end.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &Shard<J>,
        scratch: &mut Scratch,
        mut send: impl FnMut(&ReplyHeader, &[u8]) -> Result<(), SessionError>,
    ) -> Result<bool, SessionError> {
        let Scratch { node, found } = scratch;
        found.clear();
        let (id, life) = (self.id, self.life);
        let turn = match self.by.turn(shard, node, found) {
            Ok(turn) => turn,
            Err(status) => {
                send(&header_of(&Reply::status(status), id, life), &[])?;
                return Ok(true);
            }
        };
        let header = |part: &[u8], more| {
            let value = turn.gives_objects.then_some(part);
            let mut header = header_of(&Reply { value, ..Reply::number(turn.number) }, id, life);
            header.flags |= more;
            header
        };
        // The last part goes with the end, if that has come.
        let mut rest = &found[..];
        while rest.len() > FRAME_BYTES || (!turn.ended && !rest.is_empty()) {
            let (part, after) = rest.split_at(rest.len().min(FRAME_BYTES));
            send(&header(part, MORE), part)?;
            rest = after;
        }
        if turn.ended {
            send(&header(rest, 0), rest)?;
        }
        Ok(turn.ended)
    }
}

/// What a turn of a search works in.
#[derive(Default)]
pub struct Scratch {
    node: Vec<u8>,
    found: Vec<u8>,
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
        let by = match request.command() {
            TreeCommand::SearchAt { window, predicate, shard, at } => {
                self.other(Query::Window { window, predicate }, shard, at)
            }
            _ => shard.begin_search(name, request).map(By::Owner),
        };
        let by = match by {
            Ok(by) => by,
            Err(status) => return self.reply(&Reply::status(status), id),
        };
        let mut searching = Searching { id, life: self.replies.life(), by };
        let session = large::session_of(id);
        let Self { large, replies, search_scratch, .. } = self;
        let ended = !large.holds_up(session)
            && searching.turn(shard, search_scratch, |header, part| {
                replies.send_or_keep(&[header.as_bytes(), part])
            })?;
        if !ended {
            large.search(session, searching);
        }
        Ok(())
    }

    /// A walk over another shard's tree, whose header the client says lies at
    /// `at`; the header proves itself.
    fn other(&self, query: Query, shard: u8, at: NodeRef) -> Result<By, Status> {
        let memory = self.arenas.get(shard as usize).ok_or(Status::Malformed)?.clone();
        let home = Home { secret: memory.load_acquire(RECORD_SECRET), region: shard.into() };
        let walk = LocalWalk::begin(memory, home, at, query).map_err(|_| Status::AskOwner)?;
        Ok(By::Other { walk: Box::new(walk), given: None })
    }
}
