//! What a client asks of sorted sets, and the lists that come back.

use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::path::ServedBy;
use remora_protocol::Request;
use remora_protocol::message::Status;
use remora_protocol::sorted::{MAX_SORTED_MEMBER_BYTES, Scored};

/// A member of a sorted set, and its score.
#[derive(Clone, PartialEq, Debug)]
pub struct SortedMember {
    /// The member.
    pub member: Vec<u8>,
    /// Its score; not NaN.
    pub score: f64,
}

/// The members of a range, and how they were fetched.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct SortedFound {
    /// The members, in the direction of the read.
    pub members: Vec<SortedMember>,
    /// Nodes that the range was gathered from, those that were kept among them; 1 for a small set,
    /// 0 if the server was asked.
    pub nodes_visited: u64,
    /// How they were fetched.
    pub served_by: ServedBy,
    /// What it cost.
    pub counts: Counts,
}

/// Members with their scores, encoded for a request.
///
/// # Errors
/// A score is NaN, or a member is too long: the server would refuse them.
pub(super) fn encoded(members: &[(f64, &[u8])]) -> Result<Vec<u8>, Error> {
    let mut list = Vec::new();
    for &(score, member) in members {
        if score.is_nan() {
            return Err(Error::Refused(Status::NotANumber));
        }
        if member.len() > MAX_SORTED_MEMBER_BYTES {
            return Err(Error::Refused(Status::TooLarge));
        }
        Scored::push(&mut list, score, member);
    }
    Ok(list)
}

/// Asks for members with their scores, in as many replies as it takes; gives also the number of the
/// last one.
pub(super) fn ask_scored(
    core: &mut Core,
    (shard, key): (usize, &[u8]),
    request: Request<'_>,
) -> Result<(Vec<SortedMember>, i64, Counts), Error> {
    let mut list = Vec::new();
    let answer = core.ask_in_parts(shard, key, request, |part| {
        list.extend_from_slice(part);
        Ok(())
    })?;
    let Some(members) = Scored::parse(&list) else {
        return Err(core.asker.endpoint.end(Error::Protocol("scores that cannot be")));
    };
    let owned = |(score, member): (f64, &[u8])| SortedMember { member: member.to_vec(), score };
    Ok((members.iter().map(owned).collect(), answer.number, answer.counts))
}
