//! Where the trees of GEO keys lie, and what is to be done with answers about such keys.

use crate::resp::trees::places::KEPT_NAMES;
use remora_frontend::{OwnedReply, Token};
use remora_layout::database::{DATABASES, Database};
use remora_layout::node::NodeRef;
use remora_protocol::message::Status;
use remora_resp::form::GeoForm;
use std::collections::BTreeMap;

/// A request that waits, as tokens name it.
pub(in crate::resp) type Asked = (usize, u64, u64);

pub(in crate::resp) fn asked_by(token: &Token) -> Asked {
    (token.connection, token.serial, token.request)
}

/// Where the trees of keys are to be read, and what is to be done with answers.
#[derive(Default)]
pub(in crate::resp) struct GeoAnswers {
    /// Places of trees by their databases and keys.
    pub(in crate::resp) places: [BTreeMap<Box<[u8]>, NodeRef>; DATABASES],
    /// Keys of searches under way whose answers tell of such a place.
    pub(in crate::resp) searched: BTreeMap<Asked, (Database, Box<[u8]>)>,
    /// Where the outcomes of searches under way are to be stored, in what form.
    pub(in crate::resp) stores: BTreeMap<Asked, (Database, Box<[u8]>, GeoForm)>,
    /// What a search that is read has found.
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
            // Those that are still searched are learnt again.
            places.clear();
        }
        places.insert(key, NodeRef::from_word(reply.number as u64));
    }
}
