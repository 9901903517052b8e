//! Keys that hold collections of documents.

mod find;
mod indexes;
mod replies;
pub(crate) mod view;

pub use find::FoundDocuments;

use crate::error::Error;
use crate::session::Session;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use remora_client_core as core;
use remora_document::{collection_key, encode_id};
use remora_protocol::Items;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;
use replies::{SENSELESS, at_place, failure_of, parse, place_of};
use view::CollectionView;

/// Most collections whose locations a session keeps.
const MOST_VIEWS: usize = 1 << 14;

/// A handle for a key that holds a collection of documents: [`Session::collection`]. It finds documents
/// by their `_id` or by an index by either route, and asks for all else. The first READ finds the collection
/// and the document; from then on that document is one round trip.
pub struct CollectionKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut CollectionView,
    path: core::Path,
}

/// What an update or a removal did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Written {
    /// Documents that matched the filter.
    pub matched: u64,
    /// Documents that were changed or removed.
    pub modified: u64,
}

impl Session {
    /// A handle for a collection of a database, as MongoDB's drivers name it. It is the key
    /// `database.name`. This sends nothing.
    ///
    /// # Errors
    /// [`Error::BadNamespace`]: MongoDB allows no such name.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::bson::rawdoc;
    ///
    /// let lamp = rawdoc! { "_id": 7, "kind": "lamp", "price": 30 };
    /// session.collection("shop", "items")?.insert(&[&lamp])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn collection(&mut self, database: &str, name: &str) -> Result<CollectionKey<'_>, Error> {
        let key = collection_key(database, name).map_err(|_| Error::BadNamespace)?;
        let Self { core, collections, path, .. } = self;
        let make = || Ok(CollectionView { open: core.open_collection(&key)?, indexes: None });
        let view = collections.get(&key, MOST_VIEWS, make)?;
        Ok(CollectionKey { core, view, path: *path })
    }
}

/// The request to find the document with this `_id`.
fn request_by_id(id: RawBsonRef<'_>) -> Vec<u8> {
    let mut equal = RawDocumentBuf::new();
    equal.append(cstr!("$eq"), id);
    let request = rawdoc! { "filter": { "_id": equal }, "hint": "_id_", "limit": 1 };
    request.into_bytes()
}

impl<'s> CollectionKey<'s> {
    /// Finds documents by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let lamp = session.collection("shop", "items")?.by(Path::Read).find_by_id(7)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// The document with this `_id`, as BSON; none without the document or the collection. Valid until the
    /// session is used again. Numbers of different types that are equal are the same `_id`, as in MongoDB.
    /// A document that fits no message is read if the session has READs.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::bson::raw::RawDocument;
    ///
    /// let lamp = session.collection("shop", "items")?.find_by_id(7)?;
    /// println!("{:?}, {} round trips", lamp.served_by, lamp.counts.round_trips);
    /// if let Some(bytes) = lamp.value {
    ///     println!("{}", RawDocument::from_bytes(bytes)?.get_str("kind")?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_by_id<'i>(self, id: impl Into<RawBsonRef<'i>>) -> Result<core::Got<'s>, Error> {
        let id = id.into();
        // The owner says what an `_id` means that no document can have.
        let name = encode_id(id).ok();
        let Self { core, view, path } = self;
        Ok(core.document_get(&mut view.open, name.as_deref(), path, || request_by_id(id))?)
    }

    /// Adds documents, each with an `_id`. A collection that is not there is made.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::Documents`] if one of them cannot be added, as with code 11000 if its `_id`
    /// is there. Those before it have been added, and none behind it.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{Error, bson::rawdoc};
    ///
    /// let chair = rawdoc! { "_id": 8, "kind": "chair", "price": 45 };
    /// match session.collection("shop", "items")?.insert(&[&chair]) {
    ///     Err(Error::Documents { code: 11000 }) => println!("it is there"),
    ///     other => other?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn insert(&mut self, documents: &[&RawDocument]) -> Result<(), Error> {
        if documents.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        documents.iter().for_each(|document| Items::push(&mut list, document.as_bytes()));
        let documents = Items::parse(&list).expect("it was just made");
        let command = CollectionCommand::Insert { documents, ordered: true };
        let reply = self.core.document_ask(&self.view.open, &command)?;
        let failures = Items::parse(reply.value.unwrap_or_default()).ok_or(SENSELESS)?;
        match failures.iter().flatten().next() {
            Some(failure) => Err(failure_of(parse(failure)?)),
            None => Ok(()),
        }
    }

    /// Changes the first document that matches a filter, by operators or a replacement, as in MongoDB.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::Documents`] if the filter or the update is none, or cannot be applied.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::bson::rawdoc;
    ///
    /// let dearer = rawdoc! { "$inc": { "price": 5 } };
    /// session.collection("shop", "items")?.update_one(&rawdoc! { "_id": 7 }, &dearer)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_one(
        &mut self,
        filter: &RawDocument,
        update: &RawDocument,
    ) -> Result<Written, Error> {
        self.write(rawdoc! { "q": filter.to_owned(), "u": update.to_owned() })
    }

    /// Changes all documents that match a filter, by operators, in several steps if need be: each document
    /// changes as one.
    ///
    /// # Errors
    /// As [`CollectionKey::update_one`]; some documents may have been changed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::bson::rawdoc;
    ///
    /// let (lamps, sale) = (rawdoc! { "kind": "lamp" }, rawdoc! { "$mul": { "price": 0.5 } });
    /// let written = session.collection("shop", "items")?.update_many(&lamps, &sale)?;
    /// println!("{} of {} changed", written.modified, written.matched);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_many(
        &mut self,
        filter: &RawDocument,
        update: &RawDocument,
    ) -> Result<Written, Error> {
        self.write(rawdoc! { "q": filter.to_owned(), "u": update.to_owned(), "multi": true })
    }

    /// Removes the first document that matches a filter.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::Documents`] if the filter is none.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::bson::rawdoc;
    ///
    /// session.collection("shop", "items")?.remove_one(&rawdoc! { "_id": 7 })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_one(&mut self, filter: &RawDocument) -> Result<Written, Error> {
        self.write(rawdoc! { "q": filter.to_owned() })
    }

    /// Removes all documents that match a filter, in several steps if need be. The collection stays.
    ///
    /// # Errors
    /// As [`CollectionKey::remove_one`]; some documents may have been removed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::bson::rawdoc;
    ///
    /// session.collection("shop", "items")?.remove_many(&rawdoc! { "price": { "$lt": 1 } })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_many(&mut self, filter: &RawDocument) -> Result<Written, Error> {
        self.write(rawdoc! { "q": filter.to_owned(), "multi": true })
    }

    /// Makes an index, by MongoDB's description of it with `key` and `name`, in several steps if need be. A
    /// collection that is not there is made. False if the index is there already.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::Documents`] if there can be no such index, or a document cannot be in it.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::bson::rawdoc;
    ///
    /// let by_kind = rawdoc! { "key": { "kind": 1, "price": -1 }, "name": "kind_1_price_-1" };
    /// session.collection("shop", "items")?.create_index(&by_kind)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_index(&mut self, spec: &RawDocument) -> Result<bool, Error> {
        let mut at = None;
        // Bounded: each step goes on behind the last one.
        loop {
            let request = at_place(rawdoc! { "spec": spec.to_owned() }, at.as_ref());
            let command = CollectionCommand::CreateIndex { request: request.as_bytes() };
            let reply = self.core.document_ask(&self.view.open, &command)?;
            let number = reply.number;
            at = place_of(parse(reply.value.unwrap_or_default())?);
            if at.is_none() {
                return Ok(number == 1);
            }
        }
    }

    /// Removes the index of this name. False if it is not there.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::Documents`] if it cannot be removed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.collection("shop", "items")?.drop_index("kind_1_price_-1")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_index(&mut self, name: &str) -> Result<bool, Error> {
        let command = CollectionCommand::DropIndex { name: name.as_bytes() };
        Ok(self.core.document_ask(&self.view.open, &command)?.status == Status::Ok)
    }

    fn write(&mut self, request: RawDocumentBuf) -> Result<Written, Error> {
        let mut written = Written::default();
        let mut at = None;
        // Bounded: each step goes on behind the last one.
        loop {
            let request = at_place(request.clone(), at.as_ref());
            let command = CollectionCommand::Write { request: request.as_bytes() };
            let reply = self.core.document_ask(&self.view.open, &command)?;
            written.matched += u64::try_from(reply.number).map_err(|_| SENSELESS)?;
            let told = parse(reply.value.unwrap_or_default())?;
            written.modified += told.get_i64("modified").ok().map_or(0, |of| of.max(0) as u64);
            if let Ok(failure) = told.get_document("error") {
                return Err(failure_of(failure));
            }
            at = place_of(told);
            if at.is_none() {
                return Ok(written);
            }
        }
    }
}
