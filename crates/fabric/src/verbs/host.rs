//! The server's side of making sessions over RDMA: its devices, with its arenas
//! registered at each.
//!
//! A thread watches the devices. It releases a device that goes: the device's sessions end, and the
//! server no longer offers it. It adds a device that comes, or comes back.

use super::arenas::Arenas;
use super::connection::{Connection, Parts};
use super::errors::VerbsError;
use super::events::LOOK;
use super::known_places::known_places;
use super::library::may_release;
use super::memlock;
use super::objects::{Context, Domain};
use super::packets::Packets;
use super::peer::PeerRegion;
use super::places::{Gid, is_listed, ranked};
use super::registration::{Registration, access};
use super::session::ClientSide;
use super::setup::{Unconnected, bind_window, key_of, usable};
use crate::LinkError;
use crate::locks::lock;
use crate::sync::Mutex;
use crate::vital_thread;
use remora_arena::{ReadView, Words};
use remora_layout::limits::{MAX_SHARDS, REGISTER_PIECE_BYTES};
use remora_layout::verbs::VerbsReady;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::HashMap;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// A device that could not be taken in is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// A server's RDMA devices.
pub struct Host {
    hosted: Arc<Hosted>,
    stop: Arc<OwnedFd>,
    watcher: Option<JoinHandle<()>>,
}

/// The state that the server and the watching thread share.
struct Hosted {
    arenas: Vec<ReadView>,
    /// Names of the devices that may be used; none for all.
    wanted: Vec<String>,
    packets: Packets,
    piece_bytes: usize,
    devices: Mutex<Vec<Arc<Device>>>,
}

/// A device in use.
struct Device {
    name: String,
    domain: Arc<Domain>,
    arenas: Arenas,
    /// The sessions over it; `None` once it has gone.
    connections: Mutex<Option<Vec<Weak<Connection>>>>,
}

impl Host {
    /// Registers the arenas, for reading only, with every device that has an
    /// active port; only with those of these names, if there are any. There may
    /// be none yet. `packets`: those of all queue pairs.
    ///
    /// # Errors
    /// There is no library, or no device of one of the names; or a port has no
    /// such partition key, or memory cannot be registered.
    pub fn new(
        arenas: &[ReadView],
        wanted: &[String],
        packets: &Packets,
    ) -> Result<Self, VerbsError> {
        Self::in_pieces(arenas, wanted, packets, REGISTER_PIECE_BYTES)
    }

    /// The same, in pieces of this length; an arena has at most
    /// [`remora_layout::limits::MAX_PIECES`].
    pub fn in_pieces(
        arenas: &[ReadView],
        wanted: &[String],
        packets: &Packets,
        piece_bytes: usize,
    ) -> Result<Self, VerbsError> {
        let names = devices_of(usable(None, wanted)?);
        // Each device locks them anew. Before the first is registered, so that
        // the error names all that is needed.
        let bytes: u64 = arenas.iter().map(|arena| arena.bytes() as u64).sum();
        memlock::check(bytes * names.len() as u64)?;
        let (arenas, wanted) = (arenas.to_vec(), wanted.to_vec());
        let packets = *packets;
        let hosted = Hosted { arenas, wanted, packets, piece_bytes, devices: Mutex::default() };
        for name in names {
            hosted.take_in(&name)?;
        }
        let failed = |why| VerbsError::Failed { step: "watch the RDMA devices", why };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| failed(error.into()))?);
        let hosted = Arc::new(hosted);
        let watcher = vital_thread::spawn("rdma", {
            let (hosted, stop) = (Arc::clone(&hosted), Arc::clone(&stop));
            move || hosted.watch(&stop)
        });
        Ok(Self { hosted, stop, watcher: Some(watcher.map_err(failed)?) })
    }

    /// The names of the devices that clients can have sessions by, now.
    pub fn devices(&self) -> Vec<String> {
        lock(&self.hosted.devices).iter().map(|device| device.name.clone()).collect()
    }

    /// Queue pairs that the devices say they have, all together.
    pub fn max_queue_pairs(&self) -> usize {
        let devices = lock(&self.hosted.devices);
        devices.iter().map(|device| device.domain.context.limits.max_qp.max(0) as usize).sum()
    }

    /// A queue pair for a client that came by this address of the server's, at
    /// the best device that gives one.
    ///
    /// # Errors
    /// None does, for the reason of the first.
    pub fn welcome(&self, local: IpAddr) -> Result<Welcome, VerbsError> {
        // Asked anew each time: ports go down and come up.
        let places: Vec<Gid> = ranked(known_places(), Some(local.to_canonical()));
        let devices = lock(&self.hosted.devices).clone();
        let mut first = None;
        for place in &places {
            let Some(device) = devices.iter().find(|device| device.name == place.device) else {
                continue;
            };
            match Unconnected::with_packets(&device.domain, place, &self.hosted.packets) {
                Ok(unconnected) => return Ok(Welcome { device: Arc::clone(device), unconnected }),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or(VerbsError::NoPlace))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A forked child has no such thread.
        if !may_release() {
            return;
        }
        // A full counter means that a signal is already due.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(watcher) = self.watcher.take() {
            vital_thread::join(watcher);
        }
    }
}

/// The names of the devices of these places, each once.
fn devices_of(places: Vec<Gid>) -> Vec<String> {
    let mut names: Vec<String> = places.into_iter().map(|place| place.device).collect();
    names.sort();
    names.dedup();
    names
}

impl Hosted {
    /// Registers the arenas with the device of this name, and offers it.
    fn take_in(&self, name: &str) -> Result<(), VerbsError> {
        let domain = Domain::new(Context::open(name)?)?;
        // Now, and not when the first client comes.
        for place in ranked(known_places(), None).iter().filter(|place| place.device == name) {
            self.packets.check(&domain.context, place.port)?;
        }
        let arenas = Arenas::register(&domain, &self.arenas, self.piece_bytes)?;
        let (name, connections) = (name.to_owned(), Mutex::new(Some(Vec::new())));
        lock(&self.devices).push(Arc::new(Device { name, domain, arenas, connections }));
        Ok(())
    }

    /// Until `stop` is readable.
    fn watch(&self, stop: &OwnedFd) {
        // What could not be taken in, and when.
        let mut refused: HashMap<String, Instant> = HashMap::new();
        loop {
            if self.wait(stop) {
                return;
            }
            let devices = lock(&self.devices).clone();
            for device in &devices {
                device.domain.context.look();
                if device.domain.context.is_gone() {
                    tracing::warn!("the RDMA device {} has gone: its sessions end", device.name);
                    lock(&self.devices).retain(|other| !Arc::ptr_eq(other, device));
                    device.gone();
                } else {
                    device.look_after_connections();
                }
            }
            // Before other devices are taken in: the last holder of a device releases its
            // resources.
            drop(devices);
            self.take_in_new(&mut refused);
        }
    }

    /// Sleeps until a device tells something, or a while. True if it is to end.
    fn wait(&self, stop: &OwnedFd) -> bool {
        let devices = lock(&self.devices).clone();
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        fds.extend(devices.iter().map(|device| {
            PollFd::from_borrowed_fd(device.domain.context.events_fd(), PollFlags::IN)
        }));
        // Interrupted: looked at all the same.
        let _ = poll(&mut fds, LOOK.try_into().ok().as_ref());
        !fds[0].revents().is_empty()
    }

    /// Takes in the devices that have come: plugged in, or active again.
    fn take_in_new(&self, refused: &mut HashMap<String, Instant>) {
        for name in devices_of(ranked(known_places(), None)) {
            let is_wanted = self.wanted.is_empty() || self.wanted.contains(&name);
            let is_there = || lock(&self.devices).iter().any(|device| device.name == name);
            let is_due = refused.get(&name).is_none_or(|last| last.elapsed() >= TRY_AGAIN);
            // One that is about to go is known for a while longer.
            if !is_wanted || is_there() || !is_due || !is_listed(&name) {
                continue;
            }
            match self.take_in(&name) {
                Ok(()) => {
                    refused.remove(&name);
                    tracing::info!("sessions over RDMA by {name} from now on");
                }
                Err(error) => {
                    if refused.insert(name.clone(), Instant::now()).is_none() {
                        tracing::warn!(%error, "the RDMA device {name} cannot be used");
                    }
                }
            }
        }
    }
}

impl Device {
    /// Ends its sessions; there are no further ones.
    fn gone(&self) {
        let connections = lock(&self.connections).take();
        for connection in connections.iter().flatten().filter_map(Weak::upgrade) {
            connection.end(LinkError::DeviceGone);
        }
    }

    fn look_after_connections(&self) {
        // Not under the lock: the last handle on one may be dropped here.
        let connections: Vec<Arc<Connection>> =
            lock(&self.connections).iter().flatten().filter_map(Weak::upgrade).collect();
        connections.iter().for_each(|connection| connection.look_after_device());
    }

    /// A further session. It ends at once if the device has gone.
    fn enter(&self, connection: &Arc<Connection>) {
        match &mut *lock(&self.connections) {
            Some(connections) => {
                connections.retain(|connection| connection.strong_count() > 0);
                connections.push(Arc::downgrade(connection));
            }
            None => connection.end(LinkError::DeviceGone),
        }
    }
}

/// A server's end before it has heard of the client's.
pub struct Welcome {
    unconnected: Unconnected,
    device: Arc<Device>,
}

impl Welcome {
    /// The client may have at most so many READs under way: the device
    /// takes no more (`max_dest_rd_atomic`).
    pub fn serve_at_most(&mut self, reads: u8) {
        self.unconnected.serve_at_most(reads);
    }

    /// What follows the server's hello.
    pub fn greeting(&self) -> Vec<u8> {
        [self.unconnected.end().as_bytes(), self.device.arenas.greeting()].concat()
    }

    /// The client has described its end: connects to it. `to_server` is the mailbox that the client
    /// may write. Any thread calls `on_immediate` for each of its WRITEs with an immediate. The
    /// caller sends the result beside the connection to the client.
    pub fn accept(
        self,
        control: TcpStream,
        client: &ClientSide,
        to_server: &Words,
        on_immediate: Box<dyn Fn(u32) + Send + Sync>,
    ) -> Result<(Arc<Connection>, VerbsReady), VerbsError> {
        let Self { device, unconnected } = self;
        let domain = Arc::clone(&device.domain);
        let mailbox = Registration::of(&domain, to_server, access::BY_WINDOW)?;
        let pair = unconnected.connect(&client.end)?;
        let window = bind_window(&domain, &pair, &mailbox)?;
        let ready = VerbsReady {
            refusal: 0.into(),
            reserved: 0.into(),
            mailbox: key_of(&mailbox, window.rkey),
        };
        let connection = Connection::new(Parts {
            pair,
            domain,
            control,
            peer: vec![PeerRegion::Mailbox(client.mailbox)],
            shards: MAX_SHARDS,
            exposed: vec![mailbox],
            windows: vec![window],
            on_immediate,
        })?;
        device.enter(&connection);
        Ok((connection, ready))
    }
}
