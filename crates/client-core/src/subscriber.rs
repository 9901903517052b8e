//! The end of a connection that takes what each shard sends on, instead of replies: a replica is
//! such a client of its primary.

use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::{ConnectError, Error};
use crate::options::Options;
use remora_fabric::{Address, Transport};
use std::sync::Arc;
use std::time::Duration;

/// See the module's text. It has a connection of its own.
pub struct Subscriber {
    endpoint: Endpoint,
}

impl Subscriber {
    /// Connects to the server at this address.
    ///
    /// # Errors
    /// As of [`Client::connect`].
    pub fn connect(address: impl Into<Address>, options: &Options) -> Result<Self, ConnectError> {
        Ok(Self::of(&Client::connect(address, options)?))
    }

    /// Over a connection of its own that has no session.
    ///
    /// # Panics
    /// It has one.
    pub fn of(client: &Client) -> Self {
        let endpoint = Endpoint::new(Arc::clone(&client.connection), &client.options);
        Self { endpoint: endpoint.expect("a fresh connection has room for its first session") }
    }

    /// The server's shards.
    pub fn shards(&self) -> usize {
        self.endpoint.connection.tables.len()
    }

    /// The server's incarnation: a number that is new at each of its starts.
    pub fn incarnation(&self) -> u64 {
        self.endpoint.connection.incarnation
    }

    /// The transport of the connection.
    pub fn transport(&self) -> Transport {
        self.endpoint.connection.transport()
    }

    /// Sends one frame to a shard, given in parts, and wakes the shard. Returns whether there was
    /// room.
    ///
    /// # Errors
    /// The connection is over.
    pub fn send(&mut self, shard: usize, parts: &[&[u8]]) -> Result<bool, Error> {
        self.endpoint.try_put(shard, parts, false)
    }

    /// Takes the next message of a shard; `None` if none has come.
    ///
    /// # Errors
    /// The connection is over.
    pub fn take(&mut self, shard: usize) -> Result<Option<&[u8]>, Error> {
        let came = self.endpoint.take_message(shard)?;
        Ok(came.then_some(&self.endpoint.reply[..]))
    }

    /// Ends the connection: what the server writes from here on does not count as stored. What it has
    /// written before lies in this memory ([`Subscriber::take_rest`]).
    pub fn leave(&self) {
        self.endpoint.connection.leave();
    }

    /// Takes the next message of a shard that lies in this memory, also after the end of the
    /// connection.
    ///
    /// # Errors
    /// The server has broken the protocol.
    pub fn take_rest(&mut self, shard: usize) -> Result<Option<&[u8]>, Error> {
        let came = self.endpoint.take_rest(shard)?;
        Ok(came.then_some(&self.endpoint.reply[..]))
    }

    /// Sleeps until a message may have come, for so long at most. Notices the end of the server, and
    /// its silence.
    ///
    /// # Errors
    /// The connection is over.
    pub fn wait(&mut self, most: Duration) -> Result<(), Error> {
        self.endpoint.wait_for_messages(most)
    }
}
