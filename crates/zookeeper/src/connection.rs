//! One connection of a session: what it reads and watches, and the requests that it sends.

use crate::nodes::{Nodes, candidate_prefix, instance_of, sequence_of, term_of};
use crate::requests::{Asked, Heard, Request};
use remora_cluster::coordinator::{
    Event, Outcome, Proposal, Refused, RequestId, Standing, Term, encode_presence,
};
use remora_cluster::topology::{Instance, Topology};
use remora_cluster::view::{View, pause_after, pause_after_list};
use std::cell::{Cell, RefCell};
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use zookeeper_client::{
    Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, OneshotWatcher,
};

/// What the session has at ZooKeeper.
pub(crate) struct Prepared {
    /// The instance that is present, and the version of its node.
    presence: Option<(Instance, i32)>,
    candidate: Option<Candidate>,
}

#[derive(Clone, PartialEq, Eq)]
struct Candidate {
    /// The name of its node.
    name: String,
    term: Term,
}

/// The topology as ZooKeeper has it.
#[derive(Clone, Copy)]
struct Known {
    cluster: u64,
    version: u64,
    /// The version of its node.
    node_version: i32,
}

/// See the module's text.
pub(crate) struct Connection<'a> {
    client: &'a Client,
    nodes: &'a Nodes,
    heard: &'a Sender<Heard>,
    number: u64,
    view: RefCell<&'a mut View>,
    known: Cell<Option<Known>>,
    presence: Cell<Option<(Instance, i32)>>,
    /// What was asked to be present last, and was not taken away since.
    instance: Cell<Option<Instance>>,
    candidate: RefCell<Option<Candidate>>,
    candidacy_changed: Notify,
    /// The request that is under way.
    open: Cell<Option<RequestId>>,
}

impl Prepared {
    /// Makes the nodes that are missing, and reads what the session has: `instance` is what it was
    /// asked to make present.
    pub(crate) async fn read(
        client: &Client,
        nodes: &Nodes,
        instance: Option<Instance>,
    ) -> Result<Self, Error> {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        for parent in nodes.parents() {
            client.mkdir(&parent, &options).await?;
        }
        client.sync(nodes.base()).await?;
        let session = client.session_id().0;
        let mut presence = None;
        if let Some(instance) = instance {
            let stat = client.check_stat(&nodes.presence(instance.member)).await?;
            let own = stat.filter(|of| of.ephemeral_owner == session);
            presence = own.map(|of| (instance, of.version));
        }
        let prefix = candidate_prefix(session);
        let names = client.list_children(&nodes.candidates()).await?;
        let mut candidate = None;
        if let Some(name) = names.into_iter().find(|name| name.starts_with(&prefix)) {
            let stat = client.check_stat(&nodes.candidate(&name)).await?;
            candidate = stat.map(|of| Candidate { name, term: term_of(of.czxid) });
        }
        Ok(Self { presence, candidate })
    }
}

impl<'a> Connection<'a> {
    pub(crate) fn new(
        client: &'a Client,
        nodes: &'a Nodes,
        Prepared { presence, candidate }: Prepared,
        (number, heard): (u64, &'a Sender<Heard>),
        view: &'a mut View,
    ) -> Self {
        Self {
            client,
            nodes,
            heard,
            number,
            view: RefCell::new(view),
            known: Cell::new(None),
            presence: Cell::new(presence),
            instance: Cell::new(presence.map(|(of, _)| of)),
            candidate: RefCell::new(candidate),
            candidacy_changed: Notify::new(),
            open: Cell::new(None),
        }
    }

    /// Serves until the connection is lost (true) or nobody asks any more (false).
    pub(crate) async fn serve(&self, asked: &mut UnboundedReceiver<Asked>) -> bool {
        let lost = |error: Error| {
            tracing::debug!(%error, "a request to ZooKeeper has failed");
            true
        };
        tokio::select! {
            biased;
            error = self.follow_topology() => lost(error),
            error = self.follow_members() => lost(error),
            error = self.follow_standing() => lost(error),
            ended = self.serve_requests(asked) => ended.is_err_and(lost),
        }
    }

    /// The connection is over: the request of which nothing is known, and what the session was asked to
    /// make present.
    pub(crate) fn end(self, instance: &mut Option<Instance>) -> Option<RequestId> {
        *instance = self.instance.get();
        self.open.get()
    }

    fn tell(&self, event: Option<Event>) {
        if let Some(event) = event {
            let _ = self.heard.send(Heard::Event(event));
        }
    }

    async fn follow_topology(&self) -> Error {
        let path = self.nodes.topology();
        loop {
            let mut pause = Duration::ZERO;
            let watched = match self.client.get_and_watch_data(&path).await {
                Ok((bytes, stat, watcher)) => {
                    self.read_topology(&bytes, stat.version);
                    pause = pause_after(bytes.len());
                    Ok(Some(watcher))
                }
                Err(Error::NoNode) => self.watch_for(&path).await,
                Err(error) => Err(error),
            };
            match watched {
                Ok(Some(watcher)) => changed_after(watcher, pause).await,
                Ok(None) => {}
                Err(error) => return error,
            }
        }
    }

    /// There is no topology: waits for one. `None` if there is one now.
    async fn watch_for(&self, path: &str) -> Result<Option<OneshotWatcher>, Error> {
        let (stat, watcher) = self.client.check_and_watch_stat(path).await?;
        if stat.is_some() {
            return Ok(None);
        }
        self.known.set(None);
        let event = self.view.borrow_mut().read_topology(None);
        self.tell(event);
        Ok(Some(watcher))
    }

    fn read_topology(&self, bytes: &[u8], node_version: i32) {
        let event = self.view.borrow_mut().read_topology(Some(bytes));
        let known = Topology::decode(bytes).ok().map(|of| Known {
            cluster: of.cluster,
            version: of.version,
            node_version,
        });
        self.known.set(known);
        self.tell(event);
    }

    /// Reads the topology behind all that was recorded so far.
    async fn refresh(&self) -> Result<(), Error> {
        let path = self.nodes.topology();
        self.client.sync(&path).await?;
        match self.client.get_data(&path).await {
            Ok((bytes, stat)) => self.read_topology(&bytes, stat.version),
            Err(Error::NoNode) => self.known.set(None),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn follow_members(&self) -> Error {
        let path = self.nodes.members();
        loop {
            match self.client.list_and_watch_children(&path).await {
                Ok((names, watcher)) => {
                    let members = names.iter().filter_map(|name| instance_of(name)).collect();
                    let event = self.view.borrow_mut().read_members(members);
                    self.tell(event);
                    changed_after(watcher, pause_after_list(names.len())).await;
                }
                Err(error) => return error,
            }
        }
    }

    /// A candidate watches the one before it, so that one node that goes away wakes one candidate.
    async fn follow_standing(&self) -> Error {
        loop {
            let candidate = self.candidate.borrow().clone();
            let watched = match &candidate {
                None => Ok(None),
                Some(candidate) => self.watch_standing(candidate).await,
            };
            let (standing, watcher) = match (watched, candidate) {
                (Err(error), _) => return error,
                (Ok(None), Some(candidate)) => {
                    // It is not there any more: somebody has removed it by hand.
                    self.forget_candidate(&candidate);
                    continue;
                }
                (Ok(None), None) => (Standing::Out, None),
                (Ok(Some((standing, watcher))), _) => (standing, Some(watcher)),
            };
            let event = self.view.borrow_mut().read_standing(standing);
            self.tell(event);
            let changed = async {
                match watcher {
                    Some(watcher) => drop(watcher.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = self.candidacy_changed.notified() => {}
            }
        }
    }

    /// How a candidate stands, and what wakes it when that changes; `None` if its node is gone.
    async fn watch_standing(
        &self,
        candidate: &Candidate,
    ) -> Result<Option<(Standing, OneshotWatcher)>, Error> {
        loop {
            let mut names = self.client.list_children(&self.nodes.candidates()).await?;
            names.retain(|name| sequence_of(name).is_some());
            names.sort_by_key(|name| sequence_of(name));
            let Some(at) = names.iter().position(|name| *name == candidate.name) else {
                return Ok(None);
            };
            let standing = if at == 0 { Standing::Leads(candidate.term) } else { Standing::Waits };
            let watched = self.nodes.candidate(&names[at.saturating_sub(1)]);
            if let (Some(_), watcher) = self.client.check_and_watch_stat(&watched).await? {
                return Ok(Some((standing, watcher)));
            }
        }
    }

    fn forget_candidate(&self, candidate: &Candidate) {
        let mut own = self.candidate.borrow_mut();
        if own.as_ref() == Some(candidate) {
            *own = None;
        }
    }

    /// One request after the other, so that each is answered behind those before it.
    async fn serve_requests(&self, asked: &mut UnboundedReceiver<Asked>) -> Result<(), Error> {
        while let Some(Asked { id, connection, request }) = asked.recv().await {
            let outcome = if connection == self.number {
                self.open.set(Some(id));
                let outcome = self.execute(request).await?;
                self.open.set(None);
                outcome
            } else {
                Outcome::NotSent
            };
            self.tell(Some(Event::Answer(id, outcome)));
        }
        Ok(())
    }

    async fn execute(&self, request: Request) -> Result<Outcome, Error> {
        let result = match request {
            Request::Create(topology) => self.create(topology).await,
            Request::Propose(proposal) => self.propose(proposal).await,
            Request::Enter(instance) => self.enter(instance).await,
            Request::Leave => self.leave().await,
            Request::Renew { topology_version } => self.renew(topology_version).await,
            Request::Stand => self.stand().await,
            Request::StepDown => self.step_down().await,
        };
        match result {
            Ok(Ok(())) => Ok(Outcome::Done),
            Ok(Err(refused)) => Ok(Outcome::Refused(refused)),
            Err(error) if was_refused(&error) => {
                tracing::warn!(%error, "ZooKeeper refuses a request");
                Ok(Outcome::NotSent)
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&self, topology: Topology) -> Result<Result<(), Refused>, Error> {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let bytes = topology.encode();
        match self.client.create(&self.nodes.topology(), &bytes, &options).await {
            Ok(_) => {
                self.read_topology(&bytes, 0);
                Ok(Ok(()))
            }
            Err(Error::NodeExists) => Ok(Err(Refused::HasTopology)),
            Err(error) => Err(error),
        }
    }

    async fn propose(&self, proposal: Proposal) -> Result<Result<(), Refused>, Error> {
        let Proposal { topology, term } = proposal;
        let Some(known) = self.expect_version(topology.version - 1).await? else {
            return Ok(Err(Refused::Outdated));
        };
        if known.cluster != topology.cluster {
            return Ok(Err(Refused::Outdated));
        }
        let candidate = self.candidate.borrow().clone().filter(|of| Some(of.term) == term);
        if term.is_some() && candidate.is_none() {
            return Ok(Err(Refused::NotWatcher));
        }
        let bytes = topology.encode();
        let mut writer = self.client.new_multi_writer();
        writer.add_set_data(&self.nodes.topology(), &bytes, Some(known.node_version))?;
        if let Some(candidate) = &candidate {
            // Its node never changes: it is there in this version, or it is gone.
            writer.add_check_version(&self.nodes.candidate(&candidate.name), 0)?;
        }
        match writer.commit().await {
            Ok(results) => {
                let [MultiWriteResult::SetData { stat }, ..] = results[..] else {
                    return Err(unexpected());
                };
                self.read_topology(&bytes, stat.version);
                Ok(Ok(()))
            }
            Err(MultiWriteError::OperationFailed { index: 0, source }) => {
                self.outdated(source).await
            }
            Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => {
                Ok(Err(Refused::NotWatcher))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The topology's node, if the recorded version is this one as far as is known.
    async fn expect_version(&self, version: u64) -> Result<Option<Known>, Error> {
        if self.known.get().is_none_or(|of| of.version != version) {
            self.refresh().await?;
        }
        Ok(self.known.get().filter(|of| of.version == version))
    }

    /// ZooKeeper has another version of the topology: its caller hears of that first.
    async fn outdated(&self, error: Error) -> Result<Result<(), Refused>, Error> {
        match error {
            Error::BadVersion | Error::NoNode => {
                self.refresh().await?;
                Ok(Err(Refused::Outdated))
            }
            error => Err(error),
        }
    }

    async fn enter(&self, instance: Instance) -> Result<Result<(), Refused>, Error> {
        match self.presence.get() {
            Some((present, _)) if present == instance => return Ok(Ok(())),
            Some(_) => return Ok(Err(Refused::IsPresent)),
            None => {}
        }
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let mut writer = self.client.new_multi_writer();
        let presence = encode_presence(instance);
        writer.add_create(&self.nodes.presence(instance.member), &presence, &options)?;
        writer.add_create(&self.nodes.member(instance), b"", &options)?;
        self.instance.set(Some(instance));
        match writer.commit().await {
            Ok(_) => {
                self.presence.set(Some((instance, 0)));
                Ok(Ok(()))
            }
            Err(MultiWriteError::OperationFailed { source: Error::NodeExists, .. }) => {
                Ok(Err(Refused::IsPresent))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn leave(&self) -> Result<Result<(), Refused>, Error> {
        let Some((instance, _)) = self.presence.get() else { return Ok(Ok(())) };
        let mut writer = self.client.new_multi_writer();
        writer.add_delete(&self.nodes.presence(instance.member), None)?;
        writer.add_delete(&self.nodes.member(instance), None)?;
        match writer.commit().await {
            Ok(_) | Err(MultiWriteError::OperationFailed { source: Error::NoNode, .. }) => {
                self.presence.set(None);
                self.instance.set(None);
                Ok(Ok(()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn renew(&self, topology_version: u64) -> Result<Result<(), Refused>, Error> {
        let Some((instance, version)) = self.presence.get() else {
            return Ok(Err(Refused::NotPresent));
        };
        let Some(known) = self.expect_version(topology_version).await? else {
            return Ok(Err(Refused::Outdated));
        };
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version(&self.nodes.topology(), known.node_version)?;
        let presence = encode_presence(instance);
        writer.add_set_data(&self.nodes.presence(instance.member), &presence, Some(version))?;
        match writer.commit().await {
            Ok(results) => {
                let [_, MultiWriteResult::SetData { stat }] = results[..] else {
                    return Err(unexpected());
                };
                self.presence.set(Some((instance, stat.version)));
                Ok(Ok(()))
            }
            Err(MultiWriteError::OperationFailed { index: 0, source }) => {
                self.outdated(source).await
            }
            Err(MultiWriteError::OperationFailed {
                source: Error::NoNode | Error::BadVersion,
                ..
            }) => {
                // Somebody has removed it by hand.
                self.presence.set(None);
                Ok(Err(Refused::NotPresent))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn stand(&self) -> Result<Result<(), Refused>, Error> {
        if self.candidate.borrow().is_some() {
            return Ok(Ok(()));
        }
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let prefix = candidate_prefix(self.client.session_id().0);
        let path = self.nodes.candidate(&prefix);
        let (stat, sequence) = self.client.create(&path, b"", &options).await?;
        let candidate =
            Candidate { name: format!("{prefix}{sequence}"), term: term_of(stat.czxid) };
        *self.candidate.borrow_mut() = Some(candidate);
        self.candidacy_changed.notify_one();
        Ok(Ok(()))
    }

    async fn step_down(&self) -> Result<Result<(), Refused>, Error> {
        let candidate = self.candidate.borrow().clone();
        let Some(candidate) = candidate else { return Ok(Ok(())) };
        match self.client.delete(&self.nodes.candidate(&candidate.name), None).await {
            Ok(()) | Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
        self.forget_candidate(&candidate);
        self.candidacy_changed.notify_one();
        Ok(Ok(()))
    }
}

/// Waits for a change, and for this time if that is longer: many changes in a row are read as one.
async fn changed_after(watcher: OneshotWatcher, pause: Duration) {
    tokio::join!(watcher.changed(), tokio::time::sleep(pause));
}

/// Whether ZooKeeper has certainly not executed what it answers so.
fn was_refused(error: &Error) -> bool {
    matches!(
        error,
        Error::NoAuth
            | Error::InvalidAcl
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::MarshallingError
            | Error::Unimplemented
            | Error::NotReadOnly
            | Error::NoNode
            | Error::BadArguments(_)
    )
}

/// A `multi` that has succeeded has a result for each of its parts.
fn unexpected() -> Error {
    Error::UnexpectedError("a multi has other results than parts".into())
}
