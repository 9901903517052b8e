//! Documents of an index with `expireAfterSeconds`: each is removed soon after its time, as a change of its own.
//!
//! A tick finds that some are due; then some go in every turn. As in MongoDB a search may meet a document whose
//! time has come until it is removed.

use super::held::Collections;
use super::plan::Wanted;
use super::scan::{Next, Scan};
use crate::store::{Now, Store};
use crate::types::object::On;
use bson::{DateTime, RawDocumentBuf, doc};
use remora_arena::Journal;
use remora_document::Filter;
use remora_index::hash::record_key;
use remora_layout::limits::{EXPIRE_TURN_DOCUMENTS, EXPIRE_TURN_INDEXES};

impl Collections {
    /// Removes documents that have expired: a bounded number. True if more may have.
    pub(super) fn expire_some<J: Journal>(&mut self, store: &mut Store<J>, now: Now) -> bool {
        let mut left = EXPIRE_TURN_DOCUMENTS;
        let (mut looks, first) = (0, self.expires_from);
        let roots: Vec<u32> =
            self.timed.range(first..).chain(self.timed.range(..first)).copied().collect();
        for root in roots {
            self.expires_from = root;
            // Dumped or loaded ones stay unchanged, and a flush removes all of it.
            let stays = store.is_moving(root) || store.is_flushed_at(root);
            if stays || !store.is_live(self.named(root).root) {
                continue;
            }
            for at in 0..self.named(root).indexes.len() {
                if self.named(root).indexes[at].spec.expires_after_s.is_none() {
                    continue;
                }
                looks += 1;
                if looks > EXPIRE_TURN_INDEXES || !store.may_expire() {
                    return false;
                }
                left -= self.expire_in(store, (root, at), left, now);
                if left == 0 {
                    self.weigh(store, root);
                    return true;
                }
            }
            self.weigh(store, root);
        }
        false
    }

    /// Removes the documents of an index whose time has come, so many at most; gives their number.
    fn expire_in<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (root, at): (u32, usize),
        most: usize,
        now: Now,
    ) -> usize {
        let index = &self.named(root).indexes[at];
        let Some(after_s) = index.spec.expires_after_s.filter(|_| index.is_ready()) else {
            return 0;
        };
        let due_ms = (now.unix_ms as i64).saturating_sub(after_s * 1000);
        let name = index.spec.name.clone();
        let path = index.spec.fields[0].path();
        let due = doc! { path: { "$lte": DateTime::from_millis(due_ms) } };
        let due = RawDocumentBuf::try_from(&due).ok();
        let Some(filter) = due.and_then(|due| Filter::parse(&due).ok()) else { return 0 };
        let wanted = Wanted { ring: None, filter: &filter, order: None, limit: None, changes: &[] };
        let Some(plan) = self.named(root).plan_by(store, &name, &wanted) else { return 0 };
        let key = record_key(&store.owner, root).to_vec();
        let on = On { key: &key, hash: store.hash_in(root), now };
        let (mut scan, mut removed) = (Scan::new(plan), 0);
        // Bounded: each turn removes a document.
        while removed < most {
            let Next::Match(id, _) = scan.next(store, self.named(root), &filter) else { break };
            let Ok(edit) = self.named(root).edit(store, (&id, None), None) else { break };
            if self.remove_these(store, (on, root), &[edit]).is_err() {
                break;
            }
            removed += 1;
        }
        removed
    }
}
