//! The server's answer to a hello.

use crate::Transport;
use crate::detect::{Offer, Wanted, choose, number_of};
use remora_layout::hello::{
    ClientHello, HELLO_MAGIC, PROTOCOL_VERSION, Refusal, ServerHello, text_field,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use zerocopy::{FromBytes, FromZeros};

/// Whether a hello that begins so is one that the rest of can be understood: it is known before the rest
/// is there, which another version may not send.
///
/// # Errors
/// It is none, or of another version.
pub fn check_head((magic, version): (u64, u32)) -> Result<(), Refusal> {
    match (magic, version) {
        (HELLO_MAGIC, PROTOCOL_VERSION) => Ok(()),
        (HELLO_MAGIC, _) => Err(Refusal::Version),
        _ => Err(Refusal::NotAHello),
    }
}

/// Decodes the client's hello from its bytes, or says why the server refuses it.
pub fn hello_of(bytes: &[u8; size_of::<ClientHello>()]) -> Result<ClientHello, Refusal> {
    let hello = ClientHello::read_from_bytes(bytes).map_err(|_| Refusal::NotAHello)?;
    check_head((hello.magic.get(), hello.version.get()))?;
    if Wanted::from_number(hello.wanted.get()).is_none() {
        return Err(Refusal::NotAHello);
    }
    Ok(hello)
}

/// The server's choice for this client. The server believes the client's statements about itself
/// only if a false one does no harm: before it passes shared memory it asks the kernel for the
/// peer's user.
pub fn answer(hello: &ClientHello, server: Offer) -> Result<Transport, Refusal> {
    let wanted = Wanted::from_number(hello.wanted.get()).ok_or(Refusal::NotAHello)?;
    choose(wanted, Offer::from_wire(&hello.offer), server).map_err(|_| Refusal::Unavailable)
}

fn hello_without_session(offer: Offer) -> ServerHello {
    let mut hello = ServerHello::new_zeroed();
    hello.magic = HELLO_MAGIC.into();
    hello.version = PROTOCOL_VERSION.into();
    hello.pid = std::process::id().into();
    hello.offer = offer.to_wire();
    hello
}

/// The answer that refuses.
pub fn refusal(refusal: Refusal, server: Offer) -> ServerHello {
    let mut hello = hello_without_session(server);
    hello.refusal = (refusal as u32).into();
    hello
}

/// The answer that sends a client to the chosen transport: to the socket at this path, or to this
/// TCP address (the loopback if the server listens on every address: a client on the Unix socket is
/// on this host). `None` if the path does not fit.
pub fn elsewhere(
    chosen: Transport,
    server: Offer,
    socket: Option<&Path>,
    listening: Option<SocketAddr>,
) -> Option<ServerHello> {
    let mut hello = hello_without_session(server);
    hello.transport = number_of(chosen).into();
    if let Some(path) = socket {
        hello.socket_path = text_field(path.to_str()?)?;
    }
    if let Some(mut address) = listening {
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        hello.tcp_address = text_field(&address.to_string())?;
    }
    Some(hello)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_layout::hello::text_of;

    #[test]
    fn a_client_on_the_host_is_sent_to_the_loopback() {
        let offer = Offer::of_this_process(true, true, false);
        for (listening, told) in
            [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.0.0.1:7", "10.0.0.1:7")]
        {
            let hello = elsewhere(Transport::Tcp, offer, None, listening.parse().ok()).unwrap();
            assert_eq!(text_of(&hello.tcp_address), Some(told));
        }
        let long = "/x".repeat(60);
        assert!(elsewhere(Transport::Shm, offer, Some(Path::new(&long)), None).is_none());
    }
}
