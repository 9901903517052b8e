//! RDMA: the library, devices, ports and addresses in the order in which they would be taken, the
//! protection of packets from loss, locked memory, and whether a device carries operations to
//! itself.

use super::finding::{Finding, Verdict};
use super::flow;
use crate::serve::DEFAULT_MAX_MEMORY;
use remora_command_line::Size;
use remora_command_line::shards::default_shards;
use remora_fabric::verbs::memlock::{self, Locked};
use remora_fabric::verbs::{self, Gid, Loopback, LoopbackError, Packets, Port};
use remora_layout::arena_header::reserve_bytes;
use std::collections::BTreeSet;

/// All of it; devices are tried with these settings of packets.
pub fn findings(packets: &Packets) -> Vec<Finding> {
    let (places, ports) = (verbs::places(), verbs::ports());
    let usable = verbs::ranked(places.clone(), None);
    let library = verbs::check_library();
    let mut found = vec![match &library {
        Ok(()) => Finding::new("libibverbs", Verdict::Ok, "loaded"),
        Err(error) => {
            let verdict = if ports.is_empty() { Verdict::Missing } else { Verdict::Broken };
            Finding::new("libibverbs", verdict, error.to_string())
                .change("apt-get install libibverbs1 ibverbs-providers")
        }
    }];
    found.extend(devices(&ports));
    found.extend(software(&ports, verbs::is_software));
    if library.is_ok() {
        found.extend(unlisted(&ports, verbs::is_listed));
    }
    found.extend(gids(&places, &usable));
    let networks: BTreeSet<&str> =
        usable.iter().filter_map(|place| place.netdev.as_deref()).collect();
    for network in networks {
        found.extend(flow::findings(network));
    }
    // The best address of each device, in the order of their ranks.
    let mut best: Vec<&Gid> = Vec::new();
    for place in &usable {
        if best.iter().all(|other| other.device != place.device) {
            best.push(place);
        }
    }
    found.push(locked_memory(Locked::now(), best.len() as u64));
    if library.is_ok() {
        found.extend(best.iter().map(|place| {
            let tried = verbs::loopback(place, packets);
            loopback(place, packets, tried)
        }));
    }
    found
}

fn devices(ports: &[Port]) -> Vec<Finding> {
    if ports.is_empty() {
        let missing =
            Finding::new("rdma devices", Verdict::Missing, "none: /sys/class/infiniband is empty");
        return vec![missing.change(
            "load the NIC's driver (mlx5_ib, irdma, bnxt_re ...), or make a device in software: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0; in a container: docker run --device=/dev/infiniband",
        )];
    }
    let line = |Port { device, port, link_layer, state }: &Port| {
        let found = format!("{link_layer}, state {state}");
        let topic = format!("port {device}/{port}");
        if state == "ACTIVE" {
            return Finding::new(topic, Verdict::Ok, found);
        }
        Finding::new(topic, Verdict::Warn, found).change(if link_layer == "InfiniBand" {
            "is the cable in, and does a subnet manager run (opensm, or the switch's)?"
        } else {
            "is the cable in, the network device up (ip link set DEVICE up)?"
        })
    };
    ports.iter().map(line).collect()
}

/// Devices that the kernel plays.
fn software(ports: &[Port], is_software: impl Fn(&str) -> bool) -> Vec<Finding> {
    let devices: BTreeSet<&str> = ports.iter().map(|port| port.device.as_str()).collect();
    let line = |device| {
        let found = "in software: its READs cost processors, and a client that is connected can make this kernel crash";
        Finding::new(format!("device {device}"), Verdict::Warn, found)
            .change("use it for tests, among peers that you trust (docs/assumptions.md, D9)")
    };
    devices.into_iter().filter(|device| is_software(device)).map(line).collect()
}

/// Devices that the kernel knows, and that programs may not open.
fn unlisted(ports: &[Port], is_listed: impl Fn(&str) -> bool) -> Vec<Finding> {
    let devices: BTreeSet<&str> = ports.iter().map(|port| port.device.as_str()).collect();
    let hidden = devices.into_iter().filter(|device| !is_listed(device));
    let line = |device| {
        let found = "programs cannot open it: it is being removed, or ib_uverbs is not loaded";
        Finding::new(format!("device {device}"), Verdict::Warn, found)
            .change("modprobe ib_uverbs; or end the processes that hold it (rdma resource show)")
    };
    hidden.map(line).collect()
}

/// First those that can be used, in the order in which they are taken; then
/// the others, with the reason.
fn gids(places: &[Gid], usable: &[Gid]) -> Vec<Finding> {
    let topic = |place: &Gid| format!("gid {}/{}/{}", place.device, place.port, place.gid_index);
    let address = |place: &Gid| {
        let gid = std::net::Ipv6Addr::from(place.gid);
        let address = place.ip().map_or(gid.to_string(), |ip| ip.to_string());
        let network = place.netdev.as_deref().map(|name| format!(" on {name}"));
        format!("{address}{}", network.unwrap_or_default())
    };
    let ranked = usable.iter().zip(1..).map(|(place, rank)| {
        let found = format!("rank {rank}: {}; {}", address(place), place.reason(None));
        Finding::new(topic(place), Verdict::Ok, found)
    });
    let rejected = places.iter().filter_map(|place| {
        let found = format!("not used: {}; {}", address(place), place.objection()?);
        Some(Finding::new(topic(place), Verdict::Warn, found))
    });
    ranked.chain(rejected).collect()
}

/// Compared with the memory that a server of default size, with one session, and a client register.
/// Each device pins the arenas anew.
fn locked_memory(locked: Locked, devices: u64) -> Finding {
    let shards = default_shards(DEFAULT_MAX_MEMORY.0);
    let arenas = DEFAULT_MAX_MEMORY.0 + reserve_bytes(DEFAULT_MAX_MEMORY.0);
    let server = arenas * devices.max(1) + memlock::session_bytes(shards);
    let client = memlock::client_bytes(shards);
    let needs = format!(
        "a server of {DEFAULT_MAX_MEMORY} registers {server} bytes with one session, a client {client} and what it reads"
    );
    let Some(room) = locked.room() else {
        let why = if locked.is_exempt && locked.limit.is_some() {
            "exempt by CAP_IPC_LOCK"
        } else {
            "unlimited"
        };
        return Finding::new("memlock", Verdict::Ok, format!("{why}; {needs}"));
    };
    let found = format!("{} may be locked; {needs}", Size(room));
    if room >= server.max(client) {
        return Finding::new("memlock", Verdict::Ok, found);
    }
    // Without a device no process registers memory.
    let is_broken = devices > 0 && room < client;
    let verdict = if is_broken { Verdict::Broken } else { Verdict::Warn };
    Finding::new("memlock", verdict, found).change(memlock::REMEDY.join("\n"))
}

fn loopback(place: &Gid, packets: &Packets, tried: Result<Loopback, LoopbackError>) -> Finding {
    let topic = format!("loopback {}", place.device);
    match tried {
        Ok(Loopback { bytes, read, mtu }) => {
            let found = format!(
                "a READ of {bytes} bytes came back right, the first in {} us; a WRITE through a memory window too; {}",
                read.as_micros(),
                in_packets(packets, mtu)
            );
            match packets.mtu.filter(|wanted| wanted.bytes() > mtu) {
                None => Finding::new(topic, Verdict::Ok, found),
                Some(wanted) => Finding::new(topic, Verdict::Warn, found).change(format!(
                    "rdma_mtu is {}, and the port has {mtu} active: raise the network device's MTU (ip link set DEVICE mtu), or lower rdma_mtu",
                    wanted.bytes()
                )),
            }
        }
        Err(error) => Finding::new(topic, Verdict::Broken, error.to_string())
            .change("docs/rdma.md says what each message means"),
    }
}

/// The settings of packets that a device was tried with; `mtu` is the outcome for that setting. A
/// loopback does not show how a switch treats class and level.
fn in_packets(packets: &Packets, mtu: u32) -> String {
    let Packets { traffic_class, service_level, pkey_index, .. } = packets;
    format!(
        "in packets of at most {mtu} bytes, traffic class {traffic_class}, service level {service_level}, P_Key index {pkey_index}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_fabric::verbs::{Carriage, Mtu, VerbsError};
    use std::time::Duration;

    fn place(device: &str, last: u8, is_active: bool) -> Gid {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, last];
        let (netdev, carriage) = (Some(format!("net-{device}")), Carriage::RoceV2);
        Gid { device: device.into(), port: 1, gid_index: 3, gid, carriage, netdev, is_active }
    }

    #[test]
    fn a_device_that_is_about_to_go_is_told_of_once() {
        let port = |device: &str, port| Port {
            device: device.into(),
            port,
            link_layer: "Ethernet".into(),
            state: "ACTIVE".into(),
        };
        let ports = [port("rxe0", 1), port("rxe1", 1), port("rxe1", 2)];
        let found = unlisted(&ports, |device| device == "rxe0");
        let topics: Vec<_> = found.iter().map(|finding| finding.topic.as_str()).collect();
        assert_eq!(topics, ["device rxe1"]);
        let found = software(&ports, |device| device == "rxe1");
        assert_eq!(found.len(), 1, "once for both of its ports");
    }

    #[test]
    fn every_address_has_a_line_with_its_rank_or_why_not() {
        let places = [place("a", 1, false), place("b", 2, true)];
        let lines = gids(&places, &verbs::ranked(places.to_vec(), None));
        let seen: Vec<_> = lines.iter().map(|line| (line.topic.as_str(), line.verdict)).collect();
        assert_eq!(seen, [("gid b/1/3", Verdict::Ok), ("gid a/1/3", Verdict::Warn)]);
        assert_eq!(lines[0].found, "rank 1: 10.0.0.2 on net-b; RoCE v2 with an IPv4 address");
        assert!(lines[1].found.starts_with("not used: 10.0.0.1 on net-a; the port is not active"));
    }

    #[test]
    fn ports_that_are_down_are_told_in_their_own_words() {
        let port = |link_layer: &str, state: &str| Port {
            device: "a".into(),
            port: 1,
            link_layer: link_layer.into(),
            state: state.into(),
        };
        let lines = devices(&[
            port("InfiniBand", "INIT"),
            port("Ethernet", "DOWN"),
            port("Ethernet", "ACTIVE"),
        ]);
        assert!(lines[0].change.as_ref().unwrap().contains("opensm"));
        assert!(lines[1].change.as_ref().unwrap().contains("ip link"));
        assert_eq!((lines[2].verdict, &lines[2].change), (Verdict::Ok, &None));
        assert_eq!(devices(&[])[0].verdict, Verdict::Missing);
    }

    #[test]
    fn locked_memory_is_held_against_what_is_registered() {
        let verdict = |limit, is_exempt, devices| {
            locked_memory(Locked { limit, pinned: 0, is_exempt }, devices).verdict
        };
        let enough =
            (1 << 30) + (1 << 27) + memlock::session_bytes(default_shards(DEFAULT_MAX_MEMORY.0));
        assert_eq!(verdict(None, false, 1), Verdict::Ok);
        assert_eq!(verdict(Some(0), true, 1), Verdict::Ok);
        assert_eq!(verdict(Some(enough), false, 1), Verdict::Ok);
        assert_eq!(verdict(Some(enough), false, 2), Verdict::Warn);
        assert_eq!(verdict(Some(64 << 10), false, 1), Verdict::Broken);
        assert_eq!(verdict(Some(64 << 10), false, 0), Verdict::Warn);
    }

    #[test]
    fn a_loopback_that_fails_is_broken() {
        let place = place("a", 1, true);
        let works = Loopback { bytes: 4096, read: Duration::from_micros(7), mtu: 1024 };
        let loopback = |tried| loopback(&place, &Packets::default(), tried);
        assert_eq!(loopback(Ok(works)).verdict, Verdict::Ok);
        let error = VerbsError::NoDevice("a".into()).into();
        assert_eq!(loopback(Err(error)).verdict, Verdict::Broken);
        assert_eq!(loopback(Err(LoopbackError::Wrong("READ"))).verdict, Verdict::Broken);
    }

    #[test]
    fn a_loopback_says_in_which_packets_it_went() {
        let place = place("a", 1, true);
        let tried = |wanted, mtu| {
            let packets = Packets { traffic_class: 104, mtu: wanted, ..Packets::default() };
            loopback(&place, &packets, Ok(Loopback { bytes: 4096, read: Duration::ZERO, mtu }))
        };
        let shorter = tried(Some(Mtu::Bytes256), 256);
        assert_eq!(shorter.verdict, Verdict::Ok);
        let said =
            "in packets of at most 256 bytes, traffic class 104, service level 0, P_Key index 0";
        assert!(shorter.found.ends_with(said), "{}", shorter.found);
        let too_long = tried(Some(Mtu::Bytes4096), 1024);
        assert_eq!(too_long.verdict, Verdict::Warn);
        assert!(too_long.change.unwrap().contains("rdma_mtu is 4096, and the port has 1024"));
    }
}
