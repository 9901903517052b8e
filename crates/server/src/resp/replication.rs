//! What INFO replication and ROLE tell.

use super::info_lines::{Line, lines, load};
use crate::following::{Following, Role};
use crate::ring_session::{FeedCounts, ReplicaPositions, ReplicaState};
use crate::shared::{ShardHandle, Shared};
use crate::turn_times::TurnTimes;
use remora_engine::ShardStats;
use remora_fabric::Address;
use remora_resp::commands::replication::{ReplicaFacts, RoleFacts};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A replica with all shards' logs together: positions are sums over them.
struct ReplicaSums {
    positions: ReplicaPositions,
    shards: usize,
}

/// The replicas that are fed, by their sessions.
fn replicas(shared: &Shared) -> Vec<ReplicaSums> {
    let mut by_session = BTreeMap::<u64, ReplicaSums>::new();
    for position in shared.shards.iter().flat_map(|shard| shard.replicas()) {
        by_session
            .entry(position.session)
            .and_modify(|of| {
                of.shards += 1;
                of.positions.stored = sum(of.positions.stored, position.stored);
                of.positions.durable += position.durable;
                of.positions.applied += position.applied;
                of.positions.state = of.positions.state.min(position.state);
                of.positions.counts.add(position.counts);
            })
            .or_insert(ReplicaSums { positions: position, shards: 1 });
    }
    by_session.into_values().collect()
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one? + other?)
}

fn last_sequence(shared: &Shared) -> u64 {
    shared.shards.iter().map(|shard| shard.stats().last_sequence).sum()
}

/// Host and port of an address, as Redis shows a primary's.
fn host_and_port(address: &Address) -> (String, u16) {
    match address {
        Address::Unix(path) => (path.display().to_string(), 0),
        Address::Tcp(address) => (address.ip().to_string(), address.port()),
        Address::Host(name, port) => (name.clone(), *port),
    }
}

/// What ROLE tells.
pub fn role(shared: &Shared) -> RoleFacts {
    let Role::Replica(following) = shared.roles.now() else {
        let replicas = replicas(shared).into_iter().map(|ReplicaSums { positions, .. }| {
            let ReplicaPositions { peer, port, applied, .. } = positions;
            ReplicaFacts { host: peer.to_string(), port, offset: applied }
        });
        return RoleFacts::Primary { offset: last_sequence(shared), replicas: replicas.collect() };
    };
    let (host, port) = host_and_port(&following.primary);
    let is = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Relaxed);
    let state = match is(&following.is_up) {
        true if is(&following.is_copying) => "sync",
        true if is(&following.follows) => "connected",
        _ => "connect",
    };
    let offset = following.applied_total.load(Ordering::Relaxed);
    RoleFacts::Replica { host, port, state, offset }
}

/// The lines of INFO replication.
pub fn lines_of(shared: &Shared) -> Vec<Line> {
    match shared.roles.now() {
        Role::Primary => of_primary(shared),
        Role::Replica(following) => of_replica(shared, &following),
    }
}

/// 40 hexadecimal digits that are those of one primary under one epoch, as Redis has them.
fn replication_id(incarnation: u64, epoch: u64) -> String {
    format!("{incarnation:016x}{epoch:024x}")
}

fn of_primary(shared: &Shared) -> Vec<Line> {
    let (replicas, last) = (replicas(shared), last_sequence(shared));
    let mut all =
        lines([("role", "master".into()), ("connected_slaves", replicas.len().to_string())]);
    for (at, ReplicaSums { positions: of, shards }) in replicas.iter().enumerate() {
        // Redis's words: a replica is online once it follows.
        let is_online = of.state == ReplicaState::Follows && *shards == shared.shards.len();
        let state = if is_online { "online" } else { "send_bulk" };
        let ReplicaPositions { peer, port, applied, .. } = of;
        let (stored, durable) = (of.stored.unwrap_or(0), of.durable);
        let behind = last.saturating_sub(*applied);
        let text = format!(
            "ip={peer},port={port},state={state},offset={applied},stored={stored},durable={durable},behind={behind}"
        );
        all.push((format!("slave{at}").into(), text));
    }
    let stored = replicas.iter().map(|of| of.positions.stored.unwrap_or(0)).min().unwrap_or(0);
    let over = |of: fn(&ShardHandle) -> &AtomicU64| {
        shared.shards.iter().map(move |shard| of(shard).load(Ordering::Relaxed))
    };
    let in_sync = over(|shard| &shard.in_sync_replicas).min().unwrap_or(0);
    let log_bytes = |of: fn(&ShardStats) -> u64| {
        shared.shards.iter().map(|shard| of(&shard.stats())).sum::<u64>().to_string()
    };
    let copies = || shared.shards.iter().map(|shard| &shard.copy_turns);
    let longest_us = |of: fn(&TurnTimes) -> &AtomicU64| {
        let ns = copies().map(|times| of(times).load(Ordering::Relaxed)).max();
        (ns.unwrap_or(0) / 1_000).to_string()
    };
    let copy_turns: u64 = copies().map(|times| times.count.load(Ordering::Relaxed)).sum();
    let mut sent = FeedCounts::default();
    replicas.iter().for_each(|of| sent.add(of.positions.counts));
    all.extend(lines([
        ("master_replid", replication_id(shared.incarnation, shared.roles.epoch())),
        ("master_repl_offset", last.to_string()),
        ("replicas_stored_offset", stored.to_string()),
        ("min_replicas", shared.config.min_replicas.to_string()),
        ("replica_acks", shared.config.replica_acks.name().into()),
        ("in_sync_replicas", in_sync.to_string()),
        ("replicated_offset", over(|shard| &shard.replicated).sum::<u64>().to_string()),
        ("replicas_lagged", over(|shard| &shard.laggards).sum::<u64>().to_string()),
        ("repl_backlog_active", "1".into()),
        ("repl_backlog_size", log_bytes(|of| of.log_limit_bytes)),
        ("repl_backlog_histlen", log_bytes(|of| of.log_bytes)),
        ("replica_copy_turns", copy_turns.to_string()),
        ("replica_copy_longest_turn_us", longest_us(|times| &times.longest_ns)),
        ("replica_copy_longest_turn_cpu_us", longest_us(|times| &times.longest_cpu_ns)),
        ("feed_messages", sent.messages.to_string()),
        ("feed_bytes", sent.bytes.to_string()),
        ("feed_wakes", sent.wakes.to_string()),
        ("feed_acknowledgements", sent.acknowledgements.to_string()),
    ]));
    all
}

fn of_replica(shared: &Shared, following: &Following) -> Vec<Line> {
    let flag = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Acquire);
    let (is_up, is_copying) = (flag(&following.is_up), flag(&following.is_copying));
    let (host, port) = host_and_port(&following.primary);
    let primary = (&following.incarnation, &following.epoch);
    let id = replication_id(primary.0.load(Ordering::Relaxed), primary.1.load(Ordering::Relaxed));
    let mut all = lines([
        ("role", "slave".into()),
        ("master_host", host),
        ("master_port", port.to_string()),
        ("master_address", following.primary.to_string()),
        ("master_link_status", if is_up { "up" } else { "down" }.into()),
        ("master_last_io_seconds_ago", following.silent_s().to_string()),
        ("master_sync_in_progress", u8::from(is_copying).to_string()),
    ]);
    if is_copying {
        let copy = &following.copy;
        let number = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let (total, read) = (number(&copy.bytes), number(&copy.came_bytes));
        let ms = following.ms().saturating_sub(number(&copy.began_ms)).max(1);
        all.extend(lines([
            ("master_sync_total_bytes", total.to_string()),
            ("master_sync_read_bytes", read.to_string()),
            ("master_sync_left_bytes", total.saturating_sub(read).to_string()),
            ("master_sync_total_records", load(&copy.keys)),
            ("master_sync_records", load(&copy.loaded)),
            ("master_sync_records_per_second", (number(&copy.loaded) * 1000 / ms).to_string()),
        ]));
    }
    all.extend(lines([
        ("master_trouble", following.trouble()),
        ("replica_reads", shared.view.reads().name().into()),
        // Empty while it is not known.
        ("replica_lag_us", shared.view.lag_us().map_or_else(String::new, |us| us.to_string())),
        ("slave_received_offset", load(&following.received_total)),
        ("slave_commit_offset", load(&following.commit_total)),
        ("slave_repl_offset", load(&following.applied_total)),
        ("slave_durable_offset", load(&following.durable_total)),
        ("slave_links", load(&following.links)),
        ("slave_copies", load(&following.copies)),
        ("slave_copies_for_room", load(&following.copies_for_room)),
        ("slave_resumes", load(&following.resumes)),
        ("slave_sleeps", load(&following.sleeps)),
        ("slave_read_only", "1".into()),
        ("connected_slaves", "0".into()),
        ("master_replid", id),
        ("master_repl_offset", load(&following.applied_total)),
    ]));
    all
}
