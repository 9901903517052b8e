//! The form of a reply: plain data that a request carries until the shards have answered. The
//! writer of each form is beside its command.

use crate::wire::RespVersion;
use remora_frontend::ShardAnswer;
use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;
use remora_protocol::message::Status;
use std::fmt;
use thiserror::Error;

/// How the shards' answers become a reply.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReplyForm {
    /// The value or null.
    Value,
    /// SET: OK, or null where the condition did not hold.
    Set {
        /// The old value or null instead.
        get: bool,
    },
    /// The number.
    Number(&'static str),
    /// The sum of all answers' numbers.
    Sum,
    /// OK if all answers are.
    AllOk(&'static str),
    /// The form that the command defines for one answer.
    Object(&'static ObjectReply),
    /// The form that the command defines for any number of answers.
    Combined(&'static CombinedReply),
    /// The objects that a search of a tree found.
    TreeObjects(ObjectForm),
    /// The members that a search of a GEO key found.
    GeoFound(GeoForm),
    /// The outcome of a plan.
    Plan(PlanForm),
    /// An invalid search of a GEO key: this error, if the key holds no string, and the member that
    /// is the centre, if one was named, exists.
    GeoRefused(GeoError),
}

/// How the outcome of a plan is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanForm {
    /// Its rows.
    Rows,
    /// Its rows, with what the run did, and the limit that it reached.
    Explained,
    /// The only column of its only row; null without one.
    Only,
}

/// Writes the reply of a command that no [`Shape`] fits. The caller has already handled statuses
/// that are errors.
pub type WriteReply = fn(&mut Vec<u8>, RespVersion, ShardAnswer<'_>);

/// Writes one reply from several answers.
pub type WriteCombined = fn(&mut Vec<u8>, RespVersion, &[ShardAnswer<'_>]);

/// How the reply to a command is made from the answers of several shards, or about several keys.
/// Each form is beside its command.
pub struct CombinedReply {
    /// The command's name, in lower case.
    pub command: &'static str,
    /// Whether `write` also receives answers whose statuses are errors. Otherwise the first of
    /// them is the reply.
    pub takes_errors: bool,
    /// The command's own writer.
    pub write: WriteCombined,
}

/// Each is one of a kind.
impl PartialEq for CombinedReply {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for CombinedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CombinedReply").field(&self.command).finish()
    }
}

/// How the reply to a command of one key is made. Each form is beside its command.
pub struct ObjectReply {
    /// The command's name, in lower case.
    pub command: &'static str,
    /// Its shape.
    pub shape: Shape,
    /// Errors with the command's own texts.
    pub errors: &'static [(Status, &'static str)],
}

impl ObjectReply {
    /// A form without errors of its own.
    pub(crate) const fn new(command: &'static str, shape: Shape) -> Self {
        Self { command, shape, errors: &[] }
    }
}

/// Each is one of a kind.
impl PartialEq for ObjectReply {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for ObjectReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectReply").field(&self.command).finish()
    }
}

/// The shape of a reply.
#[derive(Clone, Copy)]
pub enum Shape {
    /// OK.
    Ok,
    /// The number.
    Number,
    /// The value, or null.
    Value,
    /// The only item of the value, which is a list of them, or null without any.
    OneItem,
    /// The value, which is a list of items ([`remora_protocol::Items`]).
    List(ListForm),
    /// The value, which is a list of members with their scores ([`remora_protocol::sorted::Scored`]).
    Scored(ScoredForm),
    /// As [`ListForm::Cursor`] at the end of an empty list if the number is 0, else
    /// this error.
    ErrorUnlessEmpty(&'static str),
    /// The command's own writer.
    Own(WriteReply),
}

/// The form of a list in a reply. The shard's number is that of the items, but in
/// [`ListForm::Cursor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListForm {
    /// An array of items; null where one is not there.
    Array,
    /// An array of those items that are links; null in the place of all others.
    Links,
    /// A set of items, in RESP2 an array.
    Set,
    /// Names and values: a map, in RESP2 a flat array.
    Map,
    /// Names and values: an array of arrays, in RESP2 a flat one.
    Pairs,
    /// The number, as text, and an array of the items.
    Cursor,
}

/// The form of a list of members with their scores. The shard's number is that of the members, but in
/// [`ScoredForm::Cursor`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScoredForm {
    /// An array of members.
    Members,
    /// An array of arrays of a member and its score, in RESP2 a flat one.
    Pairs,
    /// A flat array of members and scores.
    Flat,
    /// The number, as text, and a flat array of members and of scores as text.
    Cursor,
}

/// The parts of each object that a reply contains.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ObjectForm {
    /// Its rectangle.
    pub rect: bool,
    /// Its distance from this point: x, y.
    pub distance_from: Option<(f64, f64)>,
    /// Most objects in a reply.
    pub most: usize,
}

impl Default for ObjectForm {
    fn default() -> Self {
        Self { rect: false, distance_from: None, most: usize::MAX }
    }
}

/// How the results of a search become its reply.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GeoForm {
    /// Nearest first, or farthest.
    pub order: Option<Order>,
    /// Members at most.
    pub most: usize,
    /// Their distances.
    pub distance: bool,
    /// Their scores.
    pub score: bool,
    /// Their positions.
    pub position: bool,
    /// Metres of the unit of distances.
    pub unit: f64,
    /// They are stored in another key: with their distances as scores, or with
    /// their own. The reply is their number.
    pub stored: Option<Stored>,
}

impl GeoForm {
    /// Whether the reply contains only the names of all members found, in no order.
    pub fn is_bare(&self) -> bool {
        let Self { order, most, distance, score, position, stored, .. } = *self;
        let more = distance || score || position || stored.is_some();
        order.is_none() && most == usize::MAX && !more
    }
}

/// An order by distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The nearest first.
    Nearest,
    /// The farthest first.
    Farthest,
}

/// The value stored for a member that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// Its own score.
    Score,
    /// Its distance, in the unit that was asked for.
    Distance,
}

/// Why a GEO command is not carried out.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
pub enum GeoError {
    /// Unknown options, or options that exclude each other.
    #[error("ERR syntax error")]
    Syntax,
    /// A count is no integer.
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    /// A coordinate is no number.
    #[error("ERR value is not a valid float")]
    NotAFloat,
    /// A position that is not on the map.
    #[error("ERR invalid longitude,latitude pair {0:.6},{1:.6}")]
    Pair(f64, f64),
    /// Not a unit of length.
    #[error("ERR unsupported unit provided. please use M, KM, FT, MI")]
    Unit,
    /// A size is no number.
    #[error("ERR need numeric {0}")]
    Size(&'static str),
    /// A radius below 0.
    #[error("ERR radius cannot be negative")]
    NegativeRadius,
    /// A box with a side below 0.
    #[error("ERR height or width cannot be negative")]
    NegativeBox,
    /// A count below 1.
    #[error("ERR COUNT must be > 0")]
    Count,
    /// ANY without COUNT.
    #[error("ERR the ANY argument requires COUNT argument")]
    Any,
    /// A reply's options where there is no such reply.
    #[error("ERR {0} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")]
    StoreWith(&'static str),
    /// No centre.
    #[error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {0}")]
    From(&'static str),
    /// No shape.
    #[error("ERR exactly one of BYRADIUS and BYBOX can be specified for {0}")]
    By(&'static str),
    /// A member above [`MAX_SORTED_MEMBER_BYTES`].
    #[error("ERR member is longer than {MAX_SORTED_MEMBER_BYTES} bytes")]
    MemberTooLong,
    /// For shards' replies: a search around an absent member.
    #[error("ERR could not decode requested zset member")]
    NoMember,
}
