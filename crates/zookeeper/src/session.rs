//! The thread of a session: one connection after the other.
//!
//! ```text
//!   connect --> prepare --> serve --+-- interrupted --> connect, with the same session
//!      ^                            '-- asked no more -> close the session
//!      '--- the session has ended: a new one
//! ```

use crate::address::ZookeeperAddress;
use crate::connection::{Connection, Prepared};
use crate::nodes::Nodes;
use crate::requests::{Asked, Heard};
use crate::tls::{self, LastRefusal, TlsFailures};
use remora_cluster::coordinator::{Event, Outcome, SessionState};
use remora_cluster::topology::Instance;
use remora_cluster::view::View;
use remora_layout::limits::{
    ZOOKEEPER_CLOSE_MS, ZOOKEEPER_CONNECT_PAUSE_MS, ZOOKEEPER_REFUSED_PAUSE_MAX_MS,
};
use remora_tls::{ClientTlsSettings, TlsError};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use zookeeper_client::{Client, Connector, Error, SessionInfo, SessionState as ClientState};

/// Time between two attempts to connect: a server that was started again is found soon, and one that is
/// away costs little.
const PAUSE: Duration = Duration::from_millis(ZOOKEEPER_CONNECT_PAUSE_MS);
/// The longest pause while ZooKeeper refuses: access rights or quotas are changed by people.
const LONGEST_PAUSE: Duration = Duration::from_millis(ZOOKEEPER_REFUSED_PAUSE_MAX_MS);
/// Time that closing the session may take.
const CLOSE: Duration = Duration::from_millis(ZOOKEEPER_CLOSE_MS);

/// How often in a row ZooKeeper has refused what a session needs, and why.
#[derive(Default)]
struct Refusals {
    times: u32,
    last: LastRefusal,
}

/// What to do behind a refusal.
struct AfterRefusal {
    /// It has another reason than the one before.
    is_new: bool,
    time: Duration,
}

impl Refusals {
    /// Each pause is twice as long as the one before.
    fn refused(&mut self, why: &str) -> AfterRefusal {
        let is_new = self.last.set(why);
        let time = PAUSE.saturating_mul(1 << self.times.min(16)).min(LONGEST_PAUSE);
        self.times += 1;
        AfterRefusal { is_new, time }
    }

    /// It refuses no more.
    fn end(&mut self) {
        self.times = 0;
        self.last.clear();
    }
}

/// Why a connection ended.
enum End {
    /// Nobody asks any more.
    Stop,
    /// ZooKeeper has ended the session.
    Expired,
    /// It was lost, or none was made.
    Interrupted,
}

/// See the module's text.
pub(crate) struct Session {
    address: ZookeeperAddress,
    tls: Option<ClientTlsSettings>,
    nodes: Nodes,
    timeout: Duration,
    asked: UnboundedReceiver<Asked>,
    heard: Sender<Heard>,
    connection: u64,
    session: Option<SessionInfo>,
    /// The caller has heard that this session is connected.
    is_known: bool,
    view: View,
    /// What the session was asked to make present.
    instance: Option<Instance>,
    refusals: Refusals,
    failures: TlsFailures,
}

impl Session {
    pub(crate) fn new(
        (address, tls): (ZookeeperAddress, Option<ClientTlsSettings>),
        timeout: Duration,
        asked: UnboundedReceiver<Asked>,
        heard: Sender<Heard>,
    ) -> Self {
        let nodes = Nodes::new(address.path());
        Self {
            address,
            tls,
            nodes,
            timeout,
            asked,
            heard,
            connection: 0,
            session: None,
            is_known: false,
            view: View::default(),
            instance: None,
            refusals: Refusals::default(),
            failures: TlsFailures::default(),
        }
    }

    pub(crate) fn last_refusal(&self) -> LastRefusal {
        self.refusals.last.clone()
    }

    /// Runs until nobody asks any more.
    pub(crate) fn run(mut self) {
        loop {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime without I/O takes nothing that could be short");
            let end = runtime.block_on(self.connection());
            // With it goes what the library would send over its next connection.
            drop(runtime);
            match end {
                End::Stop => return,
                End::Interrupted => {}
                End::Expired => {
                    tracing::warn!(cluster = %self.address, "ZooKeeper has ended the session");
                    (self.session, self.instance) = (None, None);
                    if std::mem::take(&mut self.is_known) {
                        self.tell(Event::Session(SessionState::Lost));
                    }
                }
            }
        }
    }

    fn tell(&self, event: Event) {
        // Nobody hears it any more only if nobody asks any more.
        let _ = self.heard.send(Heard::Event(event));
    }

    /// A connection to one of the servers; else how this attempt has ended.
    async fn open(&mut self) -> Result<Client, End> {
        let connector = match self.connector() {
            Ok(connector) => connector,
            Err(error) => {
                let pause = self.pause_after(&error.with_advice());
                return Err(self.interrupted(pause).await);
            }
        };
        let address = self.address.clone();
        let connecting = async move {
            match address.is_encrypted() {
                true => connector.secure_connect(address.hosts()).await,
                false => connector.connect(address.hosts()).await,
            }
        };
        match self.while_refusing(connecting).await {
            None => Err(End::Stop),
            Some(Ok(client)) => Ok(client),
            Some(Err(Error::SessionExpired)) if self.session.is_some() => Err(End::Expired),
            Some(Err(error)) => {
                tracing::debug!(cluster = %self.address, %error, "no connection to ZooKeeper");
                if let Some(files) = &self.tls {
                    self.failures.look(&self.address, files, &self.refusals.last);
                }
                Err(self.interrupted(PAUSE).await)
            }
        }
    }

    /// One connection, from its beginning to its end.
    async fn connection(&mut self) -> End {
        let client = match self.open().await {
            Ok(client) => client,
            Err(end) => return end,
        };
        self.session = Some(client.session().clone());
        let mut state = client.state_watcher();
        let nodes = Nodes::new(self.nodes.base());
        let preparing = Prepared::read(&client, &nodes, self.instance);
        let prepared = match self.while_refusing(preparing).await {
            None => {
                drop(client);
                closed(state).await;
                return End::Stop;
            }
            Some(Ok(prepared)) => prepared,
            Some(Err(error)) => {
                let pause = self.pause_after(&error.to_string());
                return self.interrupted(pause).await;
            }
        };
        self.refusals.end();
        self.connection += 1;
        self.is_known = true;
        self.view.connected();
        let session_ms = client.session_timeout().as_millis() as u64;
        let _ = self.heard.send(Heard::Connected { connection: self.connection, session_ms });
        let connection = Connection::new(
            &client,
            &nodes,
            prepared,
            (self.connection, &self.heard),
            &mut self.view,
        );
        let is_over = tokio::select! {
            biased;
            _ = not_connected(&mut state) => true,
            is_over = connection.serve(&mut self.asked) => is_over,
        };
        let open = connection.end(&mut self.instance);
        if !is_over {
            drop(client);
            closed(state).await;
            return End::Stop;
        }
        self.tell(Event::Session(SessionState::Suspended));
        if let Some(id) = open {
            self.tell(Event::Answer(id, Outcome::Unknown));
        }
        End::Interrupted
    }

    fn connector(&self) -> Result<Connector, TlsError> {
        let connector = Client::connector().with_session_timeout(self.timeout).with_fail_eagerly();
        let connector = match &self.session {
            Some(session) => connector.with_session(session.clone()),
            None => connector,
        };
        Ok(match &self.tls {
            Some(files) => connector.with_tls(tls::options(files)?),
            None => connector,
        })
    }

    async fn interrupted(&mut self, pause: Duration) -> End {
        match self.while_refusing(tokio::time::sleep(pause)).await {
            None => End::Stop,
            Some(()) => End::Interrupted,
        }
    }

    /// How long it waits after ZooKeeper has refused what it needs. A reason is said once.
    fn pause_after(&mut self, why: &str) -> Duration {
        let AfterRefusal { is_new, time } = self.refusals.refused(why);
        if is_new {
            tracing::warn!(cluster = %self.address, error = why, "no session at ZooKeeper, trying again");
        }
        time
    }

    /// Waits for something else, and sends nothing meanwhile. `None`: nobody asks any more.
    async fn while_refusing<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                done = &mut what => return Some(done),
                asked = self.asked.recv() => match asked {
                    Some(asked) => self.tell(Event::Answer(asked.id, Outcome::NotSent)),
                    None => return None,
                },
            }
        }
    }
}

/// Waits until the connection is lost.
async fn not_connected(state: &mut zookeeper_client::StateWatcher) {
    while matches!(state.peek_state(), ClientState::SyncConnected) {
        state.changed().await;
    }
}

/// Waits until ZooKeeper has closed the session, but not for long.
async fn closed(mut state: zookeeper_client::StateWatcher) {
    let closed = async {
        while matches!(state.peek_state(), ClientState::SyncConnected) {
            state.changed().await;
        }
    };
    let _ = tokio::time::timeout(CLOSE, closed).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_said_once_and_the_pauses_grow_up_to_a_bound() {
        let mut refusals = Refusals::default();
        let after: Vec<_> = (0..20).map(|_| refusals.refused("no rights")).collect();
        assert_eq!(after.iter().filter(|of| of.is_new).count(), 1);
        assert!(after[0].is_new && after[0].time == PAUSE && after[1].time == 2 * PAUSE);
        assert!(after.windows(2).all(|pair| pair[0].time <= pair[1].time));
        assert_eq!(after[19].time, LONGEST_PAUSE);
        assert!(refusals.refused("a quota").is_new, "another reason is said");
    }
}
