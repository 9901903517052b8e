//! A SORT that waits for answers of shards.

use remora_frontend::{KeyReplies, OwnedReply, PartRequest, WantedBytes};
use remora_layout::database::Database;
use remora_protocol::message::Status;
use remora_resp::request::Stored;
use remora_resp::sorting::Sorting;

/// A SORT on its way.
pub(super) struct SortJob {
    pub sorting: Sorting,
    pub database: Database,
    /// The request about a field.
    pub of_field: PartRequest,
    /// The key that gets the result.
    pub store: Option<(Box<[u8]>, Stored)>,
    pub asked: Asked,
}

/// The last question.
pub(super) enum Asked {
    Elements,
    Values(Values),
    /// Nothing, for another turn.
    Turn,
}

/// Values that are asked for.
pub(super) struct Values {
    /// The shard of each key; `None`: it has no value.
    shards: Vec<Option<usize>>,
    /// The answers of each shard, in the order of its keys.
    answers: Vec<Vec<u8>>,
    /// Shards that have not answered.
    missing: usize,
    /// The reply, if a shard has refused.
    refused: Option<OwnedReply>,
    /// With it the reads end.
    _wanted: WantedBytes,
}

impl Values {
    /// Of keys of these shards; so many shards of all are asked.
    pub fn new(
        shards: Vec<Option<usize>>,
        (asked, all): (usize, usize),
        wanted: WantedBytes,
    ) -> Self {
        let answers = vec![Vec::new(); all];
        Self { shards, answers, missing: asked, refused: None, _wanted: wanted }
    }
}

impl SortJob {
    /// Bytes that it keeps, about.
    pub fn bytes(&self) -> usize {
        let answers = match &self.asked {
            Asked::Values(values) => values.answers.iter().map(Vec::len).sum(),
            Asked::Elements | Asked::Turn => 0,
        };
        self.sorting.bytes() + answers
    }

    /// Takes an answer of a shard. Whether all are there.
    pub fn take(&mut self, shard: usize, reply: OwnedReply) -> Result<bool, OwnedReply> {
        match &mut self.asked {
            Asked::Turn => {}
            Asked::Elements => self.sorting.take_elements(reply)?,
            Asked::Values(values) => {
                values.missing -= 1;
                match reply.status {
                    Status::Ok => values.answers[shard] = reply.value.unwrap_or_default(),
                    _ => values.refused = Some(reply),
                }
                if values.missing > 0 {
                    return Ok(false);
                }
                if let Some(refused) = values.refused.take() {
                    return Err(refused);
                }
                let taken = take_values(&mut self.sorting, values);
                taken.map_err(OwnedReply::status)?;
            }
        }
        Ok(true)
    }
}

/// Gives the values that have come, in the order of their keys.
pub(super) fn take_values(sorting: &mut Sorting, values: &Values) -> Result<(), Status> {
    let mut refused = None;
    let mut lists: Vec<_> = values.answers.iter().map(|list| KeyReplies::each(list)).collect();
    let in_order = values.shards.iter().map(|shard| {
        let (status, _, value) = lists[(*shard)?].next()?;
        match status {
            Status::Ok => return value,
            // As in Redis.
            Status::NotFound | Status::WrongType => {}
            status => refused = Some(status),
        }
        None
    });
    let taken = sorting.take_values(in_order);
    refused.map_or(taken, Err)
}
