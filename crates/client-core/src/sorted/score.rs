//! The score of a member: small sets and bins have them beside their members.

use crate::counts::Counts;
use crate::elements::{Askable, InWhole, Readable};
use crate::path::ServedBy;
use remora_index::hash::ObjectRef;
use remora_layout::kind::Kind;
use remora_layout::packed_scores::{find_bytes, find_in_part};
use remora_layout::pointer::RemotePointer;
use remora_layout::record::{Reject, Verified, key_in};
use remora_protocol::Request;
use remora_protocol::message::Status;
use remora_protocol::sorted::SortedCommand;

/// The score of a member of a sorted set.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct SortedScore {
    /// The score; `None`: the member is not there.
    pub score: Option<f64>,
    /// How it was fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// The members of sorted sets: the value of each is its score, 8 bytes. A part of a large set holds
/// several.
#[derive(Debug)]
pub struct Scores;

impl Readable for Scores {
    const KIND: Kind = Kind::SORTED_SET;
    const PART: Kind = Kind::SORTED_PART;
    const WALKS: bool = false;

    /// The record has all members, so that it proves also that one is absent.
    fn in_whole<'v>(value: &'v [u8], member: &[u8]) -> InWhole<'v> {
        find_bytes(value, member).map_or(InWhole::Absent, |score| InWhole::Value(score))
    }

    /// A part that holds the member proves its score, whatever the part's name is: it is bound to
    /// its root record by its checksum. Without the member it proves nothing, as the member may
    /// have gone to another part.
    fn in_part<'b>(
        object: &ObjectRef,
        bytes: &'b [u8],
        pointer: RemotePointer,
        member: &[u8],
    ) -> Result<Verified<'b>, Reject> {
        let name = key_in(bytes).ok_or(Reject::Torn)?;
        let part = object.verify_part(bytes, pointer, Self::PART, name)?;
        let score = find_in_part(name, part.value, member).ok_or(Reject::OtherKey)?;
        Ok(Verified { value: score, ..part })
    }
}

impl Askable for Scores {
    fn request(member: &[u8]) -> Request<'_> {
        SortedCommand::Score { member }.request()
    }

    fn in_reply(status: Status, value: Option<(usize, usize)>) -> Option<(usize, usize)> {
        value.filter(|_| status == Status::Ok)
    }
}
