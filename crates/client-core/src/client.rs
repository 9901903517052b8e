//! A client process's connection to one server, from which each thread takes a session.

use crate::admission::Admission;
use crate::connection::{Backend, Connection, Parts};
use crate::counts::SendCounts;
use crate::data_buffers::DataBufferCounts;
use crate::error::{ConnectError, Error};
use crate::machine_share::MachineShare;
use crate::options::{Options, PointerCacheKind};
use crate::session::Session;
use remora_fabric::{Address, Connected, Transport, connect};
use std::sync::Arc;

/// A client process's connection to one server. Cheap to clone; every thread
/// takes a [`Session`] of its own from it.
#[derive(Clone)]
pub struct Client {
    pub(crate) connection: Arc<Connection>,
    pub(crate) options: Options,
    pub(crate) admission: Option<Arc<Admission>>,
}

impl Client {
    /// Connects to the server at this address, its Unix socket or its TCP address, over the
    /// transport that the options name.
    ///
    /// # Errors
    /// There is no listener, the server refuses, the transport is not available, the memory that
    /// the server passes is not acceptable, or the options ask for shared pointers that are not
    /// available.
    pub fn connect(address: impl Into<Address>, options: &Options) -> Result<Self, ConnectError> {
        let address = address.into();
        let connection = match connect(&address, &options.dialling())? {
            Connected::Shm(connected) => Connection::over_shm(&address, *connected)?,
            Connected::Remote(connected) => {
                Connection::over_network(&address, *connected, options)?
            }
        };
        if options.pointer_cache == PointerCacheKind::Shared && connection.pointer_table.is_none() {
            return Err(ConnectError::NoPointerSharing { server: address });
        }
        Ok(Self::of(connection, options))
    }

    /// A connection over a given fabric. Each thread waits for itself: one session at a time.
    ///
    /// # Errors
    /// The process cannot detect a fork.
    ///
    /// # Panics
    /// The options ask for shared pointers, and the parts have no table.
    pub fn over(parts: Parts, options: &Options) -> Result<Self, ConnectError> {
        Ok(Self::of(Connection::over_parts(parts)?, options))
    }

    fn of(connection: Connection, options: &Options) -> Self {
        let admission = options.concurrency_limit.admission();
        if let (Some(admission), Some(table)) = (&admission, &connection.pointer_table) {
            admission.share(MachineShare::new(table.words.clone(), connection.number));
        }
        Self { connection: Arc::new(connection), options: options.clone(), admission }
    }

    /// How many sessions may walk trees at a time by READs now; `None` if there is no limit.
    pub fn walks_at_a_time(&self) -> Option<usize> {
        self.admission.as_ref().map(|admission| admission.limit())
    }

    /// The transport of the connection.
    pub fn transport(&self) -> Transport {
        self.connection.transport()
    }

    /// The RDMA device of this machine that carries the connection, if one does.
    pub fn rdma_device(&self) -> Option<&str> {
        match &self.connection.backend {
            Backend::Remote(connection) => connection.device(),
            _ => None,
        }
    }

    /// How much memory there is for large replies.
    pub fn data_buffers(&self) -> DataBufferCounts {
        self.connection.data_buffers.counts()
    }

    /// The server's incarnation: a number that is new at each of its starts.
    pub fn incarnation(&self) -> u64 {
        self.connection.incarnation
    }

    /// The server's shards.
    pub fn shards(&self) -> usize {
        self.connection.tables.len()
    }

    /// Times that a thread had to wait for another at a lock on the path of a request or its reply:
    /// at a ring, an inbox, the memory for large replies, and over a network at the connection and
    /// its deliveries. Over shared memory no thread waits, while there are no more sessions than
    /// ring sets and no large replies. Over TCP a thread holds such a lock for a copy of frames,
    /// and for the signal to their receiver.
    pub fn lock_waits(&self) -> u64 {
        let at_rings: u64 = self.connection.sets().map(|set| set.lock_waits.get()).sum();
        let over_network = match &self.connection.backend {
            Backend::Remote(connection) => connection.lock_waits(),
            Backend::Shm { .. } | Backend::Other(_) => 0,
        };
        at_rings + self.connection.data_buffers.lock_waits() + over_network
    }

    /// What the process's sessions have sent so far.
    pub fn sends(&self) -> SendCounts {
        let mut counts = SendCounts::default();
        for lane in self.connection.sets().flat_map(|set| &set.lanes) {
            lane.sends.add_to(&mut counts);
        }
        counts
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// The connection is over, the process is a forked child, or it already
    /// has [`MAX_CLIENT_SESSIONS`](remora_layout::limits::MAX_CLIENT_SESSIONS) sessions.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.connection), &self.options, self.admission.clone())
    }
}

impl Session {
    /// A connection of its own, and one session on it: [`Client::connect`]
    /// and [`Client::session`].
    ///
    /// # Errors
    /// There is no listener, the server refuses, or the memory that it passes
    /// is not acceptable.
    pub fn connect(address: impl Into<Address>, options: &Options) -> Result<Self, ConnectError> {
        let session = Client::connect(address, options)?.session();
        Ok(session.expect("a fresh connection has room for its first session"))
    }
}
