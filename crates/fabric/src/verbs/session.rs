//! Making a session over RDMA: what each end tells the other, and its memory.
//! The order is in [`remora_layout::verbs`].

use super::connection::{Connection, Parts, PeerRegion};
use super::data_buffer::DataMemory;
use super::known_places::known_places;
use super::load::LoadMeter;
use super::memlock::{self, NotRegistered};
use super::objects::{Domain, Registration, VerbsError};
use super::places::{Place, places, ranked};
use super::setup::{Unconnected, access, bind_window, key_of, open};
use remora_arena::Words;
use remora_layout::hello::Refusal;
use remora_layout::limits::MAX_SHARDS;
use remora_layout::verbs::{RegionKey, VerbsEnd, VerbsReady};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Names the device that a client takes, where it is not to choose by itself.
const DEVICE_VARIABLE: &str = "REMORA_RDMA_DEVICE";

/// What a client tells of itself.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClientSide {
    end: VerbsEnd,
    mailbox: RegionKey,
}

/// Why a client has no session over RDMA.
pub(crate) enum BeginError {
    Verbs(VerbsError),
    Stream(std::io::Error),
    Refused(Refusal),
}

impl From<VerbsError> for BeginError {
    fn from(error: VerbsError) -> Self {
        Self::Verbs(error)
    }
}

impl From<NotRegistered> for BeginError {
    fn from(refused: NotRegistered) -> Self {
        Self::Verbs(refused.into())
    }
}

impl From<std::io::Error> for BeginError {
    fn from(error: std::io::Error) -> Self {
        Self::Stream(error)
    }
}

/// The client's end, on the stream on which the hellos were said, with what
/// registers memory for large replies.
pub(crate) fn begin(
    mut stream: TcpStream,
    shards: usize,
    to_client: &Words,
) -> Result<(Arc<Connection>, DataMemory), BeginError> {
    let mut server_end = VerbsEnd::new_zeroed();
    stream.read_exact(server_end.as_mut_bytes())?;
    let mut arenas = vec![RegionKey::new_zeroed(); shards];
    stream.read_exact(arenas.as_mut_slice().as_mut_bytes())?;
    memlock::check(memlock::client_bytes(shards))?;
    let device = std::env::var(DEVICE_VARIABLE).ok();
    let local = stream.local_addr()?.ip().to_canonical();
    let (domain, place) = open(Some(local), device.as_deref())?;
    let meter = LoadMeter::new(&place);
    let unconnected = Unconnected::new(&domain, &place)?;
    let mailbox = Registration::of(&domain, to_client, access::WRITE)?;
    let side = ClientSide { end: unconnected.end(), mailbox: key_of(&mailbox, mailbox.rkey()) };
    // First: the server may write as soon as it has heard of this end.
    let pair = unconnected.connect(&server_end)?;
    stream.write_all(side.as_bytes())?;
    let mut ready = VerbsReady::new_zeroed();
    stream.read_exact(ready.as_mut_bytes())?;
    if ready.refusal.get() != 0 {
        let refusal = Refusal::from_number(ready.refusal.get());
        return Err(BeginError::Refused(refusal.unwrap_or(Refusal::Unavailable)));
    }
    let mut peer: Vec<PeerRegion> =
        arenas.into_iter().map(|key| PeerRegion { key, is_mailbox: false }).collect();
    peer.push(PeerRegion { key: ready.mailbox, is_mailbox: true });
    let connection = Connection::new(Parts {
        pair,
        domain,
        control: stream,
        peer,
        shards,
        exposed: vec![mailbox],
        windows: Vec::new(),
        on_immediate: Box::new(|_| {}),
    })?;
    Ok((Arc::clone(&connection), DataMemory::new(connection, meter)))
}

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

    /// Queue pairs that the devices say they have, all together.
    pub fn max_queue_pairs(&self) -> usize {
        self.devices.iter().map(|device| device.domain.context.limits.max_qp.max(0) as usize).sum()
    }

    /// A queue pair for a client that came by this address of the server's, at
    /// the best device that gives one.
    ///
    /// # Errors
    /// None does, for the reason of the first.
    pub fn welcome(&self, local: IpAddr) -> Result<Welcome, VerbsError> {
        // Asked anew each time: ports go down and come up.
        let places: Vec<Place> = ranked(known_places(), Some(local.to_canonical()));
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
    /// The client may have at most so many READs under way: the device
    /// takes no more (`max_dest_rd_atomic`).
    pub fn serve_at_most(&mut self, reads: u8) {
        self.unconnected.serve_at_most(reads);
    }

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
        let peer = vec![PeerRegion { key: client.mailbox, is_mailbox: true }];
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
