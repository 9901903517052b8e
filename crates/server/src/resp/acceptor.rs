//! What the accept loop of RESP does with clients: each goes to the shard's thread that has the fewest.
//! With TLS that is after its handshake.

use super::stream::ClientStream;
use crate::accept_loop::ClientHandler;
use crate::inbox::{Handed, Message};
use crate::shared::Shared;
use crate::thread_counts::count;
use crate::tls::Tls;
use remora_frontend::Connection;
use remora_layout::limits::{
    RESP_MAX_CONNECTIONS, TCP_KEEPALIVE_IDLE_S, TCP_KEEPALIVE_INTERVAL_S, TCP_KEEPALIVE_PROBES,
};
use remora_resp::RespClient;
use remora_tls::{TlsSession, TlsStream};
use rustix::net::sockopt;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The reply to a client that is one too many (in Redis's words).
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// The reply to a client that is one too many of its address.
const TOO_MANY_OF_ADDRESS: &[u8] = b"-ERR max number of clients of this address reached\r\n";
/// The reply to a client whose certificate names a user as whom enough are logged in.
const TOO_MANY_OF_USER: &[u8] = b"-ERR max number of logins of this user reached\r\n";
/// The reply to a client for which the process has no descriptor.
const NO_DESCRIPTOR: &[u8] = b"-ERR the server has no file descriptor left for another client: \
close some, or raise its limit of open files (ulimit -n)\r\n";

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
pub struct RespClientHandler {
    next_serial: u64,
}

impl ClientHandler for RespClientHandler {
    const NAME: &'static str = "the acceptor";

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
                let _ = socket.write(TOO_MANY);
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
                self.hand_over(shared, stream, peer, RespClient::default());
            }
            None => {
                let _ = socket.write(TOO_MANY_OF_ADDRESS);
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
            let _ = stream.write(TOO_MANY_OF_USER);
            return;
        };
        if is_full(shared) {
            count(&shared.counts.connections_rejected, 1);
            let _ = stream.write(TOO_MANY);
            return;
        }
        let Some(permit) = shared.users.addresses.enter(peer) else {
            let _ = stream.write(TOO_MANY_OF_ADDRESS);
            return;
        };
        let client = RespClient { login, ..RespClient::default() };
        self.hand_over(shared, ClientStream::Tls(Box::new(stream), permit), peer, client);
    }

    fn turn_away(&self, shared: &Shared, socket: &mut TcpStream) {
        count(&shared.counts.connections_rejected, 1);
        // The client may have gone already; sending the reason is a courtesy.
        let _ = socket.write(NO_DESCRIPTOR);
    }
}

impl RespClientHandler {
    /// A handler that has had no client.
    pub fn new() -> Self {
        Self { next_serial: 1 }
    }

    /// Gives a client to the thread that has the fewest.
    fn hand_over(
        &mut self,
        shared: &Shared,
        stream: ClientStream,
        peer: SocketAddr,
        client: RespClient,
    ) {
        let shards = shared.shards.iter();
        let Some(shard) = shards.min_by_key(|shard| shard.connections.load(Ordering::Relaxed))
        else {
            return;
        };
        shard.connections.fetch_add(1, Ordering::Relaxed);
        count(&shared.counts.connections_total, 1);
        let connection = Connection::new(peer, self.next_serial).of_client(client);
        self.next_serial += 1;
        shard.inbox.push(Message::Serve(Box::new(Handed { stream, connection })));
    }
}

fn is_full(shared: &Shared) -> bool {
    let shards = shared.shards.iter();
    let open: u64 = shards.map(|shard| shard.connections.load(Ordering::Relaxed)).sum();
    open >= RESP_MAX_CONNECTIONS as u64
}
