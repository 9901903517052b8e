//! Executes requests.

use crate::job::{OwnedReply, Token};
use crate::many_keys::ManyKeys;
use crate::port::ShardPort;
use crate::protocol::Protocol;
use crate::responder::Responder;
use remora_layout::hash::KeyHash;

/// What has happened that concerns connections although none of them has asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// There are messages for those that take them ([`Responder::take_pushes`]).
    pub has_pushes: bool,
    /// The others end, once what they have sent is answered: their clients connect anew, and
    /// perhaps elsewhere.
    pub ends_others: bool,
    /// What connections may do has changed: those end that may not stay ([`Executor::stays`]).
    pub reviews: bool,
}

/// Carries out the requests of all connections of one thread.
pub trait Executor {
    /// The connections' protocol.
    type Protocol: Protocol;
    /// Its interface to the shards.
    type Port: ShardPort;
    /// What it counts of the memory that a connection's buffers hold; it ends with the connection.
    type Held: Default;

    /// The shards.
    fn port(&self) -> &Self::Port;

    /// The shards, to ask them.
    fn port_mut(&mut self) -> &mut Self::Port;

    /// Prefetches the memory that requests about these keys, each with its shard, will read. A
    /// hint.
    fn fetch_ahead(&mut self, keys: &[(KeyHash, usize)]);

    /// Carries out one request. `at` is where the key is that it names first, if that is
    /// known.
    fn request(
        &mut self,
        responder: &mut Responder<Self::Protocol>,
        request: (&<Self::Protocol as Protocol>::Request, &[u8]),
        at: Option<(KeyHash, usize)>,
    );

    /// A further turn of a request that has keys left ([`ManyKeys::has_left`]).
    fn go_on_with_keys(
        &mut self,
        responder: &mut Responder<Self::Protocol>,
        many: ManyKeys<<Self::Protocol as Protocol>::Form>,
        request: (&<Self::Protocol as Protocol>::Request, &[u8]),
    );

    /// Takes a shard's answer for a connection that `is_there` or is closed. Returns the answer for
    /// the connection; `None` if something must be asked first, or if the executor asked for its
    /// own purposes.
    fn take(&mut self, token: Token, reply: OwnedReply, is_there: bool) -> Option<OwnedReply>;

    /// Whether the request for which a connection waits is known to wait for its keys.
    fn has_parked(&mut self, _: &Responder<Self::Protocol>) -> bool {
        false
    }

    /// A connection is closed: nobody takes the reply to a request of it that waits.
    fn forget(&mut self, _: &Responder<Self::Protocol>) {}

    /// What has happened since the last call. For executors that tell connections nothing: nothing.
    fn news(&mut self) -> News {
        News::default()
    }

    /// Whether a connection stays open, after a change of what connections may do.
    fn stays(&mut self, _: &mut Responder<Self::Protocol>) -> bool {
        true
    }

    /// The protocol error that ends a connection which may not send long requests yet: longer ones than
    /// [`remora_layout::limits::UNAUTHENTICATED_REQUEST_BYTES`].
    fn refuses_long(&mut self, _: &mut Responder<Self::Protocol>) -> Option<&'static str> {
        None
    }

    /// A connection's buffers hold this many bytes now, in steps of
    /// [`remora_layout::limits::CLIENT_MEMORY_STEP`].
    ///
    /// # Errors
    /// They may not hold more than before: the text for the client, whose connection ends.
    fn hold(
        &mut self,
        _: &Responder<Self::Protocol>,
        _: &mut Self::Held,
        _bytes: usize,
    ) -> Result<(), &'static str> {
        Ok(())
    }

    /// Pushes the messages of the last [`News`] to a connection that takes them.
    fn push(&mut self, _: &mut Responder<Self::Protocol>) {}
}
