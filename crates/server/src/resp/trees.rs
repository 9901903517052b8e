//! Trees: asked of the shards that own them; small searches are read from the
//! shard's memory, where this connection may.
//!
//! A tree is read by the place of its header. That is asked for once, and kept
//! by the tree's name until the header there is dead.

pub(super) mod places;

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use places::TreePlace;
use remora_engine::geo_read::Unread;
use remora_index::rtree::{LocalWalk, Query, Search};
use remora_layout::hash::KeyHash;
use remora_layout::limits::READ_SEARCH_OBJECTS;
use remora_layout::node::Home;
use remora_layout::object::is_surrogate;
use remora_layout::tree::RootPlace;
use remora_protocol::Command;
use remora_protocol::tree::TreeCommand;
use remora_resp::ReplyForm;
use remora_resp::commands::rtree;
use remora_resp::wire::encode;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;

/// Nearest objects that are looked for without asking: the walk compares each
/// with each.
const READ_NEAREST: usize = 100;

impl<H: Host> RespExecutor<H> {
    /// One command about a tree.
    pub(super) fn tree(
        &mut self,
        responder: &mut Responder,
        (name, command): (&[u8], TreeCommand<'_>),
        form: ReplyForm,
    ) {
        let at = self.route(name);
        if self.read_tree(responder, (name, at, &command), form) {
            return;
        }
        let most = most_of(form);
        if matches!(form, ReplyForm::TreeObjects(_)) && most > READ_SEARCH_OBJECTS {
            responder.expect_large();
        }
        let command = Command::Of { key: name, request: command.into() };
        self.ask_one(responder, (&command, at), form, most);
    }

    /// Answers a search from the shard's memory, if this session may read it
    /// and the reading concludes. Whether it did.
    fn read_tree(
        &mut self,
        responder: &mut Responder,
        (name, (hash, shard), command): (&[u8], (KeyHash, usize), &TreeCommand<'_>),
        form: ReplyForm,
    ) -> bool {
        let query = match *command {
            TreeCommand::Search { window, predicate }
            | TreeCommand::Count { window, predicate } => Query::Window { window, predicate },
            TreeCommand::Nearest { x, y, wanted } if wanted as usize <= READ_NEAREST => {
                Query::Nearest { x, y, wanted: wanted as usize }
            }
            _ => return false,
        };
        if !responder.may_read(shard, hash) {
            return false;
        }
        let at = match self.tree_places.of(self.database, name) {
            TreePlace::At(at) => at,
            TreePlace::Requested => return false,
            TreePlace::Unknown => {
                let (name, shards) = ((self.database, name), (self.host.home(), shard));
                if let Some(job) = self.tree_places.ask(name, shards) {
                    self.host.hand(shard, job);
                }
                return false;
            }
        };
        let home = self.home_of(shard);
        let Some(root) = RootPlace::of(at, name.len()) else { return false };
        let (at, scratch) = ((root, self.now_ms), &mut self.record);
        let walked = match self.host.own_memory(shard) {
            Some(own) => walk_tree(own, home, at, query, scratch),
            None => walk_tree(self.host.memory(shard), home, at, query, scratch),
        };
        match walked {
            Ok(walk) => {
                self.host.thread_counts().optimistic_reads.add(1);
                self.host.touched(shard, root.record_pointer());
                let found = walk.results();
                let found = &found[..found.len().min(most_of(form))];
                responder.reply(|out, version| match form {
                    ReplyForm::TreeObjects(form) => {
                        rtree::write_objects(out, version, found, &form);
                    }
                    _ => encode::integer(out, found.len() as i64),
                });
                true
            }
            Err(unread) => {
                self.host.thread_counts().asked_reads.add(1);
                if matches!(unread, Unread::Gone) {
                    self.tree_places.forget(self.database, name);
                }
                false
            }
        }
    }
}

/// Most objects in a reply.
const fn most_of(form: ReplyForm) -> usize {
    match form {
        ReplyForm::TreeObjects(form) => form.most,
        _ => usize::MAX,
    }
}

/// A search of the tree at this place, at this time.
fn walk_tree<M: Memory>(
    memory: M,
    home: Home,
    at: (RootPlace, u64),
    query: Query,
    scratch: &mut Vec<u8>,
) -> Result<Search, Unread> {
    let mut walk = LocalWalk::begin_at(memory, home, at, query)?;
    let is_whole = walk.run_within(&WalkLimits::ONE_TURN, scratch)?;
    // Only the owner knows the id of a surrogate.
    let is_known = !walk.walk().results().iter().any(|object| is_surrogate(object.word));
    (is_whole && is_known).then_some(walk.into_walk()).ok_or(Unread::Ask)
}

#[cfg(test)]
mod tests;
