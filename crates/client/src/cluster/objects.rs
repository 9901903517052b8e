//! One thread's operations on lists and sets of a cluster, each at the primary of its key's group.

use super::session::ClusterSession;
use crate::error::Error;
use remora_client_core as core;
use std::time::{Duration, Instant};

/// The end of a wait, which may begin again at another server.
struct Until(Option<Instant>);

impl Until {
    /// After this time; without one, or beyond all times, there is no end.
    fn new(time: Option<Duration>) -> Self {
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// The time that is left.
    fn left(&self) -> Option<Duration> {
        self.0.map(|end| end.saturating_duration_since(Instant::now()))
    }
}

impl ClusterSession {
    /// The elements of a list from one index to another, both included, all of one moment. An index below 0
    /// counts from the end.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let latest = session.list_range(b"orders", -10, -1)?;
    /// println!("{} orders", latest.items.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_range(
        &mut self,
        key: &[u8],
        start: i64,
        stop: i64,
    ) -> Result<core::ListItems, Error> {
        let path = self.path();
        self.at(key, |session| session.list(key)?.by(path).range(start, stop))
    }

    /// The element of an index of a list, if there is one.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let first = session.list_index(b"orders", 0)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_index(&mut self, key: &[u8], index: i64) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path();
        self.at(key, |session| session.list(key)?.by(path).index(index))
    }

    /// Number of elements of a list.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let length = session.list_len(b"orders")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_len(&mut self, key: &[u8]) -> Result<u64, Error> {
        self.at(key, |session| session.list(key)?.len())
    }

    /// Adds elements behind the last one of a list, as one change. Gives the length of the list.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.list_push_back(b"orders", &[b"4711", b"4712"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_push_back(&mut self, key: &[u8], elements: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.list(key)?.push_back(elements))
    }

    /// Adds elements before the first one of a list, one after the other, as one change: the last of them is
    /// the first one of the list then. Gives the length of the list.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.list_push_front(b"orders", &[b"4700"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_push_front(&mut self, key: &[u8], elements: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.list(key)?.push_front(elements))
    }

    /// Removes up to `count` elements from the end of a list: [`ListKey::pop_back`](crate::ListKey::pop_back).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let last = session.list_pop_back(b"orders", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_pop_back(&mut self, key: &[u8], count: u64) -> Result<Vec<Vec<u8>>, Error> {
        self.at(key, |session| session.list(key)?.pop_back(count))
    }

    /// Removes up to `count` elements from the front of a list:
    /// [`ListKey::pop_front`](crate::ListKey::pop_front).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// for order in session.list_pop_front(b"orders", 8)? {
    ///     println!("{}", order.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_pop_front(&mut self, key: &[u8], count: u64) -> Result<Vec<Vec<u8>>, Error> {
        self.at(key, |session| session.list(key)?.pop_front(count))
    }

    /// Removes the first element of a list, or waits until there is one:
    /// [`ListKey::wait_front`](crate::ListKey::wait_front).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    /// [`Refusal::WaitEnded`](crate::Refusal::WaitEnded): the primary has changed;
    /// nothing was removed, and the application may wait again.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// use std::time::Duration;
    ///
    /// let order = session.list_wait_front(b"orders", Some(Duration::from_secs(1)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_wait_front(
        &mut self,
        key: &[u8],
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let until = Until::new(time);
        self.at(key, |session| session.list(key)?.wait_front(until.left()))
    }

    /// Removes the last element of a list, or waits until there is one:
    /// [`ListKey::wait_back`](crate::ListKey::wait_back).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    /// [`Refusal::WaitEnded`](crate::Refusal::WaitEnded): the primary has changed;
    /// nothing was removed, and the application may wait again.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// use std::time::Duration;
    ///
    /// let order = session.list_wait_back(b"orders", Some(Duration::from_secs(1)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_wait_back(
        &mut self,
        key: &[u8],
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let until = Until::new(time);
        self.at(key, |session| session.list(key)?.wait_back(until.left()))
    }

    /// Removes up to `count` elements from the front of the first of some lists that has some, or waits for
    /// them: [`Session::wait_front_of`](crate::Session::wait_front_of). The keys are of one group.
    ///
    /// # Errors
    /// As [`ClusterSession::list_wait_front`]. [`Refusal::OtherGroup`](crate::Refusal::OtherGroup), after the
    /// timeout: the keys are of several groups. [`Refusal::Malformed`](crate::Refusal::Malformed): there are
    /// none.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let keys: [&[u8]; 2] = [b"{shop}urgent", b"{shop}orders"];
    /// let taken = session.list_wait_front_of(&keys, 1, None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_wait_front_of(
        &mut self,
        keys: &[&[u8]],
        count: u64,
        time: Option<Duration>,
    ) -> Result<Option<core::ListTaken>, Error> {
        let (first, until) = (keys.first().copied().unwrap_or_default(), Until::new(time));
        self.at(first, |session| session.wait_front_of(keys, count, until.left()))
    }

    /// As [`ClusterSession::list_wait_front_of`], from the end: the last element first.
    ///
    /// # Errors
    /// As [`ClusterSession::list_wait_front_of`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let keys: [&[u8]; 2] = [b"{shop}urgent", b"{shop}orders"];
    /// let taken = session.list_wait_back_of(&keys, 1, None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_wait_back_of(
        &mut self,
        keys: &[&[u8]],
        count: u64,
        time: Option<Duration>,
    ) -> Result<Option<core::ListTaken>, Error> {
        let (first, until) = (keys.first().copied().unwrap_or_default(), Until::new(time));
        self.at(first, |session| session.wait_back_of(keys, count, until.left()))
    }

    /// Moves an element from one end of the list of `from` to one end of that of `to`, or waits for it:
    /// [`ListKey::wait_to_move`](crate::ListKey::wait_to_move). Both keys are of one group.
    ///
    /// # Errors
    /// As [`ClusterSession::list_wait_front_of`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// use remora_client::Side;
    ///
    /// let (from, to) = ((&b"{shop}orders"[..], Side::Left), (&b"{shop}work"[..], Side::Right));
    /// let order = session.list_wait_to_move(from, to, None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_wait_to_move(
        &mut self,
        from: (&[u8], core::Side),
        to: (&[u8], core::Side),
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let until = Until::new(time);
        self.at(from.0, |session| session.list(from.0)?.wait_to_move(from.1, to, until.left()))
    }

    /// Replaces the element of an index of a list. Whether it was there.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let was_there = session.list_set(b"orders", 0, b"4699")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_set(&mut self, key: &[u8], index: i64, element: &[u8]) -> Result<bool, Error> {
        self.at(key, |session| session.list(key)?.set(index, element))
    }

    /// Removes elements of a list that equal this one: [`ListKey::remove`](crate::ListKey::remove). Gives
    /// how many.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let removed = session.list_remove(b"orders", 1, b"4712")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_remove(&mut self, key: &[u8], count: i64, element: &[u8]) -> Result<u64, Error> {
        self.at(key, |session| session.list(key)?.remove(count, element))
    }

    /// Leaves the elements of a list from one index to another, both included.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.list_trim(b"orders", -1000, -1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn list_trim(&mut self, key: &[u8], start: i64, stop: i64) -> Result<(), Error> {
        self.at(key, |session| session.list(key)?.trim(start, stop))
    }

    /// All members of a set, of one moment.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// println!("{} couriers", session.set_members(b"couriers:free")?.members.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_members(&mut self, key: &[u8]) -> Result<core::AllMembers, Error> {
        let path = self.path();
        self.at(key, |session| session.member_set(key)?.by(path).members())
    }

    /// Number of members of a set.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let free = session.set_member_count(b"couriers:free")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_member_count(&mut self, key: &[u8]) -> Result<u64, Error> {
        self.at(key, |session| session.member_set(key)?.member_count())
    }
}
