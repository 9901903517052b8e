//! One thread's operations on the keys of a cluster.

use super::counts::count;
use super::outcome::{self, Outcome};
use super::pause::Pause;
use super::routes::{Lead, Routes};
use super::sessions::{Knows, Sessions};
use super::shared::Shared;
use crate::error::{Error, Refusal};
use crate::session::{ExpireWhen, KeyType, Session, Ttl};
use crate::string::SetOptions;
use remora_client_core as core;
use remora_cluster::topology::GroupId;
use remora_layout::limits::CLUSTER_FIRST_HELLO_MS;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const FIRST_HELLO: Duration = Duration::from_millis(CLUSTER_FIRST_HELLO_MS);

/// One thread's use of a cluster: from
/// [`ClusterClient::session`](crate::ClusterClient::session).
///
/// An operation goes to the primary of its key's group. If that has gone, has lost its lease or is a
/// primary no more, the session asks other servers for the topology, goes to the new primary, and
/// begins the operation again, for as long as [`Options::timeout`](crate::Options::timeout) lasts.
/// All pointers, leases and views of the former epoch are dropped first.
///
/// A change is never sent twice. If its reply was lost, the operation fails with [`Error::Unknown`]:
/// the change may have happened, or may not. Reads begin again.
pub struct ClusterSession {
    shared: Arc<Shared>,
    /// [`Shared::changes`] when `routes` were taken.
    seen: u64,
    routes: Arc<Routes>,
    sessions: Sessions<Session>,
    path: core::Path,
    /// What dropped sessions have cost.
    dropped: core::Counts,
    /// The value that was got last.
    value: Vec<u8>,
    /// A server whose last heartbeat told another version of the topology.
    told: Option<(GroupId, u16)>,
    /// The version, of those told by heartbeats, that the session has asked for last.
    asked: u16,
    /// A primary that has not answered in time: another server is asked whether it still leads.
    doubted: Option<Lead>,
}

impl Knows for Session {
    fn known(&self) -> u64 {
        let views = self.hashes.views() + self.lists.views() + self.sets.views();
        let views = views + self.trees.views();
        (self.core.known_pointers() + views) as u64
    }
}

/// Why one try of an operation has no result.
enum Failed {
    /// The operation ends so.
    Return(Error),
    /// It begins again; if its time is up it ends with this error. The primary is suspected to be gone.
    Again(Error, Option<Box<Lead>>),
}

impl ClusterSession {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let seen = shared.see();
        Self {
            path: shared.options.path,
            shared,
            seen: seen.changes,
            routes: seen.routes,
            sessions: Sessions::new(),
            dropped: core::Counts::default(),
            value: Vec::new(),
            told: None,
            asked: 0,
            doubted: None,
        }
    }

    /// Runs an operation at the primary of this key's group: any operation of a [`Session`], on this
    /// key or others of the same slot. It is called again if nothing that it sent has changed anything
    /// and the primary could not finish it.
    ///
    /// # Errors
    /// Those of the operation. [`Error::Unknown`]: it has sent a change whose reply was lost.
    /// [`Error::NoPrimary`]: no server leads the group within the timeout.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// use remora_client::Rect;
    ///
    /// let paris = Rect::point(2.35, 48.86).expect("finite");
    /// session.at(b"couriers", |session| session.tree(b"couriers")?.insert(7, paris))?;
    /// let near = session.at(b"couriers", |session| {
    ///     let found = session.tree(b"couriers")?.nearest(2.3, 48.8, 5)?;
    ///     Ok(found.len())
    /// })?;
    /// println!("{near} couriers");
    /// # Ok(())
    /// # }
    /// ```
    pub fn at<T>(
        &mut self,
        key: &[u8],
        mut operation: impl FnMut(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let time = self.shared.options.core.timeout;
        let mut pause = Pause::new(Instant::now(), time);
        let (mut left, mut hello_timeout, mut is_begun) = (time, FIRST_HELLO, false);
        // Bounded by the timeout.
        loop {
            let tried = self.attempt(key, (left, hello_timeout), &mut is_begun, &mut operation);
            let (error, suspect) = match tried {
                Ok(result) => {
                    if left < time {
                        self.shared.settle();
                    }
                    return Ok(result);
                }
                Err(Failed::Return(error)) => return Err(error),
                Err(Failed::Again(error, suspect)) => (error, suspect.map(|of| *of)),
            };
            if !self.shared.follow(suspect.as_ref(), &pause) {
                pause.sleep();
            }
            left = pause.left(Instant::now()).ok_or(error)?;
            hello_timeout *= 2;
        }
    }

    /// One try, which has so much time.
    fn attempt<T>(
        &mut self,
        key: &[u8],
        (left, hello_timeout): (Duration, Duration),
        is_begun: &mut bool,
        operation: &mut impl FnMut(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Failed> {
        self.look_again();
        let Some(group) = self.routes.group_of(key) else {
            return Err(Failed::Again(Error::NoPrimary, None));
        };
        if self.sessions.of(group).is_none() {
            self.open(group, hello_timeout.min(left))?;
        }
        let (number, session) = self.sessions.of(group).expect("it was opened");
        session.core.set_timeout(left);
        let before = session.core.changes_attempted();
        if std::mem::replace(is_begun, true) {
            count(&self.shared.counts.operations_repeated, 1);
        }
        match operation(session) {
            Ok(result) => {
                let told = session.core.told_topology();
                if told != self.routes.version() as u16 && told != self.asked && told != 0 {
                    self.told = Some((group, told));
                }
                Ok(result)
            }
            Err(error) => {
                let has_changed = session.core.changes_attempted() != before;
                Err(self.failed(group, number, outcome::of(error, has_changed), error))
            }
        }
    }

    #[cold]
    fn failed(&mut self, group: GroupId, number: u64, outcome: Outcome, error: Error) -> Failed {
        let suspect = self.routes.lead(group);
        let leaves = matches!(
            outcome,
            Outcome::Unknown | Outcome::ReturnAndLeave(_) | Outcome::RepeatAndLeave
        );
        if leaves {
            self.shared.lose(number);
        }
        match outcome {
            Outcome::Return(error) | Outcome::ReturnAndLeave(error) => Failed::Return(error),
            Outcome::Unknown | Outcome::UnknownInTime => {
                count(&self.shared.counts.unknown, 1);
                if outcome == Outcome::UnknownInTime {
                    self.doubted = suspect;
                }
                Failed::Return(Error::Unknown)
            }
            Outcome::RepeatElsewhere => Failed::Again(at_last(error), None),
            Outcome::RepeatAndLeave => Failed::Again(Error::NoPrimary, suspect.map(Box::new)),
        }
    }

    /// A session with the primary of a group.
    #[cold]
    fn open(&mut self, group: GroupId, hello_timeout: Duration) -> Result<(), Failed> {
        let lead = self.routes.lead(group).ok_or(Failed::Again(Error::NoPrimary, None))?;
        match self.shared.open(&lead, hello_timeout) {
            Some((number, opened)) => {
                self.sessions.bind(group, number, Session::new(opened, self.path));
                Ok(())
            }
            None => Err(Failed::Again(Error::NoPrimary, Some(Box::new(lead)))),
        }
    }

    /// Drops what is of former epochs, and asks for the topology where there is a reason.
    #[inline]
    fn look_again(&mut self) {
        if self.told.is_some() || self.doubted.is_some() {
            self.ask();
        }
        if self.shared.changes() != self.seen {
            self.see();
        }
    }

    #[cold]
    fn ask(&mut self) {
        if let Some(doubted) = self.doubted.take() {
            self.shared.follow(Some(&doubted), &Pause::new(Instant::now(), FIRST_HELLO));
        }
        let Some((group, told)) = self.told.take() else { return };
        self.asked = told;
        if let Some((_, session)) = self.sessions.of(group)
            && let Ok(Some(bytes)) = session.core.topology()
        {
            self.shared.adopt_encoded(&bytes);
        }
    }

    #[cold]
    fn see(&mut self) {
        let seen = self.shared.see();
        let current = |group, number| seen.connections.contains(&(group, number));
        let old = self.sessions.take_old(current);
        for session in &old {
            self.dropped.add(&session.counts());
        }
        let known = old.iter().map(Knows::known).sum();
        count(&self.shared.counts.pointers_dropped, known);
        (self.seen, self.routes) = (seen.changes, seen.routes);
    }
}

/// The error of an operation that was refused until its time was up.
fn at_last(error: Error) -> Error {
    match error {
        Error::Refused(Refusal::TooFewReplicas) => error,
        _ => Error::NoPrimary,
    }
}

impl ClusterSession {
    /// The value of a string key: [`Session::get`]. Valid until the session is used again.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let got = session.get(b"courier:7")?;
    /// println!("{:?}, {:?}", got.value, got.served_by);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&mut self, key: &[u8]) -> Result<core::Got<'_>, Error> {
        let mut value = std::mem::take(&mut self.value);
        let path = self.path;
        let got = self.at(key, |session| {
            let got = session.string(key).by(path).get()?;
            value.clear();
            value.extend_from_slice(got.value.unwrap_or_default());
            Ok((got.value.is_some(), got.with_value(None)))
        });
        self.value = value;
        let (is_there, got) = got?;
        Ok(got.with_value(is_there.then_some(&self.value[..])))
    }

    /// Sets a string key: [`Session::set`].
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.set(b"courier:7", b"free")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.at(key, |session| session.set(key, value))
    }

    /// Sets a string key as the options say. False if their condition does not hold.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// use remora_client::SetOptions;
    ///
    /// let is_new = session.set_with(b"lock", b"me", SetOptions::default().if_absent())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: SetOptions,
    ) -> Result<bool, Error> {
        self.at(key, |session| session.string(key).set_with(value, options))
    }

    /// Removes a key of any type: [`Session::remove`]. True if it was there.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let was_there = session.remove(b"courier:7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.at(key, |session| session.remove(key))
    }

    /// Whether a key of any type exists.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// println!("{}", session.exists(b"courier:7")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.at(key, |session| session.exists(key))
    }

    /// The type of a key's value; `None` without the key.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// println!("{:?}", session.key_type(b"couriers")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_type(&mut self, key: &[u8]) -> Result<Option<KeyType>, Error> {
        self.at(key, |session| session.key_type(key))
    }

    /// Adds to the integer that a key holds, 0 if it is absent. Gives the sum.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let orders = session.increment(b"orders", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&mut self, key: &[u8], by: i64) -> Result<i64, Error> {
        self.at(key, |session| session.string(key).increment(by))
    }

    /// Lets a key of any type expire after a time, from now on by this machine's clock. False if there
    /// is no such key.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.expire(b"courier:7", std::time::Duration::from_secs(60))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn expire(&mut self, key: &[u8], after_time: Duration) -> Result<bool, Error> {
        self.expire_at(key, crate::time::after(after_time), ExpireWhen::Always)
    }

    /// Lets a key of any type expire at a moment: [`Session::expire_at`].
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
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
        self.at(key, |session| session.expire_at(key, at, when))
    }

    /// Removes a key's expiry. False if it had none, or does not exist.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.persist(b"courier:7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn persist(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.at(key, |session| session.persist(key))
    }

    /// How long a key still lives, by the server's clock; `None` without the key.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// println!("{:?}", session.ttl(b"courier:7")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ttl(&mut self, key: &[u8]) -> Result<Option<Ttl>, Error> {
        self.at(key, |session| session.ttl(key))
    }

    /// The value of a hash's field; `None` without the field or the key. It is fetched as
    /// [`HashKey::get`](crate::HashKey::get) does.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let zone = session.hash_get(b"courier:7", b"zone")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_get(&mut self, key: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path;
        self.at(key, |session| Ok(session.hash(key)?.by(path).get(name)?.value.map(<[u8]>::to_vec)))
    }

    /// Sets fields of a hash, as one change. Gives how many of them are new.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.hash_set(b"courier:7", &[(b"state", b"free"), (b"zone", b"north")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_set(&mut self, key: &[u8], fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        self.at(key, |session| session.hash(key)?.set(fields))
    }

    /// Whether a set has a member. It is looked up as [`SetKey::contains`](crate::SetKey::contains) does.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let is_free = session.set_contains(b"couriers:free", b"7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_contains(&mut self, key: &[u8], member: &[u8]) -> Result<bool, Error> {
        let path = self.path;
        self.at(key, |session| Ok(session.member_set(key)?.by(path).contains(member)?.is_member))
    }

    /// Adds members to a set, as one change. Gives how many of them are new.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.set_add(b"couriers:free", &[b"7", b"12"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_add(&mut self, key: &[u8], members: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.member_set(key)?.add(members))
    }

    /// Removes members of a set. Gives how many were there; the key goes with its last member.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.set_remove(b"couriers:free", &[b"7"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_remove(&mut self, key: &[u8], members: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.member_set(key)?.remove(members))
    }

    /// Removes fields of a hash. Gives how many were there; the key goes with its last field.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.hash_remove(b"courier:7", &[b"zone"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_remove(&mut self, key: &[u8], names: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.hash(key)?.remove(names))
    }

    /// All fields of a hash and their values, all of one moment.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// println!("{} fields", session.hash_all(b"courier:7")?.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash_all(&mut self, key: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        self.at(key, |session| session.hash(key)?.all())
    }

    /// How the session fetches values.
    pub(super) const fn path(&self) -> core::Path {
        self.path
    }

    /// How the session fetches values from now on.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) {
    /// session.set_path(remora_client::Path::Read);
    /// # }
    /// ```
    pub fn set_path(&mut self, path: core::Path) {
        self.path = path;
        self.sessions.each(|session| session.set_path(path));
    }

    /// The cost of the session's operations so far, at all servers.
    ///
    /// ```no_run
    /// # fn example(session: &remora_client::ClusterSession) {
    /// println!("{} round trips", session.counts().round_trips);
    /// # }
    /// ```
    pub fn counts(&self) -> core::Counts {
        let mut sum = self.dropped;
        self.sessions.all().for_each(|session| sum.add(&session.counts()));
        sum
    }
}

impl std::fmt::Debug for ClusterSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSession")
            .field("topology_version", &self.routes.version())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
