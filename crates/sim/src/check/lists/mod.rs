//! The semantics of lists, and a checker of one list's calls.
//!
//! Elements are numbers, each pushed once in a world. So a list that is linearizable gives each
//! element to one client at most, and none is lost.
//!
//! A request that waits has one more rule: from the time at which it certainly waits at a key, and
//! until it ends, no later request finds anything in that key ([`ListCall::waits_ns`]). That is
//! the order of waiting, and it shows a request that was forgotten.

mod calls;
mod search;

pub use calls::{End, ListCall, ListOp, Unexplained};

use std::collections::BTreeSet;

/// Pairs of a request that waits and a later call of which the order is checked.
pub fn ordered(calls: &[ListCall]) -> u64 {
    search::Search::new(calls, false).ordered()
}

/// Checks the calls of one list that begins empty; where keys are evicted it may become empty.
///
/// # Errors
/// No order of the calls explains them, or none was found in time. With several moves of unknown
/// outcome to the list nothing is certain.
pub fn check(calls: &[ListCall], evicts: bool) -> Result<(), Unexplained> {
    let is_open = |at: &usize| matches!(calls[*at].op, ListOp::PushAny { .. });
    let open: Vec<usize> = (0..calls.len()).filter(is_open).collect();
    let found = search::Search::new(calls, evicts).run();
    let (Err(wrong), Some(&first)) = (&found, open.first()) else { return found };
    if open.len() > 1 {
        return Err(Unexplained { is_certain: false, ..*wrong });
    }
    let ListOp::PushAny { end } = calls[first].op else { return found };
    let mut shown: BTreeSet<i64> = calls.iter().flat_map(|call| call.op.shows()).copied().collect();
    // It may be one that no result shows.
    shown.extend(calls.iter().any(|call| call.op.finds_unseen()).then_some(i64::MIN));
    let mut calls = calls.to_vec();
    let mut explains = |item: i64| {
        calls[first].op = ListOp::Push { end, items: vec![item], length: None };
        search::Search::new(&calls, evicts).run().is_ok()
    };
    if shown.into_iter().any(&mut explains) { Ok(()) } else { found }
}
