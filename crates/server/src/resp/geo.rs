//! GEO keys: the thread asks the shards that own them; it reads small searches from the shard's
//! memory, if this connection may. The result of a search is stored in two steps: its shard's reply
//! becomes a command for the shard that owns the other key, and that shard's reply is the
//! request's. A result that is too large for one command goes there in pieces
//! ([`remora_engine::storing`]).
//!
//! A key is read by the place of its tree, which is in the shard's answer to a search. The thread
//! keeps the place by the key until the tree there is gone.

pub(super) mod answers;

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::trees::places::KEPT_NAME_BYTES;
use answers::request_key;
use remora_engine::geo_read::{ReadLimits, Unread, may_be_read, read_members};
use remora_engine::moving::KeyAt;
use remora_engine::storing::{Parts, Storing};
use remora_frontend::{OwnedReply, Token};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, STREAM_BYTES};
use remora_layout::node::ENTRY_BYTES;
use remora_layout::tree::RootPlace;
use remora_protocol::Command;
use remora_protocol::geo::GeoQuery;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand};
use remora_resp::ReplyForm;
use remora_resp::commands::geo;
use remora_resp::form::GeoForm;
use remora_walk::local::WalkLimits;

/// Members that a reply may bring without holding up the requests behind it.
const SMALL_REPLY: usize = STREAM_BYTES / ENTRY_BYTES;
/// Members within the window of a search that is read: each is compared on the
/// globe, and its record fetched, while other connections wait.
const READ_MEMBERS: usize = 512;
/// Limits of a search that the thread reads.
const LIMITS: ReadLimits = ReadLimits {
    walk: WalkLimits { objects: READ_MEMBERS, ..WalkLimits::ONE_TURN },
    found_bytes: STREAM_BYTES,
};

impl<H: Host> RespExecutor<H> {
    /// One command about a GEO key; its result may be stored at another one.
    pub(super) fn geo(
        &mut self,
        responder: &mut Responder,
        (key, query): (&[u8], GeoQuery<'_>),
        form: ReplyForm,
        store_to: Option<&[u8]>,
    ) {
        let (hash, shard) = self.route(key);
        let request = SortedCommand::Search { query }.request();
        let of_key = Command::Of { key, request };
        let ReplyForm::GeoFound(found_form) = form else {
            return self.ask_one(responder, (&of_key, (hash, shard)), form, usize::MAX);
        };
        let is_stored = store_to.is_some();
        let may_read = !is_stored && responder.may_read(shard, hash);
        if may_read && self.read_geo(responder, shard, (key, query), &found_form) {
            return;
        }
        if found_form.most > SMALL_REPLY || is_stored {
            responder.expect_large();
        }
        let asked = (responder.slot(), responder.serial(), responder.next_request());
        if key.len() <= KEPT_NAME_BYTES && !self.geo_answers.places(self.database).contains_key(key)
        {
            self.geo_answers.searched.insert(asked, (self.database, key.into()));
        }
        if let Some(to) = store_to {
            self.geo_answers.stores.insert(asked, (self.database, to.into(), found_form));
        }
        // Its answer is looked up first, by its number.
        self.ask_owner(responder, (&of_key, (hash, shard)), form, usize::MAX);
    }

    /// Answers a search from its shard's memory, if the place of the key's tree
    /// is known and the reading concludes. Whether it did.
    fn read_geo(
        &mut self,
        responder: &mut Responder,
        shard: usize,
        (key, query): (&[u8], GeoQuery<'_>),
        form: &GeoForm,
    ) -> bool {
        // A stored distance may be a score; only the record has it.
        if form.score {
            return false;
        }
        let search = query.search();
        if !may_be_read(&search) {
            return false;
        }
        let known = self.geo_answers.places(self.database).get(key);
        let root = known.and_then(|&at| RootPlace::of(at, key.len()));
        let Some(root) = root else { return false };
        let home = self.home_of(shard);
        let found = &mut self.geo_answers.found;
        found.clear();
        let (at, what) = ((root, self.now_ms), (&search, form.is_bare()));
        let buffers = (&mut self.record, &mut *found);
        let read = match self.host.own_memory(shard) {
            Some(own) => read_members(own, home, at, what, LIMITS, buffers),
            None => read_members(self.host.memory(shard), home, at, what, LIMITS, buffers),
        };
        match read {
            Ok(()) => {
                self.host.thread_counts().optimistic_reads.add(1);
                self.host.touched(shard, root.record_pointer());
                responder.reply(|out, version| geo::write_members(out, version, found, form));
                true
            }
            Err(unread) => {
                self.host.thread_counts().asked_reads.add(1);
                if unread == Unread::Gone {
                    self.geo_answers.places(self.database).remove(key);
                }
                false
            }
        }
    }

    /// Continues after a shard's answer: returns the reply if it is complete, none if another shard
    /// must be asked first.
    pub(super) fn go_on(&mut self, token: Token, reply: OwnedReply) -> Option<OwnedReply> {
        let asked = request_key(&token);
        if !self.geo_answers.searched.is_empty()
            && let Some(key) = self.geo_answers.searched.remove(&asked)
        {
            self.geo_answers.learn(key, &reply);
        }
        if self.geo_answers.stores.is_empty() {
            return Some(reply);
        }
        let stored = self.geo_answers.stores.remove(&asked);
        let Some((database, key, form)) = stored else { return Some(reply) };
        if !matches!(reply.status, Status::Ok | Status::NotFound) {
            return Some(reply);
        }
        let list = geo::stored(&reply.value.unwrap_or_default(), &form);
        let (_, shard) = self.host.route(database, &key);
        if Scored::in_list(&list).nth(MAX_COMMAND_MEMBERS).is_some() {
            let first_bytes = Scored::first_bytes;
            let parts = Parts { kind: Kind::SORTED_SET, list, first_bytes, begin: |_, _| {} };
            self.store(token, Storing::new(KeyAt { key, database, shard }, parts));
            return None;
        }
        let members = Scored::parse(&list).expect("members of a checked list");
        let request = SortedCommand::Store { members }.request();
        let mut command = Vec::new();
        Command::Of { key: &key, request }.encode_within(database, 0, &mut command);
        self.ask_last(token, (shard, command));
        None
    }
}

#[cfg(test)]
mod tests;
