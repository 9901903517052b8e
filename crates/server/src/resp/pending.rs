//! Replies that wait: for a shard, or for an earlier reply.

use super::many_keys::ManyKeys;
use super::unanswered::Asked;
use crate::jobs::{OwnedReply, Token};
use crate::key_batch::KeyReply;
use remora_engine::Digest;
use remora_layout::kind::Kind;
use remora_layout::limits::RESP_MAX_REPLY_BYTES;
use remora_protocol::Reply;
use remora_protocol::ScannedKeys;
use remora_protocol::message::Status;
use remora_resp::CommandError;
use remora_resp::error::status_error;
use remora_resp::geo_reply::{self, FoundReply};
use remora_resp::object_reply::{self, ItemsReply, ObjectReply, Shape};
use remora_resp::request::{GeoRender, Render};
use remora_resp::tree_reply::{self, ObjectsReply};
use remora_resp::wire::{Protocol, encode};
use smallvec::{SmallVec, smallvec};

/// One request's place in the order of replies.
pub enum Pending {
    /// Encoded, but an earlier one is not.
    Ready(Vec<u8>),
    /// Parts are missing. The reply is of the protocol that was spoken when it
    /// was asked for.
    Waiting(Waiting, Protocol),
    /// Keys of the request are missing.
    Keys(ManyKeys, Protocol),
    /// A long reply, of which some may be written already.
    Writing(Writing),
}

/// A long reply that is being written.
pub struct Writing {
    long: Long,
    protocol: Protocol,
    /// Names the rest of it, which its shard still has.
    rest: Option<Token>,
    /// The rest was asked for.
    is_asked: bool,
}

/// What came of writing a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// There is more to be written.
    Some,
    /// All that is there is written: the rest is to be asked for.
    Ask(Token),
    /// All of it is written.
    Last,
}

impl Writing {
    /// Nothing is written yet. `rest` names what is still to come.
    pub const fn new(long: Long, protocol: Protocol, rest: Option<Token>) -> Self {
        Self { long, protocol, rest, is_asked: false }
    }

    /// Bytes of what it is made of.
    pub fn bytes(&self) -> usize {
        self.long.bytes()
    }

    /// Whether a piece can be written.
    pub const fn can_go_on(&self) -> bool {
        !self.is_asked
    }

    /// What the shard still has of it.
    pub const fn rest(&self) -> Option<Token> {
        self.rest
    }

    /// Appends the next piece.
    pub fn write_piece(&mut self, out: &mut Vec<u8>) -> Piece {
        if !self.long.write_piece(out, self.protocol) {
            return Piece::Some;
        }
        self.is_asked = self.rest.is_some();
        self.rest.map_or(Piece::Last, Piece::Ask)
    }

    /// Takes what was asked for.
    ///
    /// # Errors
    /// There is none: the reply cannot be written to its end.
    pub fn take(&mut self, reply: OwnedReply) -> Result<(), Status> {
        let Long::Items(items) = &mut self.long else { return Err(Status::Malformed) };
        if reply.status != Status::Ok {
            return Err(reply.status);
        }
        items.go_on(reply.value.unwrap_or_default());
        self.is_asked = false;
        self.rest = self.rest.filter(|_| reply.has_more);
        Ok(())
    }
}

/// A reply that is written piece by piece.
pub enum Long {
    /// Objects of a tree.
    Objects(ObjectsReply),
    /// Members of a GEO key.
    Found(FoundReply),
    /// Items of an object.
    Items(ItemsReply),
}

impl Long {
    /// Bytes of what it is made of.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Objects(reply) => reply.bytes(),
            Self::Found(reply) => reply.bytes(),
            Self::Items(reply) => reply.bytes(),
        }
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, protocol: Protocol) -> bool {
        match self {
            Self::Objects(reply) => reply.write_piece(out, protocol),
            Self::Found(reply) => reply.write_piece(out, protocol),
            Self::Items(reply) => reply.write_piece(out, protocol),
        }
    }
}

/// A request of which parts are missing.
pub struct Waiting {
    /// How the reply is made.
    pub render: Render,
    /// One reply for each part; mostly there is one.
    pub parts: SmallVec<[Option<OwnedReply>; 1]>,
    /// How many are missing.
    pub missing: usize,
    /// Bytes of the values that have come.
    pub bytes: usize,
    /// Bytes of its jobs that are not answered.
    pub job_bytes: usize,
    /// What each part asks.
    pub asked: SmallVec<[Asked; 1]>,
    /// Names the rest of the only part's reply, which its shard still has.
    pub rest: Option<Token>,
}

impl Waiting {
    /// One of which every part was asked for.
    pub fn all(render: Render, asked: impl IntoIterator<Item = Asked>) -> Self {
        let asked: SmallVec<[Asked; 1]> = asked.into_iter().collect();
        let (parts, missing) = (smallvec![None; asked.len()], asked.len());
        let job_bytes = asked.iter().map(|asked| asked.bytes).sum();
        Self { render, parts, missing, bytes: 0, job_bytes, asked, rest: None }
    }

    /// One whose only part is there.
    pub fn answered(render: Render, reply: OwnedReply) -> Self {
        let bytes = reply.value.as_ref().map_or(0, Vec::len);
        let (parts, asked) = (smallvec![Some(reply)], SmallVec::new());
        Self { render, parts, missing: 0, bytes, job_bytes: 0, asked, rest: None }
    }

    /// Adds a part that was asked for, or whose reply is there.
    pub fn add(&mut self, asked: Asked, reply: Option<OwnedReply>) {
        self.missing += reply.is_none() as usize;
        self.job_bytes += asked.bytes;
        self.bytes += reply.as_ref().and_then(|reply| reply.value.as_ref()).map_or(0, Vec::len);
        self.parts.push(reply);
        self.asked.push(asked);
    }
}

/// One part of a reply.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    status: Status,
    number: i64,
    value: Option<&'a [u8]>,
}

impl<'a> From<&'a OwnedReply> for Part<'a> {
    fn from(reply: &'a OwnedReply) -> Self {
        Self { status: reply.status, number: reply.number, value: reply.value.as_deref() }
    }
}

impl<'a> From<&Reply<'a>> for Part<'a> {
    fn from(reply: &Reply<'a>) -> Self {
        Self { status: reply.status, number: reply.number, value: reply.value }
    }
}

impl<'a> From<KeyReply<'a>> for Part<'a> {
    fn from((status, number, value): KeyReply<'a>) -> Self {
        Self { status, number, value }
    }
}

/// Whether a reply of this form may be one that is written piece by piece.
pub const fn is_long(render: Render) -> bool {
    matches!(
        render,
        Render::TreeObjects(_)
            | Render::Geo(GeoRender::Found(_))
            | Render::Object(ObjectReply { shape: Shape::List(_), .. })
    )
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
        (Render::Object(ObjectReply { shape: Shape::List(form), .. }), [part])
            if part.status == Status::Ok =>
        {
            let list = part.value.take().unwrap_or_default();
            Some(Long::Items(ItemsReply::new(list, part.number, *form)))
        }
        _ => None,
    }
}

/// Appends all keys that shards have told of.
fn write_keys(out: &mut Vec<u8>, parts: &[Part<'_>]) {
    let keys = || {
        let lists = parts.iter().map(|part| part.value.unwrap_or_default());
        lists.flat_map(ScannedKeys::new)
    };
    encode::array(out, keys().count());
    keys().for_each(|(_, key)| encode::bulk(out, key));
}

/// The digest that a shard has told; zeros for a key that is not there.
fn digest_of(part: &Part<'_>) -> Digest {
    let bytes = part.value.and_then(<[u8]>::first_chunk);
    bytes.map_or_else(Digest::default, |bytes| Digest(u128::from_le_bytes(*bytes)))
}

/// Appends the reply that the parts make.
#[inline]
pub fn write_reply(render: Render, out: &mut Vec<u8>, protocol: Protocol, parts: &[Part<'_>]) {
    // The replies that are written most often.
    match (render, parts) {
        (Render::Value, [Part { status: Status::Ok, value: Some(value), .. }]) => {
            encode::bulk(out, value);
        }
        (Render::Set { get: false }, [Part { status: Status::Ok, .. }]) => encode::ok(out),
        _ => write_any_reply(render, out, protocol, parts),
    }
}

#[expect(clippy::too_many_lines, reason = "written before functions had a bound")]
fn write_any_reply(render: Render, out: &mut Vec<u8>, protocol: Protocol, parts: &[Part<'_>]) {
    if let (Render::Object(form), [part]) = (render, parts) {
        let answer = (part.status, part.number, part.value);
        return object_reply::write(out, protocol, form, answer);
    }
    if render == Render::Values && parts.iter().any(|part| part.status == Status::TooLarge) {
        return encode::error(
            out,
            &format!("ERR reply is longer than {RESP_MAX_REPLY_BYTES} bytes: ask for fewer keys"),
        );
    }
    if render == Render::Digest && parts.iter().any(|part| part.status == Status::TryAgain) {
        let text = "TRYAGAIN keys were changed all the time: ask again when fewer changes come";
        return encode::error(out, text);
    }
    let command = match render {
        Render::Number(command)
        | Render::AllOk(command)
        | Render::Done(command)
        | Render::NullOrError(_, command) => command,
        Render::Set { .. } => "set",
        Render::KeyList => "keys",
        Render::TreeObjects(_) => "rtree.search",
        Render::Geo(_) => "geosearch",
        _ => "",
    };
    let refused = match (render, parts) {
        (Render::NullOrError(status, _), [part]) if part.number != 0 => Some(status),
        _ => None,
    };
    // MGET has null for what is no string.
    let is_told = |status: &Status| render != Render::Values || *status != Status::WrongType;
    let mut statuses = parts.iter().map(|part| part.status).chain(refused).filter(is_told);
    if let Some(text) = statuses.find_map(|status| status_error(status, command)) {
        return encode::error(out, &text);
    }
    match (render, parts) {
        (Render::Value, [part]) => encode::bulk_or_null(out, protocol, part.value),
        (Render::Set { get: true }, [part]) => {
            encode::bulk_or_null(out, protocol, part.value);
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
                encode::bulk_or_null(out, protocol, part.value);
            }
        }
        (Render::TreeMade, [part]) if part.status == Status::NotDone => {
            CommandError::TreeExists.write(out);
        }
        (Render::TreeObject(parts), [part]) => {
            tree_reply::object(out, protocol, part.value, part.number, parts);
        }
        (Render::Type, [part]) => encode::simple(
            out,
            match part.status {
                Status::Ok => Kind(part.number as u8).name(),
                _ => "none",
            },
        ),
        (Render::Touches, [part]) if part.status == Status::Ok && part.number < 0 => {
            CommandError::NotCounted.write(out);
        }
        (Render::Touches, [part]) if part.status == Status::Ok => {
            encode::integer(out, part.number);
        }
        (Render::Touches, _) => encode::null(out, protocol),
        (Render::IfThere(_), [part]) if part.status == Status::NotFound => {
            encode::null(out, protocol);
        }
        (Render::IfThere(Ok(number)), _) => encode::integer(out, number),
        (Render::IfThere(Err(text)), _) => encode::error(out, text),
        (Render::Renamed { .. }, [part]) if part.status == Status::NotFound => {
            CommandError::NoSuchKey.write(out);
        }
        (Render::Renamed { number: true }, [part]) => encode::integer(out, part.number),
        (Render::Scanned, [part]) => {
            encode::array(out, 2);
            encode::bulk(out, part.number.to_string().as_bytes());
            write_keys(out, parts);
        }
        (Render::KeyList, _) => write_keys(out, parts),
        (Render::AnyKey, [part]) => encode::bulk_or_null(out, protocol, part.value),
        (Render::TreeInfo, [part]) => tree_reply::info(out, protocol, part.value),
        (Render::Geo(render), [part]) => {
            let answer = (part.status, part.number, part.value);
            geo_reply::write(out, protocol, render, answer);
        }
        (Render::Digest, _) => {
            let sum = parts.iter().map(digest_of).fold(Digest::default(), Digest::with);
            encode::simple(out, &sum.to_string());
        }
        (Render::Digests, _) => {
            encode::array(out, parts.len());
            parts.iter().for_each(|part| encode::simple(out, &digest_of(part).to_string()));
        }
        (Render::Sum, _) => encode::integer(out, parts.iter().map(|part| part.number).sum()),
        _ => encode::ok(out),
    }
}

#[cfg(test)]
mod tests;
