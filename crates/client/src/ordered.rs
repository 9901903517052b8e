//! Keys that hold ordered trees.

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;
use remora_client_core::{OrderedFound, OrderedGot, OrderedInfo, OrderedSettings, OrderedValue};
use remora_protocol::ordered::OrderedRange;
use std::ops::{Bound, RangeBounds};

/// Most ordered trees whose places a session keeps.
const MOST_VIEWS: usize = 1 << 10;

/// Entries that an iterator fetches at a time.
const ENTRIES_AT_A_TIME: u64 = 256;

/// A handle for a key that holds an ordered tree: [`Session::ordered`]. It asks for changes, and fetches
/// keys and ranges by either route: by READs from the root to the leaf, with the upper
/// nodes kept.
///
/// Keys are byte strings. In a tree of integers they are integers from 0 to
/// 18446744073709551615, written in decimal.
pub struct OrderedKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut core::OpenOrdered,
    cache: &'s mut core::SharedCache,
    path: core::Path,
}

impl Session {
    /// A handle for a key that holds an ordered tree, or will hold one. This sends nothing.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.ordered(b"orders by day")?.set(b"2026-11-27/4711", b"open")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ordered(&mut self, key: &[u8]) -> Result<OrderedKey<'_>, Error> {
        self.choose_kept_nodes();
        let Self { core, ordered, ordered_cache, path, .. } = self;
        let view = ordered.get(key, MOST_VIEWS, || {
            let mut view = core.open_ordered(key)?;
            ordered_cache.join(view.tree_mut());
            Ok(view)
        })?;
        Ok(OrderedKey { core, view, cache: ordered_cache, path: *path })
    }
}

impl Session {
    /// Keeps inner nodes of ordered trees and of large sorted sets so from now on, all together; none of
    /// those that it has.
    /// By default 1 MiB of what the session visits most.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{CachePolicy, FatRootLimits, OrderedCache};
    ///
    /// let policy = CachePolicy::Greedy(FatRootLimits::nodes(usize::MAX));
    /// session.keep_ordered(OrderedCache { bytes: 64 << 20, policy });
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep_ordered(&mut self, cache: core::OrderedCache) {
        self.ordered_cache = core::SharedCache::new(cache);
        let ordered = self.ordered.all().map(core::OpenOrdered::tree_mut);
        for tree in ordered.chain(self.sorted.all().map(core::OpenSorted::tree_mut)) {
            self.ordered_cache.join(tree);
        }
    }

    /// Chooses which inner nodes the session keeps, if it is time to.
    pub(crate) fn choose_kept_nodes(&mut self) {
        let ordered = self.ordered.all().map(core::OpenOrdered::tree_mut);
        let sorted = self.sorted.all().map(core::OpenSorted::tree_mut);
        self.ordered_cache.choose_if_due(ordered.chain(sorted));
    }
}

/// The keys of a range, for a request.
fn range<'k>(keys: &impl RangeBounds<&'k [u8]>) -> OrderedRange<'k> {
    let bound = |of: Bound<&&'k [u8]>| of.map(|key| *key);
    OrderedRange { from: bound(keys.start_bound()), to: bound(keys.end_bound()) }
}

impl<'s> OrderedKey<'s> {
    /// Looks keys up by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let got = session.ordered(b"orders by day")?.by(Path::Read).get(b"2026-11-27/4711")?;
    /// println!("{:?}, {:?}", got.value, got.served_by);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// Keeps inner nodes of this tree so from now on, apart from those of the session's other trees
    /// ([`Session::keep_ordered`]); with 0 bytes none.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{CachePolicy, FatRootLimits, OrderedCache};
    ///
    /// // The nodes that this session visits most.
    /// let policy = CachePolicy::Greedy(FatRootLimits::nodes(usize::MAX));
    /// session.ordered(b"orders by day")?.keep(OrderedCache { bytes: 8 << 20, policy });
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(&mut self, cache: core::OrderedCache) {
        self.view.set_cache(cache);
    }

    /// Bytes of inner nodes that are kept of this tree now, and how many they are.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let (bytes, nodes) = session.ordered(b"orders by day")?.kept();
    /// # Ok(())
    /// # }
    /// ```
    pub fn kept(&self) -> (usize, usize) {
        self.view.cached()
    }

    /// Makes an empty tree with these settings. False if there is a tree.
    ///
    /// # Errors
    /// See [`Error`]. Settings beyond the limits are refused.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{KeyForm, OrderedSettings};
    ///
    /// let integers = OrderedSettings { fan_out: 16, ..OrderedSettings::of(KeyForm::Integers) };
    /// session.ordered(b"readings")?.create(integers)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(&mut self, settings: OrderedSettings) -> Result<bool, Error> {
        Ok(self.core.ordered_create(self.view, settings)?)
    }

    /// Gives a key a value. True if the key is new. A tree that is not there is made, of byte strings.
    ///
    /// # Errors
    /// See [`Error`]. A key or value that is longer than the tree allows is refused as too large, and in
    /// a tree of integers a key that is none as no integer.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let is_new = session.ordered(b"orders by day")?.set(b"2026-11-27/4711", b"open")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        Ok(self.core.ordered_set(self.view, key, (value, false))?)
    }

    /// The same, where the value is a link: the name of another key.
    ///
    /// # Errors
    /// As [`OrderedKey::set`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.ordered(b"orders by day")?.set_link(b"2026-11-27/4711", b"order:4711")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_link(&mut self, key: &[u8], target: &[u8]) -> Result<bool, Error> {
        Ok(self.core.ordered_set(self.view, key, (target, true))?)
    }

    /// Removes a key. True if it was there. The tree stays.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let was_there = session.ordered(b"orders by day")?.remove(b"2026-11-27/4711")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.core.ordered_remove(self.view, key)?)
    }

    /// The value of a key, and how it was fetched.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let got = session.ordered(b"orders by day")?.get(b"2026-11-27/4711")?;
    /// println!("{:?}", got.value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&mut self, key: &[u8]) -> Result<OrderedGot, Error> {
        self.cache.count_walk();
        Ok(self.core.ordered_get(self.view, key, self.path)?)
    }

    /// The entries of a range, in order, so many at most. By READs several leaves come at a time; each of
    /// them is of one moment, and different ones may be of different moments.
    ///
    /// # Errors
    /// See [`Error`]. All of them together have 64 MiB at most.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let (from, to) = (&b"2026-11-27"[..], &b"2026-11-28"[..]);
    /// for (key, value) in session.ordered(b"orders by day")?.range(from..to, 100)?.entries {
    ///     println!("{}: {:?}", key.escape_ascii(), value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<'k>(
        &mut self,
        keys: impl RangeBounds<&'k [u8]>,
        limit: u64,
    ) -> Result<OrderedFound, Error> {
        self.cache.count_walk();
        Ok(self.core.ordered_range(self.view, range(&keys), (false, limit), self.path)?)
    }

    /// The same, from the greatest key down.
    ///
    /// # Errors
    /// As [`OrderedKey::range`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let newest = session.ordered(b"orders by day")?.reverse_range(.., 10)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reverse_range<'k>(
        &mut self,
        keys: impl RangeBounds<&'k [u8]>,
        limit: u64,
    ) -> Result<OrderedFound, Error> {
        self.cache.count_walk();
        Ok(self.core.ordered_range(self.view, range(&keys), (true, limit), self.path)?)
    }

    /// The entries of a range one after the other, in order. Some hundreds are fetched at a time, each
    /// time behind the last key that came; so a key that is there all the time comes once.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for entry in session.ordered(b"orders by day")?.entries(&b"2026-11-27"[..]..) {
    ///     let (key, value) = entry?;
    ///     println!("{}: {:?}", key.escape_ascii(), value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn entries<'k>(self, keys: impl RangeBounds<&'k [u8]>) -> OrderedEntriesOf<'s> {
        OrderedEntriesOf::new(self, &keys, false)
    }

    /// The same, from the greatest key down.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let newest = session.ordered(b"orders by day")?.reverse_entries(..).next();
    /// # Ok(())
    /// # }
    /// ```
    pub fn reverse_entries<'k>(self, keys: impl RangeBounds<&'k [u8]>) -> OrderedEntriesOf<'s> {
        OrderedEntriesOf::new(self, &keys, true)
    }

    /// How many keys a range has.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let all = session.ordered(b"orders by day")?.count(..)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn count<'k>(&mut self, keys: impl RangeBounds<&'k [u8]>) -> Result<u64, Error> {
        Ok(self.core.ordered_count(self.view, range(&keys))?)
    }

    /// How many keys stand before this one; `None` if it is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let rank = session.ordered(b"orders by day")?.rank(b"2026-11-27/4711")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rank(&mut self, key: &[u8]) -> Result<Option<u64>, Error> {
        Ok(self.core.ordered_rank(self.view, key)?)
    }

    /// The key with so many before it, and its value; -1 is the greatest key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let last = session.ordered(b"orders by day")?.select(-1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn select(&mut self, rank: i64) -> Result<Option<(Vec<u8>, OrderedValue)>, Error> {
        Ok(self.core.ordered_select(self.view, rank)?)
    }

    /// What the tree is, and its sizes; `None` if there is none.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// println!("{:?}", session.ordered(b"orders by day")?.info()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn info(&mut self) -> Result<Option<OrderedInfo>, Error> {
        Ok(self.core.ordered_info(self.view)?)
    }

    /// Nodes and entries of each level, from the root down; none if there is no tree.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for level in session.ordered(b"orders by day")?.levels()? {
    ///     println!("{} nodes", level.nodes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn levels(&mut self) -> Result<Vec<core::LevelInfo>, Error> {
        Ok(self.core.ordered_levels(self.view)?)
    }

    /// The nodes of a level, 0 that of the leaves, in the order of their keys, so many at most: where
    /// they lie, keys below, and how often lookups that the server answered came to them.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for node in session.ordered(b"orders by day")?.nodes(1, 100)? {
    ///     println!("{:?}: {} lookups", node.at, node.accesses);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn nodes(&mut self, level: u8, limit: u64) -> Result<Vec<core::NodeInfo>, Error> {
        Ok(self.core.ordered_nodes(self.view, level, limit)?)
    }

    /// Inner nodes from the top, with their content. The addresses of their children are held: each
    /// stays that of the root of its part until [`OrderedKey::release`] ends the epoch, or its time has
    /// come. The same call with the same epoch again makes that later. `None` if there is no tree, or
    /// the epoch does not hold the address at which they are to begin.
    ///
    /// A restart of the server, and a failover, end all epochs: readers find dead nodes then, and
    /// begin at the root. Time counts from before the call.
    ///
    /// # Errors
    /// See [`Error`]. If more would be held than may be, that is refused as too large.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::OrderedHold;
    ///
    /// let two_levels =
    ///     OrderedHold { epoch: 1, for_ms: 60_000, levels: 2, most_bytes: 64 << 10, below: None };
    /// let mut tree = session.ordered(b"orders by day")?;
    /// for node in tree.hold(two_levels)?.unwrap_or_default() {
    ///     println!("{:?} names {} children", node.info.at, node.children.len());
    /// }
    /// tree.release(1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold(&mut self, hold: core::OrderedHold) -> Result<Option<Vec<core::InnerNode>>, Error> {
        Ok(self.core.ordered_hold(self.view, hold)?)
    }

    /// Ends an epoch that holds addresses. True if it held some.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let was_held = session.ordered(b"orders by day")?.release(1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(&mut self, epoch: u64) -> Result<bool, Error> {
        Ok(self.core.ordered_release(self.view, epoch)?)
    }

    /// What has happened to the lookups by READs.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// println!("{:?}", session.ordered(b"orders by day")?.events());
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> core::OrderedEvents {
        self.view.events()
    }
}

/// The entries of a range of an ordered tree, one after the other: [`OrderedKey::entries`]. After an
/// error there are no more.
pub struct OrderedEntriesOf<'s> {
    key: OrderedKey<'s>,
    /// What has not been fetched yet.
    left: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    is_reverse: bool,
    fetched: std::vec::IntoIter<(Vec<u8>, OrderedValue)>,
    is_over: bool,
}

impl<'s> OrderedEntriesOf<'s> {
    fn new<'k>(key: OrderedKey<'s>, keys: &impl RangeBounds<&'k [u8]>, is_reverse: bool) -> Self {
        let owned = |of: Bound<&&'k [u8]>| of.map(|key| key.to_vec());
        let left = (owned(keys.start_bound()), owned(keys.end_bound()));
        Self { key, left, is_reverse, fetched: Vec::new().into_iter(), is_over: false }
    }

    /// Fetches some more, and notes where they end.
    fn fetch(&mut self) -> Result<(), Error> {
        let (from, to) = (self.left.0.as_ref(), self.left.1.as_ref());
        let range = (from.map(|key| &key[..]), to.map(|key| &key[..]));
        let found = match self.is_reverse {
            false => self.key.range(range, ENTRIES_AT_A_TIME),
            true => self.key.reverse_range(range, ENTRIES_AT_A_TIME),
        };
        let entries = found.inspect_err(|_| self.is_over = true)?.entries;
        self.is_over = (entries.len() as u64) < ENTRIES_AT_A_TIME;
        if let Some((last, _)) = entries.last() {
            let end = if self.is_reverse { &mut self.left.1 } else { &mut self.left.0 };
            *end = Bound::Excluded(last.clone());
        }
        self.fetched = entries.into_iter();
        Ok(())
    }
}

impl Iterator for OrderedEntriesOf<'_> {
    type Item = Result<(Vec<u8>, OrderedValue), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fetched.len() == 0
            && !self.is_over
            && let Err(error) = self.fetch()
        {
            return Some(Err(error));
        }
        self.fetched.next().map(Ok)
    }
}
