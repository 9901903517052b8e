//! Makes queue pairs: the device and the address, the ends that two peers exchange, windows.

use super::errors::VerbsError;
use super::known_places::known_places;
use super::objects::{Context, Domain};
use super::packets::Packets;
use super::places::{Gid, ranked};
use super::queue_pair::{BIND, QueuePair};
use super::registration::Registration;
use super::window::Window;
use remora_layout::verbs::{RegionKey, VerbsEnd};
use remora_verbs_sys::*;
use rustix::rand::{GetRandomFlags, getrandom};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A window is bound by the device itself, in microseconds.
const BIND_TIMEOUT: Duration = Duration::from_secs(2);

/// Names the devices that a client may use, one or several with commas between
/// them, as the setting `rdma_devices` does for a server.
const DEVICES_VARIABLE: &str = "REMORA_RDMA_DEVICES";

/// The devices that the environment names; none for all.
pub(super) fn devices_of_environment() -> Vec<String> {
    let names = std::env::var(DEVICES_VARIABLE).unwrap_or_default();
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Where this machine can send from, of the devices with these names, or of
/// all if there are none; best first. The one rule for both ends.
///
/// # Errors
/// There is no library, or no device of one of the names.
pub(super) fn usable(local: Option<IpAddr>, devices: &[String]) -> Result<Vec<Gid>, VerbsError> {
    super::library::library()?;
    let all = known_places();
    let is_there = |name: &&String| all.iter().any(|place| place.device == **name);
    if let Some(name) = devices.iter().find(|name| !is_there(name)) {
        return Err(VerbsError::NoDevice(name.clone()));
    }
    let mut ranked = ranked(all, local);
    ranked.retain(|place| devices.is_empty() || devices.contains(&place.device));
    Ok(ranked)
}

/// Opens the best device for peers that are reached from the address `local`, of those with these
/// names, if there are any. It skips a device that cannot be opened.
///
/// # Errors
/// There is no library, no such device, or none with an active port; or none can be opened, for the
/// reason of the first.
pub fn open(local: Option<IpAddr>, devices: &[String]) -> Result<(Arc<Domain>, Gid), VerbsError> {
    let mut first = None;
    for place in usable(local, devices)? {
        let opened = Context::open(&place.device).and_then(Domain::new);
        match opened {
            Ok(domain) => return Ok((domain, place)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or(VerbsError::NoPlace))
}

/// A queue pair before it knows its peer.
pub struct Unconnected {
    pair: QueuePair,
    place: Gid,
    packets: Packets,
    end: VerbsEnd,
}

impl Unconnected {
    /// A fresh one, in this domain.
    pub fn new(domain: &Arc<Domain>, place: &Gid) -> Result<Self, VerbsError> {
        let mut random = [0u8; 4];
        let drawn = getrandom(&mut random, GetRandomFlags::empty());
        drawn.map_err(|error| VerbsError::Failed { step: "draw", why: error.into() })?;
        let pair = QueuePair::new(domain)?;
        let end = pair.end(place, u32::from_ne_bytes(random))?;
        Ok(Self { pair, place: place.clone(), packets: Packets::default(), end })
    }

    /// The same, whose packets are as an operator wants them.
    ///
    /// # Errors
    /// The port has no such partition key.
    pub fn with_packets(
        domain: &Arc<Domain>,
        place: &Gid,
        packets: &Packets,
    ) -> Result<Self, VerbsError> {
        packets.check(&domain.context, place.port)?;
        let mut fresh = Self::new(domain, place)?;
        fresh.end.mtu = packets.mtu_told(fresh.end.mtu);
        Ok(Self { packets: *packets, ..fresh })
    }

    /// The description that the peer needs.
    pub fn end(&self) -> VerbsEnd {
        self.end
    }

    /// Serves the peer at most so many READs at a time, and tells it so.
    pub fn serve_at_most(&mut self, reads: u8) {
        self.end = serving_at_most(self.end, reads);
    }

    /// Connects it to the peer's end.
    pub fn connect(self, peer: &VerbsEnd) -> Result<QueuePair, VerbsError> {
        self.pair.connect(&self.place, &self.packets, &self.end, peer)?;
        Ok(self.pair)
    }
}

/// The same end, which serves its peer at most so many READs at a time.
pub(super) fn serving_at_most(end: VerbsEnd, reads: u8) -> VerbsEnd {
    VerbsEnd { read_depth: end.read_depth.min(reads), ..end }
}

/// The description of a region that the peer may reach.
pub fn key_of(memory: &Registration, rkey: u32) -> RegionKey {
    RegionKey {
        address: memory.address().into(),
        bytes: (memory.bytes() as u64).into(),
        rkey: rkey.into(),
        reserved: 0.into(),
    }
}

/// Lets the peer of this queue pair WRITE into memory that is registered with
/// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND`, and no other peer of the same domain. The queue
/// pair is not in use yet.
pub fn bind_window(
    domain: &Arc<Domain>,
    pair: &QueuePair,
    memory: &Registration,
) -> Result<Window, VerbsError> {
    let failed = |code: i32| VerbsError::Failed {
        step: "bind a memory window",
        why: std::io::Error::from_raw_os_error(code),
    };
    let window = Window::new(domain)?;
    pair.bind(&window, memory)?;
    // A peer that already sends cannot pass for the binding's end.
    match pair.next_completion(BIND_TIMEOUT).map(|taken| (taken.wr_id, taken.status)) {
        Some((BIND, IBV_WC_SUCCESS)) => Ok(window),
        None => Err(failed(rustix::io::Errno::TIMEDOUT.raw_os_error())),
        Some(_) => Err(failed(rustix::io::Errno::IO.raw_os_error())),
    }
}
