//! The server's side of making sessions over RDMA: its devices, with its arenas
//! registered at each.

use super::connection::{Connection, Parts, PeerRegion};
use super::errors::VerbsError;
use super::memlock::{self, NotRegistered};
use super::objects::Domain;
use super::places::{Place, places, ranked};
use super::registration::Registration;
use super::session::ClientSide;
use super::setup::{Unconnected, access, bind_window, key_of, open};
use remora_arena::Words;
use remora_layout::limits::MAX_SHARDS;
use remora_layout::verbs::{RegionKey, VerbsReady};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A server's RDMA devices, with its arenas registered at each.
pub struct Host {
    devices: Vec<Device>,
}

struct Device {
    name: String,
    domain: Arc<Domain>,
    arenas: Vec<Registration>,
}

impl Host {
    /// Registers the arenas, for reading only, with every device that has an
    /// active port; only with the one of this name, if there is one.
    ///
    /// # Errors
    /// There is no such device, or none; or memory cannot be registered.
    pub fn new(arenas: &[Words], device: Option<&str>) -> Result<Self, VerbsError> {
        let mut names: Vec<String> =
            ranked(places(), None).into_iter().map(|place| place.device).collect();
        names.sort();
        names.dedup();
        names.retain(|name| device.is_none_or(|device| name == device));
        if names.is_empty() {
            // For its reason.
            open(None, device)?;
            return Err(VerbsError::NoPlace);
        }
        // Each device locks them anew. Before the first is registered, so that
        // the error names all that is needed.
        let bytes: u64 = arenas.iter().map(|arena| arena.bytes() as u64).sum();
        memlock::check(bytes * names.len() as u64)?;
        let mut devices = Vec::new();
        for name in names {
            let (domain, _) = open(None, Some(&name))?;
            let register = |arena| Registration::of(&domain, arena, access::READ);
            let arenas = arenas.iter().map(register).collect::<Result<_, NotRegistered>>()?;
            devices.push(Device { name, domain, arenas });
        }
        Ok(Self { devices })
    }

    /// The names of the devices.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().map(|device| device.name.as_str())
    }

    /// A queue pair for a client that came by this address of the server's, at
    /// the best device that gives one.
    ///
    /// # Errors
    /// None does, for the reason of the first.
    pub fn welcome(&self, local: IpAddr) -> Result<Welcome, VerbsError> {
        // Asked anew each time: ports go down and come up.
        let places: Vec<Place> = ranked(places(), Some(local.to_canonical()));
        let mut first = None;
        for place in &places {
            let Some(device) = self.devices.iter().find(|device| device.name == place.device)
            else {
                continue;
            };
            let unconnected = match Unconnected::new(&device.domain, place) {
                Ok(unconnected) => unconnected,
                Err(error) => {
                    first = first.or(Some(error));
                    continue;
                }
            };
            let arenas = device.arenas.iter().map(|arena| key_of(arena, arena.rkey())).collect();
            return Ok(Welcome { domain: Arc::clone(&device.domain), unconnected, arenas });
        }
        Err(first.unwrap_or(VerbsError::NoPlace))
    }
}

/// A server's end before it has heard of the client's.
pub struct Welcome {
    domain: Arc<Domain>,
    unconnected: Unconnected,
    arenas: Vec<RegionKey>,
}

impl Welcome {
    /// What follows the server's hello.
    pub fn greeting(&self) -> Vec<u8> {
        [self.unconnected.end().as_bytes(), self.arenas.as_slice().as_bytes()].concat()
    }

    /// The client has told of its end: connects to it. `to_server` is the
    /// mailbox that it may write; `on_immediate` is told of what it writes
    /// with an immediate, by any thread. What comes back beside the connection
    /// is to be sent to the client.
    pub fn accept(
        self,
        control: TcpStream,
        client: &ClientSide,
        to_server: &Words,
        on_immediate: Box<dyn Fn(u32) + Send + Sync>,
    ) -> Result<(Arc<Connection>, VerbsReady), VerbsError> {
        let Self { domain, unconnected, .. } = self;
        let mailbox = Registration::of(&domain, to_server, access::BY_WINDOW)?;
        let pair = unconnected.connect(&client.end)?;
        let window = bind_window(&domain, &pair, &mailbox)?;
        let ready = VerbsReady {
            refusal: 0.into(),
            reserved: 0.into(),
            mailbox: key_of(&mailbox, window.rkey),
        };
        let peer = client.regions.map(|key| PeerRegion { key, is_mailbox: true }).into();
        let connection = Connection::new(Parts {
            pair,
            domain,
            control,
            peer,
            shards: MAX_SHARDS,
            exposed: vec![mailbox],
            windows: vec![window],
            on_immediate,
        })?;
        Ok((connection, ready))
    }
}
