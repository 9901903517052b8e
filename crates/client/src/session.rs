//! A session: operations on keys of any type, and handles for those of one type.

use crate::error::Error;
use crate::time::{after, from_unix_ms, to_unix_ms};
use crate::views::{
    CollectionViews, HashViews, ListViews, OrderedViews, SetViews, SortedViews, TreeViews,
};
use remora_client_core as core;
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::{Command, ExpireCondition};
use std::time::{Duration, SystemTime};

/// One thread's use of a connection. Operations take `&mut self`; a borrowed result is valid until
/// the next operation.
///
/// A handle names a key of one type: [`Session::string`], [`Session::hash`], [`Session::list`],
/// [`Session::member_set`], [`Session::sorted_set`], [`Session::ordered`], [`Session::tree`], [`Session::geo`], [`Session::collection`]. The session keeps the known locations of
/// collections, hashes, lists, sets, sorted sets and trees, so that creating a handle again costs nothing.
pub struct Session {
    pub(crate) core: core::Session,
    /// How values are fetched if a handle does not say otherwise.
    pub(crate) path: core::Path,
    pub(crate) collections: CollectionViews,
    pub(crate) hashes: HashViews,
    pub(crate) lists: ListViews,
    pub(crate) ordered: OrderedViews,
    pub(crate) sorted: SortedViews,
    /// What the views of ordered trees and sorted sets keep together.
    pub(crate) ordered_cache: core::SharedCache,
    pub(crate) sets: SetViews,
    pub(crate) trees: TreeViews,
}

/// When an expiry takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ExpireWhen {
    /// Always.
    #[default]
    Always,
    /// Only if the key has no expiry.
    IfNone,
    /// Only if the key has one.
    IfSome,
    /// Only if it is later than the present one; none counts as infinite.
    IfLater,
    /// Only if it is earlier than the present one; none counts as infinite.
    IfEarlier,
}

/// How long a key still lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ttl {
    /// It never expires.
    Never,
    /// The remaining time.
    Left(Duration),
}

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyType {
    /// A string.
    String,
    /// A hash.
    Hash,
    /// A list.
    List,
    /// A set.
    Set,
    /// A tree of places.
    Tree,
    /// Members in the order of their scores; those with positions on the globe are such.
    SortedSet,
    /// An ordered tree.
    Ordered,
    /// A collection of documents.
    Collection,
    /// A type that this version of the client does not know.
    Other,
}

impl KeyType {
    pub(crate) fn of(kind: Kind) -> Self {
        match kind.of_type() {
            Kind::STRING => Self::String,
            Kind::HASH => Self::Hash,
            Kind::LIST => Self::List,
            Kind::SET => Self::Set,
            Kind::RTREE => Self::Tree,
            Kind::SORTED_SET => Self::SortedSet,
            Kind::ORDERED => Self::Ordered,
            Kind::COLLECTION => Self::Collection,
            _ => Self::Other,
        }
    }
}

impl Session {
    pub(crate) fn new(core: core::Session, path: core::Path) -> Self {
        let collections = CollectionViews::default();
        let (hashes, lists, ordered, sorted, sets, trees) = Default::default();
        let ordered_cache = core::SharedCache::default();
        Self { core, path, collections, hashes, lists, ordered, sorted, ordered_cache, sets, trees }
    }

    /// The value of a string key: [`StringKey::get`](crate::StringKey::get).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let got = session.get(b"place:2988507")?;
    /// println!("{:?}, {:?}", got.value, got.served_by);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> Result<core::Got<'_>, Error> {
        self.core.get_as(key, self.path)
    }

    /// Sets a string key, which no longer expires: [`StringKey::set`](crate::StringKey::set).
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.set(b"place:2988507", b"Paris")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.core.set(key, value, core::SetOptions::default()).map(drop).map_err(Error::from)
    }

    /// The values of several string keys. It calls `each` once for each of them, in any order, with
    /// the key's index, its value and how it was fetched. It reads known pointers in one batch, and
    /// walks to the other keys, or asks for them, together. Returns the cost of all of it. Each
    /// value is of one moment; two of them may be of different moments.
    ///
    /// # Errors
    /// See [`Error`]; `each` may have been called for some keys.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let keys: [&[u8]; 2] = [b"courier:7", b"courier:8"];
    /// let counts = session.get_many(&keys, &mut |index, value, served_by| {
    ///     println!("{index}: {value:?}, {served_by:?}");
    /// })?;
    /// println!("{} round trips", counts.round_trips);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many(
        &mut self,
        keys: &[&[u8]],
        each: &mut core::Each<'_>,
    ) -> Result<core::Counts, Error> {
        Ok(self.core.get_batch(keys, self.path, each)?)
    }

    /// Sets several string keys. The requests are pipelined. Each is a write of its own:
    /// another client may see some of them before the others.
    ///
    /// # Errors
    /// See [`Error`]; some of the keys may have been set.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.set_many(&[(b"courier:7", b"free"), (b"courier:8", b"busy")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Error> {
        Ok(self.core.set_many(pairs)?)
    }

    /// Removes a key of any type. True if it was there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let was_there = session.remove(b"courier:7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.core.del(key)?)
    }

    /// Whether a key of any type exists.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// if !session.exists(b"courier:7")? {
    ///     session.set(b"courier:7", b"free")?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.core.exists(key)?)
    }

    /// The type of a key's value; `None` without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::KeyType;
    ///
    /// assert_ne!(session.key_type(b"couriers")?, Some(KeyType::String));
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_type(&mut self, key: &[u8]) -> Result<Option<KeyType>, Error> {
        let reply = self.core.ask(&Command::Type { key })?;
        let is_there = reply.status == Status::Ok;
        Ok(is_there.then(|| KeyType::of(Kind(reply.number as u8))))
    }

    /// Lets a key of any type expire after a time, by this machine's clock. False if there is
    /// no such key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.expire(b"courier:7", std::time::Duration::from_secs(60))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire(&mut self, key: &[u8], after_time: Duration) -> Result<bool, Error> {
        self.expire_at(key, after(after_time), ExpireWhen::Always)
    }

    /// Lets a key of any type expire at a moment; one in the past removes it. False if there
    /// is no such key, or the condition does not hold.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::ExpireWhen;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    /// session.expire_at(b"courier:7", tomorrow, ExpireWhen::IfLater)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire_at(
        &mut self,
        key: &[u8],
        at: SystemTime,
        when: ExpireWhen,
    ) -> Result<bool, Error> {
        let condition = match when {
            ExpireWhen::Always => ExpireCondition::Always,
            ExpireWhen::IfNone => ExpireCondition::IfNone,
            ExpireWhen::IfSome => ExpireCondition::IfSome,
            ExpireWhen::IfLater => ExpireCondition::IfLater,
            ExpireWhen::IfEarlier => ExpireCondition::IfEarlier,
        };
        let command = Command::Expire { key, at_ms: to_unix_ms(at), condition };
        Ok(self.core.ask(&command)?.number == 1)
    }

    /// Removes a key's expiry. False if it had none, or does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.persist(b"courier:7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn persist(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.core.ask(&Command::Persist { key })?.number == 1)
    }

    /// How long a key still lives, by the server's clock; `None` without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Ttl;
    ///
    /// if let Some(Ttl::Left(time)) = session.ttl(b"courier:7")? {
    ///     println!("gone in {time:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ttl(&mut self, key: &[u8]) -> Result<Option<Ttl>, Error> {
        Ok(match self.core.ask(&Command::Ttl { key })?.number {
            -1 => Some(Ttl::Never),
            ms => u64::try_from(ms).ok().map(|ms| Ttl::Left(Duration::from_millis(ms))),
        })
    }

    /// When a key expires; `None` if it never does, or does not exist.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// println!("{:?}", session.expires_at(b"courier:7")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn expires_at(&mut self, key: &[u8]) -> Result<Option<SystemTime>, Error> {
        Ok(self.core.expires_at(key)?.map(from_unix_ms))
    }

    /// Waits until the server's disk has confirmed every change that this session has made so far:
    /// they survive a power cut, whatever the server's durability is. With `fsync` they are there
    /// already; with `everysec` and `memory` the disk begins at once, and not at its next second.
    /// Only this call is delayed: neither other sessions nor other requests of this one. A session
    /// that has changed nothing since it last waited asks nothing.
    ///
    /// # Errors
    /// [`Error::NotSynced`] after the timeout: the changes are in the server's memory, and go on to
    /// the disk. [`Refusal::NotKept`](crate::Refusal::NotKept): the disk fails.
    /// [`Refusal::NothingKept`](crate::Refusal::NothingKept): the server was started without
    /// `--data-dir`. Otherwise see [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{Error, Refusal};
    /// use std::time::Duration;
    ///
    /// session.set(b"order:17", b"paid")?;
    /// match session.wait_synced(Duration::from_secs(1)) {
    ///     Ok(()) => println!("the order survives a power cut"),
    ///     Err(Error::NotSynced { changes }) => println!("{changes} changes are on their way"),
    ///     Err(Error::Refused(Refusal::NotKept)) => println!("look after the server's disk"),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_synced(&mut self, timeout: Duration) -> Result<(), Error> {
        Ok(self.core.wait_synced(timeout)?)
    }

    /// Waits until so many replicas have stored every change that this session has made so far, on
    /// each shard that it has changed, whatever the server's `--min-replicas` is. Only this call is
    /// delayed. A session that has changed nothing since it last waited asks nothing.
    ///
    /// # Errors
    /// [`Error::NotReplicated`] after the timeout: the changes are in the server's memory, and go on
    /// to its replicas. Otherwise see [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Error;
    /// use std::time::Duration;
    ///
    /// session.set(b"order:17", b"paid")?;
    /// match session.wait_replicated(1, Duration::from_millis(50)) {
    ///     Ok(()) => println!("the order survives the server's machine"),
    ///     Err(Error::NotReplicated { replicas }) => println!("only {replicas} replicas have it"),
    ///     Err(other) => return Err(other),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_replicated(&mut self, replicas: u8, timeout: Duration) -> Result<(), Error> {
        Ok(self.core.wait_replicated(replicas, timeout)?)
    }

    /// Has the server's disk begin to sync every change that this session has made so far, and goes
    /// on. [`Session::is_synced`] tells when they are there.
    ///
    /// # Errors
    /// As [`Session::wait_synced`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.set(b"order:17", b"paid")?;
    /// let paid = session.begin_sync()?;
    /// session.set(b"courier:7", b"busy")?;
    /// println!("the payment survives a power cut: {}", session.is_synced(&paid)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_sync(&mut self) -> Result<core::SyncPoint, Error> {
        Ok(self.core.begin_sync()?)
    }

    /// Whether the server's disk has confirmed the changes before a [`Session::begin_sync`], of this
    /// session or another one of the same server.
    ///
    /// # Errors
    /// [`Error::SessionEnded`]: the server has started anew since then. Otherwise as
    /// [`Session::wait_synced`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let point = session.begin_sync()?;
    /// println!("{}", session.is_synced(&point)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_synced(&mut self, point: &core::SyncPoint) -> Result<bool, Error> {
        Ok(self.core.is_synced(point)?)
    }

    /// How the session fetches values from now on if a handle does not say otherwise.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) {
    /// session.set_path(remora_client::Path::Read);
    /// # }
    /// ```
    pub fn set_path(&mut self, path: core::Path) {
        self.path = path;
    }

    /// How old what the last operation found may be, if it was a read and the server is a replica:
    /// that was the committed state of the primary at some time no longer ago than this. `None` from
    /// a primary. [`Duration::MAX`]: not known, or hours.
    ///
    /// ```no_run
    /// use remora_client::{Client, Options};
    ///
    /// let replica = "/run/user/1000/replica.sock".parse()?;
    /// let mut session = Client::connect(&replica, &Options::default())?.session()?;
    /// let is_there = session.get(b"bus:47")?.value.is_some();
    /// println!("there: {is_there}, at most {:?} ago", session.lag());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lag(&self) -> Option<Duration> {
        self.core.lag()
    }

    /// The cost of the session's operations so far. [`Counts`](crate::Counts) describes each
    /// number.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let before = session.counts();
    /// session.get(b"courier:7")?;
    /// println!("{} round trips", session.counts().since(&before).round_trips);
    /// # Ok(())
    /// # }
    /// ```
    pub fn counts(&self) -> core::Counts {
        self.core.totals()
    }

    /// Switches explanations of operations with two routes on or off. Each then costs two
    /// more looks at the clock.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.explain(true);
    /// session.get(b"courier:7")?;
    /// println!("{}", session.explanation().expect("a GET has two routes"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&mut self, explains: bool) {
        self.core.explain(explains);
    }

    /// The route of the last operation with two routes, the reason, the expected cost of each route
    /// and the actual cost. `None` unless [`Session::explain`] was called before it.
    ///
    /// ```no_run
    /// # fn example(session: &remora_client::Session) {
    /// if let Some(explanation) = session.explanation() {
    ///     println!("{explanation}");
    /// }
    /// # }
    /// ```
    pub fn explanation(&self) -> Option<core::Explanation> {
        self.core.explanation()
    }

    /// Process id of the server.
    ///
    /// ```no_run
    /// # fn example(session: &remora_client::Session) {
    /// println!("process {}", session.server_pid());
    /// # }
    /// ```
    pub fn server_pid(&self) -> u32 {
        self.core.server_pid()
    }

    /// The busy share of the server's shards in parts per million, from the last heartbeat; `None`
    /// before the first one.
    ///
    /// ```no_run
    /// # fn example(session: &remora_client::Session) {
    /// if session.server_utilisation_ppm().is_some_and(|ppm| ppm > 950_000) {
    ///     println!("the server is busy");
    /// }
    /// # }
    /// ```
    pub fn server_utilisation_ppm(&self) -> Option<u32> {
        self.core.server_utilisation_ppm()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Session").field(&self.core).finish()
    }
}
