//! Replies that wait: for a shard, or for an earlier reply.

use super::unanswered::Asked;
use crate::jobs::OwnedReply;
use remora_front::CommandError;
use remora_front::error::status_error;
use remora_front::geo_reply::{self, FoundReply};
use remora_front::request::{GeoRender, Render};
use remora_front::resp::{Protocol, encode};
use remora_front::tree_reply::{self, ObjectsReply};
use remora_layout::limits::RESP_MAX_REPLY_BYTES;
use remora_layout::message::Status;

/// One request's place in the order of replies.
pub enum Pending {
    /// Encoded, but an earlier one is not.
    Ready(Vec<u8>),
    /// Parts are missing. The reply is of the protocol that was spoken when it
    /// was asked for.
    Waiting(Waiting, Protocol),
    /// A long reply, of which some may be written already.
    Writing(Long, Protocol),
}

/// A reply that is written piece by piece.
pub enum Long {
    /// Objects of a tree.
    Objects(ObjectsReply),
    /// Members of a GEO key.
    Found(FoundReply),
}

impl Long {
    /// Bytes of what it is made of.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Objects(reply) => reply.bytes(),
            Self::Found(reply) => reply.bytes(),
        }
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, protocol: Protocol) -> bool {
        match self {
            Self::Objects(reply) => reply.write_piece(out, protocol),
            Self::Found(reply) => reply.write_piece(out, protocol),
        }
    }
}

/// A request of which parts are missing.
pub struct Waiting {
    /// How the reply is made.
    pub render: Render,
    /// One reply for each part.
    pub parts: Vec<Option<OwnedReply>>,
    /// How many are missing.
    pub missing: usize,
    /// Bytes of the values that have come.
    pub bytes: usize,
    /// What each part asks.
    pub asked: Vec<Asked>,
}

impl Waiting {
    /// One of which every part was asked for.
    pub fn all(render: Render, asked: Vec<Asked>) -> Self {
        Self { render, parts: vec![None; asked.len()], missing: asked.len(), bytes: 0, asked }
    }
}

/// The reply that the parts make, if it is one that is written piece by piece.
pub fn long_reply(render: Render, parts: &mut [OwnedReply]) -> Option<Long> {
    match (render, parts) {
        (Render::TreeObjects(form), [part]) if part.status == Status::Ok => {
            Some(Long::Objects(ObjectsReply::new(part.value.take().unwrap_or_default(), form)))
        }
        // No key is as one in which nothing is found.
        (Render::Geo(GeoRender::Found(form)), [part])
            if form.stored.is_none() && matches!(part.status, Status::Ok | Status::NotFound) =>
        {
            Some(Long::Found(FoundReply::new(part.value.take().unwrap_or_default(), form)))
        }
        _ => None,
    }
}

/// Appends the reply that the parts make.
pub fn write_reply(render: Render, out: &mut Vec<u8>, protocol: Protocol, parts: &[OwnedReply]) {
    if render == Render::Values && parts.iter().any(|part| part.status == Status::TooLarge) {
        return encode::error(
            out,
            &format!("ERR reply is longer than {RESP_MAX_REPLY_BYTES} bytes: ask for fewer keys"),
        );
    }
    let command = match render {
        Render::Number(command)
        | Render::AllOk(command)
        | Render::Done(command)
        | Render::NullOrError(_, command) => command,
        Render::Set { .. } => "set",
        Render::TreeObjects(_) => "rtree.search",
        Render::Geo(_) => "geosearch",
        _ => "",
    };
    let refused = match (render, parts) {
        (Render::NullOrError(status, _), [part]) if part.number != 0 => Some(status),
        _ => None,
    };
    // MGET has null for what is no string, TYPE says that it is one.
    let is_about_any = matches!(render, Render::Values | Render::Type);
    let is_told = |status: &Status| !is_about_any || *status != Status::WrongType;
    let mut statuses = parts.iter().map(|part| part.status).chain(refused).filter(is_told);
    if let Some(text) = statuses.find_map(|status| status_error(status, command)) {
        return encode::error(out, &text);
    }
    match (render, parts) {
        (Render::Value, [part]) => encode::bulk_or_null(out, protocol, part.value.as_deref()),
        (Render::Set { get: true }, [part]) => {
            encode::bulk_or_null(out, protocol, part.value.as_deref());
        }
        (Render::Set { get: false }, [part]) if part.status == Status::NotDone => {
            encode::null(out, protocol);
        }
        (Render::NullOrError(..), _) => encode::null(out, protocol),
        (Render::Done(_), [part]) => encode::integer(out, (part.status == Status::Ok).into()),
        (Render::Number(_), [part]) => encode::integer(out, part.number),
        (Render::Ttl(unit), [part]) => encode::integer(out, unit.from_ms(part.number)),
        (Render::Values, _) => {
            encode::array(out, parts.len());
            for part in parts {
                encode::bulk_or_null(out, protocol, part.value.as_deref());
            }
        }
        (Render::TreeMade, [part]) if part.status == Status::NotDone => {
            CommandError::TreeExists.write(out);
        }
        (Render::TreeObject { geometry }, [part]) => {
            tree_reply::object(out, protocol, part.value.as_deref(), part.number, geometry);
        }
        (Render::Type, [part]) => encode::simple(
            out,
            match part.status {
                Status::Ok => "zset",
                Status::WrongType => "string",
                _ => "none",
            },
        ),
        (Render::TreeInfo, [part]) => tree_reply::info(out, protocol, part.value.as_deref()),
        (Render::Geo(render), [part]) => {
            let answer = (part.status, part.number, part.value.as_deref());
            geo_reply::write(out, protocol, render, answer);
        }
        (Render::Sum, _) => encode::integer(out, parts.iter().map(|part| part.number).sum()),
        _ => encode::ok(out),
    }
}
