//! Making a session, whatever carries it: the hellos, and the choice.
//!
//! A client says hello at the address that it was given, Unix socket or TCP.
//! The server chooses from what both offer; where that is the other transport,
//! its answer says where to dial again (RDMA_Mongo 4.1, algorithm 1).

use crate::address::Address;
use crate::detect::{Offer, Unavailable, Wanted, choose, chosen_of};
use crate::patience::Patience;
use crate::verbs::{Packets, VerbsError};
use crate::{Transport, far, shm, verbs};
use remora_arena::MapError;
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, ServerHello, text_of,
};
use rustix::rand::{GetRandomFlags, getrandom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long either side waits for the other's hello.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a session could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("cannot reach a Remora server at {server}; is it running, and is this its address?")]
    Unreachable {
        /// Where.
        server: Address,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The server refused.
    #[error("the server at {server} refused the session: {refusal}")]
    Refused {
        /// Where.
        server: Address,
        /// Why.
        refusal: Refusal,
    },
    /// The wanted transport cannot be had.
    #[error("no session with the server at {server}: {why}")]
    Unavailable {
        /// Where.
        server: Address,
        /// Why, and what to do.
        why: Unavailable,
    },
    /// The answer made no sense.
    #[error("the answer from {server} is not that of a Remora server of this version: {what}")]
    NotAServer {
        /// Where.
        server: Address,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Shared pointers were asked for and are not to be had (H29).
    #[error(
        "the server at {server} does not share pointers: start it with pointer_sharing = true, or let each session cache its own"
    )]
    NoPointerSharing {
        /// Where.
        server: Address,
    },
    /// The file through which clients of a server on another machine share
    /// pointers cannot be had, or is not this user's alone.
    #[error(
        "cannot share pointers by {}: {what}; put it right, name another directory, or let each session cache its own",
        path.display()
    )]
    PointerFile {
        /// The file, or its directory.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
        /// What the kernel said.
        source: Option<std::io::Error>,
    },
    /// The RDMA devices of both sides do not come together.
    #[error("no session over RDMA with the server at {server}")]
    Verbs {
        /// Where.
        server: Address,
        /// Why not.
        #[source]
        why: VerbsError,
    },
    /// The memory could not be mapped.
    #[error(transparent)]
    Memory(#[from] MapError),
    /// The link failed before the session was complete.
    #[error("the link to the server failed at once")]
    Link(#[from] crate::LinkError),
    /// The kernel refused something else.
    #[error("cannot set up the session")]
    System(#[from] std::io::Error),
}

/// A client's end of a new session.
pub enum Connected {
    /// Over shared memory.
    Shm(Box<shm::Connected>),
    /// With a server that is reached by TCP.
    Far(Box<far::Connected>),
}

impl Connected {
    /// What carries it.
    pub fn transport(&self) -> Transport {
        match self {
            Self::Shm(_) => Transport::Shm,
            Self::Far(connected) => connected.carrier.transport(),
        }
    }
}

/// What a hello led to.
pub(crate) enum Dialled<T> {
    Session(T),
    /// Dial again, where the answer says.
    Elsewhere(Box<ServerHello>),
}

/// Makes a session with the server at `address` over the wanted transport,
/// dialling again if it is not the one that the address belongs to.
/// [`Wanted::Auto`] takes shared memory if it can be had, else RDMA, else TCP,
/// and says so once in the log where it is TCP, or where the first choice
/// failed. A server that is busy is dialled again for as long as `patience`.
/// `packets`: of the queue pair, where it is RDMA.
///
/// # Errors
/// Nobody listens there, the server refuses, the wanted transport cannot be
/// had, or what the server sends is not acceptable.
pub fn connect(
    address: &Address,
    wanted: Wanted,
    patience: Duration,
    packets: Packets,
) -> Result<Connected, ConnectError> {
    let mut caller = Caller { patience: Patience::new(Instant::now(), patience), packets };
    let (named, error) = match caller.dial_twice(address, wanted) {
        Ok(connected) => return Ok(connected),
        Err(failed) => failed,
    };
    // What both sides have is not always to be had: the server's socket is in
    // another mount namespace, a device sends nothing, all queue pairs are taken.
    if wanted != Wanted::Auto || !matches!(named, Wanted::Shm | Wanted::Verbs) {
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

/// Who makes one session.
struct Caller {
    patience: Patience,
    packets: Packets,
}

impl Caller {
    /// Dials, and once more where the answer says. A failure tells the
    /// transport that was tried.
    fn dial_twice(
        &mut self,
        address: &Address,
        wanted: Wanted,
    ) -> Result<Connected, (Wanted, ConnectError)> {
        let first = self.dial(address, wanted);
        let answer = match first {
            Ok(Dialled::Session(connected)) => {
                if let (Wanted::Auto, Connected::Far(connected)) = (wanted, &connected)
                    && connected.carrier.transport() == Transport::Tcp
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

    /// Dials; a server that is busy once more after a pause, while the
    /// patience lasts.
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
            match self.patience.pause(Instant::now(), u32::from_ne_bytes(random)) {
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
            Address::Unix(path) => match shm::dial(path, wanted)? {
                Dialled::Session(connected) => {
                    Dialled::Session(Connected::Shm(Box::new(connected)))
                }
                Dialled::Elsewhere(answer) => Dialled::Elsewhere(answer),
            },
            Address::Tcp(address) => match far::dial(*address, wanted, &self.packets)? {
                Dialled::Session(connected) => {
                    Dialled::Session(Connected::Far(Box::new(connected)))
                }
                Dialled::Elsewhere(answer) => Dialled::Elsewhere(answer),
            },
        })
    }
}

/// Whether both sides have RDMA, and the set-up failed at one of them.
fn is_of_rdma(error: &ConnectError) -> bool {
    match error {
        ConnectError::Verbs { .. } => true,
        // What the offers rule out is told otherwise.
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

/// An error with those that led to it.
fn with_sources(error: &ConnectError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Where the server sends us, and for what.
fn next_dial(address: &Address, answer: &ServerHello) -> Result<(Address, Wanted), ConnectError> {
    let not_a_server = |what| ConnectError::NotAServer { server: address.clone(), what };
    match address {
        Address::Tcp(_) => {
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

/// What a client has.
fn own_offer() -> Offer {
    Offer::of_this_process(true, true, verbs::is_available())
}

/// What this process says first.
pub fn client_hello(wanted: Wanted) -> ClientHello {
    ClientHello {
        magic: HELLO_MAGIC.into(),
        version: PROTOCOL_VERSION.into(),
        pid: std::process::id().into(),
        offer: own_offer().to_wire(),
        wanted: wanted.number().into(),
        reserved: 0.into(),
    }
}

/// What a client makes of the answer: the transport that the server chose.
pub(crate) fn check_answer(
    answer: &ServerHello,
    sent: &ClientHello,
    server: &dyn Fn() -> Address,
) -> Result<Transport, ConnectError> {
    let not_a_server = |what| ConnectError::NotAServer { server: server(), what };
    if answer.magic.get() != HELLO_MAGIC {
        return Err(not_a_server("it does not begin as one"));
    }
    if answer.refusal.get() != 0 {
        let refusal = Refusal::from_number(answer.refusal.get());
        let refusal = refusal.ok_or(not_a_server("it refuses for an unknown reason"))?;
        if refusal == Refusal::Unavailable
            && let Some(wanted) = Wanted::from_number(sent.wanted.get())
            && let (own, peer) = (Offer::from_wire(&sent.offer), Offer::from_wire(&answer.offer))
            && let Err(why) = choose(wanted, own, peer)
        {
            return Err(ConnectError::Unavailable { server: server(), why });
        }
        return Err(ConnectError::Refused { server: server(), refusal });
    }
    if answer.version.get() != PROTOCOL_VERSION {
        return Err(not_a_server("it has another protocol version"));
    }
    chosen_of(answer.transport.get()).ok_or(not_a_server("it chose an unknown transport"))
}
