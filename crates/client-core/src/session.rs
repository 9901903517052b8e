//! A session: one thread's operations on a connection.
//!
//! It has several parts, and passes each operation to the module that implements it.

use crate::admission::Admission;
use crate::asker::{Asker, PIPELINE_CHUNK, is_search};
use crate::batch::Batch;
use crate::choose::{Chooser, Explanation};
use crate::connection::Connection;
use crate::core::Core;
use crate::counts::Counts;
use crate::directory::Directory;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::found::{Each, Got};
use crate::hash::OpenHash;
use crate::in_flight::Ticket;
use crate::large::ask_any_size;
use crate::links::{
    Chased, EachChased, Link as KeyLink, LinkSession, Sought, chase, chase_batch, mend,
};
use crate::list::{self, ListItems, ListTaken, OpenList};
use crate::options::{Options, SetOptions};
use crate::path::Path;
use crate::plans::{self, PlanRun, PlanTrees};
use crate::read;
use crate::replicated;
use crate::router::Router;
use crate::set::{AllMembers, OpenSet};
use crate::synced::{self, SyncPoint};
use crate::trees::{
    OpenTree, RefinedCount, RefinedFound, TreeFound, TreeObject, TreeSearcher, TreeSettings,
};
use remora_fabric::{Link, Transport};
use remora_geometry::{Refine, Shape, Wkb};
use remora_index::rtree::Query;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_layout::tree::TreeInfo;
use remora_plan::Plan;
use remora_protocol::list::Side;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, ObjectId, PutObject};
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};
use remora_protocol::{Reply, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One thread's use of a connection to one server. Operations take `&mut self`; results that borrow
/// are valid until the next operation. [`Error`] says why an operation fails.
pub struct Session {
    pub(crate) core: Core,
    batch: Batch,
    trees: TreeSearcher,
    links: LinkSession,
    plan_trees: PlanTrees,
}

impl Session {
    /// A session on a connection that other threads may use too.
    pub(crate) fn new(
        connection: Arc<Connection>,
        options: &Options,
        admission: Option<Arc<Admission>>,
    ) -> Result<Self, Error> {
        let asks_only = connection.asks_only;
        let directory = Directory::new(&connection, options);
        let endpoint = Endpoint::new(connection, options)?;
        let seed = endpoint.connection.number << 16 ^ endpoint.number as u64;
        let link = &endpoint.link;
        let chooser = Chooser::new(options.policy, link.reads_cost_peer_cpu(), seed)
            .predicting(options.predictor);
        // Over shared memory there is no network card at which walks queue.
        let admission = admission.filter(|_| !link.completes_at_once());
        let core = Core {
            asker: Asker::new(endpoint),
            directory,
            router: Router::new(chooser, asks_only),
            meter: Counts::default(),
            needed_bytes: 0,
        };
        Ok(Self {
            core,
            batch: Batch::default(),
            trees: TreeSearcher::new(admission),
            links: LinkSession::default(),
            plan_trees: PlanTrees::default(),
        })
    }

    /// The transport of this session.
    pub fn transport(&self) -> Transport {
        self.core.asker.endpoint.link.transport()
    }

    /// Process id of the server.
    pub fn server_pid(&self) -> u32 {
        self.core.asker.endpoint.connection.server_pid
    }

    /// Totals since the session began.
    pub fn totals(&self) -> Counts {
        self.core.counted(self.core.meter)
    }

    /// How old what the last operation found may be, if it was a read and the server is a replica:
    /// that was the committed state of the primary at some time no longer ago than this. `None` from
    /// a primary. [`Duration::MAX`]: not known, or hours.
    pub fn lag(&self) -> Option<Duration> {
        match self.core.asker.endpoint.staleness.lag_ns {
            0 => None,
            u64::MAX => Some(Duration::MAX),
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    /// The server's utilisation in its last heartbeat, in parts per million; `None` before the
    /// first one.
    pub fn server_utilisation_ppm(&self) -> Option<u32> {
        Some(self.core.asker.endpoint.lease.load()?.utilisation_ppm)
    }

    /// Switches explanations on or off for operations with two routes, GET and the searches of
    /// trees. Each such operation then costs two more looks at the clock.
    pub fn explain(&mut self, is_wanted: bool) {
        self.core.router.explain(is_wanted);
    }

    /// The route of the last operation with two routes, the reason, the expected cost of each route
    /// and the actual cost; `None` if [`Session::explain`] was not called before it.
    pub fn explanation(&self) -> Option<Explanation> {
        self.core.router.explanation()
    }

    /// The server's shards.
    pub fn shards(&self) -> usize {
        self.core.directory.shards.len()
    }

    /// Sends one request and waits for its reply, whose value is valid until the session is used
    /// again. It also fetches a value that does not fit a frame. A refusal is an error.
    ///
    /// # Errors
    /// See [`Error`]. A command without a key, and one with several replies, is refused as
    /// malformed.
    pub fn ask(&mut self, command: &Command<'_>) -> Result<Reply<'_>, Error> {
        if is_search(command) {
            return Err(Error::Refused(Status::Malformed));
        }
        self.core.begin()?;
        let answer = ask_any_size(&mut self.core, command)?;
        Ok(self.core.reply(&answer))
    }

    /// As [`Session::ask`], of a shard that is named: for commands without a key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Panics
    /// There is no such shard.
    pub fn ask_shard(&mut self, shard: usize, command: &Command<'_>) -> Result<Reply<'_>, Error> {
        self.core.begin()?;
        let ticket = self.core.send_to(shard, command)?;
        let answer = self.core.collect(shard, ticket)?;
        let answer = self.core.accepted(answer)?;
        Ok(self.core.reply(&answer))
    }

    /// Sends a request of a kind that has several replies, and hands over the value of each.
    /// Returns the status and the number of the last one.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn ask_long(
        &mut self,
        key: &[u8],
        request: Request<'_>,
        part: &mut dyn FnMut(&[u8]),
    ) -> Result<(Status, i64), Error> {
        self.core.begin()?;
        let (_, shard) = self.core.directory.locate(key)?;
        let answer = self.core.ask_in_parts(shard, key, request, |value| {
            part(value);
            Ok(())
        })?;
        Ok((answer.status, answer.number))
    }

    /// Sends one request and does not wait. [`Session::next_reply`] takes its reply; the shard
    /// executes requests in order. The session sends a request that follows others together with
    /// some later ones, or at its next wait for a reply; a thread that does other work first calls
    /// [`Session::flush`].
    ///
    /// # Errors
    /// See [`Error`]. A command without a key belongs to no shard and is
    /// refused as malformed, as is a search, which may have several replies.
    pub fn submit(&mut self, command: &Command<'_>) -> Result<Ticket, Error> {
        self.core.asker.submit(&mut self.core.directory, command)
    }

    /// Number of submitted requests whose replies have not been taken.
    pub fn in_flight(&self) -> usize {
        self.core.asker.submitted()
    }

    /// Waits for the oldest submitted request and hands its reply to `f`.
    /// False if there is none.
    ///
    /// # Errors
    /// See [`Error`]. A refusal of the request is a reply, not an error. After [`Error::TimedOut`]
    /// the session drops any reply to the oldest request; the next call waits for the one that
    /// follows it.
    pub fn next_reply(&mut self, f: &mut dyn FnMut(Ticket, &Reply<'_>)) -> Result<bool, Error> {
        let Core { asker, directory, meter, .. } = &mut self.core;
        let Some((ticket, answer)) = asker.next_submitted(directory)? else { return Ok(false) };
        meter.add(&answer.counts);
        asker.endpoint.staleness.lag_ns = answer.lag_ns;
        asker.endpoint.staleness.check(answer.lag_ns)?;
        f(ticket, &self.core.reply(&answer));
        Ok(true)
    }

    /// Sends the submitted requests that are not sent yet: when it returns, all are in the rings,
    /// and none waits for another thread of this process. Over TCP and RDMA the bytes for which the
    /// socket or the device has no room leave when a session of the process next waits.
    ///
    /// # Errors
    /// See [`Error`]. After [`Error::TimedOut`] some requests may be sent later.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.core.asker.flush()
    }

    /// Has the server's disk begin to sync all changes that this session has made so far, and does
    /// not wait for it. The changes of other clients to the same shards count, too.
    ///
    /// # Errors
    /// See [`Error`]. The server keeps nothing, or its disk fails.
    pub fn begin_sync(&mut self) -> Result<SyncPoint, Error> {
        synced::begin(&mut self.core)
    }

    /// Whether the disk has confirmed these changes.
    ///
    /// # Errors
    /// See [`Error`]. The server has started anew since then, or its disk fails.
    pub fn is_synced(&mut self, point: &SyncPoint) -> Result<bool, Error> {
        synced::is_synced(&mut self.core, point)
    }

    /// Waits until the disk has confirmed all changes that this session has made so far. A session
    /// that has changed nothing since it last did asks nothing.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::NotSynced`] after the timeout; the server keeps nothing, or its disk
    /// fails.
    pub fn wait_synced(&mut self, timeout: Duration) -> Result<(), Error> {
        synced::wait(&mut self.core, timeout)
    }

    /// Waits until so many replicas have stored all changes that this session has made so far, on
    /// each shard that it has changed. A session that has changed nothing since it last did asks
    /// nothing.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::NotReplicated`] after the timeout.
    pub fn wait_replicated(&mut self, replicas: u8, timeout: Duration) -> Result<(), Error> {
        replicated::wait(&mut self.core, replicas, timeout)
    }

    /// The value of a key.
    #[inline]
    pub fn get(&mut self, key: &[u8], path: Path) -> Result<Got<'_>, Error> {
        self.get_as(key, path)
    }

    /// As [`Session::get`], with the caller's error type: converting the error of a result would
    /// copy all of it.
    #[inline]
    pub fn get_as<E: From<Error>>(&mut self, key: &[u8], path: Path) -> Result<Got<'_>, E> {
        let path = self.core.router.path(path);
        read::get(&mut self.core, key, path)
    }

    /// The values of several keys; calls `each(index, value, served_by)` once for each, in any
    /// order. Returns the cost of the whole batch.
    ///
    /// # Errors
    /// See [`Error`]. `each` may have been called for some keys.
    pub fn get_batch(
        &mut self,
        keys: &[&[u8]],
        path: Path,
        each: &mut Each<'_>,
    ) -> Result<Counts, Error> {
        let path = self.core.router.path(path);
        self.core.asker.ready()?;
        let before = self.core.meter;
        self.batch.get(&mut self.core, keys, path, each)?;
        Ok(self.core.counted(self.core.meter.since(&before)))
    }

    /// Sets a key. False if the condition did not hold.
    pub fn set(&mut self, key: &[u8], value: &[u8], options: SetOptions) -> Result<bool, Error> {
        let SetOptions { condition, expiry } = options;
        let command = Command::Set { key, value, condition, expiry, get: false };
        Ok(self.core.ask(&command)?.status == Status::Ok)
    }

    /// Removes a key. Whether it was there.
    pub fn del(&mut self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.core.ask(&Command::Del { key })?.number == 1)
    }

    /// Whether a key exists.
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.core.begin()?;
        Ok(self.core.ask(&Command::Exists { key })?.number == 1)
    }

    /// Lets a key of any type expire at `at_ms`, Unix ms; a time in the past removes it.
    /// False if there is no such key.
    pub fn expire_at(&mut self, key: &[u8], at_ms: u64) -> Result<bool, Error> {
        let condition = ExpireCondition::Always;
        Ok(self.core.ask(&Command::Expire { key, at_ms, condition })?.number == 1)
    }

    /// When a key of any type expires, Unix ms; `None` if it is not there, or never
    /// does.
    pub fn expires_at(&mut self, key: &[u8]) -> Result<Option<u64>, Error> {
        self.core.begin()?;
        Ok(u64::try_from(self.core.ask(&Command::ExpireTime { key })?.number).ok())
    }

    /// Adds to an integer; gives the sum.
    ///
    /// # Errors
    /// See [`Error`]; the value may not be an integer, or the sum not fit.
    pub fn incr(&mut self, key: &[u8], by: i64) -> Result<i64, Error> {
        Ok(self.core.ask(&Command::Incr { key, by })?.number)
    }

    /// Sets several keys. Requests are pipelined and each is a write of its
    /// own: another client may see some of them before the others.
    ///
    /// # Errors
    /// See [`Error`]; some of the keys may have been set.
    pub fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let mut tickets = Vec::new();
        for chunk in pairs.chunks(PIPELINE_CHUNK) {
            tickets.clear();
            let set = self.set_chunk(chunk, &mut tickets);
            if set.is_err() {
                self.core.asker.abandon_all(tickets.iter().copied());
            }
            set?;
        }
        Ok(())
    }

    /// Sets some keys; reports each request in `tickets`.
    fn set_chunk(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        tickets: &mut Vec<(usize, Ticket)>,
    ) -> Result<(), Error> {
        let mut refused = None;
        for &(key, value) in pairs {
            let (condition, expiry) = (Condition::Always, Expiry::Never);
            let command = Command::Set { key, value, condition, expiry, get: false };
            // The session has to take the replies to earlier requests in any case.
            match self.core.send(&command) {
                Ok(sent) => tickets.push(sent),
                Err(error) if error.is_final() || error == Error::TimedOut => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        for &(shard, ticket) in &*tickets {
            let status = self.core.collect(shard, ticket)?.status;
            if status != Status::Ok {
                refused = Some(Error::Refused(status));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Appends to a key's value, which is empty if the key is absent; its
    /// expiry stays. Gives the new length in bytes.
    ///
    /// # Errors
    /// See [`Error`]; the value may become too long.
    pub fn append(&mut self, key: &[u8], bytes: &[u8]) -> Result<u64, Error> {
        Ok(self.core.ask(&Command::Append { key, value: bytes })?.number as u64)
    }

    /// Overwrites a key's value from `offset` (in bytes) on; a shorter value is
    /// lengthened with zeros, the expiry stays. Gives the new length in bytes.
    /// No `bytes` change nothing and make no key.
    ///
    /// # Errors
    /// See [`Error`]; the value may become too long.
    pub fn set_range(&mut self, key: &[u8], offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        Ok(self.core.ask(&Command::SetRange { key, offset, value: bytes })?.number as u64)
    }

    /// The bytes from `start` to `end` of a key's value, both included;
    /// negative ones count from the end, -1 being the last. Empty if the key is
    /// absent. Valid until the session is used again.
    pub fn get_range(&mut self, key: &[u8], start: i64, end: i64) -> Result<&[u8], Error> {
        let answer = ask_any_size(&mut self.core, &Command::get_range(key, start, end))?;
        Ok(answer.value.map_or(&[], |range| self.core.in_reply(range)))
    }

    /// Sets one bit of a key's value and gives the bit before. Bit 0 is the
    /// highest of byte 0; a shorter value is lengthened with zeros, the expiry
    /// stays.
    ///
    /// # Errors
    /// See [`Error`]; the value may become too long.
    pub fn set_bit(&mut self, key: &[u8], offset: u32, bit: bool) -> Result<bool, Error> {
        Ok(self.core.ask(&Command::SetBit { key, offset, bit })?.number != 0)
    }

    /// One bit of a key's value; false behind its end and if it is absent.
    pub fn get_bit(&mut self, key: &[u8], offset: u32) -> Result<bool, Error> {
        Ok(self.core.ask(&Command::GetBit { key, offset })?.number != 0)
    }

    /// Length of a key's value in bytes; 0 if the key is absent.
    pub fn strlen(&mut self, key: &[u8]) -> Result<u64, Error> {
        Ok(self.core.ask(&Command::StrLen { key })?.number as u64)
    }

    /// Removes a key and gives the value that it had. Valid until the session
    /// is used again.
    pub fn get_del(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        // Without room for its value the key stays, and the client asks again.
        let answer = ask_any_size(&mut self.core, &Command::GetDel { key })?;
        Ok(answer.value.map(|range| self.core.in_reply(range)))
    }

    /// A key's value, whose expiry is set to `at_ms` (Unix ms; in the past
    /// removes the key) or taken away by `None`. Valid until the session is
    /// used again.
    pub fn get_ex(&mut self, key: &[u8], at_ms: Option<u64>) -> Result<Option<&[u8]>, Error> {
        // As for `get_del`.
        let answer = ask_any_size(&mut self.core, &Command::GetEx { key, at_ms })?;
        Ok(answer.value.map(|range| self.core.in_reply(range)))
    }

    /// A view of the hash that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_hash(&self, key: &[u8]) -> Result<OpenHash, Error> {
        OpenHash::new(&self.core.directory, key)
    }

    /// The value of a field; none without the field or the key. Valid until the
    /// session is used again.
    pub fn hash_get(
        &mut self,
        open: &mut OpenHash,
        name: &[u8],
        path: Path,
    ) -> Result<Got<'_>, Error> {
        let path = self.core.router.path(path);
        open.get(&mut self.core, name, path)
    }

    /// The link in a field of a hash, with its hint if READs find it; none if the field is not there, or
    /// no link.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn link_get(
        &mut self,
        open: &mut OpenHash,
        name: &[u8],
        path: Path,
    ) -> Result<Option<KeyLink>, Error> {
        let path = self.core.router.path(path);
        open.link(&mut self.core, name, path)
    }

    /// Sets fields of a hash to links, as one change: names, and the keys that their links name. Such a key
    /// need not hold anything yet. Gives how many of the fields are new.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any field it is refused as malformed.
    pub fn link_set(&mut self, open: &OpenHash, links: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        open.set_links(&mut self.core, links)
    }

    /// Removes those of these fields of a hash that are links; gives how many of them there were. The key
    /// is gone with its last field.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    pub fn link_del(&mut self, open: &OpenHash, names: &[&[u8]]) -> Result<u64, Error> {
        open.remove_links(&mut self.core, names)
    }

    /// Adds links to these keys at one end of a list, one after the other, as one change; gives the list's
    /// length.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any key it is refused as malformed.
    pub fn link_push(
        &mut self,
        open: &OpenList,
        side: Side,
        targets: &[&[u8]],
    ) -> Result<u64, Error> {
        open.push_links(&mut self.core, side, targets)
    }

    /// Follows a link: what its key holds, a hash with all its fields or a string. One READ if the
    /// link's hint is good and the target is a string, or a hash that lies whole in its record; a READ,
    /// a bucket and a record if it is stale; the last two without a hint. The fields of a larger hash
    /// are asked for.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn chase<'s>(&'s mut self, link: &'s KeyLink, path: Path) -> Result<Chased<'s>, Error> {
        let path = self.core.router.path(path);
        chase(&mut self.core, &mut self.links, link, path)
    }

    /// Follows many links, of all shards, by READs in one batch as [`Session::chase`] does one. Calls
    /// `each` once for each, in any order. Returns the cost of the whole batch. Each target is as it was
    /// at one moment; two of them may be of different moments.
    ///
    /// # Errors
    /// See [`Error`]. `each` may have been called for some links.
    pub fn chase_batch(
        &mut self,
        links: &[KeyLink],
        path: Path,
        each: &mut EachChased<'_>,
    ) -> Result<Counts, Error> {
        let path = self.core.router.path(path);
        let before = self.core.meter;
        let all: Vec<_> = links.iter().map(Sought::of).collect();
        chase_batch(&mut self.core, &mut self.links, &all, path, each)?;
        Ok(self.core.counted(self.core.meter.since(&before)))
    }

    /// The links of a range of a list, with their hints if READs find them; none for an element that is no
    /// link.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn link_range(
        &mut self,
        open: &mut OpenList,
        range: (i64, i64),
        path: Path,
    ) -> Result<Vec<Option<KeyLink>>, Error> {
        let path = self.core.router.path(path);
        open.links(&mut self.core, range, path)
    }

    /// Links, up to [`MAX_STALE_LINKS`](crate::MAX_STALE_LINKS), that did not lead to their targets when the
    /// session followed them, though the targets are there: their owners can mend their hints.
    pub fn stale_links(&self) -> usize {
        self.links.stale.len()
    }

    /// Reports up to so many of those links to their owners, in one pipeline. How many hints they mended:
    /// an owner looks at a bounded number in each second.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn mend_links(&mut self, most: usize) -> Result<u64, Error> {
        mend(&mut self.core, &mut self.links.stale, most)
    }

    /// Runs a plan: by READs if the path says so, or if it is [`Path::Choose`] and the session chooses
    /// them, otherwise by one message to the server. The rows are the same.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn run_plan(&mut self, plan: &Plan, path: Path) -> Result<PlanRun, Error> {
        let path = self.core.router.path(path);
        let Self { core, trees, links, plan_trees, .. } = self;
        plans::run(core, (plan_trees, links, trees), plan, path)
    }

    /// Executes an operation that changes a key once the key holds something for it: at once, or
    /// within this time (`None`: without end), which the server counts in ms. Returns the value of
    /// the operation's reply; `None` once the time is over. Those who wait for one key are served in
    /// the order in which they began. The session does nothing else meanwhile.
    ///
    /// # Errors
    /// See [`Error`]. After [`Error::TimedOut`], which comes only if the server's answer is late by
    /// more than the session's timeout, what was taken from the key is lost.
    pub fn wait_for(
        &mut self,
        key: &[u8],
        request: Request<'_>,
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.core.wait_for(key, request, time)
    }

    /// Sets fields, as one change; gives how many of them are new.
    ///
    /// # Errors
    /// See [`Error`]. Without any field it is refused as malformed.
    pub fn hash_set(&mut self, open: &OpenHash, fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        open.set(&mut self.core, fields)
    }

    /// Removes fields; gives how many of them were there. The key is gone with its
    /// last field.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    pub fn hash_remove(&mut self, open: &OpenHash, names: &[&[u8]]) -> Result<u64, Error> {
        open.remove(&mut self.core, names)
    }

    /// Adds to the integer in a field, 0 if it is not there; gives the sum.
    ///
    /// # Errors
    /// See [`Error`]; the value may not be an integer, or the sum not fit.
    pub fn hash_increment(&mut self, open: &OpenHash, name: &[u8], by: i64) -> Result<i64, Error> {
        open.increment(&mut self.core, name, by)
    }

    /// Number of fields; 0 without the key.
    pub fn hash_len(&mut self, open: &OpenHash) -> Result<u64, Error> {
        self.core.begin()?;
        open.len(&mut self.core)
    }

    /// The values of fields, in the order of the names, all of one moment.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    pub fn hash_get_many(
        &mut self,
        open: &OpenHash,
        names: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.core.begin()?;
        open.get_many(&mut self.core, names)
    }

    /// All fields and their values, as they are when the server begins to answer.
    pub fn hash_all(&mut self, open: &OpenHash) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        self.core.begin()?;
        open.all(&mut self.core)
    }

    /// A view of the list that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_list(&self, key: &[u8]) -> Result<OpenList, Error> {
        OpenList::new(&self.core.directory, key)
    }

    /// The elements of a range, all of one moment. An index below 0 counts from the end.
    pub fn list_range(
        &mut self,
        open: &mut OpenList,
        range: (i64, i64),
        path: Path,
    ) -> Result<ListItems, Error> {
        let path = self.core.router.path(path);
        open.range(&mut self.core, range, path)
    }

    /// Adds elements at one end, one after the other, as one change; gives the list's length.
    ///
    /// # Errors
    /// See [`Error`]. Without any element it is refused as malformed.
    pub fn list_push(
        &mut self,
        open: &OpenList,
        side: Side,
        items: &[&[u8]],
    ) -> Result<u64, Error> {
        open.push(&mut self.core, side, items)
    }

    /// Removes up to `count` elements from one end; gives them, the outermost first. Fewer, if they
    /// are too long for one reply.
    ///
    /// # Errors
    /// See [`Error`]. An element of more than 95 KiB is refused as too large: a range reads it.
    pub fn list_pop(
        &mut self,
        open: &OpenList,
        side: Side,
        count: u64,
    ) -> Result<Vec<Vec<u8>>, Error> {
        open.pop(&mut self.core, side, count)
    }

    /// Removes an element from one end, or waits for it; see [`Session::wait_for`].
    pub fn list_wait(
        &mut self,
        open: &OpenList,
        side: Side,
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        open.wait(&mut self.core, side, time)
    }

    /// Removes up to `count` elements from one end of the first of some keys' lists that has some, in the
    /// order of the keys, or waits for them: at all of the keys, which may lie in any shards. `None` as the
    /// time waits without end; the result is `None` once the time is over. See [`Session::wait_for`].
    ///
    /// # Errors
    /// See [`Error`]. More than 1024 keys, and none, are refused as malformed, as are keys that are together
    /// longer than 64 KiB.
    pub fn list_wait_any(
        &mut self,
        keys: &[&[u8]],
        (side, count): (Side, u64),
        time: Option<Duration>,
    ) -> Result<Option<ListTaken>, Error> {
        list::wait_for_any(&mut self.core, keys, (side, count), time)
    }

    /// Moves an element from one end of a list, `sides.0`, to one end, `sides.1`, of the list of another key,
    /// as one change, or waits for it; see [`Session::wait_for`]. The keys may lie in any shards. Gives the
    /// element.
    ///
    /// # Errors
    /// See [`Error`]. If the other key holds no list nothing has moved.
    pub fn list_wait_to_move(
        &mut self,
        open: &OpenList,
        to: &[u8],
        sides: (Side, Side),
        time: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        open.wait_to_move(&mut self.core, (sides.0, sides.1, to), time)
    }

    /// Number of elements; 0 without the key.
    pub fn list_len(&mut self, open: &OpenList) -> Result<u64, Error> {
        self.core.begin()?;
        open.len(&mut self.core)
    }

    /// Replaces the element of an index. Whether it was there.
    pub fn list_set(&mut self, open: &OpenList, index: i64, value: &[u8]) -> Result<bool, Error> {
        open.set_at(&mut self.core, index, value)
    }

    /// Removes elements that equal a value: `count` at most from the front, or from the end if it is
    /// below 0, or all if it is 0. Gives how many.
    pub fn list_remove(&mut self, open: &OpenList, count: i64, value: &[u8]) -> Result<u64, Error> {
        open.remove(&mut self.core, count, value)
    }

    /// Leaves the elements of a range.
    pub fn list_trim(&mut self, open: &OpenList, (start, stop): (i64, i64)) -> Result<(), Error> {
        open.trim(&mut self.core, start, stop)
    }

    /// A view of the set that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_set(&self, key: &[u8]) -> Result<OpenSet, Error> {
        OpenSet::new(&self.core.directory, key)
    }

    /// Whether a set has a member: then there is a value, which is empty.
    pub fn set_has(
        &mut self,
        open: &mut OpenSet,
        member: &[u8],
        path: Path,
    ) -> Result<Got<'_>, Error> {
        let path = self.core.router.path(path);
        open.get(&mut self.core, member, path)
    }

    /// All members of a set, of one moment: of a small one read, if `path` allows it; those of a large
    /// one are asked for, and as they are when the server begins to answer.
    pub fn set_members(&mut self, open: &mut OpenSet, path: Path) -> Result<AllMembers, Error> {
        let path = self.core.router.path(path);
        open.all(&mut self.core, path)
    }

    /// Adds members, as one change; gives how many of them are new.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed.
    pub fn set_add(&mut self, open: &OpenSet, members: &[&[u8]]) -> Result<u64, Error> {
        open.add(&mut self.core, members)
    }

    /// Removes members; gives how many of them were there. The key is gone with its last member.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed.
    pub fn set_remove(&mut self, open: &OpenSet, members: &[&[u8]]) -> Result<u64, Error> {
        open.remove(&mut self.core, members)
    }

    /// Number of members; 0 without the key.
    pub fn set_len(&mut self, open: &OpenSet) -> Result<u64, Error> {
        self.core.begin()?;
        open.len(&mut self.core)
    }

    /// Makes an empty tree. False if there is one of that name.
    pub fn create_tree(&mut self, name: &[u8], settings: &TreeSettings) -> Result<bool, Error> {
        self.trees.create_tree(&mut self.core, name, settings)
    }

    /// Removes a tree with all its objects. Whether it was there.
    pub fn drop_tree(&mut self, name: &[u8]) -> Result<bool, Error> {
        self.trees.drop_tree(&mut self.core, name)
    }

    /// What is in a tree; `None` if there is none of that name.
    pub fn tree_info(&mut self, name: &[u8]) -> Result<Option<TreeInfo>, Error> {
        self.core.begin()?;
        self.trees.tree_info(&mut self.core, name)
    }

    /// A view of a tree, to search it; `None` if there is none of that name.
    pub fn open_tree(&mut self, name: &[u8]) -> Result<Option<OpenTree>, Error> {
        self.trees.open_tree(&mut self.core, name)
    }

    /// Builds an empty tree, which exists, of many objects at once. It sends them in parts;
    /// `progress` gets how many it has sent. Returns their number. The shard builds the tree in
    /// many short steps, between which it serves others; they all see it once the last step is
    /// done.
    ///
    /// # Errors
    /// See [`Error`]: the tree is not empty, two objects have one id, memory
    /// is full; nothing is loaded then.
    pub fn load_tree(
        &mut self,
        name: &[u8],
        objects: &mut dyn Iterator<Item = (u64, Rect)>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, Error> {
        self.trees.load_tree(&mut self.core, name, objects, progress)
    }

    /// Adds an object, or moves the one with this id, at once for every reader. `None` as data
    /// leaves its bytes unchanged. It creates a missing tree. True if the object is new.
    ///
    /// An id is an integer below 2^63, which costs least, or any other 1 to 512
    /// bytes.
    pub fn put_place<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        rect: Rect,
        data: Option<&'a [u8]>,
    ) -> Result<bool, Error> {
        self.put_object(name, &PutObject { data, ..PutObject::new(id, rect) })
    }

    /// Adds an object, or changes the one with this id, at once for every reader. Unset parts stay
    /// as they are, except the geometry: without one the object is its rectangle. True if the
    /// object is new.
    pub fn put_object(&mut self, name: &[u8], object: &PutObject<'_>) -> Result<bool, Error> {
        self.trees.put_object(&mut self.core, name, object)
    }

    /// Adds an object with a geometry, or replaces the geometry of the one with this id, at once
    /// for every reader. Otherwise as [`Session::put_place`].
    pub fn put_shape<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        shape: &Shape,
        data: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let (rect, wkb) = (shape.bounds(), shape.to_wkb());
        let put =
            PutObject { data, geometry: Some(Wkb::known(&wkb, rect)), ..PutObject::new(id, rect) };
        self.put_object(name, &put)
    }

    /// Removes an object. Whether it was there.
    pub fn remove_place<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
    ) -> Result<bool, Error> {
        self.trees.remove_place(&mut self.core, name, id)
    }

    /// How many objects a window has.
    pub fn count_places(
        &mut self,
        name: &[u8],
        window: Rect,
        predicate: Predicate,
    ) -> Result<u64, Error> {
        self.core.begin()?;
        self.trees.count_places(&mut self.core, name, window, predicate)
    }

    /// Sets fields of an object; the others stay. How many are new; `None` if the
    /// object is not there.
    ///
    /// # Errors
    /// See [`Error`]: it would have too many fields, or too long ones.
    pub fn set_fields<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        fields: Fields<'_>,
    ) -> Result<Option<u64>, Error> {
        self.trees.set_fields(&mut self.core, name, id, fields)
    }

    /// An object; `None` if it is not there.
    pub fn place<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
    ) -> Result<Option<TreeObject<'_>>, Error> {
        self.core.begin()?;
        self.trees.place(&mut self.core, name, id)
    }

    /// Searches a tree: by READs if the path says so, or if it is [`Path::Choose`] and the session
    /// chooses them, and if they conclude; otherwise by asking.
    ///
    /// # Errors
    /// See [`Error`]: the window is no rectangle, the tree has gone.
    pub fn search_tree(
        &mut self,
        tree: &mut OpenTree,
        query: &Query,
        path: Path,
    ) -> Result<TreeFound<'_>, Error> {
        let path = self.core.router.path(path);
        self.trees.search(&mut self.core, tree, query, path)
    }

    /// Searches a tree for the objects whose geometries fit: by READs if the path says so, or if it
    /// is [`Path::Choose`] and the session chooses them, and if they conclude; otherwise by asking.
    /// It judges each object by one of the states that the object had during the search.
    ///
    /// # Errors
    /// See [`Error`]: the tree has gone.
    pub fn search_refined(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
    ) -> Result<RefinedFound<'_>, Error> {
        let path = self.core.router.path(path);
        self.trees.search_refined(&mut self.core, tree, refine, path)
    }

    /// Counts the objects whose geometries fit, as [`Session::search_refined`]
    /// finds them; a server that is asked sends their number only.
    ///
    /// # Errors
    /// See [`Error`]: the tree has gone.
    pub fn count_refined(
        &mut self,
        tree: &mut OpenTree,
        refine: &Refine,
        path: Path,
    ) -> Result<RefinedCount, Error> {
        let path = self.core.router.path(path);
        self.trees.count_refined(&mut self.core, tree, refine, path)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("server_pid", &self.server_pid())
            .field("transport", &self.transport().name())
            .field("shards", &self.core.directory.shards.len())
            .field("totals", &self.core.meter)
            .field("over", &self.core.asker.endpoint.connection.over())
            .finish_non_exhaustive()
    }
}
