//! Detection: the best transport that both sides have (RDMA_Mongo 4.1,
//! algorithm 1; design, "Fabric").
//!
//! Pure: the offers of the two sides go in, a transport or the reason why not comes out. If a named
//! transport is not available, the result is an error, never a silent fallback.

use crate::Transport;
use remora_layout::hash::checksum;
use remora_layout::hello::{WireOffer, offer, transport};
use std::str::FromStr;
use std::sync::OnceLock;

/// Which transport a user asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wanted {
    /// The best that both sides have.
    #[default]
    Auto,
    /// Shared memory or nothing.
    Shm,
    /// RDMA or nothing.
    Verbs,
    /// TCP or nothing.
    Tcp,
}

/// A name that is not one of a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("transport is one of auto, shm, verbs and tcp")]
pub struct UnknownWish;

impl Wanted {
    /// All wishes.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Shm, Self::Verbs, Self::Tcp];

    /// The name in configuration and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Verbs => "verbs",
            Self::Tcp => "tcp",
        }
    }

    /// The number in a hello.
    pub const fn number(self) -> u32 {
        match self {
            Self::Auto => transport::AUTO,
            Self::Shm => transport::SHM,
            Self::Verbs => transport::VERBS,
            Self::Tcp => transport::TCP,
        }
    }

    /// The wish with this number in a hello.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|wanted| wanted.number() == number)
    }
}

impl FromStr for Wanted {
    type Err = UnknownWish;

    fn from_str(name: &str) -> Result<Self, UnknownWish> {
        Self::ALL.into_iter().find(|wanted| wanted.name() == name).ok_or(UnknownWish)
    }
}

/// The number of a chosen transport in a hello.
pub const fn number_of(chosen: Transport) -> u32 {
    match chosen {
        Transport::Shm => transport::SHM,
        Transport::Tcp => transport::TCP,
        Transport::Verbs => transport::VERBS,
        Transport::Sim => panic!("the simulated fabric has no hellos"),
    }
}

/// The chosen transport with this number in a hello.
pub fn chosen_of(number: u32) -> Option<Transport> {
    match number {
        transport::SHM => Some(Transport::Shm),
        transport::TCP => Some(Transport::Tcp),
        transport::VERBS => Some(Transport::Verbs),
        _ => None,
    }
}

/// The transports that one side has, and where the side runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// It can share memory with a process of its host and user.
    pub shm: bool,
    /// A client: it can dial TCP. A server: it listens for clients there.
    pub tcp: bool,
    /// RDMA. A server: it listens for clients on TCP, where queue pairs are
    /// set up.
    pub verbs: bool,
    /// Equal for processes of one running host, 0 if it cannot be told.
    pub host: u64,
    /// Effective user id.
    pub uid: u32,
}

/// Keys the hash of the boot id: strangers must not learn the boot id itself.
const HOST_HASH_SEED: u64 = u64::from_le_bytes(*b"remorahs");

/// This host, 0 if it cannot be determined. It is determined only once: a server that has no
/// descriptor left still has to know where it runs.
fn this_host() -> u64 {
    static HOST: OnceLock<u64> = OnceLock::new();
    if let Some(host) = HOST.get() {
        return *host;
    }
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(boot_id) if !boot_id.is_empty() => {
            *HOST.get_or_init(|| checksum(&boot_id, HOST_HASH_SEED))
        }
        _ => 0,
    }
}

impl Offer {
    /// The offer of this process on this host.
    pub fn of_this_process(shm: bool, tcp: bool, verbs: bool) -> Self {
        Self { shm, tcp, verbs, host: this_host(), uid: rustix::process::geteuid().as_raw() }
    }

    /// As it stands in a hello.
    pub fn to_wire(self) -> WireOffer {
        let transports = (self.shm as u32 * offer::SHM)
            | (self.tcp as u32 * offer::TCP)
            | (self.verbs as u32 * offer::VERBS);
        WireOffer { host: self.host.into(), transports: transports.into(), uid: self.uid.into() }
    }

    /// From a hello. Unknown bits are offers that this side cannot take.
    pub fn from_wire(wire: &WireOffer) -> Self {
        let transports = wire.transports.get();
        Self {
            shm: transports & offer::SHM != 0,
            tcp: transports & offer::TCP != 0,
            verbs: transports & offer::VERBS != 0,
            host: wire.host.get(),
            uid: wire.uid.get(),
        }
    }
}

/// Why a transport is not available, and what to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unavailable {
    /// Not the same host.
    #[error("shm: the server runs on another host; use transport tcp")]
    ShmOtherHost,
    /// Not the same user.
    #[error(
        "shm: the server runs as another user (uid {server}, this process has {client}); run both as one user, or use transport tcp"
    )]
    ShmOtherUser {
        /// The client's user.
        client: u32,
        /// The server's user.
        server: u32,
    },
    /// The server has no Unix socket.
    #[error("shm: the server does not offer shared memory; start it with a socket, or use tcp")]
    ShmNotAtServer,
    /// The client cannot or may not.
    #[error("shm: this client does not offer shared memory; use transport tcp")]
    ShmNotAtClient,
    /// The server has no TCP address.
    #[error("tcp: the server does not listen for clients on TCP; set fabric_address")]
    TcpNotAtServer,
    /// The client cannot or may not.
    #[error("tcp: this client does not offer TCP; use transport shm")]
    TcpNotAtClient,
    /// The server has no RDMA device that is up, or does not use it.
    #[error(
        "verbs: the server has no RDMA device in use; see `remora doctor` there, and its transport and fabric_address"
    )]
    VerbsNotAtServer,
    /// The client has none.
    #[error("verbs: this machine has no RDMA device in use; `remora doctor` says why")]
    VerbsNotAtClient,
    /// The server offers it, but the client cannot reach its socket.
    #[error("shm: the server's socket cannot be reached from here; use transport tcp")]
    ShmUnreachable,
    /// None of all.
    #[error("no transport is common to both sides: {shm}; {verbs}; {tcp}")]
    Nothing {
        /// Why not shared memory.
        shm: &'static str,
        /// Why not RDMA.
        verbs: &'static str,
        /// Why not TCP.
        tcp: &'static str,
    },
}

/// Chooses the transport of a session.
pub fn choose(wanted: Wanted, client: Offer, server: Offer) -> Result<Transport, Unavailable> {
    match wanted {
        Wanted::Shm => shm(client, server),
        Wanted::Tcp => tcp(client, server),
        Wanted::Verbs => verbs(client, server),
        Wanted::Auto => shm(client, server).or_else(|no_shm| {
            verbs(client, server).or_else(|no_verbs| {
                tcp(client, server).map_err(|no_tcp| Unavailable::Nothing {
                    shm: short(no_shm),
                    verbs: short(no_verbs),
                    tcp: short(no_tcp),
                })
            })
        }),
    }
}

fn shm(client: Offer, server: Offer) -> Result<Transport, Unavailable> {
    if client.host != server.host || client.host == 0 {
        return Err(Unavailable::ShmOtherHost);
    }
    if client.uid != server.uid {
        return Err(Unavailable::ShmOtherUser { client: client.uid, server: server.uid });
    }
    match (client.shm, server.shm) {
        (true, true) => Ok(Transport::Shm),
        (true, false) => Err(Unavailable::ShmNotAtServer),
        (false, _) => Err(Unavailable::ShmNotAtClient),
    }
}

fn verbs(client: Offer, server: Offer) -> Result<Transport, Unavailable> {
    match (client.verbs, server.verbs) {
        (true, true) => Ok(Transport::Verbs),
        (true, false) => Err(Unavailable::VerbsNotAtServer),
        (false, _) => Err(Unavailable::VerbsNotAtClient),
    }
}

fn tcp(client: Offer, server: Offer) -> Result<Transport, Unavailable> {
    match (client.tcp, server.tcp) {
        (true, true) => Ok(Transport::Tcp),
        (true, false) => Err(Unavailable::TcpNotAtServer),
        (false, _) => Err(Unavailable::TcpNotAtClient),
    }
}

fn short(why: Unavailable) -> &'static str {
    match why {
        Unavailable::ShmOtherHost => "the server runs on another host",
        Unavailable::ShmOtherUser { .. } => "the server runs as another user",
        Unavailable::ShmNotAtServer => "the server does not offer shared memory",
        Unavailable::ShmNotAtClient => "this client does not offer shared memory",
        Unavailable::ShmUnreachable => "the server's socket cannot be reached from here",
        Unavailable::TcpNotAtServer => {
            "the server does not listen for clients on TCP; set fabric_address"
        }
        Unavailable::TcpNotAtClient => "this client does not offer TCP",
        Unavailable::VerbsNotAtServer => "the server has no RDMA device in use",
        Unavailable::VerbsNotAtClient => "this machine has no RDMA device in use",
        Unavailable::Nothing { .. } => "nothing is common",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Offer = Offer { shm: true, tcp: true, verbs: false, host: 7, uid: 1000 };

    /// Every combination against another statement of the rule: the best of the common transports,
    /// and a reason that names the wanted transport.
    #[test]
    fn the_best_common_transport_is_taken_and_a_named_one_never_replaced() {
        let mut seen = [0; 4];
        for bits in 0..256u32 {
            let bit = |at: u32| bits >> at & 1 == 1;
            let client = Offer { shm: bit(0), tcp: bit(1), verbs: bit(6), ..HERE };
            let server = Offer {
                shm: bit(2),
                tcp: bit(3),
                verbs: bit(7),
                host: if bit(4) { 7 } else { 8 },
                uid: if bit(5) { 1000 } else { 0 },
            };
            let common_shm = bit(0) && bit(2) && bit(4) && bit(5);
            let common_tcp = bit(1) && bit(3);
            let common_verbs = bit(6) && bit(7);
            let best = match (common_shm, common_verbs, common_tcp) {
                (true, _, _) => Some(Transport::Shm),
                (_, true, _) => Some(Transport::Verbs),
                (_, _, true) => Some(Transport::Tcp),
                _ => None,
            };
            assert_eq!(choose(Wanted::Auto, client, server).ok(), best);
            assert_eq!(choose(Wanted::Shm, client, server).is_ok(), common_shm);
            assert_eq!(choose(Wanted::Tcp, client, server).is_ok(), common_tcp);
            assert_eq!(choose(Wanted::Verbs, client, server).is_ok(), common_verbs);
            for (wanted, word) in
                [(Wanted::Shm, "shm: "), (Wanted::Verbs, "verbs: "), (Wanted::Tcp, "tcp: ")]
            {
                if let Err(why) = choose(wanted, client, server) {
                    assert!(why.to_string().starts_with(word), "{why}");
                }
            }
            seen[best.map_or(0, |best| best as usize + 1)] += 1;
        }
        assert!(seen.iter().all(|seen| *seen > 0));
    }

    #[test]
    fn reasons_say_what_to_do() {
        let far = Offer { host: 8, tcp: false, ..HERE };
        let text = choose(Wanted::Auto, HERE, far).unwrap_err().to_string();
        assert!(text.contains("another host") && text.contains("fabric_address"), "{text}");
        let other = Offer { uid: 0, ..HERE };
        let text = choose(Wanted::Shm, HERE, other).unwrap_err().to_string();
        assert!(text.contains("uid 0") && text.contains("1000"), "{text}");
        let unknown = Offer { host: 0, ..HERE };
        assert_eq!(choose(Wanted::Shm, unknown, unknown), Err(Unavailable::ShmOtherHost));
    }

    #[test]
    fn offers_and_wishes_round_trip() {
        let this = Offer::of_this_process(true, false, true);
        assert_ne!(this.host, 0);
        assert_eq!(this, Offer::of_this_process(true, false, true));
        assert_eq!(Offer::from_wire(&this.to_wire()), this);
        for wanted in Wanted::ALL {
            assert_eq!(Wanted::from_number(wanted.number()), Some(wanted));
            assert_eq!(wanted.name().parse(), Ok(wanted));
        }
        assert_eq!(Wanted::from_number(4), None);
        assert_eq!("rdma".parse::<Wanted>(), Err(UnknownWish));
    }
}
