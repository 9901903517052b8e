//! What the server tells about itself: INFO, CONFIG GET, CLIENT INFO.

use super::executor::Responder;
use crate::config::Eviction;
use crate::config::Wanted;
use crate::shared::{ShardHandle, Shared};
use crate::thread_counts::ThreadCounts;
use remora_engine::ShardStats;
use remora_frontend::Counter;
use remora_layout::database::DATABASES;
use remora_resp::request::Sections;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The text of INFO.
#[expect(clippy::too_many_lines, reason = "written before functions had a bound")]
pub fn server(shared: &Shared, sections: &Sections<'_>) -> String {
    let mut text = String::new();
    let mut section = |name: &str, lines: &[(&str, String)]| {
        if !sections.wants(&name.to_ascii_lowercase()) {
            return;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "# {name}\r\n");
        for (field, value) in lines {
            let _ = write!(text, "{field}:{value}\r\n");
        }
    };
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let load = |counter: &AtomicU64| number(counter).to_string();
    let counts = &shared.counts;
    let stats: Vec<_> = shared.shards.iter().map(|shard| shard.stats()).collect();
    let sum = |field: fn(&remora_engine::ShardStats) -> u64| {
        stats.iter().map(field).sum::<u64>().to_string()
    };
    let over_shards = |field: fn(&crate::shared::ShardHandle) -> &AtomicU64| {
        let sum: u64 = shared.shards.iter().map(|s| field(s).load(Ordering::Relaxed)).sum();
        sum.to_string()
    };
    let least_of_shards = |field: fn(&crate::shared::ShardHandle) -> &AtomicU64| {
        let all = shared.shards.iter().map(|s| field(s).load(Ordering::Relaxed));
        all.min().unwrap_or(0).to_string()
    };
    let threads = |field: fn(&ThreadCounts) -> &Counter| {
        let sum: u64 = shared.shards.iter().map(|shard| field(&shard.thread).get()).sum();
        sum.to_string()
    };
    let hits: u64 = stats.iter().map(|shard| shard.hits).sum();
    let read_hits: u64 = shared.shards.iter().map(|shard| shard.thread.hits.get()).sum();
    let over_agents = |field: fn(&crate::shared::AgentCounts) -> &AtomicU64| {
        let sum: u64 = shared.agents.iter().map(|agent| number(field(agent))).sum();
        sum.to_string()
    };
    let (tcp, rdma) = (shared.tcp_traffic.sum(), shared.verbs_traffic.sum());
    let node = |node: Option<u32>| node.map_or_else(|| "any".into(), |node| node.to_string());
    let nodes = shared.shards.iter().map(|shard| node(shard.node)).enumerate();
    let nodes: Vec<_> = nodes.map(|(at, node)| (format!("shard{at}_node"), node)).collect();
    section(
        "Server",
        &[
            ("remora_version", env!("CARGO_PKG_VERSION").into()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", shared.resp_address.port().to_string()),
            ("socket", shared.config.socket_path.display().to_string()),
            ("uptime_in_seconds", shared.clock.started().elapsed().as_secs().to_string()),
            ("life", format!("{:016x}", shared.life)),
            ("epoch", shared.epoch.to_string()),
            ("shards", shared.shards.len().to_string()),
            ("wake", shared.config.wake.name().into()),
            ("transports", transports(shared)),
            ("rdma_devices", rdma_devices(shared)),
            ("numa_nodes", shared.numa_nodes.to_string()),
        ],
    );
    let nodes: Vec<_> = nodes.iter().map(|(name, node)| (name.as_str(), node.clone())).collect();
    section("Shards", &nodes);
    let agents: Vec<_> = shared
        .agents
        .iter()
        .enumerate()
        .map(|(at, agent)| (format!("agent{at}_connections"), load(&agent.connections)))
        .collect();
    let agents: Vec<_> = agents.iter().map(|(name, line)| (name.as_str(), line.clone())).collect();
    section("Agents", &agents);
    section(
        "Clients",
        &[
            ("connected_clients", over_shards(|s| &s.connections)),
            ("connected_sessions_shm", load(&counts.sessions_shm)),
            ("connected_sessions_tcp", load(&counts.sessions_tcp)),
            ("connected_sessions_verbs", load(&counts.sessions_verbs)),
            (
                "queue_pairs",
                (number(&counts.sessions_verbs) + number(&counts.half_open)).to_string(),
            ),
            ("queue_pairs_limit", shared.max_queue_pairs().to_string()),
            ("queue_pairs_half_open", load(&counts.half_open)),
            ("verbs_client_threads", load(&counts.client_threads)),
            (
                "queue_pairs_unshared",
                (number(&counts.client_threads) * shared.shards.len() as u64).to_string(),
            ),
        ],
    );
    section(
        "Memory",
        &[
            ("used_memory", sum(|s| s.slots.used_bytes)),
            ("maxmemory", shared.config.max_memory_bytes.to_string()),
            ("maxmemory_policy", policy(shared).into()),
            ("eviction_bytes", sum(|s| s.eviction_bytes)),
            ("free_slot_bytes", sum(|s| s.slots.free_bytes)),
            ("quarantine_bytes", sum(|s| s.slots.quarantine_bytes)),
            ("retired_bytes", sum(|s| s.slots.retired_bytes)),
            ("uncarved_bytes", sum(|s| s.slots.uncarved_bytes)),
            ("run_bytes", sum(|s| s.slots.run_bytes)),
            ("resp_pending_bytes", resp_pending_bytes(shared)),
            ("staged_bytes", sum(|s| s.staged_bytes)),
            ("heap_bytes", sum(|s| s.heap_bytes)),
            ("heap_covered_bytes", sum(|s| s.heap_covered_bytes)),
            ("span_tail_bytes", sum(|s| s.slots.tail_bytes)),
            ("slots_reused_early", sum(|s| s.slots.reused_early)),
            ("records_moved", sum(|s| s.moved)),
            ("buckets", sum(|s| s.buckets)),
            ("overflow_buckets", sum(|s| s.overflow_buckets)),
            ("table_bytes", sum(|s| s.table_bytes)),
            ("trees", sum(|s| s.trees)),
            ("tree_objects", sum(|s| s.tree_objects)),
            ("tree_bytes", sum(|s| s.tree_bytes)),
            ("geo_keys", sum(|s| s.geo_keys)),
            ("geo_members", sum(|s| s.geo_members)),
            ("geo_bytes", sum(|s| s.geo_bytes)),
        ],
    );
    section(
        "Stats",
        &[
            ("total_connections_received", load(&counts.connections_total)),
            ("total_sessions_granted", load(&counts.sessions_total)),
            ("sessions_violated", load(&counts.sessions_violated)),
            ("sessions_refused", load(&counts.sessions_refused)),
            ("sessions_told_busy", load(&counts.told_busy)),
            ("sessions_without_queue_pair", load(&counts.no_queue_pair)),
            ("hellos_timed_out", load(&counts.hellos_timed_out)),
            ("rejected_connections", load(&counts.connections_rejected)),
            ("protocol_errors", threads(|t| &t.frontend.protocol_errors)),
            ("client_output_buffer_limit_disconnections", threads(|t| &t.frontend.output_cut_off)),
            ("stages_abandoned", sum(|s| s.stages_abandoned)),
            ("uploads_abandoned", sum(|s| s.uploads_abandoned)),
            ("requests_abandoned", threads(|t| &t.frontend.requests_abandoned)),
            ("total_commands_processed", threads(|t| &t.commands)),
            ("optimistic_reads", threads(|t| &t.optimistic_reads)),
            ("asked_reads", threads(|t| &t.asked_reads)),
            ("commands_executed_here", threads(|t| &t.executed_here)),
            ("keys_executed_here", threads(|t| &t.keys_here)),
            ("shard_turns", threads(|t| &t.turns)),
            ("jobs_sent", threads(|t| &t.jobs_sent)),
            ("mail_sent", threads(|t| &t.mail_sent)),
            ("mail_waited", threads(|t| &t.mail_waited)),
            ("socket_looks", threads(|t| &t.socket_looks)),
            ("socket_writes", threads(|t| &t.frontend.writes)),
            ("total_net_output_bytes", threads(|t| &t.frontend.bytes_written)),
            ("connections_moved", threads(|t| &t.connections_moved)),
            ("ring_frames", over_shards(|s| &s.frames)),
            ("ring_frames_least", least_of_shards(|s| &s.frames)),
            ("ring_turns", over_shards(|s| &s.ring_turns)),
            ("ring_clients_looked_at", over_shards(|s| &s.clients_looked_at)),
            ("rings_looked_at", over_shards(|s| &s.rings_looked_at)),
            ("ring_doorbells", over_shards(|s| &s.doorbells)),
            ("ring_clients_parked", over_shards(|s| &s.clients_parked)),
            ("ring_clients_unparked", over_shards(|s| &s.clients_unparked)),
            ("searches_by_others", over_shards(|s| &s.searches.answered)),
            ("searches_beyond_a_turn", over_shards(|s| &s.searches.beyond)),
            ("searches_unsettled", over_shards(|s| &s.searches.unsettled)),
            ("replies_held", over_shards(|s| &s.held_replies)),
            ("pending_keys", sum(|s| s.pending_keys)),
            ("tcp_writes", tcp.writes.to_string()),
            ("tcp_written_bytes", tcp.written_bytes.to_string()),
            ("tcp_receives", tcp.receives.to_string()),
            ("tcp_received_bytes", tcp.received_bytes.to_string()),
            ("tcp_frames", tcp.frames.to_string()),
            ("verbs_posts", rdma.posts.to_string()),
            ("verbs_pieces", rdma.pieces.to_string()),
            ("verbs_immediates", rdma.immediates.to_string()),
            ("verbs_signals", load(&counts.verbs_signals)),
            ("agents", shared.agents.len().to_string()),
            ("agent_turns", over_agents(|agent| &agent.turns)),
            ("agent_rings", over_agents(|agent| &agent.rings)),
            ("agent_signals", over_agents(|agent| &agent.signals)),
            ("shard_jobs", over_shards(|s| &s.jobs)),
            ("shard_sleeps", over_shards(|s| &s.sleeps)),
            (
                "shard_busy_us",
                (over_shards(|s| &s.busy_ns).parse::<u64>().unwrap_or(0) / 1000).to_string(),
            ),
            ("keyspace_hits", (hits + read_hits).to_string()),
            ("keyspace_misses", sum(|s| s.misses)),
            ("expired_keys", sum(|s| s.expired)),
            ("evicted_keys", sum(|s| s.evicted)),
            ("last_sequence", sum(|s| s.last_sequence)),
        ],
    );
    let keyspace = keyspace(&stats);
    let keyspace: Vec<_> = keyspace.iter().map(|(name, line)| (*name, line.clone())).collect();
    section("Keyspace", &keyspace);
    text
}

/// Bytes that jobs of RESP connections, what they have found and replies that wait hold.
fn resp_pending_bytes(shared: &Shared) -> String {
    let of_shard = |shard: &ShardHandle| {
        let found = shard.found_bytes.load(Ordering::Relaxed);
        shard.thread.frontend.pending_bytes.get().wrapping_add(found)
    };
    shared.shards.iter().map(of_shard).fold(0, u64::wrapping_add).to_string()
}

/// A line for each database that has keys.
fn keyspace(stats: &[ShardStats]) -> Vec<(&'static str, String)> {
    const NAMES: [&str; DATABASES] = [
        "db0", "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8", "db9", "db10", "db11",
        "db12", "db13", "db14", "db15",
    ];
    let line = |(at, name): (usize, &'static str)| {
        let keys: u64 = stats.iter().map(|shard| shard.databases[at].keys).sum();
        let expires: u64 = stats.iter().map(|shard| shard.databases[at].expiring).sum();
        (keys > 0).then(|| (name, format!("keys={keys},expires={expires},avg_ttl=0")))
    };
    NAMES.into_iter().enumerate().filter_map(line).collect()
}

/// The eviction policy, named as Redis names its own.
fn policy(shared: &Shared) -> &'static str {
    match shared.config.eviction {
        Eviction::None => "noeviction",
        Eviction::S3Fifo => "allkeys-s3-fifo",
    }
}

/// The parameters that CONFIG GET shows.
pub fn parameters(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = &shared.config;
    let packets = &config.rdma_packets;
    vec![
        ("appendonly", "no".into()),
        ("bind", shared.resp_address.ip().to_string()),
        ("databases", DATABASES.to_string()),
        ("fabric_address", shared.fabric_address.map_or_else(String::new, |a| a.to_string())),
        ("max_queue_pairs", config.max_queue_pairs.to_string()),
        ("maxmemory", config.max_memory_bytes.to_string()),
        ("maxmemory-policy", policy(shared).into()),
        ("port", shared.resp_address.port().to_string()),
        ("rdma_mtu", packets.mtu.map_or_else(String::new, |mtu| mtu.bytes().to_string())),
        ("rdma_pkey_index", packets.pkey_index.to_string()),
        ("rdma_service_level", packets.service_level.to_string()),
        ("rdma_traffic_class", packets.traffic_class.to_string()),
        ("reads_per_client", config.reads_per_client.to_string()),
        ("save", String::new()),
        ("shards", config.shards.to_string()),
        ("socket", config.socket_path.display().to_string()),
        ("transport", config.transport.name().into()),
        ("upload_idle_s", config.upload_idle_s.to_string()),
        ("wake", config.wake.name().into()),
    ]
}

/// The text of CLIENT INFO.
pub fn client(responder: &Responder) -> Vec<u8> {
    let Responder { serial, peer, client, .. } = responder;
    let mut text = format!("id={serial} addr={peer} name=").into_bytes();
    text.extend_from_slice(&client.name);
    text.extend_from_slice(b" lib-name=");
    text.extend_from_slice(&client.library[0]);
    text.extend_from_slice(b" lib-ver=");
    text.extend_from_slice(&client.library[1]);
    text.extend_from_slice(
        format!(" resp={} db={}\n", client.protocol.number(), responder.database.number())
            .as_bytes(),
    );
    text
}

/// What clients' sessions may use, now.
fn transports(shared: &Shared) -> String {
    let wanted = shared.config.transport;
    let may = |transport| wanted == Wanted::Auto || wanted == transport;
    let offered = [
        ("shm", may(Wanted::Shm)),
        ("tcp", may(Wanted::Tcp) && shared.fabric_address.is_some()),
        ("verbs", may(Wanted::Verbs) && shared.has_rdma()),
    ];
    let names: Vec<_> = offered.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
    names.join(",")
}

/// The RDMA devices of clients' sessions: those that are there now.
fn rdma_devices(shared: &Shared) -> String {
    let devices = shared.verbs.as_ref().map(remora_fabric::verbs::Host::devices);
    devices.unwrap_or_default().join(",")
}
