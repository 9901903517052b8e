//! Searches of trees, by either route.

use super::asked::{Resolved, Searched, TreeSearcher};
use super::found::TreeFound;
use super::view::OpenTree;
use crate::choose::{Class, ClassKey, Route};
use crate::core::Core;
use crate::counts::Counts;
use crate::error::Error;
use crate::path::{Path, ServedBy};
use remora_index::rtree::Query;
use remora_protocol::message::Status;

impl TreeSearcher {
    /// Searches a tree: by READs if the path says so, or if it is [`Path::Choose`] and the session
    /// chooses them, and if they conclude; otherwise by asking.
    ///
    /// # Errors
    /// See [`Error`]: the window is no rectangle, the tree has gone.
    pub(crate) fn search(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        query: &Query,
        path: Path,
    ) -> Result<TreeFound<'_>, Error> {
        core.asker.ready()?;
        if query.checked().is_err() {
            return Err(Error::Refused(Status::BadRectangle));
        }
        let mut classes = std::mem::take(&mut tree.classes);
        let searched = self.search_by(core, tree, query, path, classes.get(ClassKey::of(query)));
        tree.classes = classes;
        let Searched { served_by, counts, nodes_visited } = searched?;
        let (objects, names) = (&self.found, &self.names);
        let counts = core.counted(counts);
        Ok(TreeFound { objects, names, served_by, counts, nodes_visited })
    }

    /// Decides, searches, and learns; the objects are in `self.found` then.
    fn search_by(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        query: &Query,
        path: Path,
        class: &mut Class,
    ) -> Result<Searched, Error> {
        let (timing, most_reads) =
            core.router.begin_search(&mut core.asker.endpoint, class, path)?;
        let searched = match timing.route {
            Route::Ask => self.search_asked(core, tree, query, Counts::default())?,
            Route::Read => self.search_read(core, tree, query, most_reads)?,
        };
        core.router.end_search(
            &mut core.asker.endpoint,
            class,
            &timing,
            searched.served_by,
            &searched.counts,
        )?;
        Ok(searched)
    }

    fn search_read(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
    ) -> Result<Searched, Error> {
        let mut cost = Counts { operations: 1, ..Counts::default() };
        if let Some(walked) = self.read_tree(core, tree, query, most_reads, &mut cost)?
            && let Some(Resolved { asked, gone }) = self.resolve_found(core, tree, &mut cost)?
            && (gone == 0 || matches!(query, Query::Window { .. }))
        {
            core.asker.endpoint.staleness.conclude_reads();
            cost.read = u64::from(asked == 0);
            cost.asked = u64::from(asked > 0);
            core.meter.add(&cost);
            let served_by = match asked {
                0 => ServedBy::read_after(walked.retries),
                _ => ServedBy::AskedAfterRead,
            };
            return Ok(Searched { served_by, counts: cost, nodes_visited: walked.nodes });
        }
        cost.undecided += (cost.read_lease_lapsed + cost.behind_writes == 0) as u64;
        self.search_asked(core, tree, query, Counts { operations: 0, ..cost })
    }
}
