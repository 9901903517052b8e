//! Makes a session over any transport: the hellos, and the choice.
//!
//! A client says hello at the given address, Unix socket or TCP. The server chooses from the offers
//! of both sides; if it chooses a transport of the other socket, its answer says where to dial
//! again (RDMA_Mongo 4.1, algorithm 1).

use crate::address::Address;
use crate::backoff::Backoff;
use crate::detect::{Offer, Unavailable, Wanted, choose, chosen_of};
use crate::dialling::Dialling;
use crate::hello::{ConnectError, Dialled, own_offer};
use crate::{Transport, remote, shm};
use remora_layout::hello::{Refusal, ServerHello, text_of};
use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A client's end of a new session.
pub enum Connected {
    /// Over shared memory.
    Shm(Box<shm::Connected>),
    /// With a server that is reached by TCP.
    Remote(Box<remote::Connected>),
}

impl Connected {
    /// The transport of the session.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Shm(_) => Transport::Shm,
            Self::Remote(connected) => connected.connection.transport(),
        }
    }
}

/// Makes a session with the server at `address` over the wanted transport, and dials again if that
/// transport needs another address. [`Wanted::Auto`] takes shared memory if it is available,
/// otherwise RDMA, otherwise TCP; it logs this once if it takes TCP, or if the first choice failed.
///
/// # Errors
/// There is no listener, the server refuses, the wanted transport is not available, or the server
/// sends something that is not acceptable.
pub fn connect(address: &Address, dialling: &Dialling) -> Result<Connected, ConnectError> {
    let wanted = dialling.wanted;
    let mut caller = Caller { backoff: Backoff::new(Instant::now(), dialling.backoff), dialling };
    let (named, error) = match caller.dial_twice(address, wanted) {
        Ok(connected) => return Ok(connected),
        Err(failed) => failed,
    };
    // An offer of both sides may still fail: the server's socket is in another mount namespace, a
    // device sends nothing, all queue pairs are taken.
    let is_refused_there_too = matches!(
        &error,
        ConnectError::Refused { refusal, .. } if refusal.is_about_the_user()
    );
    if wanted != Wanted::Auto
        || !matches!(named, Wanted::Shm | Wanted::Verbs)
        || is_refused_there_too
    {
        return Err(error);
    }
    warn_once(address, &with_sources(&error));
    match caller.dial(address, Wanted::Tcp)? {
        Dialled::Session(connected) => Ok(connected),
        Dialled::Elsewhere(answer) => {
            let (next, _) = next_dial(address, &answer)?;
            session(caller.dial(&next, Wanted::Tcp)?, address)
        }
    }
}

/// Makes one session.
struct Caller<'d> {
    backoff: Backoff,
    dialling: &'d Dialling,
}

impl Caller<'_> {
    /// Dials, and once more if the answer says so. A failure names the transport that it tried.
    fn dial_twice(
        &mut self,
        address: &Address,
        wanted: Wanted,
    ) -> Result<Connected, (Wanted, ConnectError)> {
        let first = self.dial(address, wanted);
        let answer = match first {
            Ok(Dialled::Session(connected)) => {
                if let (Wanted::Auto, Connected::Remote(connected)) = (wanted, &connected)
                    && connected.connection.transport() == Transport::Tcp
                {
                    warn_of_tcp(address, &connected.hello);
                }
                return Ok(connected);
            }
            Ok(Dialled::Elsewhere(answer)) => answer,
            Err(error) if is_of_rdma(&error) => return Err((Wanted::Verbs, error)),
            Err(error) => return Err((wanted, error)),
        };
        let (next, named) = next_dial(address, &answer).map_err(|error| (wanted, error))?;
        match self.dial(&next, named).and_then(|dialled| session(dialled, address)) {
            Ok(connected) => {
                if (wanted, named) == (Wanted::Auto, Wanted::Tcp) {
                    warn_of_tcp(address, &answer);
                }
                Ok(connected)
            }
            Err(ConnectError::Unreachable { .. })
                if named == Wanted::Shm && wanted != Wanted::Auto =>
            {
                let why = Unavailable::ShmUnreachable;
                Err((named, ConnectError::Unavailable { server: next, why }))
            }
            Err(error) => Err((named, error)),
        }
    }

    /// Dials; dials a busy server again after a pause, while the backoff lasts.
    fn dial(
        &mut self,
        address: &Address,
        wanted: Wanted,
    ) -> Result<Dialled<Connected>, ConnectError> {
        loop {
            let dialled = self.dial_once(address, wanted);
            if !matches!(dialled, Err(ConnectError::Refused { refusal: Refusal::Busy, .. })) {
                return dialled;
            }
            let mut random = [0u8; 4];
            getrandom(&mut random, GetRandomFlags::empty()).map_err(std::io::Error::from)?;
            match self.backoff.pause(Instant::now(), u32::from_ne_bytes(random)) {
                Some(pause) => std::thread::sleep(pause),
                None => return dialled,
            }
        }
    }

    fn dial_once(
        &self,
        address: &Address,
        wanted: Wanted,
    ) -> Result<Dialled<Connected>, ConnectError> {
        Ok(match address {
            Address::Unix(path) => match shm::dial(path, wanted, self.dialling)? {
                Dialled::Session(connected) => {
                    Dialled::Session(Connected::Shm(Box::new(connected)))
                }
                Dialled::Elsewhere(answer) => Dialled::Elsewhere(answer),
            },
            Address::Tcp(_) | Address::Host(..) => {
                match remote::dial(address, wanted, self.dialling)? {
                    Dialled::Session(connected) => {
                        Dialled::Session(Connected::Remote(Box::new(connected)))
                    }
                    Dialled::Elsewhere(answer) => Dialled::Elsewhere(answer),
                }
            }
        })
    }
}

/// Whether both sides have RDMA, and the set-up failed at one of them.
fn is_of_rdma(error: &ConnectError) -> bool {
    match error {
        ConnectError::Verbs { .. } => true,
        // The offers rule it out: that has another message.
        ConnectError::Refused { refusal, .. } => {
            matches!(refusal, Refusal::Unavailable | Refusal::Busy | Refusal::TooManyQueuePairs)
        }
        _ => false,
    }
}

fn session(dialled: Dialled<Connected>, address: &Address) -> Result<Connected, ConnectError> {
    match dialled {
        Dialled::Session(connected) => Ok(connected),
        Dialled::Elsewhere(_) => Err(in_circles(address)),
    }
}

/// An error with its causes.
fn with_sources(error: &ConnectError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The next address to dial, and the transport to ask for.
fn next_dial(address: &Address, answer: &ServerHello) -> Result<(Address, Wanted), ConnectError> {
    let not_a_server = |what| ConnectError::NotAServer { server: address.clone(), what };
    match address {
        Address::Tcp(_) | Address::Host(..) => {
            let path = text_of(&answer.socket_path).filter(|path| path.contains('/'));
            let path = path.ok_or(not_a_server("it names no socket for shared memory"))?;
            Ok((Address::Unix(path.into()), Wanted::Shm))
        }
        Address::Unix(_) => {
            let tcp = text_of(&answer.tcp_address).and_then(|text| text.parse().ok());
            let tcp = tcp.ok_or(not_a_server("it names no address for TCP"))?;
            let named = match chosen_of(answer.transport.get()) {
                Some(Transport::Verbs) => Wanted::Verbs,
                _ => Wanted::Tcp,
            };
            Ok((Address::Tcp(tcp), named))
        }
    }
}

fn in_circles(address: &Address) -> ConnectError {
    ConnectError::NotAServer { server: address.clone(), what: "it sends us in circles" }
}

fn warn_of_tcp(address: &Address, answer: &ServerHello) {
    let (own, server) = (own_offer(), Offer::from_wire(&answer.offer));
    let reasons = [Wanted::Shm, Wanted::Verbs].map(|wanted| match choose(wanted, own, server) {
        Err(why) => why.to_string(),
        Ok(_) => "the server chose otherwise".to_owned(),
    });
    warn_once(address, &reasons.join("; "));
}

fn warn_once(address: &Address, why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(server = %address, why, "transport auto: falling back to tcp");
    }
}
