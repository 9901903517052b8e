//! Links whose hints did not lead to their targets, and their report to the owners that mend them.

use crate::core::Core;
use crate::error::Error;
use remora_plan::{Bytes, LinkAt, LinkPlace};
use remora_protocol::Command;
use remora_protocol::hash::HashCommand;
use remora_protocol::list::ListCommand;
use remora_protocol::message::Status;
use std::collections::VecDeque;

/// Links that a session remembers at most. Further ones are forgotten: a later chase finds them again.
pub const MAX_STALE_LINKS: usize = 256;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct StaleLinks {
    links: VecDeque<(LinkPlace, Bytes)>,
}

impl StaleLinks {
    /// Remembers a link to this key, unless it is the one remembered last or there are too many.
    pub fn push(&mut self, link: &LinkPlace, target: &[u8]) {
        let is_last = self.links.back().is_some_and(|(last, _)| last == link);
        if self.links.len() < MAX_STALE_LINKS && !is_last {
            self.links.push_back((link.clone(), target.into()));
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.links.len()
    }
}

/// Reports up to so many links to their owners, the oldest first, in one pipeline. How many of them the
/// owners mended.
pub(crate) fn mend(core: &mut Core, stale: &mut StaleLinks, most: usize) -> Result<u64, Error> {
    core.begin()?;
    let mut tickets = Vec::new();
    let mut mended = 0;
    let count = most.min(stale.links.len());
    let links: Vec<_> = stale.links.drain(..count).collect();
    for (LinkPlace { key, at }, target) in &links {
        let request = match at {
            LinkAt::Field(name) => HashCommand::Mend { name }.request(),
            LinkAt::Element(index) => ListCommand::Mend { index: *index, target }.request(),
        };
        match core.send(&Command::Of { key, request }) {
            Ok(sent) => tickets.push(sent),
            Err(error) => {
                core.asker.abandon_all(tickets.iter().copied());
                return Err(error);
            }
        }
    }
    for (shard, ticket) in tickets {
        // One that is refused has gone, or is not mended now: another chase tells.
        let answer = core.collect(shard, ticket)?;
        mended += u64::from(answer.status == Status::Ok && answer.number == 1);
    }
    Ok(mended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_links_wait_in_order_and_none_twice_in_a_row() {
        let mut stale = StaleLinks::default();
        let link = |at| LinkPlace { key: b"key"[..].into(), at: LinkAt::Element(at) };
        for at in 0..1000 {
            stale.push(&link(at), b"target");
            stale.push(&link(at), b"target");
        }
        assert_eq!(stale.len(), MAX_STALE_LINKS);
        let all: Vec<_> = stale.links.into_iter().map(|(link, _)| link).collect();
        assert_eq!(all, (0..MAX_STALE_LINKS as u64).map(link).collect::<Vec<_>>());
    }
}
