//! Makes the reply from its form and the shards' answers, whole or piece by piece.

use crate::commands::geo::{self, FoundReply};
use crate::commands::plan::{self, OutcomeReply};
use crate::commands::rtree::ObjectsReply;
use crate::commands::sorted::ScoredReply;
use crate::error::status_error;
use crate::form::{ObjectReply, ReplyForm, Shape};
use crate::object_reply::{self, ItemsReply};
use crate::wire::{RespVersion, encode};
use remora_frontend::{self as frontend, ShardAnswer};
use remora_protocol::message::Status;

/// Bytes of items that are written at once, though more are written piece by piece.
const SHORT_LIST_BYTES: usize = 16 << 10;

impl frontend::ReplyForm for ReplyForm {
    type Dialect = RespVersion;
    type Long = LongReply;

    #[inline]
    fn write(self, out: &mut Vec<u8>, version: RespVersion, answers: &[ShardAnswer<'_>]) {
        // The replies that are written most often.
        match (self, answers) {
            (Self::Value, [ShardAnswer { status: Status::Ok, value: Some(value), .. }]) => {
                encode::bulk(out, value);
            }
            (Self::Set { get: false }, [ShardAnswer { status: Status::Ok, .. }]) => encode::ok(out),
            _ => self.write_any(out, version, answers),
        }
    }

    fn is_long(self) -> bool {
        matches!(
            self,
            Self::TreeObjects(_)
                | Self::GeoFound(_)
                | Self::Plan(_)
                | Self::Object(ObjectReply { shape: Shape::List(_) | Shape::Scored(_), .. })
        )
    }

    fn is_written_at_once(self, bytes: usize) -> bool {
        matches!(self, Self::Object(_)) && bytes <= SHORT_LIST_BYTES
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
            Self::Plan(form) if status == Status::Ok => {
                Some(LongReply::Outcome(OutcomeReply::new(value, form)?))
            }
            Self::Object(ObjectReply { shape: Shape::List(form), .. }) if status == Status::Ok => {
                let list = value.take().unwrap_or_default();
                Some(LongReply::Items(ItemsReply::new(list, number, *form)))
            }
            Self::Object(ObjectReply { shape: Shape::Scored(form), .. })
                if status == Status::Ok =>
            {
                let list = value.take().unwrap_or_default();
                Some(LongReply::Scored(ScoredReply::new(list, number, *form)))
            }
            _ => None,
        }
    }
}

impl ReplyForm {
    fn write_any(self, out: &mut Vec<u8>, version: RespVersion, answers: &[ShardAnswer<'_>]) {
        match (self, answers) {
            (Self::Object(reply), [answer]) => {
                return object_reply::write(out, version, reply, *answer);
            }
            (Self::Combined(reply), _) if reply.takes_errors => {
                return (reply.write)(out, version, answers);
            }
            (Self::Plan(_), [answer]) => return plan::write_refused(out, *answer),
            _ => {}
        }
        let mut statuses = answers.iter().map(|answer| answer.status);
        if let Some(text) = statuses.find_map(|status| status_error(status, self.command())) {
            return encode::error(out, &text);
        }
        match (self, answers) {
            (Self::Value | Self::Set { get: true }, [answer]) => {
                encode::bulk_or_null(out, version, answer.value);
            }
            (Self::Set { get: false }, [answer]) if answer.status == Status::NotDone => {
                encode::null(out, version);
            }
            (Self::Number(_), [answer]) => encode::integer(out, answer.number),
            (Self::Sum, _) => {
                encode::integer(out, answers.iter().map(|answer| answer.number).sum())
            }
            (Self::Combined(reply), _) => (reply.write)(out, version, answers),
            (Self::GeoFound(_), [answer]) => geo::search::write_found(out, *answer),
            (Self::GeoRefused(error), [answer]) => geo::search::write_refused(out, error, *answer),
            _ => encode::ok(out),
        }
    }

    /// The command as errors name it.
    const fn command(self) -> &'static str {
        match self {
            Self::Number(command) | Self::AllOk(command) => command,
            Self::Set { .. } => "set",
            Self::Combined(reply) => reply.command,
            Self::TreeObjects(_) => "rtree.search",
            Self::GeoFound(_) | Self::GeoRefused(_) => "geosearch",
            Self::Plan(_) => "plan.run",
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
    /// Members with their scores.
    Scored(ScoredReply),
    /// The outcome of a plan.
    Outcome(OutcomeReply),
}

impl frontend::LongReply for LongReply {
    type Dialect = RespVersion;

    fn bytes(&self) -> usize {
        match self {
            Self::Objects(reply) => reply.bytes(),
            Self::Found(reply) => reply.bytes(),
            Self::Items(reply) => reply.bytes(),
            Self::Scored(reply) => reply.bytes(),
            Self::Outcome(reply) => reply.bytes(),
        }
    }

    fn write_piece(&mut self, out: &mut Vec<u8>, version: RespVersion) -> bool {
        match self {
            Self::Objects(reply) => reply.write_piece(out, version),
            Self::Found(reply) => reply.write_piece(out, version),
            Self::Items(reply) => reply.write_piece(out, version),
            Self::Scored(reply) => reply.write_piece(out, version),
            Self::Outcome(reply) => reply.write_piece(out, version),
        }
    }

    fn go_on(&mut self, list: Vec<u8>) -> bool {
        match self {
            Self::Items(reply) => reply.go_on(list),
            Self::Scored(reply) => reply.go_on(list),
            _ => return false,
        }
        true
    }
}
