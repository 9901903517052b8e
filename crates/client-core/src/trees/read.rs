//! Reads a tree: the walk that the owner's threads run too, fed by READs.
//!
//! Invariants:
//! * the result counts only if the read lease still held when the last READ had completed;
//! * the result counts only if the tree's root, read behind the last node, is whole by its
//!   checksum, live, of the known generation, and has not expired. So all nodes were the tree's
//!   own, the cached ones too;
//! * a cached node counts only if its version was read again and is the same (`node_cache`);
//! * if changes are not durable at once, the batch of the root also reads the durable sequence, and
//!   the session asks if a node has changed since;
//! * a walk begins under the last read header. An old header has an old counter, so that too many
//!   nodes seem to have lost entries: the walk then restarts under a new header.

use super::asked::TreeSearcher;
use super::view::{Issue, OpenTree};
use crate::admission::{Admission, Admitted};
use crate::core::Core;
use crate::counts::Counts;
use crate::endpoint::Endpoint;
use crate::error::Error;
use remora_fabric::{RemoteAddress, Work};
use remora_index::rtree::{Query, Search};
use remora_layout::limits::{MAX_ISSUED, READ_RETRIES, WALK_RETRIES};
use remora_layout::node::{NotANode, Proof};
use remora_layout::tree::{TREE_HEADER_BYTES, TreeHeader, verify_header};
use remora_walk::remote::{NodeCache, Reads, Wide};
use remora_walk::{End, Walk};

/// The cost of a walk by READs beside its [`Counts`].
pub(super) struct Walked {
    /// Nodes examined.
    pub nodes: u64,
    /// READs without a result, and restarts.
    pub retries: u32,
}

impl TreeSearcher {
    /// Searches by READs; the objects are in `self.found` then. `None` if it did not conclude. It
    /// renews a lapsed lease by a small request, before the walk or for another one. It does not
    /// conclude either if it needs more than `most_reads` nodes. It waits until it is admitted
    /// (C24).
    pub(super) fn read_tree(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
        if !core.asker.may_read(tree.shard) {
            cost.behind_writes = 1;
            return Ok(None);
        }
        let Some(admission) = self.admission.clone() else {
            return self.read_admitted(core, tree, query, most_reads, cost);
        };
        let mut walk = await_admission(&mut core.asker.endpoint, &admission)?;
        let (began_ns, before) = (core.asker.endpoint.connection.time.now_ns(), cost.round_trips);
        let walked = self.read_admitted(core, tree, query, most_reads, cost);
        let took_ns = core.asker.endpoint.connection.time.now_ns().saturating_sub(began_ns);
        walk.round_trip_ns = took_ns.checked_div(cost.round_trips - before).unwrap_or(0);
        walked
    }

    fn read_admitted(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
        for tries in 0..=READ_RETRIES {
            if !core.asker.endpoint.holds_lease()? {
                self.renew_lease(core, tree, cost)?;
            }
            let Some(walked) = self.walk_by_reads(core, tree, query, most_reads, cost)? else {
                return Ok(None);
            };
            if core.asker.endpoint.holds_lease()? {
                return Ok(Some(Walked { retries: walked.retries + tries, ..walked }));
            }
        }
        Ok(None)
    }

    /// Renews the read lease by a request whose reply is short.
    fn renew_lease(
        &mut self,
        core: &mut Core,
        tree: &OpenTree,
        cost: &mut Counts,
    ) -> Result<(), Error> {
        let before = core.meter;
        let info = self.tree_info(core, &tree.name);
        let spent = core.meter.since(&before);
        core.meter = before;
        cost.round_trips += spent.round_trips;
        cost.bytes += spent.bytes;
        cost.read_lease_lapsed += 1;
        info.map(drop)
    }

    /// One walk by READs, with as many restarts as it takes; its result counts only if the lease
    /// still holds now.
    fn walk_by_reads(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        query: &Query,
        most_reads: Option<u64>,
        cost: &mut Counts,
    ) -> Result<Option<Walked>, Error> {
        let header = match tree.header {
            Some(header) => header,
            None => match self.read_tree_header(core, tree, cost)? {
                Some(header) => header,
                None => return Ok(None),
            },
        };
        let table = &core.directory.shards[tree.shard].table;
        let home = core.directory.shards[tree.shard].home();
        let issued = match tree.reading.issue {
            Issue::Single => 1,
            Issue::Multi => MAX_ISSUED,
        };
        let mut node_cache = std::mem::replace(&mut tree.node_cache, NodeCache::new(0));
        let mut search = Search::begin(*query, home, header, table.region_bytes);
        search.set_durable(core.directory.shards[tree.shard].durable);
        if table.lags {
            search.want_durable();
        }
        let most = (issued, most_reads.unwrap_or(u64::MAX));
        let node_bytes = search.node_bytes();
        let place = (tree.shard as u32, tree.root.ranges());
        let mut wide = Wide::new(search, place, node_bytes, most, &mut node_cache);
        let concluded = self.walk_tree(core, tree, &mut wide, cost);
        let search = wide.walk;
        let walked = Walked { nodes: search.nodes(), retries: search.retries() };
        cost.retries += walked.retries as u64;
        if concluded == Ok(true) {
            self.found.clear();
            self.found.extend_from_slice(search.results());
        }
        let known = &mut core.directory.shards[tree.shard].durable;
        *known = search.durable().max(*known);
        tree.node_cache = node_cache;
        tree.events.torn += u64::from(search.torn());
        Ok(concluded?.then_some(walked))
    }

    /// Walks until the end, with as many restarts as it takes. False: ask.
    fn walk_tree(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        wide: &mut Wide<'_, Search>,
        cost: &mut Counts,
    ) -> Result<bool, Error> {
        // Bounded: a walk begins again a bounded number of times.
        loop {
            let header = match (wide.run(&mut core.asker.endpoint, cost)?, tree.header) {
                (End::Found(()), _) => {
                    return self.root_stands(core, tree, wide.root_landed(), cost);
                }
                (End::Ask(_) | End::Beyond, _) => return Ok(false),
                (End::Stale, Some(header)) => {
                    tree.events.stale_kept += 1;
                    header
                }
                (End::Stale | End::Restart, _) => {
                    tree.events.began_again += 1;
                    match self.read_tree_header(core, tree, cost)? {
                        Some(header) => header,
                        None => return Ok(false),
                    }
                }
            };
            if wide.walk.restart(&header).is_err() {
                return Ok(false);
            }
        }
    }

    /// Whether the result counts: the root, which was read behind all nodes and landed at `from`,
    /// is live and has not expired. False: ask.
    fn root_stands(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        (mut from, bytes): (usize, usize),
        cost: &mut Counts,
    ) -> Result<bool, Error> {
        let home = core.directory.shards[tree.shard].home();
        for _ in 0..=WALK_RETRIES {
            match tree.root.verify(core.asker.endpoint.landed(from, bytes), home) {
                Ok((header, root)) => {
                    tree.header = Some(header);
                    if root.expires_at_ms == 0 {
                        return Ok(true);
                    }
                    let now_ns = core.asker.endpoint.now()?;
                    return Ok(!core
                        .asker
                        .endpoint
                        .lease
                        .may_have_expired(root.expires_at_ms, now_ns));
                }
                Err(NotANode::Torn) => {
                    cost.retries += 1;
                    tree.events.torn += 1;
                    fetch_root(&mut core.asker.endpoint, tree, cost)?;
                    from = 0;
                }
                Err(NotANode::Dead) => {
                    tree.events.header_gone += 1;
                    self.look_up(core, tree)?;
                    break;
                }
            }
        }
        Ok(false)
    }

    /// Reads a tree's header. `None`: ask; the session then looks up the tree again, as another
    /// tree may have its name.
    pub(super) fn read_tree_header(
        &mut self,
        core: &mut Core,
        tree: &mut OpenTree,
        cost: &mut Counts,
    ) -> Result<Option<TreeHeader>, Error> {
        let home = core.directory.shards[tree.shard].home();
        let bytes = TREE_HEADER_BYTES;
        for _ in 0..=WALK_RETRIES {
            core.asker.endpoint.fetch(tree.shard as u32, tree.root.at.offset() as u64, bytes)?;
            cost.round_trips += 1;
            cost.bytes += bytes as u64;
            match verify_header(
                core.asker.endpoint.landed(0, bytes),
                home,
                tree.root.at,
                Proof::Checksum,
            ) {
                Ok(header) => {
                    tree.header = Some(header);
                    return Ok(Some(header));
                }
                Err(NotANode::Torn) => {
                    cost.retries += 1;
                    tree.events.torn += 1;
                }
                Err(NotANode::Dead) => {
                    tree.events.header_gone += 1;
                    self.look_up(core, tree)?;
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Asks where a tree of this name lies now.
    fn look_up(&mut self, core: &mut Core, tree: &mut OpenTree) -> Result<(), Error> {
        tree.header = None;
        tree.node_cache.clear();
        if let Some(info) = self.tree_info(core, &tree.name)? {
            tree.root = self.root_of(core, &tree.name, &info)?;
        }
        Ok(())
    }
}

fn await_admission<'a>(
    endpoint: &mut Endpoint,
    admission: &'a Admission,
) -> Result<Admitted<'a>, Error> {
    if !endpoint.connection.sleeps_by_link_alone() {
        let time = &endpoint.connection.time;
        return Ok(admission.enter(|| time.now_ns()));
    }
    // Only the link knows how to sleep there.
    loop {
        if let Some(walk) = admission.try_enter(endpoint.connection.time.now_ns()) {
            return Ok(walk);
        }
        // A WRITE that has completed would end each pause at once.
        endpoint.connection.pass_over_writes(&mut endpoint.link)?;
        endpoint.pause();
    }
}

/// Reads a tree's root once more, by itself.
fn fetch_root(endpoint: &mut Endpoint, tree: &OpenTree, cost: &mut Counts) -> Result<(), Error> {
    let region = tree.shard as u32;
    let [words, header] = tree.root.ranges();
    let bytes = words.1 + header.1;
    if header.1 == 0 {
        endpoint.fetch(region, words.0, words.1)?;
    } else {
        let mut reads = [(words, 0), (header, words.1)];
        endpoint.reserve(bytes);
        endpoint.post(&reads.map(|((offset, bytes), into)| Work::Read {
            id: 0,
            from: RemoteAddress { region, offset },
            into,
            bytes,
        }));
        reads.iter_mut().try_for_each(|_| endpoint.next().map(drop))?;
    }
    cost.round_trips += 1;
    cost.bytes += bytes as u64;
    Ok(())
}
