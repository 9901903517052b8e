//! The places of trees, by their names. The thread asks a shard for a place once, and keeps it
//! until the tree's header there is dead.

use remora_frontend::{Job, OwnedReply, Token};
use remora_layout::database::{DATABASES, Database};
use remora_layout::node::NodeRef;
use remora_layout::tree::{TREE_INFO_WORDS, TreeInfo};
use remora_protocol::Command;
use remora_protocol::tree::TreeCommand;
use std::collections::BTreeMap;
use zerocopy::FromBytes;

/// Names whose places are kept, and their bytes each.
pub(in crate::resp) const KEPT_NAMES: usize = 1024;
pub(in crate::resp) const KEPT_NAME_BYTES: usize = 256;

/// Stands for a connection in the tokens of this thread's own questions.
const OWN: usize = usize::MAX;

/// The places of trees for reads.
#[derive(Default)]
pub(in crate::resp) struct TreePlaces {
    /// A header's place, by database and name; `None` while it is asked for.
    places: [BTreeMap<Box<[u8]>, Option<NodeRef>>; DATABASES],
    /// Databases and names by the number of the question.
    asked: BTreeMap<u64, (Database, Box<[u8]>)>,
    questions: u64,
}

/// The known state of a tree's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::resp) enum TreePlace {
    /// Its header lies there.
    At(NodeRef),
    /// The question to its shard is in flight.
    Requested,
    /// Nothing.
    Unknown,
}

impl TreePlaces {
    /// The place of a tree's header, as far as it is known.
    pub(in crate::resp) fn of(&self, database: Database, name: &[u8]) -> TreePlace {
        match self.places[database.number() as usize].get(name) {
            Some(Some(at)) => TreePlace::At(*at),
            Some(None) => TreePlace::Requested,
            None => TreePlace::Unknown,
        }
    }

    /// The tree is no longer there.
    pub(in crate::resp) fn forget(&mut self, database: Database, name: &[u8]) {
        self.places[database.number() as usize].remove(name);
    }

    /// The question to a shard for the place of a tree's header; `None` if the tree's name is too
    /// long to be kept.
    pub(in crate::resp) fn ask(
        &mut self,
        (database, name): (Database, &[u8]),
        (home, shard): (usize, usize),
    ) -> Option<Job> {
        if name.len() > KEPT_NAME_BYTES {
            return None;
        }
        let at = database.number() as usize;
        if self.places[at].len() >= KEPT_NAMES {
            // Those that are still searched are asked for again.
            (self.places, self.asked) = Default::default();
        }
        let request = TreeCommand::Info.checked().map(TreeCommand::request).ok()?;
        let mut command = Vec::new();
        Command::Of { key: name, request }.encode_within(database, 0, &mut command);
        self.questions += 1;
        self.places[at].insert(name.into(), None);
        self.asked.insert(self.questions, (database, name.into()));
        let request = self.questions;
        let token = Token { home, connection: OWN, serial: 0, request, part: 0, shard };
        Some(Job { most_objects: 0, ..Job::execute(command, token) })
    }

    /// Whether a reply answers such a question.
    pub(in crate::resp) const fn have_asked(token: &Token) -> bool {
        token.connection == OWN
    }

    /// Takes a shard's word on where a tree's header lies.
    pub(in crate::resp) fn learn(&mut self, question: u64, reply: &OwnedReply) {
        let Some((database, name)) = self.asked.remove(&question) else { return };
        let places = &mut self.places[database.number() as usize];
        let words = reply.value.as_deref();
        let words = words.and_then(|v| <[u64; TREE_INFO_WORDS]>::read_from_bytes(v).ok());
        match words.and_then(|words| TreeInfo::from_words(&words)) {
            Some(info) => places.insert(name, Some(info.at)),
            // No such tree.
            None => places.remove(&name),
        };
    }
}
