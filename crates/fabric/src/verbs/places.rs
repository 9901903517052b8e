//! Where this machine can send and receive by RDMA: its devices, their ports and addresses (GIDs),
//! as listed by the kernel in `/sys/class/infiniband`, and which of them to take (RDMA_Mongo 4.1,
//! algorithm 1, M7, M8).
//!
//! The order is by rank, never by a fixed index: the right address has index 1 on one machine, and
//! another index on the next.

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Where the kernel tells of RDMA devices.
pub(super) const SYSFS: &str = "/sys/class/infiniband";
/// The same of those that programs may open: a device that is to go is taken
/// out here first.
const SYSFS_VERBS: &str = "/sys/class/infiniband_verbs";

/// What carries the packets of a GID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Carriage {
    /// Ethernet without IP: one segment only.
    RoceV1,
    /// InfiniBand.
    InfiniBand,
    /// UDP, port 4791.
    RoceV2,
}

impl fmt::Display for Carriage {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str(match self {
            Self::RoceV1 => "RoCE v1",
            Self::InfiniBand => "InfiniBand",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// One address of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gid {
    /// The device's name, as in `ibv_devices`.
    pub device: String,
    /// Its port, from 1.
    pub port: u8,
    /// Index in the port's table of addresses.
    pub gid_index: u8,
    /// The address.
    pub gid: [u8; 16],
    /// How its packets travel.
    pub carriage: Carriage,
    /// The network device behind it, if there is one.
    pub netdev: Option<String>,
    /// Whether the port is up.
    pub is_active: bool,
}

impl Gid {
    /// The IP address that the GID is, if it is one: of RoCE v2.
    pub fn ip(&self) -> Option<IpAddr> {
        let ip = Ipv6Addr::from(self.gid);
        let is_ip = self.carriage == Carriage::RoceV2 && !ip.is_unspecified();
        is_ip.then(|| ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4))
    }

    /// Why nothing can be sent from here.
    pub fn objection(&self) -> Option<&'static str> {
        if !self.is_active {
            return Some("the port is not active: is the cable in, the network device up?");
        }
        (self.gid == [0; 16]).then_some("it has no address")
    }

    /// Why the ranking puts it where it stands.
    pub fn reason(&self, local: Option<IpAddr>) -> &'static str {
        if let Some(objection) = self.objection() {
            return objection;
        }
        match (self.carriage, self.ip()) {
            (_, Some(ip)) if Some(ip) == local => "it is the address that routes to the peer",
            (_, Some(IpAddr::V4(_))) => "RoCE v2 with an IPv4 address",
            (_, Some(IpAddr::V6(ip))) if ip.is_unicast_link_local() => {
                "RoCE v2, but only on the link itself"
            }
            (Carriage::RoceV2, _) => "RoCE v2 with an IPv6 address",
            (Carriage::InfiniBand, _) => "InfiniBand",
            (Carriage::RoceV1, _) => "RoCE v1: no router passes it on",
        }
    }

    /// Greater is better; `None` if nothing can be sent from here.
    fn rank(&self, local: Option<IpAddr>) -> Option<u32> {
        if self.objection().is_some() {
            return None;
        }
        Some(match (self.carriage, self.ip()) {
            (_, Some(ip)) if Some(ip) == local => 5,
            (_, Some(IpAddr::V4(_))) => 4,
            (_, Some(IpAddr::V6(ip))) if ip.is_unicast_link_local() => 1,
            (Carriage::RoceV2, _) | (Carriage::InfiniBand, _) => 3,
            (Carriage::RoceV1, _) => 0,
        })
    }
}

/// The usable places, best first; in equal rank in the order of names, ports and indices. `local`
/// is this machine's address on the way to the peer.
pub fn ranked(places: Vec<Gid>, local: Option<IpAddr>) -> Vec<Gid> {
    let mut ranked: Vec<(u32, Gid)> =
        places.into_iter().filter_map(|place| Some((place.rank(local)?, place))).collect();
    ranked.sort_by(|(a, first), (b, second)| {
        let name = |place: &Gid| (place.device.clone(), place.port, place.gid_index);
        (Reverse(a), name(first)).cmp(&(Reverse(b), name(second)))
    });
    ranked.into_iter().map(|(_, place)| place).collect()
}

/// Whether the kernel knows a device of this name.
pub(super) fn is_known(device: &str) -> bool {
    names(Path::new(SYSFS)).iter().any(|name| name == device)
}

/// Whether the kernel knows any device.
pub(super) fn are_known() -> bool {
    !names(Path::new(SYSFS)).is_empty()
}

/// Whether programs may open the device of this name.
pub fn is_listed(device: &str) -> bool {
    is_listed_in(Path::new(SYSFS_VERBS), device)
}

fn is_listed_in(root: &Path, device: &str) -> bool {
    let name = |entry: &String| text(&root.join(entry).join("ibdev"));
    names(root).iter().filter_map(name).any(|name| name == device)
}

/// All addresses of all ports of this machine; empty without RDMA devices.
pub fn places() -> Vec<Gid> {
    places_in(Path::new(SYSFS))
}

/// Whether the kernel plays this device (rxe): its times are none of RDMA.
pub fn is_software(device: &str) -> bool {
    let place = std::fs::canonicalize(Path::new(SYSFS).join(device));
    place.is_ok_and(|place| place.starts_with("/sys/devices/virtual"))
}

pub(super) fn places_in(root: &Path) -> Vec<Gid> {
    let mut places = Vec::new();
    for device in names(root) {
        let ports = root.join(&device).join("ports");
        for port in names(&ports) {
            let Ok(number) = port.parse() else { continue };
            let port = ports.join(&port);
            let is_active = is_active(&port);
            for index in names(&port.join("gids")) {
                let Ok(gid_index) = index.parse() else { continue };
                let gid = text(&port.join("gids").join(&index)).and_then(|text| gid_of(&text));
                // Zeros where an entry is not used, as nearly all are.
                let Some(gid) = gid.filter(|gid| *gid != [0; 16]) else { continue };
                let carriage = text(&port.join("gid_attrs/types").join(&index));
                let Some(carriage) = carriage else { continue };
                let carriage = match carriage.as_str() {
                    "RoCE v2" => Carriage::RoceV2,
                    _ if text(&port.join("link_layer")).as_deref() == Some("InfiniBand") => {
                        Carriage::InfiniBand
                    }
                    _ => Carriage::RoceV1,
                };
                let netdev = text(&port.join("gid_attrs/ndevs").join(&index));
                let device = device.clone();
                let place =
                    Gid { device, port: number, gid_index, gid, carriage, netdev, is_active };
                places.push(place);
            }
        }
    }
    places
}

fn is_active(port: &Path) -> bool {
    text(&port.join("state")).is_some_and(|state| state.starts_with("4:"))
}

fn port_of(root: &Path, place: &Gid) -> PathBuf {
    root.join(&place.device).join("ports").join(place.port.to_string())
}

/// Whether the port of a place is active now.
pub(super) fn is_port_active(root: &Path, place: &Gid) -> bool {
    is_active(&port_of(root, place))
}

/// The address that stands at a place now.
pub(super) fn gid_at(root: &Path, place: &Gid) -> Option<[u8; 16]> {
    let gids = port_of(root, place).join("gids");
    text(&gids.join(place.gid_index.to_string())).and_then(|text| gid_of(&text))
}

/// One port of one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The device's name.
    pub device: String,
    /// Its number, from 1.
    pub port: u8,
    /// `InfiniBand` or `Ethernet`, as the kernel writes it.
    pub link_layer: String,
    /// Such as `ACTIVE` or `DOWN`.
    pub state: String,
}

/// All ports of this machine, also those without any address.
pub fn ports() -> Vec<Port> {
    ports_in(Path::new(SYSFS))
}

fn ports_in(root: &Path) -> Vec<Port> {
    let mut found = Vec::new();
    for device in names(root) {
        let ports = root.join(&device).join("ports");
        for name in names(&ports) {
            let Ok(port) = name.parse() else { continue };
            let read = |file| text(&ports.join(&name).join(file));
            // It is written "4: ACTIVE".
            let state = read("state").unwrap_or_default();
            let state = state.split_once(": ").map_or(state.as_str(), |(_, word)| word).to_owned();
            let link_layer = read("link_layer").unwrap_or_default();
            found.push(Port { device: device.clone(), port, link_layer, state });
        }
    }
    found
}

pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A GID as sysfs writes it: eight groups of four digits.
fn gid_of(text: &str) -> Option<[u8; 16]> {
    let ip: Ipv6Addr = text.parse().ok()?;
    Some(ip.octets())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: &str, gid: &str, carriage: Carriage) -> Gid {
        let gid = gid.parse::<Ipv6Addr>().unwrap().octets();
        let (port, gid_index, netdev) = (1, 0, None);
        Gid { device: device.into(), port, gid_index, gid, carriage, netdev, is_active: true }
    }

    #[test]
    fn the_address_that_routes_to_the_peer_comes_first_and_what_cannot_send_not_at_all() {
        let link_local = place("a", "fe80::1", Carriage::RoceV2);
        let old = place("a", "::ffff:10.0.0.1", Carriage::RoceV1);
        let v4 = place("b", "::ffff:10.0.0.1", Carriage::RoceV2);
        let routed = place("c", "::ffff:10.0.0.2", Carriage::RoceV2);
        let global = place("d", "2001:db8::1", Carriage::RoceV2);
        let fabric = place("e", "fe80::2", Carriage::InfiniBand);
        let down = Gid { is_active: false, ..place("f", "::ffff:10.0.0.2", Carriage::RoceV2) };
        let empty = place("g", "::", Carriage::RoceV2);
        let all =
            [&empty, &down, &old, &fabric, &link_local, &global, &routed, &v4].map(Gid::clone);
        let local = Some("10.0.0.2".parse().unwrap());
        let best = ranked(all.to_vec(), local);
        assert_eq!(best, [&routed, &v4, &global, &fabric, &link_local, &old].map(Gid::clone));
        // Without a route the order of names decides.
        assert_eq!(ranked(all.to_vec(), None)[..2], [v4, routed]);
    }

    #[test]
    fn sysfs_is_read_as_the_kernel_writes_it() {
        let root = tempfile::tempdir().unwrap();
        let port = root.path().join("rxe0/ports/1");
        for (file, text) in [
            ("state", "4: ACTIVE\n"),
            ("link_layer", "Ethernet\n"),
            ("gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"),
            ("gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("gid_attrs/types/0", "IB/RoCE v1\n"),
            ("gid_attrs/types/1", "RoCE v2\n"),
            ("gid_attrs/ndevs/1", "veth0\n"),
        ] {
            let file = port.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let places = places_in(root.path());
        assert_eq!(places.len(), 2, "{places:?}");
        assert_eq!(places[0].carriage, Carriage::RoceV1);
        assert_eq!(places[1].ip(), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(places[1].netdev.as_deref(), Some("veth0"));
        assert!(places[1].is_active);
        let expected = Port {
            device: "rxe0".into(),
            port: 1,
            link_layer: "Ethernet".into(),
            state: "ACTIVE".into(),
        };
        assert_eq!(ports_in(root.path()), [expected]);
        assert!(places_in(&root.path().join("nowhere")).is_empty());
        // Programs open it by another name.
        let entry = root.path().join("uverbs3");
        std::fs::create_dir(&entry).unwrap();
        std::fs::write(entry.join("ibdev"), "rxe0\n").unwrap();
        assert!(is_listed_in(root.path(), "rxe0") && !is_listed_in(root.path(), "rxe"));
    }
}
