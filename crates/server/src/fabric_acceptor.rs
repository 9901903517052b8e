//! What the accept loop of `fabric_address` does with clients where that speaks TLS. It gives the clients
//! that have come through their handshakes, which take a signature each, to the control thread, whose
//! heartbeats must not wait.
//!
//! Invariant: at most [`MAX_HANDSHAKES`] clients wait for the control thread; one too many is dropped.

use crate::accept_loop::ClientHandler;
use crate::shared::Shared;
use crate::thread_counts::count;
use crate::tls::Tls;
use remora_acl::Login;
use remora_fabric::HelloStream;
use remora_layout::limits::MAX_HANDSHAKES;
use remora_tls::TlsSession;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A client whose handshake is over, and its login by its certificate.
pub type Handshaken = (HelloStream, Login);

/// See the module's text.
pub struct FabricClientHandler {
    handshaken: SyncSender<Handshaken>,
}

impl FabricClientHandler {
    /// A handler, and the clients that come through it.
    pub fn new() -> (Self, Receiver<Handshaken>) {
        let (handshaken, clients) = sync_channel(MAX_HANDSHAKES);
        (Self { handshaken }, clients)
    }
}

impl ClientHandler for FabricClientHandler {
    const NAME: &'static str = "the acceptor of fabric_address";

    fn accepted(
        &mut self,
        _: &Shared,
        socket: TcpStream,
        _: SocketAddr,
    ) -> std::io::Result<Option<TcpStream>> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Some(socket))
    }

    fn handshaken(
        &mut self,
        shared: &Shared,
        tls: &Tls,
        (socket, session, _): (TcpStream, TlsSession, SocketAddr),
    ) {
        let Ok(login) = tls.login(&session, &shared.users) else { return };
        let client = (HelloStream::encrypted(socket, session), login);
        match self.handshaken.try_send(client) {
            Ok(()) => shared.wake_control(),
            Err(_) => count(&tls.counts.dropped, 1),
        }
    }

    /// The client can read no reason without a handshake.
    fn turn_away(&self, shared: &Shared, _: &mut TcpStream) {
        count(&shared.counts.sessions_refused, 1);
    }
}
