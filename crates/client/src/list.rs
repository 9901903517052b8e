//! Keys that hold lists.

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;
use remora_client_core::Side;
use std::time::Duration;

/// Most lists whose locations a session keeps.
const MOST_VIEWS: usize = 1 << 14;

/// A handle for a key that holds a list: [`Session::list`]. It asks for changes, and fetches elements
/// by either route. The first READs find the list; from then on the elements near its ends are one
/// round trip, or a few. An index below 0 counts from the end: -1 is the last element.
pub struct ListKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut core::OpenList,
    path: core::Path,
}

impl Session {
    /// A handle for a key that holds a list, or will hold one. This sends nothing.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.list(b"orders")?.push_back(&[b"4711", b"4712"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&mut self, key: &[u8]) -> Result<ListKey<'_>, Error> {
        let Self { core, lists, path, .. } = self;
        let view = lists.get(key, MOST_VIEWS, || core.open_list(key))?;
        Ok(ListKey { core, view, path: *path })
    }

    /// Removes up to `count` elements from the front of the first of some keys' lists that has some, in the
    /// order of the keys, or waits until one has: for this time, `None` for without end. Gives the key and
    /// the elements, the first one first; `None` once the time is over. The keys may lie in any shards.
    /// The server serves requests that wait for one list in the order in which they began, whatever their command.
    ///
    /// # Errors
    /// See [`Error`]. [`Refusal::WaitEnded`](crate::Refusal::WaitEnded): the server became a replica;
    /// nothing was removed. [`Refusal::WrongType`](crate::Refusal::WrongType): one of the keys holds
    /// something else now. At most 1024 keys, together of at most 64 KiB.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// while let Some(taken) = session.wait_front_of(&[b"urgent", b"orders"], 1, None)? {
    ///     println!("{}: {} elements", taken.key.escape_ascii(), taken.items.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_front_of(
        &mut self,
        keys: &[&[u8]],
        count: u64,
        time: Option<Duration>,
    ) -> Result<Option<core::ListTaken>, Error> {
        Ok(self.core.list_wait_any(keys, (Side::Left, count), time)?)
    }

    /// As [`Session::wait_front_of`], from the end: the last element first.
    ///
    /// # Errors
    /// As [`Session::wait_front_of`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use std::time::Duration;
    ///
    /// let second = Some(Duration::from_secs(1));
    /// let taken = session.wait_back_of(&[b"urgent", b"orders"], 8, second)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_back_of(
        &mut self,
        keys: &[&[u8]],
        count: u64,
        time: Option<Duration>,
    ) -> Result<Option<core::ListTaken>, Error> {
        Ok(self.core.list_wait_any(keys, (Side::Right, count), time)?)
    }
}

impl ListKey<'_> {
    /// Fetches by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let last = session.list(b"orders")?.by(Path::Read).index(-1)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// The elements from one index to another, both included, all of one moment.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let latest = session.list(b"orders")?.range(-10, -1)?;
    /// println!("{} orders, {} round trips", latest.items.len(), latest.counts.round_trips);
    /// # Ok(())
    /// # }
    /// ```
    pub fn range(&mut self, start: i64, stop: i64) -> Result<core::ListItems, Error> {
        Ok(self.core.list_range(self.view, (start, stop), self.path)?)
    }

    /// The links of a range, from one index to another, both included; none for an element that is no link:
    /// [`Session::link_range`].
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let first = session.list(b"friends:7")?.links(0, 9)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn links(&mut self, start: i64, stop: i64) -> Result<Vec<Option<core::Link>>, Error> {
        Ok(self.core.link_range(self.view, (start, stop), self.path)?)
    }

    /// The element of an index, if there is one.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let first: Option<Vec<u8>> = session.list(b"orders")?.index(0)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn index(&mut self, index: i64) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.range(index, index)?.items.into_iter().next())
    }

    /// Adds elements behind the last one, as one change. Gives the length of the list.
    ///
    /// # Errors
    /// See [`Error`]. Without any element it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let length = session.list(b"orders")?.push_back(&[b"4713"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_back(&mut self, elements: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.list_push(self.view, Side::Right, elements)?)
    }

    /// Adds elements before the first one, one after the other, as one change: the last of them is
    /// the first one of the list then. Gives the length of the list.
    ///
    /// # Errors
    /// See [`Error`]. Without any element it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let length = session.list(b"orders")?.push_front(&[b"4700"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_front(&mut self, elements: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.list_push(self.view, Side::Left, elements)?)
    }

    /// Adds links to these keys behind the last element, as one change. Such a key need not hold anything
    /// yet; every other read sees its name. Gives the length of the list.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any key it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let length = session.list(b"friends:7")?.push_links_back(&[b"courier:1", b"courier:2"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_links_back(&mut self, targets: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.link_push(self.view, Side::Right, targets)?)
    }

    /// Adds links to these keys before the first element, one after the other, as one change: the last of
    /// them is the first element of the list then. Gives the length of the list.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any key it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let length = session.list(b"latest")?.push_links_front(&[b"order:4711"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn push_links_front(&mut self, targets: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.link_push(self.view, Side::Left, targets)?)
    }

    /// Removes up to `count` elements from the end. Gives them, the last one first; fewer, if they are
    /// too long for one reply.
    ///
    /// # Errors
    /// See [`Error`]. An element of more than 95 KiB is refused as too large: a range reads it.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let taken = session.list(b"orders")?.pop_back(1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_back(&mut self, count: u64) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.core.list_pop(self.view, Side::Right, count)?)
    }

    /// Removes up to `count` elements from the front. Gives them, the first one first; fewer, if they are
    /// too long for one reply.
    ///
    /// # Errors
    /// See [`Error`]. An element of more than 95 KiB is refused as too large: a range reads it.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for order in session.list(b"orders")?.pop_front(8)? {
    ///     println!("{}", order.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_front(&mut self, count: u64) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.core.list_pop(self.view, Side::Left, count)?)
    }

    /// Removes the first element, or waits until there is one: for this time, `None` for without end. Gives
    /// `None` once the time is over. Those who wait for one list are served in the order in which they
    /// began. Another thread of the process uses a session of its own meanwhile.
    ///
    /// # Errors
    /// See [`Error`]. [`Refusal::WaitEnded`](crate::Refusal::WaitEnded): the server became a replica;
    /// nothing was removed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// while let Some(order) = session.list(b"orders")?.wait_front(Some(second))? {
    ///     println!("{}", order.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_front(&mut self, time: Option<Duration>) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.core.list_wait(self.view, Side::Left, time)?)
    }

    /// Removes the last element, or waits until there is one: for this time, `None` for without end. Gives
    /// `None` once the time is over. Those who wait for one list are served in the order in which they
    /// began. Another thread of the process uses a session of its own meanwhile.
    ///
    /// # Errors
    /// See [`Error`]. [`Refusal::WaitEnded`](crate::Refusal::WaitEnded): the server became a replica;
    /// nothing was removed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// while let Some(order) = session.list(b"orders")?.wait_back(Some(second))? {
    ///     println!("{}", order.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_back(&mut self, time: Option<Duration>) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.core.list_wait(self.view, Side::Right, time)?)
    }

    /// Moves an element from one end of the list, `from`, to one end, `to`, of another key's list, as one
    /// change, or waits until there is one: for this time, `None` for without end. Gives the element; `None`
    /// once the time is over. The other key may lie in any shard. The server serves requests that wait for
    /// one list in the order in which they began; elements that several of them move to another shard at the
    /// same time arrive in any order.
    ///
    /// # Errors
    /// See [`Error`]. [`Refusal::WaitEnded`](crate::Refusal::WaitEnded): the server became a replica; nothing
    /// has moved. [`Refusal::WrongType`](crate::Refusal::WrongType): the other key holds something else;
    /// nothing has moved. After [`Error::TimedOut`] the element may have moved.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Side;
    ///
    /// let mut orders = session.list(b"orders")?;
    /// let order = orders.wait_to_move(Side::Left, (b"at work", Side::Right), None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_to_move(
        &mut self,
        from: Side,
        (key, to): (&[u8], Side),
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.core.list_wait_to_move(self.view, key, (from, to), time)?)
    }

    /// Replaces the element of an index. Whether it was there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// assert!(session.list(b"orders")?.set(0, b"4699")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, index: i64, element: &[u8]) -> Result<bool, Error> {
        Ok(self.core.list_set(self.view, index, element)?)
    }

    /// Removes elements that equal this one: at most `count` of them from the front, or from the end
    /// if it is below 0; all if it is 0. Gives how many.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let removed = session.list(b"orders")?.remove(1, b"4712")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, count: i64, element: &[u8]) -> Result<u64, Error> {
        Ok(self.core.list_remove(self.view, count, element)?)
    }

    /// Leaves the elements from one index to another, both included.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.list(b"orders")?.trim(-1000, -1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn trim(&mut self, start: i64, stop: i64) -> Result<(), Error> {
        Ok(self.core.list_trim(self.view, (start, stop))?)
    }

    /// Number of elements.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let length = session.list(b"orders")?.len()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn len(&mut self) -> Result<u64, Error> {
        Ok(self.core.list_len(self.view)?)
    }

    /// Whether there is no list.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// assert!(session.list(b"no orders")?.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_empty(&mut self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// What has happened to the reads of this list.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// println!("{:?}", session.list(b"orders")?.events());
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> core::ListEvents {
        self.view.events()
    }
}
