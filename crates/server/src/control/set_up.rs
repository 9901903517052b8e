//! The steps by which a client over RDMA gets its session.

use super::listeners::Socket;
use super::{Client, Control, Stage, Welcomed};
use crate::peer::Peer;
use crate::ring_session::SessionUser;
use crate::session::Session;
use crate::thread_counts::count;
use mio::Token;
use remora_arena::{Mapping, Words};
use remora_fabric::verbs::ClientSide;
use remora_fabric::{HelloStream, Transport};
use remora_layout::hello::Refusal;
use remora_layout::limits::MAX_SESSIONS;
use remora_layout::session::mailbox_bytes;
use remora_layout::verbs::VerbsReady;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

impl Control {
    /// Makes a queue pair for a client that waits for one, and sends it this end; the client's end
    /// follows.
    pub(super) fn greet(&mut self, token: Token) {
        match self.try_to_greet(token) {
            // The client may have gone meanwhile.
            Ok(()) => self.read(token),
            Err(why) => self.refuse(token, why),
        }
    }

    fn try_to_greet(&mut self, token: Token) -> Result<(), Refusal> {
        // This one is half open already.
        let half_open = self.admission.half_open() as u64;
        let counts = &self.shared.counts;
        if counts.sessions() + half_open > MAX_SESSIONS as u64 {
            return Err(Refusal::TooManySessions);
        }
        if counts.sessions_by(Transport::Verbs).load(Ordering::Relaxed) + half_open
            > self.shared.max_queue_pairs()
        {
            if self.admission.is_ending() {
                // Some are free in a moment.
                return Err(Refusal::Busy);
            }
            count(&counts.no_queue_pair, 1);
            return Err(Refusal::TooManyQueuePairs);
        }
        let rights = self.clients.get(&token).ok_or(Refusal::NotAHello)?.rights;
        let granted = self.granted(Transport::Verbs, rights);
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let (Some(Socket::Tcp(socket)), Stage::Waiting(pid)) = (&mut client.socket, &client.stage)
        else {
            return Err(Refusal::NotAHello);
        };
        let no_rdma = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "no queue pair for a client");
            Refusal::Unavailable
        };
        let host = self.shared.verbs.as_ref().ok_or(Refusal::Unavailable)?;
        let local = socket.socket().local_addr().map_err(|error| no_rdma(&error))?.ip();
        let mut welcome = host.welcome(local).map_err(|error| no_rdma(&error))?;
        welcome.serve_at_most(self.shared.config.reads_per_client);
        let answer = [granted.as_bytes(), &welcome.greeting()].concat();
        // It fits into the socket of a client that was only sent to so far.
        socket.write_all(&answer).map_err(|error| no_rdma(&error))?;
        let pid = *pid;
        client.enter(Stage::Greeted(Box::new(Welcomed { welcome, granted, pid })));
        self.next_session += 1;
        Ok(())
    }

    /// A greeted client does not send its end, and others wait. If it was only slow, it may come
    /// again.
    pub(super) fn cut_off(&mut self, token: Token) {
        if let Some(Client {
            socket: Some(Socket::Tcp(socket)), stage: Stage::Greeted(_), ..
        }) = self.clients.get_mut(&token)
        {
            refuse_to_connect(socket, Refusal::Busy);
        }
        self.end(token, "it did not say what it was to say");
    }

    /// A client has sent its end of a queue pair: it gets its session.
    pub(super) fn connect(&mut self, token: Token) {
        let Some(client) = self.clients.get_mut(&token) else { return };
        let stage = std::mem::replace(&mut client.stage, Stage::Silent);
        let user = SessionUser::new(Arc::clone(&self.shared.users), client.login.clone());
        let (Client { socket: Some(Socket::Tcp(socket)), .. }, Stage::Told(welcomed, said)) =
            (client, stage)
        else {
            return self.end(token, "it has not told of its queue pair");
        };
        let Welcomed { welcome, granted, pid } = *welcomed;
        let to_server = Words::new(Mapping::heap(mailbox_bytes(self.shared.shards.len())));
        let marks = self.shared.marks();
        let accepted = ClientSide::read_from_bytes(&said).map_err(|_| "its side is cut".to_owned());
        let accepted = accepted.and_then(|side| {
            let control =
                socket.socket().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            let (shared, marks) = (Arc::clone(&self.shared), Arc::clone(&marks));
            let on_immediate = Box::new(move |imm| shared.mark_and_ring(&marks, imm));
            let accepted = welcome.accept(control.into(), &side, &to_server, on_immediate);
            accepted.map_err(|error| error.to_string())
        });
        let (connection, ready) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(error, "a client's queue pair could not be connected");
                refuse_to_connect(socket, Refusal::Unavailable);
                return self.end(token, "its queue pair could not be connected");
            }
        };
        let peer = Peer::of(socket.socket().peer_addr());
        // It fits; a client that has gone is noticed soon.
        let _ = socket.write_all(ready.as_bytes());
        let granted = (granted.session.get(), granted.session_seed.get());
        let end = (connection, marks, peer);
        let session = Session::over_verbs(&self.shared, granted, end, (to_server.view(), &user));
        self.begin(token, session, pid);
        self.admission.settle(token);
    }
}

/// The answer where [`VerbsReady`] is expected. A client that has gone needs none.
fn refuse_to_connect(socket: &mut HelloStream, why: Refusal) {
    let mut refused = VerbsReady::new_zeroed();
    refused.refusal = (why as u32).into();
    let _ = socket.write_all(refused.as_bytes());
}
