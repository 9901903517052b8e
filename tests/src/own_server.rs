use remora_server::{Config, Eviction, Packets, Wake};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Settings of a small server within the test's own process, on free ports.
pub fn own_config(socket: &Path) -> Config {
    Config {
        data: None,
        replica_of: None,
        cluster: None,
        replica_reads: Default::default(),
        min_replicas: 0,
        replica_acks: remora_server::AskFor::default(),
        replica_backlog_bytes: 64 << 20,
        users: Default::default(),
        tls: None,
        shm_users: Vec::new(),
        peer_login: Default::default(),
        peer_tls: None,
        resp_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        mongo_address: None,
        socket_path: socket.to_owned(),
        fabric_address: None,
        rdma_devices: Vec::new(),
        rdma_packets: Packets::default(),
        transport: remora_client_core::Wanted::Auto,
        shards: 2,
        max_memory_bytes: 8 << 20,
        buckets: 0,
        wake: Wake::Event,
        pin: false,
        lease_min_ms: 1000,
        pointer_sharing: true,
        quarantine_bytes: 0,
        upload_idle_s: remora_layout::limits::UPLOAD_IDLE_S,
        eviction: Eviction::None,
        max_queue_pairs: 1,
        reads_per_client: 1,
    }
}
