//! A client's side of the hellos: its message, its handling of the answer, and the reasons why
//! there may be no session.

use crate::Transport;
use crate::address::Address;
use crate::credentials::Credentials;
use crate::detect::{Offer, Unavailable, Wanted, choose, chosen_of};
use crate::verbs::{self, VerbsError};
use remora_arena::MapError;
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PASSWORD_BYTES, PROTOCOL_VERSION, Refusal, ServerHello, USER_BYTES,
};
use remora_tls::TlsError;
use std::path::PathBuf;
use std::time::Duration;
use zerocopy::FromZeros;

/// How long either side waits for the other's hello, if nothing else is said.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a session could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no listener.
    #[error("cannot reach a Remora server at {server}; is it running, and is this its address?")]
    Unreachable {
        /// Where.
        server: Address,
        /// The kernel's message.
        source: std::io::Error,
    },
    /// The server speaks TLS, and this client was to speak none.
    #[error(
        "the server at {server} speaks TLS: name the file of its authority (REMORA_TLS_CA for Remora's own commands, Options::tls in a program, peer_tls_ca of a server)"
    )]
    NeedsTls {
        /// Where.
        server: Address,
    },
    /// There is no TLS with the server.
    #[error("no TLS with the server at {server}: {}", why.with_advice())]
    Tls {
        /// Where.
        server: Address,
        /// Why.
        why: TlsError,
    },
    /// The server refused.
    #[error("the server at {server} refused the session: {refusal}")]
    Refused {
        /// Where.
        server: Address,
        /// Why.
        refusal: Refusal,
    },
    /// The wanted transport is not available.
    #[error("no session with the server at {server}: {why}")]
    Unavailable {
        /// Where.
        server: Address,
        /// Why, and what to do.
        why: Unavailable,
    },
    /// The answer was not valid.
    #[error("the answer from {server} is not that of a Remora server of this version: {what}")]
    NotAServer {
        /// Where.
        server: Address,
        /// The reason.
        what: &'static str,
    },
    /// The client asked for shared pointers, and they are not available (H29).
    #[error(
        "the server at {server} does not share pointers: start it with pointer_sharing = true, or let each session cache its own"
    )]
    NoPointerSharing {
        /// Where.
        server: Address,
    },
    /// The file through which clients of a server on another machine share pointers is not
    /// available, or does not belong to this user alone.
    #[error(
        "cannot share pointers by {}: {what}; put it right, name another directory, or let each session cache its own",
        path.display()
    )]
    PointerFile {
        /// The file, or its directory.
        path: PathBuf,
        /// The reason.
        what: &'static str,
        /// The kernel's message.
        source: Option<std::io::Error>,
    },
    /// The RDMA devices of both sides cannot communicate.
    #[error("no session over RDMA with the server at {server}")]
    Verbs {
        /// Where.
        server: Address,
        /// Why not.
        #[source]
        why: VerbsError,
    },
    /// The user's name or its password does not fit into a hello.
    #[error(
        "the user's name or password is too long for a session: at most {USER_BYTES} and {PASSWORD_BYTES} bytes"
    )]
    LongCredentials,
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

impl ConnectError {
    /// The stream to this server has failed.
    pub(crate) fn of_stream(server: Address, source: std::io::Error) -> Self {
        match TlsError::of(&source) {
            Some(why) => Self::Tls { server, why },
            None => Self::Unreachable { server, source },
        }
    }
}

/// The result of a hello.
pub(crate) enum Dialled<T> {
    Session(T),
    /// Dial again, where the answer says.
    Elsewhere(Box<ServerHello>),
}

/// The offer of a client.
pub(crate) fn own_offer() -> Offer {
    Offer::of_this_process(true, true, verbs::is_available())
}

/// This process's first message, of a client without a user.
pub fn client_hello(wanted: Wanted) -> ClientHello {
    ClientHello {
        magic: HELLO_MAGIC.into(),
        version: PROTOCOL_VERSION.into(),
        pid: std::process::id().into(),
        offer: own_offer().to_wire(),
        wanted: wanted.number().into(),
        ..ClientHello::new_zeroed()
    }
}

/// The same, of this user.
pub(crate) fn hello_of(
    wanted: Wanted,
    credentials: &Credentials,
) -> Result<ClientHello, ConnectError> {
    let hello = client_hello(wanted).with_login(credentials.user(), credentials.password());
    hello.ok_or(ConnectError::LongCredentials)
}

/// The transport that the server chose, from its answer.
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
