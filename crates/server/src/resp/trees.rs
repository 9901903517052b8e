//! Trees: asked of the shards that own them; small searches are read from the
//! shard's memory, where this connection may.
//!
//! A tree is read by the place of its header. That is asked for once, and kept
//! by the tree's name until the header there is dead.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use crate::jobs::{Job, OwnedReply, Token};
use remora_engine::geo_read::Unread;
use remora_index::hash::TableRef;
use remora_index::rtree::{LocalWalk, Query, Search};
use remora_layout::database::{DATABASES, Database};
use remora_layout::limits::READ_SEARCH_OBJECTS;
use remora_layout::node::{Home, NodeRef};
use remora_layout::object::is_surrogate;
use remora_layout::tree::{RootPlace, TREE_INFO_WORDS, TreeInfo};
use remora_protocol::Command;
use remora_protocol::tree::TreeCommand;
use remora_resp::ReplyForm;
use remora_resp::commands::rtree;
use remora_resp::wire::encode;
use remora_walk::Memory;
use remora_walk::local::WalkLimits;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// Nearest objects that are looked for without asking: the walk compares each
/// with each.
const READ_NEAREST: usize = 100;

/// Names whose places are kept, and their bytes each.
pub(super) const KEPT_NAMES: usize = 1024;
pub(super) const KEPT_NAME_BYTES: usize = 256;

/// Stands for a connection in the tokens of what is asked for this thread.
pub(super) const OWN: usize = usize::MAX;

/// Where trees are to be read.
#[derive(Default)]
pub(super) struct TreePlaces {
    /// A header's place, by database and name; `None` while it is asked for.
    places: [BTreeMap<Box<[u8]>, Option<NodeRef>>; DATABASES],
    /// Databases and names by the number of the question.
    asked: BTreeMap<u64, (Database, Box<[u8]>)>,
    questions: u64,
}

impl<H: Host> Executor<H> {
    /// One command about a tree.
    pub(super) fn tree(
        &mut self,
        connection: &mut Connection,
        (name, command): (&[u8], TreeCommand<'_>),
        form: ReplyForm,
    ) {
        if self.read_tree(connection, (name, &command), form) {
            return;
        }
        let most = most_of(form);
        if matches!(form, ReplyForm::TreeObjects(_)) && most > READ_SEARCH_OBJECTS {
            connection.expect_large();
        }
        let (at, command) = (self.route(name), Command::Of { key: name, request: command.into() });
        self.ask_one(connection, (&command, at), form, most);
    }

    /// Answers a search from the shard's memory, if this session may read it
    /// and the reading concludes. Whether it did.
    fn read_tree(
        &mut self,
        connection: &mut Connection,
        (name, command): (&[u8], &TreeCommand<'_>),
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
        let (hash, shard) = self.route(name);
        if !connection.may_read(shard, hash) {
            return false;
        }
        let at = match self.tree_places.places[self.database.number() as usize].get(name) {
            Some(Some(at)) => *at,
            Some(None) => return false,
            None => {
                self.ask_place(name, shard);
                return false;
            }
        };
        let home = home_of(&self.tables[shard]);
        let Some(root) = RootPlace::of(at, name.len()) else { return false };
        let (at, scratch) = ((root, self.now_ms), &mut self.record);
        let walked = match self.host.own_memory(shard) {
            Some(own) => walk_tree(own, home, at, query, scratch),
            None => walk_tree(self.host.memory(shard), home, at, query, scratch),
        };
        match walked {
            Ok(walk) => {
                self.host.counts().optimistic_reads.add(1);
                self.host.touched(shard, root.record_pointer());
                let found = walk.results();
                let found = &found[..found.len().min(most_of(form))];
                connection.reply(|out, protocol| match form {
                    ReplyForm::TreeObjects(form) => {
                        rtree::write_objects(out, protocol, found, &form);
                    }
                    _ => encode::integer(out, found.len() as i64),
                });
                true
            }
            Err(unread) => {
                self.counts().asked_reads.add(1);
                if matches!(unread, Unread::Gone) {
                    self.tree_places.places[self.database.number() as usize].remove(name);
                }
                false
            }
        }
    }

    /// Asks a shard where a tree's header lies.
    fn ask_place(&mut self, name: &[u8], shard: usize) {
        let (known, database) = (&mut self.tree_places, self.database);
        if name.len() > KEPT_NAME_BYTES {
            return;
        }
        let at = database.number() as usize;
        if known.places[at].len() >= KEPT_NAMES {
            // Those that are still searched are asked for again.
            (known.places, known.asked) = Default::default();
        }
        let Ok(request) = TreeCommand::Info.request() else { return };
        let mut command = Vec::new();
        Command::Of { key: name, request }.encode_within(database, 0, &mut command);
        known.questions += 1;
        known.places[at].insert(name.into(), None);
        known.asked.insert(known.questions, (database, name.into()));
        let (home, request) = (self.host.home(), known.questions);
        let token = Token { home, connection: OWN, serial: 0, request, part: 0, shard };
        self.host.hand(shard, Job { most_objects: 0, ..Job::execute(command, token) });
    }

    /// Takes a shard's word on where a tree's header lies.
    pub(super) fn learn_place(&mut self, question: u64, reply: &OwnedReply) {
        let known = &mut self.tree_places;
        let Some((database, name)) = known.asked.remove(&question) else { return };
        let places = &mut known.places[database.number() as usize];
        let words = reply.value.as_deref();
        let words = words.and_then(|v| <[u64; TREE_INFO_WORDS]>::read_from_bytes(v).ok());
        match words.and_then(|words| TreeInfo::from_words(&words)) {
            Some(info) => places.insert(name, Some(info.at)),
            // No such tree.
            None => places.remove(&name),
        };
    }
}

/// Objects that a reply tells of at most.
const fn most_of(form: ReplyForm) -> usize {
    match form {
        ReplyForm::TreeObjects(form) => form.most,
        _ => usize::MAX,
    }
}

/// What trees in a shard's memory are bound to.
pub(super) fn home_of(table: &TableRef) -> Home {
    Home { secret: table.secret, region: table.region }
}

/// A search of the tree that lies there, at this time.
fn walk_tree<M: Memory>(
    memory: M,
    home: Home,
    at: (RootPlace, u64),
    query: Query,
    scratch: &mut Vec<u8>,
) -> Result<Search, Unread> {
    let mut walk = LocalWalk::begin_at(memory, home, at, query)?;
    let is_whole = walk.run_within(&WalkLimits::ONE_TURN, scratch)?;
    // What the id of a surrogate is only the owner knows.
    let is_known = !walk.walk().results().iter().any(|object| is_surrogate(object.word));
    (is_whole && is_known).then_some(walk.into_walk()).ok_or(Unread::Ask)
}

#[cfg(test)]
mod own_tests;
#[cfg(test)]
pub(super) mod tests;
