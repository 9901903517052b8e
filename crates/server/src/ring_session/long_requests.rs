//! Requests of a ring session that take several turns: searches and flushes. The thread reads a
//! small search of another shard's tree, as a client would, so that all shards' threads can serve
//! clients that search one tree.
//!
//! Invariant: a search of another shard's tree takes one turn, within [`WalkLimits::ONE_TURN`], and
//! keeps nothing for a later one. The reason: the client names the tree's header, and may have put
//! a forged tree into a value of its own; it can read the arena, and so knows the secret of the
//! checksums. With a forged tree it only gets back its own bytes, at the cost of a small search.

use super::frames::{Stamp, reply_header, session_of};
use super::search_turns::Searching;
use super::{RingSession, SessionError};
use crate::thread_counts::count;
use remora_arena::Journal;
use remora_engine::{LongRead, Now, Shard};
use remora_index::rtree::{LocalWalk, Query};
use remora_layout::arena_header::word::{RECORD_SECRET, REGION};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::node::Home;
use remora_layout::object::is_surrogate;
use remora_layout::tree::RootPlace;
use remora_protocol::Reply;
use remora_protocol::message::Status;
use remora_protocol::tree::TreeCommand;
use remora_protocol::{Command, Request};
use remora_walk::local::WalkLimits;
use zerocopy::IntoBytes;

impl RingSession {
    /// Answers a search: at once, if one turn is enough for it.
    pub(super) fn search<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (key, hash): (&[u8], KeyHash),
        (request, id): (Request<'_>, u32),
        now: Now,
    ) -> Result<(), SessionError> {
        if let Request::Tree(TreeCommand::SearchAt { window, predicate, shard, root }) = request {
            let query = Query::Window { window, predicate };
            return self.search_other(query, (shard, root), id, now);
        }
        let session = session_of(id);
        if self.large.holds_up(session) || self.replies.has_backlog(id) {
            let mut command = Vec::new();
            Command::Of { key, request }.encode_within(hash.database(), id, &mut command);
            self.large.ask(session, command);
            return Ok(());
        }
        let stamp = self.replies.stamp();
        let read = match shard.begin_read((key, hash), request, now) {
            Ok(read) => read,
            Err(reply) => return self.reply(&reply, id),
        };
        self.answer_in_turns(shard, (read, stamp), id, now)
    }

    /// Removes every key, or those of a database; the reply comes once all of them are dead for
    /// readers.
    pub(super) fn flush<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        only: Option<Database>,
        id: u32,
        now: Now,
    ) -> Result<(), SessionError> {
        let stamp = self.replies.stamp();
        shard.serve_all_waiters(now);
        let read = match shard.begin_flush(only) {
            Ok(read) => read,
            Err(reply) => return self.reply(&reply, id),
        };
        self.answer_in_turns(shard, (read, stamp), id, now)
    }

    fn answer_in_turns<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        (read, stamp): (LongRead, Stamp),
        id: u32,
        now: Now,
    ) -> Result<(), SessionError> {
        let mut searching = Searching::new(id, stamp, read);
        let session = session_of(id);
        let Self { large, replies, search_scratch, .. } = self;
        let ended = !large.holds_up(session)
            && searching.turn(shard, (search_scratch, now), |header, part, wait| {
                if wait != 0 {
                    large.hold(session, [header.as_bytes(), part].concat(), wait);
                    return Ok(());
                }
                replies.send_or_keep(id, &[header.as_bytes(), part])
            })?;
        if !ended {
            large.search(session, searching);
        }
        Ok(())
    }

    /// Answers a search of another shard's tree, which the client says lies at
    /// `root`: whole, or not at all.
    fn search_other(
        &mut self,
        query: Query,
        (shard, root): (u8, RootPlace),
        id: u32,
        now: Now,
    ) -> Result<(), SessionError> {
        if self.user.as_ref().is_some_and(|user| !user.rights.may_read()) {
            // The place is the client's word, and may be that of a key that the user may not read.
            return self.reply(&Reply::status(Status::AskOwner), id);
        }
        let Some(memory) = self.arenas.get(shard as usize).cloned() else {
            return self.reply(&Reply::status(Status::Malformed), id);
        };
        let home = Home {
            secret: memory.load_acquire(RECORD_SECRET),
            region: memory.load_acquire(REGION) as u32,
        };
        // The other shard may apply meanwhile what is fresher than what the search reads.
        let stamp = self.replies.stamp();
        let scratch = &mut self.search_scratch;
        let begun = LocalWalk::begin_at(memory, home, (root, now.unix_ms), query);
        let walked = begun.and_then(|mut walk| {
            let is_whole = walk.run_within(&WalkLimits::ONE_TURN, scratch)?;
            // Only the owner knows the id of a surrogate.
            let is_known = !walk.walk().results().iter().any(|object| is_surrogate(object.word));
            Ok((is_whole && is_known).then_some(walk))
        });
        let counter = match walked {
            Ok(Some(_)) => &self.searches.answered,
            Ok(None) => &self.searches.beyond,
            Err(_) => &self.searches.unsettled,
        };
        count(counter, 1);
        let Ok(Some(walk)) = walked else {
            return self.reply(&Reply::status(Status::AskOwner), id);
        };
        if let Some(touched) = self.touched.get(shard as usize) {
            touched.push(root.record_pointer());
        }
        let (found, nodes) = (walk.walk().results().as_bytes(), walk.walk().nodes());
        let reply = Reply { value: Some(found), ..Reply::number(nodes as i64) };
        self.send_reply(&reply_header(&reply, id, stamp), &reply, id)
    }
}
