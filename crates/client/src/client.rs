//! A process's connection to a server.

use crate::error::{ConnectError, Error};
use crate::options::{Address, Options, Transport};
use crate::session::Session;
use remora_client_core as core;

/// A process's connection to one server. Cheap to clone. Each thread takes a [`Session`] of
/// its own from it.
#[derive(Clone)]
pub struct Client {
    core: core::Client,
    path: core::Path,
}

impl Client {
    /// Connects to the server at this address: its Unix socket or its fabric address.
    ///
    /// # Errors
    /// No server listens there, it refuses, or what the options ask for cannot be had.
    ///
    /// ```no_run
    /// use remora_client::{Client, Options};
    ///
    /// let client = Client::connect(&"10.0.0.5:7380".parse()?, &Options::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(address: &Address, options: &Options) -> Result<Self, ConnectError> {
        let core = core::Client::connect(&address.0, &options.core).map_err(ConnectError)?;
        Ok(Self { core, path: options.path })
    }

    /// A session for one thread.
    ///
    /// # Errors
    /// The connection is over, the process is a forked child, or it has too many sessions.
    ///
    /// ```no_run
    /// # use remora_client::{Client, Error};
    /// # fn example(client: &Client) {
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| -> Result<(), Error> {
    ///             let mut session = client.session()?;
    ///             session.set(b"state", b"free")
    ///         });
    ///     }
    /// });
    /// # }
    /// ```
    pub fn session(&self) -> Result<Session, Error> {
        Ok(Session::new(self.core.session()?, self.path))
    }

    /// What carries the connection.
    ///
    /// ```no_run
    /// # use remora_client::{Client, Transport};
    /// # fn example(client: &Client) {
    /// if client.transport() == Transport::Tcp {
    ///     println!("READs cost the server's processor here");
    /// }
    /// # }
    /// ```
    pub fn transport(&self) -> Transport {
        match self.core.transport() {
            core::Transport::Shm => Transport::Shm,
            core::Transport::Verbs => Transport::Verbs,
            core::Transport::Tcp => Transport::Tcp,
            core::Transport::Sim => unreachable!("nobody dials a simulated server"),
        }
    }

    /// The RDMA device of this machine that carries the connection, if one does.
    ///
    /// ```no_run
    /// # use remora_client::Client;
    /// # fn example(client: &Client) {
    /// println!("over {}", client.rdma_device().unwrap_or("no RDMA device"));
    /// # }
    /// ```
    pub fn rdma_device(&self) -> Option<&str> {
        self.core.rdma_device()
    }

    /// Number of the server's shards.
    ///
    /// ```no_run
    /// # use remora_client::Client;
    /// # fn example(client: &Client) {
    /// println!("{} shards", client.shards());
    /// # }
    /// ```
    pub fn shards(&self) -> usize {
        self.core.shards()
    }

    /// How much memory there is for large replies, and how much of it is in use.
    ///
    /// ```no_run
    /// # use remora_client::Client;
    /// # fn example(client: &Client) {
    /// let buffers = client.data_buffers();
    /// println!("{} of {} bytes are busy", buffers.busy_bytes, buffers.bytes);
    /// # }
    /// ```
    pub fn data_buffers(&self) -> core::DataBufferCounts {
        self.core.data_buffers()
    }
}

impl Session {
    /// A connection of its own, and one session on it.
    ///
    /// # Errors
    /// As [`Client::connect`].
    ///
    /// ```no_run
    /// use remora_client::{Address, Options, Session};
    ///
    /// let address = Address::unix("/run/user/1000/remora.sock");
    /// let mut session = Session::connect(&address, &Options::default())?;
    /// # Ok::<(), remora_client::ConnectError>(())
    /// ```
    pub fn connect(address: &Address, options: &Options) -> Result<Self, ConnectError> {
        let session = Client::connect(address, options)?.session();
        Ok(session.expect("a fresh connection has room for its first session"))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("transport", &self.transport())
            .field("shards", &self.shards())
            .finish_non_exhaustive()
    }
}
