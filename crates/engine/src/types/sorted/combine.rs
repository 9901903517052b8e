//! ZUNION, ZINTER and ZDIFF over the sorted sets and sets of a shard.

use crate::elements::combine::{Asked, Combining, WithScores};
use crate::store::Store;
use crate::types::object::{LongRead, On};
use remora_arena::Journal;
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Aggregate, Combination, Sources};

/// A combination that is being made.
pub(super) type Combines = Combining<WithScores>;

/// Begins one.
///
/// # Errors
/// A key is of a type whose members have no scores, or so many small sets are named that their copies
/// would be longer than a reply.
pub(super) fn begin<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    (how, aggregate): (Combination, Aggregate),
    (sources, count_to): (Sources<'_>, Option<u64>),
) -> Result<LongRead, Status> {
    let join = match aggregate {
        Aggregate::Sum => |one, other| Aggregate::Sum.join(one, other),
        Aggregate::Min => |one, other| Aggregate::Min.join(one, other),
        Aggregate::Max => |one, other| Aggregate::Max.join(one, other),
    };
    let (before, own_weight) = (sources.before(), sources.own_weight());
    let asked = Asked { how, before, own_weight, join, count_to };
    let readers = store.scored.clone();
    let (combining, others) = Combines::begin(store, on, &asked, sources.others(), &readers)?;
    let read = LongRead::new(Kind::SORTED_SET, Box::new(combining));
    Ok(LongRead { others, ..read })
}
