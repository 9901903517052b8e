//! The path from a client's hello to its session, or to its refusal.

use super::listeners::Socket;
use super::{Client, Control, Pid, Stage};
use crate::random::random_u64;
use crate::ring_session::{SessionRights, SessionUser};
use crate::session::Session;
use crate::thread_counts::count;
use mio::Token;
use mio::unix::SourceFd;
use remora_acl::{self as acl, Context, DEFAULT_USER, Login, LoginError, Reason};
use remora_fabric::detect::{Offer, Wanted, number_of};
use remora_fabric::shm::decline;
use remora_fabric::verbs::ClientSide;
use remora_fabric::{Transport, answer, check_head, elsewhere, hello_of, refusal};
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, SOCKET_PATH_BYTES, ServerHello,
    TCP_ADDRESS_BYTES, head_of,
};
use remora_layout::limits::{MAX_SESSIONS, MAX_SHARDS};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

impl Control {
    /// Reads a client's message, or notices its end. A client that sends out of its turn breaks the
    /// protocol; over shared memory and RDMA the client of a session sends nothing more.
    pub(super) fn read(&mut self, token: Token) {
        const HELLO: usize = size_of::<ClientHello>();
        const SIDE: usize = size_of::<ClientSide>();
        let mut bytes = [0u8; if HELLO > SIDE { HELLO } else { SIDE }];
        loop {
            let Some(client) = self.clients.get_mut(&token) else { return };
            let Some(socket) = &mut client.socket else { return };
            let all = match client.stage {
                Stage::Silent => HELLO,
                Stage::Greeted(_) => SIDE,
                Stage::Waiting(_) | Stage::Told(..) | Stage::Served(_) => 0,
            };
            let want = all.saturating_sub(client.said.len());
            match socket.read(&mut bytes[..want.max(1)]) {
                Ok(0) => return self.end(token, "the client has gone"),
                Ok(_) if all == 0 => {
                    count(&self.shared.counts.sessions_violated, 1);
                    return self.end(token, "it spoke out of its turn");
                }
                Ok(read) => {
                    client.said.extend_from_slice(&bytes[..read]);
                    if matches!(client.stage, Stage::Silent)
                        && let Some(head) = head_of(&client.said)
                        && let Err(why) = check_head(head)
                    {
                        return self.refuse(token, why);
                    }
                    if client.said.len() < all {
                        continue;
                    }
                    let said = std::mem::take(&mut client.said);
                    match std::mem::replace(&mut client.stage, Stage::Silent) {
                        Stage::Greeted(welcomed) => {
                            client.enter(Stage::Told(welcomed, said));
                            self.admission.told(token);
                        }
                        _ => {
                            let hello = <[u8; HELLO]>::try_from(&said[..]);
                            if let Ok(hello) = hello
                                && let Err(why) = self.welcome(token, &hello)
                            {
                                self.refuse(token, why);
                            }
                        }
                    }
                    // The client may have gone already.
                }
                // No hello, and no side of a queue pair, has so many records without bytes.
                Err(error) if error.kind() == ErrorKind::WouldBlock && socket.has_more() => {
                    count(&self.shared.counts.sessions_violated, 1);
                    return self.end(token, "it sent records of TLS without bytes");
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.end(token, "its socket failed"),
            }
        }
    }

    /// This server's offer.
    pub(super) fn offer(&self) -> Offer {
        self.offer_of(|_| true)
    }

    /// The part of this server's offer that is among these transports.
    fn offer_of(&self, is_among: impl Fn(Wanted) -> bool) -> Offer {
        let wanted = self.shared.config.transport;
        let offers =
            |transport| is_among(transport) && (wanted == Wanted::Auto || wanted == transport);
        Offer::of_this_process(
            offers(Wanted::Shm),
            offers(Wanted::Tcp) && self.shared.fabric_address.is_some(),
            offers(Wanted::Verbs) && self.shared.has_rdma(),
        )
    }

    /// Refuses a client.
    pub(super) fn refuse(&mut self, token: Token, why: Refusal) {
        let counts = &self.shared.counts;
        match why {
            // As many as come; they come again.
            Refusal::Busy => count(&counts.told_busy, 1),
            // ACL LOG has them.
            why if why.is_about_the_user() => tracing::debug!(refusal = %why, "refused a session"),
            why => tracing::warn!(refusal = %why, "refused a session"),
        }
        let refused = refusal(why, self.offer());
        self.dismiss(token, &refused);
    }

    /// Answers a client that gets no session here.
    fn dismiss(&mut self, token: Token, hello: &ServerHello) {
        self.admission.settle(token);
        self.is_silent_no_more(token);
        if let Some(Client { socket: Some(mut socket), .. }) = self.clients.remove(&token) {
            let is_refusal = hello.refusal.get() != 0;
            count(&self.shared.counts.sessions_refused, is_refusal as u64);
            socket.answer(hello);
        }
    }

    /// A hello is complete: the client gets a session, or the address of the chosen transport.
    fn welcome(
        &mut self,
        token: Token,
        hello: &[u8; size_of::<ClientHello>()],
    ) -> Result<(), Refusal> {
        self.is_silent_no_more(token);
        let hello = hello_of(hello)?;
        let client = self.clients.get(&token).ok_or(Refusal::NotAHello)?;
        if let Some(Socket::Unix(socket)) = &client.socket {
            let peer = rustix::net::sockopt::socket_peercred(socket.as_fd());
            let peer = peer.map_err(|_| Refusal::OtherUser)?;
            if peer.uid != rustix::process::geteuid() {
                return Err(Refusal::OtherUser);
            }
        }
        let login = self.log_in(token, &hello)?;
        let rights = SessionRights::of(&login);
        let chosen = self.choose(token, &hello, &login)?;
        let client = self.clients.get(&token).ok_or(Refusal::NotAHello)?;
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
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        (client.login, client.rights) = (login, rights);
        if self.shared.counts.sessions() >= MAX_SESSIONS as u64 {
            return Err(Refusal::TooManySessions);
        }
        if chosen != Transport::Verbs {
            return self.grant(token, hello.pid.get(), chosen);
        }
        if !self.admission.arrive(token) {
            return Err(Refusal::Busy);
        }
        client.enter(Stage::Waiting(hello.pid.get()));
        Ok(())
    }

    /// The transport for a client. One that may not read everything asks over TCP: shared memory and
    /// regions over RDMA are read without the server.
    fn choose(
        &self,
        token: Token,
        hello: &ClientHello,
        login: &Login,
    ) -> Result<Transport, Refusal> {
        let name = login.user().map_or(DEFAULT_USER, |user| user.name());
        let offer = match SessionRights::of(login).may_read() {
            false => self.offer_of(|transport| transport == Wanted::Tcp),
            true if self.shared.config.may_have_shm(name) => self.offer(),
            true => self.offer_of(|transport| transport != Wanted::Shm),
        };
        answer(hello, offer).map_err(|why| match answer(hello, self.offer()) {
            Ok(_) => {
                self.note(token, hello, (Reason::Command, name));
                Refusal::RestrictedUser
            }
            Err(_) => why,
        })
    }

    /// The login of a client.
    fn log_in(&self, token: Token, hello: &ClientHello) -> Result<Login, Refusal> {
        let users = &self.shared.users;
        let (user, password) = hello.login().ok_or(Refusal::NotAHello)?;
        let name = if user.is_empty() { DEFAULT_USER } else { user };
        // Its certificate's, if that names a user.
        let client = self.clients.get(&token);
        let mut login = client.map_or_else(Login::default, |client| client.login.clone());
        let names_one = !(user.is_empty() && password.is_empty());
        let named = match names_one {
            true => login.log_in(users.published(), name, password),
            false => Ok(()),
        };
        let why = if named == Err(LoginError::TooMany) {
            count(&users.refused.logins, 1);
            return Err(Refusal::TooManyOfUser);
        } else if named.is_err() {
            Refusal::WrongPassword
        } else if !(login.review(users.published()) && login.is_logged_in()) {
            Refusal::NotLoggedIn
        } else {
            return Ok(login);
        };
        self.note(token, hello, (Reason::Auth, name));
        Err(why)
    }

    /// Notes that a session was refused to a user.
    fn note(&self, token: Token, hello: &ClientHello, (reason, user): (Reason, &[u8])) {
        let by = self.clients.get(&token).and_then(|client| client.socket.as_ref());
        let from = by.map_or_else(String::new, Socket::peer_text);
        let client = format!("{from} pid={}", hello.pid.get());
        let (object, client) = (&b"session"[..], client.as_bytes());
        let context = Context::TopLevel;
        let now_ms = self.shared.clock.told_unix_ms();
        let refusal = acl::Refusal { reason, context, object, user, client };
        self.shared.users.refuse(&refusal, now_ms);
    }

    fn grant(&mut self, token: Token, pid: Pid, chosen: Transport) -> Result<(), Refusal> {
        let client = self.clients.get(&token).ok_or(Refusal::NotAHello)?;
        let (login, rights) = (client.login.clone(), client.rights);
        let granted = self.granted(chosen, rights);
        let user = SessionUser::new(Arc::clone(&self.shared.users), login);
        let client = self.clients.get_mut(&token).ok_or(Refusal::NotAHello)?;
        let (number, seed) = (granted.session.get(), granted.session_seed.get());
        let session = match chosen {
            Transport::Tcp => {
                let Some(Socket::Tcp(stream)) = client.socket.take() else {
                    return Err(Refusal::NotAHello);
                };
                // An agent watches it from now on.
                let fd = stream.socket().as_raw_fd();
                let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
                Session::over_tcp(&self.shared, stream, granted, &user)?
            }
            _ => Session::over_shm(&self.shared, (number, seed), &user)?,
        };
        self.next_session += 1;
        self.begin(token, session, pid);
        let Some(Client { socket, stage: Stage::Served(session), .. }) = self.clients.get(&token)
        else {
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
    pub(super) fn begin(&mut self, token: Token, mut session: Session, pid: u32) {
        let (number, transport) = (session.number, session.transport());
        let Some(client) = self.clients.get_mut(&token) else { return };
        session.beat(&self.shared, &self.utilisation);
        client.enter(Stage::Served(Box::new(session)));
        count(self.shared.counts.sessions_by(transport), 1);
        count(&self.shared.counts.sessions_total, 1);
        tracing::info!(session = number, pid, transport = transport.name(), "session granted");
    }

    /// The answer that grants the next session.
    pub(super) fn granted(&self, chosen: Transport, rights: SessionRights) -> ServerHello {
        let table = self.shared.pointer_table.as_ref().filter(|_| rights.may_share_pointers());
        let mut hello = ServerHello {
            magic: HELLO_MAGIC.into(),
            version: PROTOCOL_VERSION.into(),
            refusal: 0.into(),
            session: self.next_session.into(),
            incarnation: self.shared.incarnation.into(),
            epoch: self.shared.roles.epoch().into(),
            session_seed: random_u64().into(),
            hash_seed: self.shared.hash_seed.into(),
            shards: 0.into(),
            pid: std::process::id().into(),
            pointer_table_seed: table.map_or(0, |table| table.seed).into(),
            offer: self.offer().to_wire(),
            transport: number_of(chosen).into(),
            ring_sets: (crate::session::ring_sets(chosen) as u32).into(),
            socket_path: [0; SOCKET_PATH_BYTES],
            asks_only: u32::from(!rights.may_read()).into(),
            tcp_address: [0; TCP_ADDRESS_BYTES],
            regions: [0.into(); MAX_SHARDS],
            first_slots: [0.into(); MAX_SHARDS],
        };
        let regions = self.shared.shards.iter().map(|shard| shard.region_number);
        hello.tell_shards(regions, &self.shared.slots);
        hello
    }
}
