//! The server's own state: INFO, CONFIG GET, CLIENT INFO.

use super::executor::Responder;
use super::info_lines::{Line, lines, load};
use super::replication;
use crate::cluster;
use crate::config::{Eviction, Promise, Wanted};
use crate::plans::PlanCounts;
use crate::shared::{AgentCounts, ShardHandle, Shared};
use crate::thread_counts::ThreadCounts;
use crate::tls::Tls;
use remora_acl::DEFAULT_USER;
use remora_engine::ShardStats;
use remora_frontend::Counter;
use remora_layout::database::DATABASES;
use remora_resp::request::Sections;
use std::fmt::Write;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// The text of INFO.
pub fn server(shared: &Shared, sections: &Sections<'_>) -> String {
    let stats = shared.shards.iter().map(|shard| shard.stats()).collect();
    let facts = Facts { shared, stats };
    let mut text = String::new();
    let mut section = |name: &str, lines: Vec<Line>| {
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
    section("Server", facts.server());
    section("Shards", facts.nodes());
    section("Agents", facts.agents());
    section("Clients", facts.clients());
    section("Memory", facts.memory());
    let counts = [facts.connections(), facts.rings(), facts.networks(), facts.threads_of_shards()];
    section("Persistence", facts.persistence());
    section("Replication", replication::lines_of(shared));
    let has_cluster = u8::from(shared.cluster_facts.is_some());
    let mut of_cluster = lines([("cluster_enabled", has_cluster.to_string())]);
    of_cluster.extend(lines(cluster::lines_of(shared)));
    section("Cluster", of_cluster);
    section("Links", facts.links());
    section("Stats", counts.into_iter().flatten().collect());
    section("Keyspace", keyspace(&facts.stats));
    text
}

/// The facts that INFO shows.
struct Facts<'s> {
    shared: &'s Shared,
    /// By shard.
    stats: Vec<ShardStats>,
}

impl Facts<'_> {
    fn sum(&self, field: fn(&ShardStats) -> u64) -> String {
        self.stats.iter().map(field).sum::<u64>().to_string()
    }

    fn of_shards(&self, field: fn(&ShardHandle) -> &AtomicU64) -> impl Iterator<Item = u64> {
        self.shared.shards.iter().map(move |shard| field(shard).load(Ordering::Relaxed))
    }

    fn over_shards(&self, field: fn(&ShardHandle) -> &AtomicU64) -> String {
        self.of_shards(field).sum::<u64>().to_string()
    }

    fn least_of_shards(&self, field: fn(&ShardHandle) -> &AtomicU64) -> String {
        self.of_shards(field).min().unwrap_or(0).to_string()
    }

    fn plans(&self, field: fn(&PlanCounts) -> u64) -> String {
        let of = |shard: &ShardHandle| {
            field(&shard.plans.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.shared.shards.iter().map(of).sum::<u64>().to_string()
    }

    fn threads(&self, field: fn(&ThreadCounts) -> &Counter) -> String {
        let shards = self.shared.shards.iter();
        shards.map(|shard| field(&shard.thread).get()).sum::<u64>().to_string()
    }

    fn over_agents(&self, field: fn(&AgentCounts) -> &AtomicU64) -> String {
        let agents = self.shared.agents.iter();
        agents.map(|agent| field(agent).load(Ordering::Relaxed)).sum::<u64>().to_string()
    }

    fn server(&self) -> Vec<Line> {
        let has_cluster = self.shared.cluster_facts.is_some();
        lines([
            ("remora_version", env!("CARGO_PKG_VERSION").into()),
            ("redis_mode", if has_cluster { "cluster" } else { "standalone" }.into()),
            ("process_id", std::process::id().to_string()),
            ("tcp_port", self.shared.resp_address.port().to_string()),
            ("socket", self.shared.config.socket_path.display().to_string()),
            ("uptime_in_seconds", self.shared.clock.started().elapsed().as_secs().to_string()),
            ("incarnation", format!("{:016x}", self.shared.incarnation)),
            ("epoch", self.shared.roles.epoch().to_string()),
            ("shards", self.shared.shards.len().to_string()),
            ("wake", self.shared.config.wake.name().into()),
            ("transports", transports(self.shared)),
            ("rdma_devices", rdma_devices(self.shared)),
            ("numa_nodes", self.shared.numa_nodes.to_string()),
        ])
    }

    fn links(&self) -> Vec<Line> {
        lines([
            ("links_mended", self.sum(|s| s.links_mended)),
            ("link_mends_refused", self.sum(|s| s.link_mends_refused)),
        ])
    }

    fn nodes(&self) -> Vec<Line> {
        let name = |node: Option<u32>| node.map_or_else(|| "any".into(), |node| node.to_string());
        let nodes = self.shared.shards.iter().map(|shard| name(shard.node)).enumerate();
        nodes.map(|(at, node)| (format!("shard{at}_node").into(), node)).collect()
    }

    fn agents(&self) -> Vec<Line> {
        let agents = self.shared.agents.iter().enumerate();
        let line = |(at, agent): (usize, &AgentCounts)| {
            (format!("agent{at}_connections").into(), load(&agent.connections))
        };
        agents.map(line).collect()
    }

    fn clients(&self) -> Vec<Line> {
        let counts = &self.shared.counts;
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        lines([
            ("connected_clients", self.over_shards(|s| &s.connections)),
            ("blocked_clients", self.over_shards(|s| &s.blocked_clients)),
            ("connected_sessions_shm", load(&counts.sessions_shm)),
            ("connected_sessions_tcp", load(&counts.sessions_tcp)),
            ("connected_sessions_verbs", load(&counts.sessions_verbs)),
            (
                "queue_pairs",
                (number(&counts.sessions_verbs) + number(&counts.half_open)).to_string(),
            ),
            ("queue_pairs_limit", self.shared.max_queue_pairs().to_string()),
            ("queue_pairs_half_open", load(&counts.half_open)),
            ("verbs_client_threads", load(&counts.client_threads)),
            (
                "queue_pairs_unshared",
                (number(&counts.client_threads) * self.shared.shards.len() as u64).to_string(),
            ),
        ])
    }

    fn memory(&self) -> Vec<Line> {
        lines([
            ("used_memory", self.sum(|s| s.slots.used_bytes)),
            ("maxmemory", self.shared.config.max_memory_bytes.to_string()),
            ("maxmemory_policy", policy(self.shared).into()),
            ("eviction_bytes", self.sum(|s| s.eviction_bytes)),
            ("free_slot_bytes", self.sum(|s| s.slots.free_bytes)),
            ("quarantine_bytes", self.sum(|s| s.slots.quarantine_bytes)),
            ("retired_bytes", self.sum(|s| s.slots.retired_bytes)),
            ("uncarved_bytes", self.sum(|s| s.slots.uncarved_bytes)),
            ("run_bytes", self.sum(|s| s.slots.run_bytes)),
            ("reserve_bytes", self.sum(|s| s.slots.reserve_bytes)),
            ("reserve_lent_bytes", self.sum(|s| s.slots.lent_bytes)),
            ("resp_pending_bytes", resp_pending_bytes(self.shared)),
            ("staged_bytes", self.sum(|s| s.staged_bytes)),
            ("heap_bytes", self.sum(|s| s.heap_bytes)),
            ("heap_covered_bytes", self.sum(|s| s.heap_covered_bytes)),
            ("span_tail_bytes", self.sum(|s| s.slots.tail_bytes)),
            ("slots_reused_early", self.sum(|s| s.slots.reused_early)),
            ("records_moved", self.sum(|s| s.moved)),
            ("buckets", self.sum(|s| s.buckets)),
            ("overflow_buckets", self.sum(|s| s.overflow_buckets)),
            ("table_bytes", self.sum(|s| s.table_bytes)),
            ("trees", self.sum(|s| s.trees)),
            ("tree_objects", self.sum(|s| s.tree_objects)),
            ("tree_bytes", self.sum(|s| s.tree_bytes)),
            ("ordered_trees", self.sum(|s| s.ordered_trees)),
            ("ordered_bytes", self.sum(|s| s.ordered_bytes)),
            ("sorted_sets", self.sum(|s| s.sorted_sets)),
            ("sorted_bytes", self.sum(|s| s.sorted_bytes)),
            ("geo_keys", self.sum(|s| s.geo_keys)),
            ("geo_members", self.sum(|s| s.geo_members)),
            ("geo_bytes", self.sum(|s| s.geo_bytes)),
            ("collections", self.sum(|s| s.collections)),
            ("documents", self.sum(|s| s.documents)),
            ("document_bytes", self.sum(|s| s.document_bytes)),
            ("document_indexes", self.sum(|s| s.document_indexes)),
            ("document_node_bytes", self.sum(|s| s.document_node_bytes)),
        ])
    }

    fn persistence(&self) -> Vec<Line> {
        let Some(disk) = &self.shared.disk else {
            return lines([("data_directory", String::new()), ("durability", "none".into())]);
        };
        let state = &disk.state;
        let (failure, snapshots) = (state.failure(), &disk.snapshots);
        let snapshot_failure = snapshots.failure();
        let status = if failure.is_empty() { "ok" } else { "err" };
        let ms = |ns: &AtomicU64| (ns.load(Ordering::Relaxed) / 1_000_000).to_string();
        let us = |ns: &AtomicU64| (ns.load(Ordering::Relaxed) / 1_000).to_string();
        lines([
            ("data_directory", disk.directory.display().to_string()),
            ("durability", disk.promise.name().into()),
            ("log_status", status.into()),
            ("log_failure", failure),
            ("log_failures", load(&state.failures)),
            ("log_mended", load(&state.mended)),
            ("log_segment", load(&state.segment)),
            ("log_groups", load(&state.groups)),
            ("log_runs", load(&state.runs)),
            ("log_bytes", load(&state.bytes)),
            ("log_syncs", load(&state.syncs)),
            ("log_syncs_asked", load(&state.syncs_asked)),
            ("log_sync_ms", ms(&state.sync_ns)),
            ("log_longest_sync_ms", ms(&state.longest_sync_ns)),
            ("log_unsynced_bytes", load(&state.unsynced_bytes)),
            ("rdb_bgsave_in_progress", u8::from(snapshots.is_under_way()).to_string()),
            ("rdb_last_save_time", load(&snapshots.saved_at_s)),
            (
                "rdb_last_bgsave_status",
                if snapshot_failure.is_empty() { "ok" } else { "err" }.into(),
            ),
            ("snapshot_failure", snapshot_failure),
            ("snapshots_written", load(&snapshots.written)),
            ("snapshots_given_up", load(&snapshots.given_up)),
            ("snapshot_bytes", load(&snapshots.bytes)),
            ("snapshot_ms", load(&snapshots.took_ms)),
            ("snapshot_turns", load(&snapshots.turns.count)),
            ("snapshot_longest_turn_us", us(&snapshots.turns.longest_ns)),
            ("snapshot_longest_turn_cpu_us", us(&snapshots.turns.longest_cpu_ns)),
            ("recovered_entries", load(&state.recovered)),
            ("recovery_ms", load(&state.recovery_ms)),
        ])
    }

    /// Counts of connections and sessions, and of their requests.
    fn connections(&self) -> Vec<Line> {
        let counts = &self.shared.counts;
        let refused = &self.shared.users.refused;
        let memory = &self.shared.users.memory;
        let of_tls = self.shared.tls.as_deref();
        let tls = |of: fn(&Tls) -> &AtomicU64| of_tls.map_or("0".into(), |tls| load(of(tls)));
        lines([
            ("total_connections_received", load(&counts.connections_total)),
            ("total_sessions_granted", load(&counts.sessions_total)),
            ("sessions_violated", load(&counts.sessions_violated)),
            ("sessions_revoked", load(&counts.sessions_revoked)),
            ("sessions_refused", load(&counts.sessions_refused)),
            ("sessions_told_busy", load(&counts.told_busy)),
            ("sessions_without_queue_pair", load(&counts.no_queue_pair)),
            ("hellos_timed_out", load(&counts.hellos_timed_out)),
            ("hellos_dropped", load(&counts.hellos_dropped)),
            ("rejected_connections", load(&counts.connections_rejected)),
            ("rejected_connections_of_address", load(&self.shared.users.addresses.refused)),
            ("rejected_logins_of_user", load(&refused.logins)),
            ("client_buffer_bytes", memory.held().to_string()),
            ("client_memory_disconnections", load(&memory.refused[0])),
            ("client_memory_disconnections_of_address", load(&memory.refused[1])),
            ("client_memory_disconnections_of_user", load(&memory.refused[2])),
            ("tls_handshakes", tls(|tls| &tls.counts.done)),
            ("tls_handshakes_failed", tls(|tls| &tls.counts.failed)),
            ("tls_handshakes_timed_out", tls(|tls| &tls.counts.timed_out)),
            ("tls_handshakes_dropped", tls(|tls| &tls.counts.dropped)),
            ("tls_reloads", tls(|tls| &tls.reloads)),
            ("tls_reloads_failed", tls(|tls| &tls.reloads_failed)),
            ("acl_access_denied_auth", load(&refused.auth)),
            ("acl_access_denied_cmd", load(&refused.command)),
            ("acl_access_denied_key", load(&refused.key)),
            ("acl_access_denied_channel", load(&refused.channel)),
            ("protocol_errors", self.threads(|t| &t.frontend.protocol_errors)),
            (
                "client_output_buffer_limit_disconnections",
                self.threads(|t| &t.frontend.output_cut_off),
            ),
            ("stages_abandoned", self.sum(|s| s.stages_abandoned)),
            ("uploads_abandoned", self.sum(|s| s.uploads_abandoned)),
            ("requests_abandoned", self.threads(|t| &t.frontend.requests_abandoned)),
            ("total_commands_processed", self.threads(|t| &t.commands)),
            ("optimistic_reads", self.threads(|t| &t.optimistic_reads)),
            ("asked_reads", self.threads(|t| &t.asked_reads)),
            ("commands_executed_here", self.threads(|t| &t.executed_here)),
            ("keys_executed_here", self.threads(|t| &t.keys_here)),
            ("shard_turns", self.threads(|t| &t.turns)),
            ("jobs_sent", self.threads(|t| &t.jobs_sent)),
            ("mail_sent", self.threads(|t| &t.mail_sent)),
            ("mail_waited", self.threads(|t| &t.mail_waited)),
            ("socket_looks", self.threads(|t| &t.socket_looks)),
            ("socket_writes", self.threads(|t| &t.frontend.writes)),
            ("total_net_output_bytes", self.threads(|t| &t.frontend.bytes_written)),
            ("connections_moved", self.threads(|t| &t.connections_moved)),
        ])
    }

    /// Counts of rings, and of work that waits for other shards or for durability.
    fn rings(&self) -> Vec<Line> {
        lines([
            ("ring_frames", self.over_shards(|s| &s.frames)),
            ("ring_frames_least", self.least_of_shards(|s| &s.frames)),
            ("ring_turns", self.over_shards(|s| &s.ring_turns)),
            ("ring_clients_looked_at", self.over_shards(|s| &s.clients_looked_at)),
            ("rings_looked_at", self.over_shards(|s| &s.rings_looked_at)),
            ("ring_doorbells", self.over_shards(|s| &s.doorbells)),
            ("ring_clients_parked", self.over_shards(|s| &s.clients_parked)),
            ("ring_clients_unparked", self.over_shards(|s| &s.clients_unparked)),
            ("searches_by_others", self.over_shards(|s| &s.searches.answered)),
            ("searches_beyond_a_turn", self.over_shards(|s| &s.searches.beyond)),
            ("searches_unsettled", self.over_shards(|s| &s.searches.unsettled)),
            ("replies_held", self.over_shards(|s| &s.held_replies)),
            ("pending_keys", self.sum(|s| s.pending_keys)),
        ])
    }

    /// Counts of sessions' connections over TCP and RDMA.
    fn networks(&self) -> Vec<Line> {
        let (tcp, rdma) = (self.shared.tcp_traffic.sum(), self.shared.verbs_traffic.sum());
        lines([
            ("tcp_writes", tcp.writes.to_string()),
            ("tcp_written_bytes", tcp.written_bytes.to_string()),
            ("tcp_receives", tcp.receives.to_string()),
            ("tcp_received_bytes", tcp.received_bytes.to_string()),
            ("tcp_frames", tcp.frames.to_string()),
            ("verbs_posts", rdma.posts.to_string()),
            ("verbs_pieces", rdma.pieces.to_string()),
            ("verbs_immediates", rdma.immediates.to_string()),
            ("verbs_signals", load(&self.shared.counts.verbs_signals)),
        ])
    }

    /// Counts of the shards' threads, and of keys.
    fn threads_of_shards(&self) -> Vec<Line> {
        let busy_ns: u64 = self.of_shards(|s| &s.busy_ns).sum();
        let hits: u64 = self.stats.iter().map(|shard| shard.hits).sum();
        let read_hits: u64 = self.shared.shards.iter().map(|shard| shard.thread.hits.get()).sum();
        lines([
            ("agents", self.shared.agents.len().to_string()),
            ("agent_turns", self.over_agents(|agent| &agent.turns)),
            ("agent_rings", self.over_agents(|agent| &agent.rings)),
            ("agent_signals", self.over_agents(|agent| &agent.signals)),
            ("shard_jobs", self.over_shards(|s| &s.jobs)),
            ("shard_sleeps", self.over_shards(|s| &s.sleeps)),
            ("shard_busy_us", (busy_ns / 1000).to_string()),
            ("keyspace_hits", (hits + read_hits).to_string()),
            ("keyspace_misses", self.sum(|s| s.misses)),
            ("expired_keys", self.sum(|s| s.expired)),
            ("expiries_put_off", self.sum(|s| s.expiries_put_off)),
            ("evicted_keys", self.sum(|s| s.evicted)),
            ("last_sequence", self.sum(|s| s.last_sequence)),
            ("plans_running", self.plans(|of| of.running)),
            ("plans_waiting", self.plans(|of| of.waiting)),
            ("plans_reserved_bytes", self.plans(|of| of.reserved_bytes)),
            ("plans_ended", self.plans(|of| of.ended)),
            ("plans_limited", self.plans(|of| of.limited)),
            ("plans_given_up", self.plans(|of| of.given_up)),
            ("plan_looks", self.plans(|of| of.looks)),
            ("plan_wants", self.plans(|of| of.wants)),
        ])
    }
}

/// Bytes of jobs of RESP connections, their results and waiting replies.
fn resp_pending_bytes(shared: &Shared) -> String {
    let of_shard = |shard: &ShardHandle| {
        let found = shard.found_bytes.load(Ordering::Relaxed);
        shard.thread.frontend.pending_bytes.get().wrapping_add(found)
    };
    shared.shards.iter().map(of_shard).fold(0, u64::wrapping_add).to_string()
}

/// A line for each database that has keys.
fn keyspace(stats: &[ShardStats]) -> Vec<Line> {
    const NAMES: [&str; DATABASES] = [
        "db0", "db1", "db2", "db3", "db4", "db5", "db6", "db7", "db8", "db9", "db10", "db11",
        "db12", "db13", "db14", "db15",
    ];
    let line = |(at, name): (usize, &'static str)| {
        let keys: u64 = stats.iter().map(|shard| shard.databases[at].keys).sum();
        let expires: u64 = stats.iter().map(|shard| shard.databases[at].expiring).sum();
        (keys > 0).then(|| (name.into(), format!("keys={keys},expires={expires},avg_ttl=0")))
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

/// Redis's word for the durability; none without a data directory.
fn append_fsync(shared: &Shared) -> &'static str {
    match shared.disk.as_ref().map(|disk| disk.promise) {
        None => "",
        Some(Promise::Memory) => "no",
        Some(Promise::Written) => "everysec",
        Some(Promise::Synced) => "always",
    }
}

/// The parameters that CONFIG GET shows.
pub fn parameters(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = &shared.config;
    let packets = &config.rdma_packets;
    vec![
        ("appendonly", if shared.disk.is_some() { "yes" } else { "no" }.into()),
        ("appendfsync", append_fsync(shared).into()),
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
        ("replica_reads", shared.view.reads().name().into()),
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
    let (serial, peer, client) = (responder.serial(), responder.peer(), &responder.client);
    let mut text = format!("id={serial} addr={peer} name=").into_bytes();
    text.extend_from_slice(&client.name);
    text.extend_from_slice(b" user=");
    text.extend_from_slice(client.login.user().map_or(DEFAULT_USER, |user| user.name()));
    text.extend_from_slice(b" lib-name=");
    text.extend_from_slice(&client.library[0]);
    text.extend_from_slice(b" lib-ver=");
    text.extend_from_slice(&client.library[1]);
    text.extend_from_slice(
        format!(" resp={} db={}\n", client.version.number(), responder.database.number())
            .as_bytes(),
    );
    text
}

/// The transports that clients' sessions may use now.
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

/// The present RDMA devices of clients' sessions.
fn rdma_devices(shared: &Shared) -> String {
    let devices = shared.verbs.as_ref().map(remora_fabric::verbs::Host::devices);
    devices.unwrap_or_default().join(",")
}
