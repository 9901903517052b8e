//! Links whose hints did not lead to their targets, to be reported to the owners that can mend them.

use remora_plan::LinkPlace;
use std::collections::VecDeque;

/// Links that a session remembers at most. Further ones are forgotten: a later chase finds them again.
pub const MAX_STALE_LINKS: usize = 256;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct StaleLinks {
    links: VecDeque<LinkPlace>,
}

impl StaleLinks {
    /// Remembers a link, unless it is the one remembered last or there are too many.
    pub fn push(&mut self, link: &LinkPlace) {
        if self.links.len() < MAX_STALE_LINKS && self.links.back() != Some(link) {
            self.links.push_back(link.clone());
        }
    }

    /// The one that waits longest.
    pub fn pop(&mut self) -> Option<LinkPlace> {
        self.links.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_plan::LinkAt;

    #[test]
    fn so_many_links_wait_in_order_and_none_twice_in_a_row() {
        let mut stale = StaleLinks::default();
        let link = |at| LinkPlace { key: b"key"[..].into(), at: LinkAt::Element(at) };
        for at in 0..1000 {
            stale.push(&link(at));
            stale.push(&link(at));
        }
        let all: Vec<_> = std::iter::from_fn(|| stale.pop()).collect();
        assert_eq!(all, (0..MAX_STALE_LINKS as u64).map(link).collect::<Vec<_>>());
    }
}
