//! Breadth-first search over users and whom they follow (KELI 6.2; K5, K19, K25).
//!
//! ```text
//! user:7      name | follows -----> follow:7:0   0 | 1 | .. | 99 | next ---> follow:7:1  0 | ..
//!                                                |   |  each links to a user
//!                                             user:12 ..
//! ```
//! The program knows one key, the source's. It comes to all others by names that stand in items: with
//! links it follows them, with keys it gets each.

use super::chunks::{self, NEXT, chunk_key};
use super::fetch::Fetcher;
use super::graph::{Graph, Levels};
use super::item::{Item, NewItem, known};
use super::load::Loader;
use crate::meter::Meter;
use anyhow::{Context, bail};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client_core::Link;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};

const USER: &str = "user:";
const FOLLOWS: &str = "follows";

/// Items of a graph, and bytes of all of them, about.
pub fn size(graph: &Graph) -> (usize, usize) {
    let (users, edges) = (graph.ids().len(), graph.edges());
    let chunks = users + edges / chunks::CHUNK_LINKS;
    (users + chunks, 128 * (users + chunks) + 40 * edges)
}

/// Stores a graph: users first, then the chunks, the last of each list first. So the owner of a chunk
/// finds what it links to, and all links have a hint from the beginning but those of users to lists.
pub fn store(graph: &Graph, loader: &mut Loader) -> anyhow::Result<()> {
    let mut item = NewItem::default();
    for (at, id) in graph.ids().iter().enumerate() {
        new_user(*id, graph.follows(at).len() > 0, &mut item);
        loader.put(&item)?;
    }
    for (at, id) in graph.ids().iter().enumerate() {
        let target = |to| format!("{USER}{to}");
        chunks::store(&format!("follow:{id}"), graph.follows(at), target, loader)?;
    }
    Ok(())
}

/// Writes a share of the users anew, those that a seed draws.
pub fn update(graph: &Graph, share: f64, seed: u64, loader: &mut Loader) -> anyhow::Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut item = NewItem::default();
    for (at, id) in graph.ids().iter().enumerate() {
        if random.random::<f64>() < share {
            new_user(*id, graph.follows(at).len() > 0, &mut item);
            loader.put(&item)?;
        }
    }
    Ok(())
}

/// The item of a user.
fn new_user(id: u32, follows: bool, item: &mut NewItem) {
    item.begin(&format!("{USER}{id}"));
    item.plain("name", format!("name {id}").as_bytes());
    if follows {
        item.link(FOLLOWS, &chunk_key(&format!("follow:{id}"), 0));
    }
}

/// A search that some threads do together, level by level.
pub struct Search {
    batch: usize,
    gate: Barrier,
    has_failed: AtomicBool,
    /// A bit for each user that was reached.
    seen: Vec<AtomicU64>,
    /// Links to the users of the present level that no thread has taken.
    level: Mutex<Vec<Link>>,
    next: Mutex<Vec<Link>>,
    levels: Mutex<Levels>,
}

impl Search {
    /// A search of so many threads from a source; each fetches up to `batch` items together.
    pub fn new(graph: &Graph, source: u32, threads: usize, batch: usize) -> Self {
        let most = graph.ids().last().map_or(0, |id| *id as usize);
        let seen = (0..=most / 64).map(|_| AtomicU64::new(0)).collect();
        let search = Self {
            batch,
            gate: Barrier::new(threads),
            has_failed: AtomicBool::new(false),
            seen,
            level: Mutex::new(vec![known(&format!("{USER}{source}"))]),
            next: Mutex::default(),
            levels: Mutex::new(Levels(vec![1])),
        };
        search.reach(source);
        search
    }

    /// Whether this user is reached for the first time.
    fn reach(&self, id: u32) -> bool {
        let bit = 1 << (id % 64);
        match self.seen.get(id as usize / 64) {
            Some(word) if word.load(Ordering::Relaxed) & bit != 0 => false,
            Some(word) => word.fetch_or(bit, Ordering::Relaxed) & bit == 0,
            None => false,
        }
    }

    /// One thread's share of the search. All of them have to call it; each returns when all are done.
    pub fn run(&self, fetcher: &mut Fetcher, meter: &mut Meter) -> anyhow::Result<()> {
        let mut outcome = Ok(());
        let mut is_first = true;
        loop {
            if outcome.is_ok() {
                outcome = self.run_level(fetcher, meter, std::mem::take(&mut is_first));
                if outcome.is_err() {
                    self.has_failed.store(true, Ordering::SeqCst);
                }
            }
            if self.gate.wait().is_leader() {
                self.begin_level();
            }
            self.gate.wait();
            let is_over = locked(&self.level).is_empty();
            // None takes of the level before all have looked.
            self.gate.wait();
            if is_over || self.has_failed.load(Ordering::SeqCst) {
                return outcome;
            }
        }
    }

    fn begin_level(&self) {
        let next = std::mem::take(&mut *locked(&self.next));
        if !next.is_empty() {
            locked(&self.levels).0.push(next.len() as u64);
        }
        *locked(&self.level) = next;
    }

    /// The levels that were reached.
    pub fn levels(&self) -> Levels {
        locked(&self.levels).clone()
    }

    /// This thread's part of a level. A batch has the chunks that the last one led to, and users up to
    /// its size.
    fn run_level(
        &self,
        fetcher: &mut Fetcher,
        meter: &mut Meter,
        is_source: bool,
    ) -> anyhow::Result<()> {
        let names = chunks::Names::default();
        let (mut links, mut chunks, mut reached) = (Vec::new(), Vec::new(), Vec::new());
        // The source's key is known; no link leads to it.
        let mut is_known = is_source;
        loop {
            std::mem::swap(&mut links, &mut chunks);
            chunks.clear();
            self.take(self.batch.saturating_sub(links.len()), &mut links);
            if links.is_empty() {
                locked(&self.next).append(&mut reached);
                return Ok(());
            }
            meter.measure(links.len() as u64, |_| {
                let mut see = |at: usize, item: Item<'_>| {
                    self.see((&links[at].key, &names), item, &mut chunks, &mut reached)
                };
                match std::mem::take(&mut is_known) {
                    true => fetcher.look_up(&links, &mut see),
                    false => fetcher.follow(&links, &mut see),
                }
            })?;
        }
    }

    /// Takes users of the level, at most so many.
    fn take(&self, most: usize, links: &mut Vec<Link>) {
        let mut level = locked(&self.level);
        let from = level.len().saturating_sub(most);
        links.extend(level.drain(from..));
    }

    /// Looks at the links of an item, a user or a chunk.
    fn see(
        &self,
        (key, names): (&Arc<[u8]>, &chunks::Names),
        item: Item<'_>,
        chunks: &mut Vec<Link>,
        reached: &mut Vec<Link>,
    ) -> anyhow::Result<()> {
        for field in item.fields().filter(|field| field.is_link) {
            if field.name == NEXT.as_bytes() || field.name == FOLLOWS.as_bytes() {
                chunks.push(field.link(key));
            } else if self.reach(user_id(field.value)?) {
                reached.push(field.link_named(key, names.of(field.name)));
            }
        }
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number in a user's key.
fn user_id(key: &[u8]) -> anyhow::Result<u32> {
    let digits = key.strip_prefix(USER.as_bytes()).context("a link to something else")?;
    let mut id = 0u32;
    for digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            bail!("a user without a number");
        }
        id = id.wrapping_mul(10).wrapping_add(value.into());
    }
    Ok(id)
}
