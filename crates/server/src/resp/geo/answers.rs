//! The places of GEO keys' trees, and the next steps after answers about such keys.

use crate::resp::trees::places::KEPT_NAMES;
use remora_frontend::{OwnedReply, Token};
use remora_layout::database::{DATABASES, Database};
use remora_layout::node::NodeRef;
use remora_protocol::message::Status;
use remora_resp::form::GeoForm;
use std::collections::BTreeMap;

/// A request that waits, as tokens name it.
pub(in crate::resp) type RequestKey = (usize, u64, u64);

pub(in crate::resp) fn request_key(token: &Token) -> RequestKey {
    (token.connection, token.serial, token.request)
}

/// The places of keys' trees for reads, and the next steps after answers.
#[derive(Default)]
pub(in crate::resp) struct GeoAnswers {
    /// Places of trees by their databases and keys.
    pub(in crate::resp) places: [BTreeMap<Box<[u8]>, NodeRef>; DATABASES],
    /// Keys of searches under way whose answers contain such a place.
    pub(in crate::resp) searched: BTreeMap<RequestKey, (Database, Box<[u8]>)>,
    /// The target keys and forms of searches under way whose results are stored.
    pub(in crate::resp) stores: BTreeMap<RequestKey, (Database, Box<[u8]>, GeoForm)>,
    /// The results of a search that the thread reads.
    pub(in crate::resp) found: Vec<u8>,
}

impl GeoAnswers {
    /// The places that are known in a database.
    pub(in crate::resp) fn places(
        &mut self,
        database: Database,
    ) -> &mut BTreeMap<Box<[u8]>, NodeRef> {
        &mut self.places[database.number() as usize]
    }

    pub(in crate::resp) fn learn(
        &mut self,
        (database, key): (Database, Box<[u8]>),
        reply: &OwnedReply,
    ) {
        if reply.status != Status::Ok || reply.number == 0 {
            return;
        }
        let places = self.places(database);
        if places.len() >= KEPT_NAMES && !places.contains_key(&key) {
            // Later answers bring back the places of keys that are still searched.
            places.clear();
        }
        places.insert(key, NodeRef::from_word(reply.number as u64));
    }
}
