//! Collections: their documents, each of which is a part named by its encoded `_id`.
//!
//! A document is found by READs when its `_id` is known, or by an index (`search`). All else is asked. The
//! caller makes requests and reads replies, which are documents: this crate does not look into them.

mod search;

pub use search::{FindTurn, IndexPlace, IndexRead, IndexSearch, KeyBounds, OpenIndex};

use crate::asker::Answer;
use crate::core::Core;
use crate::counts::Counts;
use crate::elements::{InWhole, ObjectEvents, OpenObject, Readable};
use crate::error::Error;
use crate::found::{Found, FoundAt, Got, Reading};
use crate::large::ask_any_size;
use crate::path::{Path, ServedBy};
use crate::session::Session;
use remora_layout::collection::COLLECTION_PARTS_AT;
use remora_layout::kind::Kind;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Operation, Reply};

/// How often a document that fits no frame is asked for and read, if it changes during the READs.
const LONG_TRIES: u32 = 8;

/// Events of the READs of a collection's documents.
pub type CollectionEvents = ObjectEvents;

/// A session's view of one collection.
pub type OpenCollection = OpenObject<Documents>;

/// The documents of collections: each part is one, and has its encoded `_id` as its name.
#[derive(Debug)]
pub struct Documents;

impl Readable for Documents {
    const KIND: Kind = Kind::COLLECTION;
    const PART: Kind = Kind::DOCUMENT;
    const WALKS: bool = true;
    const PARTS_AT: usize = COLLECTION_PARTS_AT;

    /// No collection lies whole in a record.
    fn in_whole<'v>(_value: &'v [u8], _id: &[u8]) -> InWhole<'v> {
        InWhole::Unknown
    }
}

impl OpenCollection {
    /// Asks for a document after reading has cost `cost`. One that fits no frame is read if that is possible; if it
    /// changes meanwhile, the owner is asked again.
    fn document_asked(
        &mut self,
        core: &mut Core,
        (id, request): (&[u8], &[u8]),
        mut cost: Counts,
    ) -> Result<Found, Error> {
        // Without READs there is only the owner.
        let may_read = !id.is_empty() && core.router.path(Path::Read) != Path::Ask;
        for asks in 1..=if may_read { LONG_TRIES } else { 0 } {
            let command = CollectionCommand::Find { request }.request();
            match core.ask(&Command::Of { key: self.key(), request: command }) {
                Err(Error::Refused(Status::NeedsBuffer)) => {}
                answer => return Self::document_in(core, answer?, cost),
            }
            let Core { asker, directory, .. } = &mut *core;
            let reading = self.read((&mut asker.endpoint, directory), Some(id), &mut cost)?;
            if let Reading::Value { from, bytes, retries } = reading {
                asker.endpoint.staleness.conclude_reads();
                // The requests have been counted; this adds the cost of reading.
                core.meter.add(&Counts { operations: 0, ..cost });
                let round_trips = cost.round_trips + u64::from(asks);
                let counts = Counts { operations: 1, asked: 1, round_trips, ..cost };
                let (at, served_by) =
                    (FoundAt::Landed { from, bytes }, ServedBy::ReadAfter(retries + asks));
                return Ok(Found { at, served_by, counts });
            }
        }
        let request = CollectionCommand::Find { request }.request();
        let answer = ask_any_size(core, &Command::Of { key: self.key(), request })?;
        Self::document_in(core, answer, cost)
    }

    /// The document of an answer, after reading has cost `cost`. It is the first one behind the head of the reply.
    fn document_in(core: &mut Core, answer: Answer, cost: Counts) -> Result<Found, Error> {
        let wasted = Counts { operations: 0, ..cost };
        core.meter.add(&wasted);
        let served_by = ServedBy::asked_after(cost.round_trips);
        let mut range = None;
        if let Some((from, to)) = answer.value {
            let list = core.in_reply((from, to));
            let items = Items::parse(list).and_then(|_| Items::split(list));
            let Some((Some(_), documents)) = items else {
                return Err(core.asker.endpoint.end(Error::DOES_NOT_FIT));
            };
            range = Items::split(documents).and_then(|(document, rest)| {
                let end = to - rest.len();
                Some((end - document?.len(), end))
            });
        }
        let mut counts = answer.counts;
        counts.add(&wasted);
        Ok(Found { at: FoundAt::Reply(range), served_by, counts })
    }
}

impl Session {
    /// A view of the collection that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_collection(&self, key: &[u8]) -> Result<OpenCollection, Error> {
        OpenCollection::new(&self.core.directory, key)
    }

    /// The document with this encoded `_id`; none without the document or the key. Valid until the session
    /// is used again. `request` makes the request of [`CollectionCommand::Find`] for this document, and is
    /// called if the owner is asked. Without an encoded `_id` the owner is asked.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn document_get(
        &mut self,
        open: &mut OpenCollection,
        id: Option<&[u8]>,
        path: Path,
        request: impl FnOnce() -> Vec<u8>,
    ) -> Result<Got<'_>, Error> {
        let path = self.core.router.path(path);
        let (id, path) = id.map_or((&[][..], Path::Ask), |id| (id, path));
        open.get_by(&mut self.core, (id, path), |open, core, cost| {
            open.document_asked(core, (id, &request()), cost)
        })
    }

    /// Asks the owner of a collection. The reply to a read may be of any length.
    ///
    /// # Errors
    /// See [`Error`]. A change whose reply fits no frame is refused with `NeedsBuffer`.
    pub fn document_ask(
        &mut self,
        open: &OpenCollection,
        command: &CollectionCommand<'_>,
    ) -> Result<Reply<'_>, Error> {
        self.core.begin()?;
        let asked = Command::Of { key: open.key(), request: command.request() };
        let answer = match command.is_write() {
            true => self.core.ask(&asked)?,
            false => ask_any_size(&mut self.core, &asked)?,
        };
        Ok(self.core.reply(&answer))
    }
}
