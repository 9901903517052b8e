//! GEO keys: asked of the shards that own them; small searches are read from the
//! shard's memory, where this connection may. What a search finds is stored
//! in two steps: its shard's reply becomes a command for the shard that owns
//! the other key, and that one's reply is the request's. What is more than one
//! command may give goes there in pieces ([`remora_engine::storing`]).
//!
//! A key is read by the place of its tree, of which the shard's answer to a
//! search tells. It is kept by the key until there is no tree there any more.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use super::trees::{KEPT_NAME_BYTES, KEPT_NAMES, home_of};
use crate::jobs::{OwnedReply, Token};
use remora_engine::geo_read::{ReadLimits, Unread, may_be_read, read_members};
use remora_engine::moving::Place;
use remora_engine::storing::{Parts, Storing};
use remora_layout::database::{DATABASES, Database};
use remora_layout::kind::Kind;
use remora_layout::limits::{MAX_COMMAND_MEMBERS, STREAM_BYTES};
use remora_layout::node::{ENTRY_BYTES, NodeRef};
use remora_layout::tree::RootPlace;
use remora_protocol::Command;
use remora_protocol::geo::{GeoCommand, Places};
use remora_protocol::message::Status;
use remora_resp::ReplyForm;
use remora_resp::commands::geo;
use remora_resp::form::GeoForm;
use remora_walk::local::WalkLimits;
use std::collections::BTreeMap;

/// Members that a reply may bring without holding up the requests behind it.
const SMALL_REPLY: usize = STREAM_BYTES / ENTRY_BYTES;
/// Members within the window of a search that is read: each is compared on the
/// globe, and its record fetched, while other connections wait.
const READ_MEMBERS: usize = 512;
/// What a search that is read may read and find.
const LIMITS: ReadLimits = ReadLimits {
    walk: WalkLimits { objects: READ_MEMBERS, ..WalkLimits::ONE_TURN },
    found_bytes: STREAM_BYTES,
};

/// A request that waits, as tokens name it.
type Asked = (usize, u64, u64);

fn asked_by(token: &Token) -> Asked {
    (token.connection, token.serial, token.request)
}

/// Where the trees of keys are to be read, and what is to be done with answers.
#[derive(Default)]
pub(super) struct GeoAnswers {
    /// Places of trees by their databases and keys.
    places: [BTreeMap<Box<[u8]>, NodeRef>; DATABASES],
    /// Keys of searches under way whose answers tell of such a place.
    searched: BTreeMap<Asked, (Database, Box<[u8]>)>,
    /// Where the outcomes of searches under way are to be stored, in what form.
    stores: BTreeMap<Asked, (Database, Box<[u8]>, GeoForm)>,
    /// What a search that is read has found.
    found: Vec<u8>,
}

impl GeoAnswers {
    /// The places that are known in a database.
    fn places(&mut self, database: Database) -> &mut BTreeMap<Box<[u8]>, NodeRef> {
        &mut self.places[database.number() as usize]
    }

    fn learn(&mut self, (database, key): (Database, Box<[u8]>), reply: &OwnedReply) {
        if reply.status != Status::Ok || reply.number == 0 {
            return;
        }
        let places = self.places(database);
        if places.len() >= KEPT_NAMES && !places.contains_key(&key) {
            // Those that are still searched are learnt again.
            places.clear();
        }
        places.insert(key, NodeRef::from_word(reply.number as u64));
    }
}

impl<H: Host> Executor<H> {
    /// One command about a GEO key; what it finds may be stored at another one.
    pub(super) fn geo(
        &mut self,
        connection: &mut Connection,
        (key, command): (&[u8], GeoCommand<'_>),
        form: ReplyForm,
        store_to: Option<&[u8]>,
    ) {
        let (hash, shard) = self.route(key);
        let of_key = Command::Of { key, request: command.request() };
        let ReplyForm::GeoFound(found_form) = form else {
            return self.ask_one(connection, (&of_key, (hash, shard)), form, usize::MAX);
        };
        let is_stored = store_to.is_some();
        let may_read = !is_stored && connection.may_read(shard, hash);
        if may_read && self.read_geo(connection, shard, (key, command), &found_form) {
            return;
        }
        if found_form.most > SMALL_REPLY || is_stored {
            connection.expect_large();
        }
        let asked = (connection.slot, connection.serial, connection.next_request());
        if key.len() <= KEPT_NAME_BYTES && !self.geo_answers.places(self.database).contains_key(key)
        {
            self.geo_answers.searched.insert(asked, (self.database, key.into()));
        }
        if let Some(to) = store_to {
            self.geo_answers.stores.insert(asked, (self.database, to.into(), found_form));
        }
        // Its answer is looked at first, which goes by its number.
        self.ask_owner(connection, (&of_key, (hash, shard)), form, usize::MAX);
    }

    /// Answers a search from its shard's memory, if the place of the key's tree
    /// is known and the reading concludes. Whether it did.
    fn read_geo(
        &mut self,
        connection: &mut Connection,
        shard: usize,
        (key, command): (&[u8], GeoCommand<'_>),
        form: &GeoForm,
    ) -> bool {
        let GeoCommand::Search { query } = command else { return false };
        // A stored distance may be a score; it stands in the record alone.
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
        let home = home_of(&self.tables[shard]);
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
                self.host.counts().optimistic_reads.add(1);
                self.host.touched(shard, root.record_pointer());
                connection.reply(|out, protocol| geo::write_members(out, protocol, found, form));
                true
            }
            Err(unread) => {
                self.counts().asked_reads.add(1);
                if unread == Unread::Gone {
                    self.geo_answers.places(self.database).remove(key);
                }
                false
            }
        }
    }

    /// Goes on with what a shard has answered: the reply if that is all, none
    /// if something is asked of another shard first.
    pub(super) fn go_on(&mut self, token: Token, reply: OwnedReply) -> Option<OwnedReply> {
        let asked = asked_by(&token);
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
        if Places::in_list(&list).nth(MAX_COMMAND_MEMBERS).is_some() {
            let first_bytes =
                |list: &[u8]| Places::first(list).map_or(0, |place| Places::bytes_of(&place));
            let parts = Parts { kind: Kind::GEO, list, first_bytes };
            self.store(token, Storing::new(Place { key, database, shard }, parts));
            return None;
        }
        let places = Places::parse(&list).expect("members of a checked list");
        let mut command = Vec::new();
        Command::Of { key: &key, request: GeoCommand::Store { places }.request() }.encode_within(
            database,
            0,
            &mut command,
        );
        self.ask_last(token, (shard, command));
        None
    }
}

#[cfg(test)]
mod tests;
