//! What the accept loops of RESP and of MongoDB's protocol do with clients: each goes to the shard's thread
//! that has the fewest. With TLS that is after its handshake.

use crate::accept_loop::ClientHandler;
use crate::client_stream::ClientStream;
use crate::inbox::Message;
use crate::shared::Shared;
use crate::thread_counts::count;
use crate::tls::Tls;
use remora_acl::Login;
use remora_layout::limits::{
    RESP_MAX_CONNECTIONS, TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES,
};
use remora_tls::{TlsSession, TlsStream};
use rustix::net::sockopt;
use std::io::Write;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What differs between the protocols of clients.
pub trait Served: Send {
    /// The loop's name in its panic.
    const NAME: &'static str;
    /// The number of the first connection.
    const FIRST_SERIAL: u64;
    /// The reply to a client that is one too many.
    const TOO_MANY: &'static [u8];
    /// The reply to a client that is one too many of its address.
    const TOO_MANY_OF_ADDRESS: &'static [u8];
    /// The reply to a client whose certificate names a user as whom enough are logged in.
    const TOO_MANY_OF_USER: &'static [u8];
    /// The reply to a client for which the process has no descriptor.
    const NO_DESCRIPTOR: &'static [u8];

    /// The message that hands a client to its thread.
    fn message(stream: ClientStream, peer: (SocketAddr, u64), login: Login) -> Message;
}

/// Small replies must not wait for acknowledgements. A peer whose machine has died closes nothing:
/// keep-alive probes detect that, so that it does not keep its slot for ever. (These options do not
/// fail on a fresh socket, and no failure justifies losing a client.)
fn set_options(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(TCP_KEEPALIVE_IDLE_S));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(TCP_KEEPALIVE_INTERVAL_S));
    let _ = sockopt::set_tcp_keepcnt(socket, TCP_KEEPALIVE_PROBES);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

/// See the module's text.
pub struct ServedClients<P> {
    next_serial: u64,
    of: PhantomData<P>,
}

impl<P: Served> ClientHandler for ServedClients<P> {
    const NAME: &'static str = P::NAME;

    fn accepted(
        &mut self,
        shared: &Shared,
        mut socket: TcpStream,
        peer: SocketAddr,
    ) -> std::io::Result<Option<TcpStream>> {
        if is_full(shared) {
            count(&shared.counts.connections_rejected, 1);
            // A client of TLS cannot read it before the handshake.
            if shared.tls.is_none() {
                let _ = socket.write(P::TOO_MANY);
            }
            return Ok(None);
        }
        socket.set_nonblocking(true)?;
        set_options(&socket);
        if shared.tls.is_some() {
            return Ok(Some(socket));
        }
        match shared.users.addresses.enter(peer) {
            Some(permit) => {
                let stream = ClientStream::Plain(socket, permit);
                self.hand_over(shared, stream, peer, Login::default());
            }
            None => {
                let _ = socket.write(P::TOO_MANY_OF_ADDRESS);
            }
        }
        Ok(None)
    }

    fn handshaken(
        &mut self,
        shared: &Shared,
        tls: &Tls,
        (socket, session, peer): (TcpStream, TlsSession, SocketAddr),
    ) {
        let login = tls.login(&session, &shared.users);
        let mut stream = TlsStream::new(socket, session);
        let Ok(login) = login else {
            let _ = stream.write(P::TOO_MANY_OF_USER);
            return;
        };
        if is_full(shared) {
            count(&shared.counts.connections_rejected, 1);
            let _ = stream.write(P::TOO_MANY);
            return;
        }
        let Some(permit) = shared.users.addresses.enter(peer) else {
            let _ = stream.write(P::TOO_MANY_OF_ADDRESS);
            return;
        };
        self.hand_over(shared, ClientStream::Tls(Box::new(stream), permit), peer, login);
    }

    fn turn_away(&self, shared: &Shared, socket: &mut TcpStream) {
        count(&shared.counts.connections_rejected, 1);
        // The client may have gone already; sending the reason is a courtesy.
        let _ = socket.write(P::NO_DESCRIPTOR);
    }
}

impl<P: Served> ServedClients<P> {
    /// A handler that has had no client.
    pub fn new() -> Self {
        Self { next_serial: P::FIRST_SERIAL, of: PhantomData }
    }

    /// Gives a client to the thread that has the fewest.
    fn hand_over(&mut self, shared: &Shared, stream: ClientStream, peer: SocketAddr, login: Login) {
        let shards = shared.shards.iter();
        let Some(shard) = shards.min_by_key(|shard| shard.connections.load(Ordering::Relaxed))
        else {
            return;
        };
        shard.connections.fetch_add(1, Ordering::Relaxed);
        count(&shared.counts.connections_total, 1);
        let serial = self.next_serial;
        self.next_serial += 1;
        shard.inbox.push(P::message(stream, (peer, serial), login));
    }
}

fn is_full(shared: &Shared) -> bool {
    let shards = shared.shards.iter();
    let open: u64 = shards.map(|shard| shard.connections.load(Ordering::Relaxed)).sum();
    open >= RESP_MAX_CONNECTIONS as u64
}
