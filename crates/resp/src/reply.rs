//! Makes the reply from its form and the shards' answers, whole or piece by piece.

use crate::commands::geo::{self, FoundReply};
use crate::commands::rtree::ObjectsReply;
use crate::commands::{keyspace, persistence, server, strings};
use crate::error::status_error;
use crate::form::{ObjectReply, ReplyForm, Shape};
use crate::object_reply::{self, ItemsReply};
use crate::wire::{Protocol, encode};
use remora_frontend::{self as frontend, Part};
use remora_protocol::message::Status;

impl frontend::ReplyForm for ReplyForm {
    type Dialect = Protocol;
    type Long = LongReply;

    #[inline]
    fn write(self, out: &mut Vec<u8>, protocol: Protocol, parts: &[Part<'_>]) {
        // The replies that are written most often.
        match (self, parts) {
            (Self::Value, [Part { status: Status::Ok, value: Some(value), .. }]) => {
                encode::bulk(out, value);
            }
            (Self::Set { get: false }, [Part { status: Status::Ok, .. }]) => encode::ok(out),
            _ => self.write_any(out, protocol, parts),
        }
    }

    fn is_long(self) -> bool {
        matches!(
            self,
            Self::TreeObjects(_)
                | Self::GeoFound(_)
                | Self::Object(ObjectReply { shape: Shape::List(_), .. })
        )
    }

    fn long_reply(
        self,
        (status, number): (Status, i64),
        value: &mut Option<Vec<u8>>,
    ) -> Option<LongReply> {
        match self {
            Self::TreeObjects(form) if status == Status::Ok => {
                let objects = value.take().unwrap_or_default();
                Some(LongReply::Objects(ObjectsReply::new(objects, form)))
            }
            // An absent key counts as one in which nothing is found.
            Self::GeoFound(form)
                if form.stored.is_none() && matches!(status, Status::Ok | Status::NotFound) =>
            {
                let found = value.take().unwrap_or_default();
                Some(LongReply::Found(FoundReply::new(found, form)))
            }
            Self::Object(ObjectReply { shape: Shape::List(form), .. }) if status == Status::Ok => {
                let list = value.take().unwrap_or_default();
                Some(LongReply::Items(ItemsReply::new(list, number, *form)))
            }
            _ => None,
        }
    }
}

impl ReplyForm {
    fn write_any(self, out: &mut Vec<u8>, protocol: Protocol, parts: &[Part<'_>]) {
        match (self, parts) {
            (Self::Object(reply), [part]) => {
                return object_reply::write(out, protocol, reply, *part);
            }
            (Self::Values, _) => return strings::write_values(out, protocol, parts),
            (Self::Digest, _) => return server::write_digest(out, parts),
            _ => {}
        }
        let mut statuses = parts.iter().map(|part| part.status);
        if let Some(text) = statuses.find_map(|status| status_error(status, self.command())) {
            return encode::error(out, &text);
        }
        match (self, parts) {
            (Self::Value | Self::Set { get: true }, [part]) => {
                encode::bulk_or_null(out, protocol, part.value);
            }
            (Self::Set { get: false }, [part]) if part.status == Status::NotDone => {
                encode::null(out, protocol);
            }
            (Self::Number(_), [part]) => encode::integer(out, part.number),
            (Self::Sum, _) => encode::integer(out, parts.iter().map(|part| part.number).sum()),
            (Self::Synced, _) => persistence::write_synced(out, parts),
            (Self::Scanned, [part]) => keyspace::write_scanned(out, *part),
            (Self::KeyList, _) => keyspace::write_keys(out, parts),
            (Self::Digests, _) => server::write_digests(out, parts),
            (Self::GeoFound(_), [part]) => geo::search::write_found(out, *part),
            (Self::GeoRefused(error), [part]) => geo::search::write_refused(out, error, *part),
            _ => encode::ok(out),
        }
    }

    /// The command as errors name it.
    const fn command(self) -> &'static str {
        match self {
            Self::Number(command) | Self::AllOk(command) => command,
            Self::Set { .. } => "set",
            Self::KeyList => "keys",
            Self::TreeObjects(_) => "rtree.search",
            Self::GeoFound(_) | Self::GeoRefused(_) => "geosearch",
            _ => "",
        }
    }
}

/// A reply that is written piece by piece.
#[derive(Debug)]
pub enum LongReply {
    /// Objects of a tree.
    Objects(ObjectsReply),
    /// Members of a GEO key.
    Found(FoundReply),
    /// Items of an object.
    Items(ItemsReply),
}

impl frontend::LongReply for LongReply {
    type Dialect = Protocol;

    fn bytes(&self) -> usize {
        match self {
            Self::Objects(reply) => reply.bytes(),
            Self::Found(reply) => reply.bytes(),
            Self::Items(reply) => reply.bytes(),
        }
    }

    fn write_piece(&mut self, out: &mut Vec<u8>, protocol: Protocol) -> bool {
        match self {
            Self::Objects(reply) => reply.write_piece(out, protocol),
            Self::Found(reply) => reply.write_piece(out, protocol),
            Self::Items(reply) => reply.write_piece(out, protocol),
        }
    }

    fn go_on(&mut self, list: Vec<u8>) -> bool {
        let Self::Items(items) = self else { return false };
        items.go_on(list);
        true
    }
}
