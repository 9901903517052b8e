//! From a client's hello to its session, or to the answer that it gets
//! instead.

use super::doors::Socket;
use super::{Client, Control, Welcomed};
use crate::random::random_u64;
use crate::session::Session;
use crate::shared::count;
use mio::Token;
use remora_arena::{Mapping, Words};
use remora_fabric::detect::{Offer, Wanted, number_of};
use remora_fabric::shm::decline;
use remora_fabric::verbs::ClientSide;
use remora_fabric::{Transport, answer, elsewhere, hello_of, refusal};
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, SOCKET_PATH_BYTES, ServerHello,
    TCP_ADDRESS_BYTES,
};
use remora_layout::limits::MAX_SESSIONS;
use remora_layout::session::mailbox_bytes;
use remora_layout::verbs::VerbsReady;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

impl Control {
    /// Reads the hello, or notices the end. After the hello a client over
    /// shared memory has nothing to say: one that does breaks the protocol.
    pub(super) fn read(&mut self, token: Token) {
        const HELLO: usize = size_of::<ClientHello>();
        const SIDE: usize = size_of::<ClientSide>();
        let Some(client) = self.clients.get_mut(&token) else { return };
        let Some(socket) = &mut client.socket else { return };
        let mut bytes = [0u8; SIDE];
        loop {
            let all = if client.welcome.is_some() { SIDE } else { HELLO };
            let want = all - client.said.len();
            match socket.read(&mut bytes[..want.max(1)]) {
                Ok(0) => return self.end(token, "the client has gone"),
                Ok(_) if client.session.is_some() => {
                    count(&self.shared.counts.sessions_violated, 1);
                    return self.end(token, "it spoke after its hello");
                }
                Ok(read) => {
                    client.said.extend_from_slice(&bytes[..read]);
                    if client.said.len() < all {
                        continue;
                    }
                    let said = std::mem::take(&mut client.said);
                    if let Some(welcomed) = client.welcome.take() {
                        return self.connect(token, *welcomed, &said);
                    }
                    if let Ok(hello) = <[u8; HELLO]>::try_from(&said[..])
                        && let Err(why) = self.welcome(token, &hello)
                    {
                        tracing::warn!(refusal = %why, "refused a session");
                        let refused = refusal(why, self.offer());
                        self.dismiss(token, &refused);
                    }
                    return;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.end(token, "its socket failed"),
            }
        }
    }

    /// What this server offers.
    pub(super) fn offer(&self) -> Offer {
        let wanted = self.shared.config.transport;
        let offers = |transport| wanted == Wanted::Auto || wanted == transport;
        Offer::of_this_process(
            offers(Wanted::Shm),
            offers(Wanted::Tcp) && self.shared.fabric_address.is_some(),
            offers(Wanted::Verbs) && self.shared.has_rdma(),
        )
    }

    /// Answers a client that gets no session here.
    fn dismiss(&mut self, token: Token, hello: &ServerHello) {
        if let Some(Client { socket: Some(mut socket), .. }) = self.clients.remove(&token) {
            let is_refusal = hello.refusal.get() != 0;
            count(&self.shared.counts.sessions_refused, is_refusal as u64);
            socket.answer(hello);
        }
    }

    /// A hello is complete: the client gets a session, or is sent where the
    /// chosen transport is to be had.
    fn welcome(
        &mut self,
        token: Token,
        hello: &[u8; size_of::<ClientHello>()],
    ) -> Result<(), Refusal> {
        let hello = hello_of(hello)?;
        let chosen = answer(&hello, self.offer())?;
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let came_by = client.socket.as_ref().map(Socket::transport);
        // Queue pairs are set up by TCP.
        let to_come_by = if chosen == Transport::Verbs { Transport::Tcp } else { chosen };
        if came_by != Some(to_come_by) {
            let (path, address) = (&self.shared.config.socket_path, self.shared.fabric_address);
            let there = match chosen {
                Transport::Tcp | Transport::Verbs => elsewhere(chosen, self.offer(), None, address),
                _ => elsewhere(chosen, self.offer(), Some(path), None),
            };
            let there = there.ok_or(Refusal::Unavailable)?;
            self.dismiss(token, &there);
            return Ok(());
        }
        if let Some(Socket::Unix(socket)) = &client.socket {
            let peer = rustix::net::sockopt::socket_peercred(socket.as_fd());
            let peer = peer.map_err(|_| Refusal::OtherUser)?;
            if peer.uid != rustix::process::geteuid() {
                return Err(Refusal::OtherUser);
            }
        }
        if self.shared.counts.sessions() >= MAX_SESSIONS as u64 {
            return Err(Refusal::TooManySessions);
        }
        match chosen {
            Transport::Verbs => self.greet(token, &hello),
            _ => self.grant(token, &hello, chosen),
        }
    }

    /// Tells a client of this end of a queue pair; the client's end follows.
    fn greet(&mut self, token: Token, hello: &ClientHello) -> Result<(), Refusal> {
        let granted = self.granted(Transport::Verbs);
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let Some(Socket::Tcp(socket)) = &mut client.socket else { return Err(Refusal::NotAHello) };
        let no_rdma = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "no queue pair for a client");
            Refusal::Unavailable
        };
        let host = self.shared.verbs.as_ref().ok_or(Refusal::Unavailable)?;
        let local = socket.local_addr().map_err(|error| no_rdma(&error))?.ip();
        let welcome = host.welcome(local).map_err(|error| no_rdma(&error))?;
        let answer = [granted.as_bytes(), &welcome.greeting()].concat();
        // It fits into the socket of a client that was only sent to so far.
        socket.write_all(&answer).map_err(|error| no_rdma(&error))?;
        self.next_session += 1;
        client.welcome = Some(Box::new(Welcomed { welcome, granted, pid: hello.pid.get() }));
        Ok(())
    }

    /// A client has told of its end of a queue pair: it gets its session.
    fn connect(&mut self, token: Token, welcomed: Welcomed, said: &[u8]) {
        let Welcomed { welcome, granted, pid } = welcomed;
        let Some(Client { socket: Some(Socket::Tcp(socket)), .. }) = self.clients.get_mut(&token)
        else {
            return;
        };
        let to_server = Words::new(Mapping::heap(mailbox_bytes(self.shared.shards.len())));
        let accepted = ClientSide::read_from_bytes(said).map_err(|_| "its side is cut".to_owned());
        let accepted = accepted.and_then(|side| {
            let control = socket.as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            let shared = Arc::clone(&self.shared);
            let on_immediate = Box::new(move |imm| shared.ring(imm));
            let accepted = welcome.accept(control.into(), &side, &to_server, on_immediate);
            accepted.map_err(|error| error.to_string())
        });
        let (connection, ready) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(error, "a client's queue pair could not be connected");
                let mut refused = VerbsReady::new_zeroed();
                refused.refusal = (Refusal::Unavailable as u32).into();
                // It may have gone.
                let _ = socket.write_all(refused.as_bytes());
                return self.end(token, "its queue pair could not be connected");
            }
        };
        // It fits; a client that has gone is noticed soon.
        let _ = socket.write_all(ready.as_bytes());
        let granted = (granted.session.get(), granted.session_seed.get());
        let session =
            Session::over_verbs(&self.shared, &self.agent, granted, connection, to_server);
        self.begin(token, session, pid);
    }

    fn grant(
        &mut self,
        token: Token,
        hello: &ClientHello,
        chosen: Transport,
    ) -> Result<(), Refusal> {
        let granted = self.granted(chosen);
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let (number, seed) = (granted.session.get(), granted.session_seed.get());
        let session = match chosen {
            Transport::Tcp => {
                let Some(Socket::Tcp(mut socket)) = client.socket.take() else {
                    return Err(Refusal::NotAHello);
                };
                // From now on the agent watches it.
                let _ = self.poll.registry().deregister(&mut socket);
                Session::over_tcp(&self.shared, &self.agent, socket.into(), granted)?
            }
            _ => Session::over_shm(&self.shared, number, seed)?,
        };
        self.next_session += 1;
        self.begin(token, session, hello.pid.get());
        let Some(Client { socket, session: Some(session), .. }) = self.clients.get(&token) else {
            return Ok(());
        };
        if let Some(Socket::Unix(socket)) = socket
            && let Err(error) = session.grant_shm(&self.shared, socket, granted)
        {
            // Gone, or the kernel has too many descriptors under way already.
            tracing::warn!(%error, "a grant could not be sent");
            let _ = decline(socket, &refusal(Refusal::NoResources, self.offer()));
            self.end(token, "it could not be granted");
        }
        Ok(())
    }

    /// A session has begun.
    fn begin(&mut self, token: Token, session: Session, pid: u32) {
        let (number, transport) = (session.number, session.transport());
        let Some(client) = self.clients.get_mut(&token) else { return };
        client.session = Some(session);
        count(self.shared.counts.sessions_by(transport), 1);
        count(&self.shared.counts.sessions_total, 1);
        tracing::info!(session = number, pid, transport = transport.name(), "session granted");
        self.beat_one(token);
    }

    /// The answer that grants the next session.
    fn granted(&self, chosen: Transport) -> ServerHello {
        let table = self.shared.pointer_table.as_ref();
        ServerHello {
            magic: HELLO_MAGIC.into(),
            version: PROTOCOL_VERSION.into(),
            refusal: 0.into(),
            session: self.next_session.into(),
            life: self.shared.life.into(),
            epoch: self.shared.epoch.into(),
            session_seed: random_u64().into(),
            hash_seed: self.shared.hash_seed.into(),
            shards: (self.shared.shards.len() as u32).into(),
            pid: std::process::id().into(),
            pointer_table_seed: table.map_or(0, |table| table.seed).into(),
            offer: self.offer().to_wire(),
            transport: number_of(chosen).into(),
            reserved: 0.into(),
            socket_path: [0; SOCKET_PATH_BYTES],
            padding: [0; 4],
            tcp_address: [0; TCP_ADDRESS_BYTES],
        }
    }
}
